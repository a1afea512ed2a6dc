"""A training step with graph breaks, a recompilation, ``.item()`` on each step, and a data loader."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, timed
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SMALL = bool(os.environ.get("SMALL"))
WIDTH, BATCH = (64, 8) if SMALL else (2048, 256)


class Rows(Dataset[Tensor]):
    def __len__(self) -> int:
        return 100_000_000  # more than any stopwatch asks for

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((WIDTH,), index % 100_000 / 100_000)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.first(x))
        if x.mean() > 1e6:  # a graph break: Python decides on a tensor's value
            x = x / 2
        return F.gelu(self.second(x))


def main() -> None:
    torch.manual_seed(0)
    model = Network().to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    rows = iter(DataLoader(Rows(), batch_size=BATCH))
    total = 0.0

    def step(number: int) -> None:
        nonlocal total
        x = next(rows).to(DEVICE)
        if number == 2:
            x = x[: BATCH // 2]  # another shape: a recompilation
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        total += loss.item()

    timed(step)


if __name__ == "__main__":
    main()
