"""14 training steps of a timm model in all: what a first try of a program often is."""

from __future__ import annotations

import os

import timm
import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps

SMALL = bool(os.environ.get("SMALL"))
NAME, BATCH, SIZE = ("test_vit", 2, 160) if SMALL else ("vit_small_patch16_224", 256, 224)
STEPS = 14


def main() -> None:
    torch.manual_seed(0)
    model = timm.create_model(NAME).to(DEVICE).train()
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    laps = Laps("step", STEPS)
    for number in range(STEPS):
        images = torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE)
        labels = torch.randint(1000, (BATCH,), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.cross_entropy(compiled(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {number}: loss {loss.item():.3f}")
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
