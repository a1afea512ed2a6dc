"""Compares the outputs of two kernels."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from inductor_bench.source.standalone.harness.comparison import COARSE_TOLERANCE, TOLERANCES, count_differing


def describe_difference(
    ours: list[torch.Tensor], theirs: list[torch.Tensor], tolerances: Mapping[str, float] = TOLERANCES
) -> str:
    """The difference between the outputs of two kernels, in words; empty where they agree.

    Args:
        ours: the outputs of the judged kernel.
        theirs: the outputs of the other kernel.
        tolerances: the tolerance of each floating-point dtype, by its name without ``torch.``; :data:`COARSE_TOLERANCE`
            applies to dtypes without one, and integers must be equal.
    """
    if [(one.shape, one.dtype) for one in ours] != [(one.shape, one.dtype) for one in theirs]:
        return "its outputs have other shapes or types"
    if not theirs:
        return "it computes no tensors that could be compared"
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        if torch.equal(one, other):
            continue
        if not one.is_floating_point() and not one.is_complex():
            count = int((one != other).sum())
        else:
            limit = tolerances.get(str(one.dtype).removeprefix("torch."), COARSE_TOLERANCE)
            wide = torch.complex128 if one.is_complex() else torch.float64
            count = count_differing(one.to(wide), other.to(wide), limit)
        if count:
            return f"output {index}: {count} of {one.numel()} elements differ"
    return ""


def compare_ahead(device: torch.device) -> None:
    """Compares a few numbers, so that the operators of later comparisons are loaded."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        describe_difference([torch.zeros(8, dtype=dtype, device=device)], [torch.ones(8, dtype=dtype, device=device)])
