"""Train a small feed-forward network with layer norms on random numbers. docs/tutorial.md makes it faster.

inductor-bench breakdown --stop -- python examples/train_feed_forward.py
inductor-bench breakdown --stop -- python examples/train_feed_forward.py --compile-loss
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 1024
DEVICE, DTYPE, ROWS = ("cuda", torch.bfloat16, 32768) if torch.cuda.is_available() else ("cpu", torch.float32, 64)


class FeedForward(nn.Module):
    """Two linear layers with a layer norm after each; the first one widens its input four times."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(WIDTH, 4 * WIDTH)
        self.wide_norm = nn.LayerNorm(4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.wide_norm(F.gelu(self.widen(x)))
        return self.norm(self.narrow(hidden))


def mean_squared_error(network: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return F.mse_loss(network(inputs).float(), targets)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--compile-loss", action="store_true", help="compile the network and its loss as one graph")
    options = parser.parse_args()

    torch.manual_seed(0)
    network = FeedForward().to(DEVICE, DTYPE)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    loss_of = mean_squared_error
    if options.compile_loss:
        loss_of = torch.compile(loss_of)
    else:
        network.compile()
    inputs = torch.randn(ROWS, WIDTH, device=DEVICE, dtype=DTYPE)
    targets = torch.randn(ROWS, WIDTH, device=DEVICE)
    for _ in range(options.steps):
        loss = loss_of(network, inputs, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.4f} after {options.steps} steps")


if __name__ == "__main__":
    main()
