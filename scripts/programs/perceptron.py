"""The smallest training step that has compiled graphs: two linear layers, compiled with their loss.

A run of it takes seconds, so that ``benchmark_compare.py --under-load`` can make many.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS, WIDTH, STEPS = 64, 64, 5000


def main() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    inputs, targets = torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)

    @torch.compile
    def loss_of(inputs: Tensor) -> Tensor:
        return F.mse_loss(network(inputs), targets)

    for _ in range(STEPS):
        loss = loss_of(inputs.reshape(-1, WIDTH))  # an eager operator as short as most that a user's step has
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
