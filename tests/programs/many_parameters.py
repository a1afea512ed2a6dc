"""Factories of a model whose optimizer takes most of the training step, and of one that cannot be made."""

from __future__ import annotations

import torch


@torch.compiler.disable
def mean(values: list[torch.Tensor]) -> torch.Tensor:
    """Is not compiled, because a graph with so many inputs takes long."""
    return torch.cat(values).mean()


class Many(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shifts = torch.nn.ParameterList(torch.zeros(4) for _ in range(200))
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(values).relu(), mean(list(self.shifts))


def many() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.set_num_threads(1)
    return Many(), (torch.randn(8, 4),)


def broken() -> None:
    raise ValueError("no such size")
