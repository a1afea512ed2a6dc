"""The transformer of ``blocks.py``: gradients of four micro-batches, then a compiled step of the optimizer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from blocks import BATCH, LENGTH, SMALL, WORDS, Model
from stopwatch import DEVICE, Laps, counted
from torch import nn

STEPS, MICRO_BATCHES = counted(16 if SMALL else 80), 4


def main() -> None:
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    @torch.compile(fullgraph=False)
    def update() -> None:
        optimizer.step()

    laps = Laps("optimizer step", STEPS)
    for _ in range(STEPS):
        for _ in range(MICRO_BATCHES):
            tokens = torch.randint(WORDS, (BATCH, LENGTH + 1), device=DEVICE)
            with torch.autocast(DEVICE, torch.bfloat16):
                logits = compiled(tokens[:, :-1])
                loss = F.cross_entropy(logits.view(-1, WORDS).float(), tokens[:, 1:].reshape(-1))
            (loss / MICRO_BATCHES).backward()
            laps.part("micro-batch")
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update()
        optimizer.zero_grad()
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
