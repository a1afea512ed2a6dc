"""25 steps of DDP with the transformer of ``blocks.py``, and the program is over. Two ranks, by torchrun."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from blocks import BATCH, LENGTH, WORDS, Model
from stopwatch import DEVICE, Laps, counted
from torch.nn.parallel import DistributedDataParallel

STEPS = counted(25)


def main() -> None:
    local = int(os.environ["LOCAL_RANK"])
    if DEVICE == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    parallel = DistributedDataParallel(model, device_ids=[local] if DEVICE == "cuda" else None)
    compiled = torch.compile(parallel)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    laps = Laps("step", STEPS)
    for _ in range(STEPS):
        tokens = torch.randint(WORDS, (BATCH, LENGTH + 1), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = compiled(tokens[:, :-1])
            loss = F.cross_entropy(logits.view(-1, WORDS).float(), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.end()
    laps.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
