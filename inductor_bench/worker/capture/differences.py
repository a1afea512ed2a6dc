"""The difference of two tensors that ought to be equal, and how much of it rounding explains."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch

TOLERANCES = {torch.float64: 1e-6, torch.float32: 2e-3, torch.float16: 3e-2, torch.bfloat16: 6e-2}
"""Relative differences by element type that rounding explains after all kernels of a graph. A wrong kernel changes its
tensors by much more; a single kernel's candidates are held to the tolerances of standalone files before."""

COARSE_TOLERANCE = 0.2
"""The same for 8-bit types."""

CHUNK_ELEMENTS = 1 << 25
"""Maximum number of elements that are compared at once, because they are compared in double precision."""


def tolerance_of(dtype: torch.dtype) -> float:
    """The relative difference that rounding explains for tensors of a type; 0 for whole numbers."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0
    return TOLERANCES.get(dtype.to_real() if dtype.is_complex else dtype, COARSE_TOLERANCE)


def are_meaningless(outputs: Iterable[Any]) -> bool:
    """Whether no real or complex tensor among outputs holds a finite number, although one has elements.

    That two calls return the same then says nothing.
    """
    tensors = [each for each in outputs if isinstance(each, torch.Tensor) and each.numel()]
    numbers = [each for each in tensors if each.is_floating_point() or each.is_complex()]
    return bool(numbers) and not any(bool(torch.isfinite(each).any()) for each in numbers)


def relative_difference(one: torch.Tensor, other: torch.Tensor) -> float:
    """The norm of the difference relative to the norm of ``other``; the share of differing whole numbers.

    Infinite where only one of the tensors is finite at some place, or where they are not the same infinity.
    """
    one, other = one.detach(), other.detach()
    if not (other.is_floating_point() or other.is_complex()):
        return float((one != other).double().mean()) if other.numel() else 0.0
    if other.is_complex():
        one, other = torch.view_as_real(one.resolve_conj()), torch.view_as_real(other.resolve_conj())
    apart = size = 0.0
    for first, second in zip(*(each.reshape(-1).split(CHUNK_ELEMENTS) for each in (one, other)), strict=True):
        first, second = first.double(), second.double()
        finite = torch.isfinite(second)
        kinds = [torch.nan_to_num(torch.where(finite, 0.0, each), 1.0, 2.0, 3.0) for each in (first, second)]
        if not torch.equal(finite, torch.isfinite(first)) or not torch.equal(*kinds):
            return math.inf
        first, second = (torch.where(finite, each, 0.0) for each in (first, second))
        apart += float((first - second).square().sum())
        size += float(second.square().sum())
    if not apart:
        return 0.0
    return math.sqrt(apart / size) if size else math.inf
