"""Batches of four lengths; the first blocks of the transformer of ``blocks.py`` are compiled for each length."""

from __future__ import annotations

import random

import torch
import torch.nn.functional as F
from blocks import BATCH, LENGTH, SMALL, WORDS, Model
from stopwatch import DEVICE, Laps

STEPS, BLOCKS = (40, 1) if SMALL else (240, 4)
BUCKETS = [LENGTH // 4, LENGTH // 2, 3 * LENGTH // 4, LENGTH]


def main() -> None:
    torch.manual_seed(0)
    random.seed(0)
    model = Model().to(DEVICE)
    del model.blocks[BLOCKS:]
    compiled = torch.compile(model, dynamic=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    laps = Laps("step", STEPS)
    for _ in range(STEPS):
        length = random.choice(BUCKETS)
        tokens = torch.randint(WORDS, (BATCH, length + 1), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            logits = compiled(tokens[:, :-1])
            loss = F.cross_entropy(logits.view(-1, WORDS).float(), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.end(f"length {length}")
    laps.finish()


if __name__ == "__main__":
    main()
