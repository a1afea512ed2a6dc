"""A training step whose rows are wider than a persistent reduction: layer norms, and a loss over a vocabulary."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, timed
from torch import Tensor, nn

SMALL = bool(os.environ.get("SMALL"))
ROWS, WIDTH, WORDS, DEPTH = (64, 256, 512, 2) if SMALL else (4096, 8192, 32768, 4)
DTYPE = torch.float32 if SMALL else torch.bfloat16


class Block(nn.Module):
    """A layer norm, a softmax over the width as a gate, and a narrow pair of products."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.down, self.up = nn.Linear(WIDTH, WIDTH // 16), nn.Linear(WIDTH // 16, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.up(F.gelu(self.down(self.norm(x))))
        return x + hidden * torch.softmax(x, -1)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(DEPTH)))
        self.narrow, self.head = nn.Linear(WIDTH, WIDTH // 16), nn.Linear(WIDTH // 16, WORDS)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.narrow(self.blocks(x))), labels)


def main() -> None:
    torch.manual_seed(0)
    model = Model().to(DEVICE, DTYPE)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs = torch.randn(ROWS, WIDTH, device=DEVICE, dtype=DTYPE)
    labels = torch.randint(WORDS, (ROWS,), device=DEVICE)

    def step(_: int) -> None:
        compiled(inputs, labels).backward()
        optimizer.step()
        optimizer.zero_grad()

    timed(step)


if __name__ == "__main__":
    main()
