"""A training step of which the host does most: ``CALLS`` (default 50) calls of a small graph, and an optimizer's step.

With 0 and with 50 calls, ``scripts/benchmark_step.py --cost-only`` tells what the observation costs a step and a call.
"""

from __future__ import annotations

import os

import torch
from stopwatch import DEVICE, timed
from torch import Tensor

CALLS = int(os.environ.get("CALLS", "50"))


@torch.compile
def add(values: Tensor) -> Tensor:
    return values.sin() + 1


@torch.compile
def weigh(values: Tensor, weight: Tensor) -> Tensor:
    return (values * weight).sum()


def main() -> None:
    torch.set_num_threads(1)
    values, weight = torch.ones(8, device=DEVICE), torch.nn.Parameter(torch.ones(8, device=DEVICE))
    optimizer = torch.optim.SGD([weight], lr=1e-3)

    def step(_: int) -> None:
        with torch.no_grad():
            for _ in range(CALLS):
                add(values)
        weigh(values, weight).backward()
        optimizer.step()
        optimizer.zero_grad()

    timed(step)


if __name__ == "__main__":
    main()
