"""Several ranks: one that is late, and gradients that are reduced too often. By torchrun, two ranks."""

from __future__ import annotations

import contextlib
import math
import os

import torch
import torch.distributed as dist
from frame import DEFECT, DEVICE, defect, either, loop, start
from models import Regression, on_device, rows
from stopwatch import RANK
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LOCAL = int(os.environ.get("LOCAL_RANK", "0"))


LATE = ("host-pace", "cuda-graphs-unused")
"""What is true of a step whose host is late: graphs that are launched at once make it less late."""


def parallel(model: nn.Module, **how: float) -> DistributedDataParallel:
    """The model on this rank's device."""
    if DEVICE == "cuda":
        torch.cuda.set_device(LOCAL)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    return DistributedDataParallel(on_device(model), device_ids=[LOCAL] if DEVICE == "cuda" else None, **how)


@defect(
    "uneven-ranks",
    names=("rank 1", "prepare"),
    share=0.2,
    also=("host-python", "data-loading", "collectives", "graph-breaks", "threads", *LATE),
    cpu=True,
)
def late_rank() -> None:
    """Rank 1 prepares its batch in Python, which the other one has to wait for."""

    def prepare(count: int) -> float:
        return sum(math.sin(number) for number in range(count))  # defect

    model = parallel(Regression())
    compiled, inputs = torch.compile(model), rows()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        prepare(either(200_000, 300_000) if DEFECT and RANK == 1 else 1)  # defect
        compiled(inputs, inputs).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


@defect(
    "collectives",
    names=("no_sync",),
    share=0.1,
    also=("gradient-copies", "uneven-ranks", "graph-breaks", "threads", *LATE),
    cpu=True,
)
def no_sync_missing() -> None:
    """Gradients are reduced after each of four micro-batches."""
    model = parallel(Regression())
    compiled, parts = torch.compile(model), rows(either(1024, 64)).chunk(4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        for number, part in enumerate(parts):
            later = model.no_sync() if not DEFECT and number < 3 else contextlib.nullcontext()
            with later:
                compiled(part, part).backward()  # defect
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


@defect(
    "collectives",
    names=("bucket_cap_mb",),
    share=0.05,
    also=("gradient-copies", "uneven-ranks", "host-pace", "graph-breaks", "threads"),
)
def one_bucket() -> None:
    """All gradients are in one bucket, whose reduction begins when the backward pass has ended."""
    model = parallel(Regression(depth=either(4, 2)), bucket_cap_mb=10_000 if DEFECT else 25)  # defect
    compiled, inputs = torch.compile(model), rows(either(2048, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(inputs, inputs).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    start()
