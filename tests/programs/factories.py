"""Factories of small models and inputs, as the target FILE.py:FUNCTION takes them."""

from __future__ import annotations

import torch
from torch import nn


def mlp() -> tuple[nn.Module, tuple[torch.Tensor]]:
    """A few layers of floats only, so that its modules are profiled from their files."""
    model = nn.Sequential(nn.Linear(256, 512), nn.Tanh(), nn.Linear(512, 64))
    return model, (torch.randn(128, 256),)


def not_a_pair() -> str:
    return "a model, surely"


def raises() -> None:
    raise ValueError("no such configuration: huge\nsecond line")


constant = 3
