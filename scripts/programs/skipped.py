"""A network that Dynamo skips: its loop reads a tensor's value, a graph break in a loop, so nothing is compiled."""

from __future__ import annotations

import os

import torch
from stopwatch import DEVICE, Laps
from torch import Tensor

SMALL = bool(os.environ.get("SMALL"))
DEPTH, WIDTH, ROWS, STEPS = (4, 32, 16, 60) if SMALL else (24, 2048, 4096, 200)


def main() -> None:
    torch.manual_seed(0)
    weights = [(torch.randn(WIDTH, WIDTH, device=DEVICE) / WIDTH**0.5).requires_grad_() for _ in range(DEPTH)]
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    largest = []

    @torch.compile
    def loss_of(x: Tensor) -> Tensor:
        for weight in weights:
            x = torch.tanh(x @ weight) + x
            largest.append(x.max().item())
        return x.square().mean()

    laps = Laps("step", STEPS)
    for _ in range(STEPS):
        loss = loss_of(torch.randn(ROWS, WIDTH, device=DEVICE))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.end()
    print(f"largest value {max(largest):.2f}")
    laps.finish()


if __name__ == "__main__":
    main()
