"""A program whose tensors can be told from random ones, with a gather by many indices and an input that is written."""

from __future__ import annotations

import torch


def counted(*shape: int) -> torch.Tensor:
    """The numbers from 0 to 1 in steps of the same size."""
    return torch.linspace(0.0, 1.0, torch.Size(shape).numel()).view(shape)


def rows() -> torch.Tensor:
    """More bytes of indices than stand in a kernel's file."""
    return torch.arange(10_000).flip(0) % 512


def step(state: torch.Tensor, table: torch.Tensor, index: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    gathered = table[index].sum(1)
    product = state @ table.t()
    state.add_(1.0)
    return gathered, product


if __name__ == "__main__":
    torch.compile(step)(counted(64, 96), 2.0 + counted(512, 96), rows())
