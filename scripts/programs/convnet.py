"""timm's mixnet_l, training with batch 128 under fp16 autocast, with an eager loss and SGD."""

from __future__ import annotations

import os

import timm
import torch
import torch.nn.functional as F
from stopwatch import DEVICE, timed

SMALL = bool(os.environ.get("SMALL"))
NAME, BATCH, SIZE = ("mixnet_s", 2, 64) if SMALL else ("mixnet_l", 128, 224)


def main() -> None:
    torch.manual_seed(0)
    model = timm.create_model(NAME).to(DEVICE).train()
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images = torch.randn(BATCH, 3, SIZE, SIZE, device=DEVICE)
    labels = torch.randint(1000, (BATCH,), device=DEVICE)
    dtype = torch.float16 if DEVICE == "cuda" else torch.bfloat16

    def step(_: int) -> None:
        with torch.autocast(DEVICE, dtype):
            loss = F.cross_entropy(compiled(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    timed(step)


if __name__ == "__main__":
    main()
