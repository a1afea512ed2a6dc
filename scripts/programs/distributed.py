"""DDP or FSDP2 training of the transformer of ``blocks.py``: torchrun --nproc-per-node 2 distributed.py ddp|fsdp"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from blocks import BATCH, LENGTH, WORDS, Model
from stopwatch import DEVICE, timed
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def main(kind: str) -> None:
    local = int(os.environ["LOCAL_RANK"])
    if DEVICE == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    for block in model.blocks:
        block.compile()
    if kind == "fsdp":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        parallel = model
    else:
        parallel = DistributedDataParallel(model, device_ids=[local] if DEVICE == "cuda" else None)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-4)
    tokens = torch.randint(WORDS, (BATCH, LENGTH + 1), device=DEVICE)

    def step(_: int) -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = parallel(tokens[:, :-1])
            loss = F.cross_entropy(logits.view(-1, WORDS).float(), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    timed(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
