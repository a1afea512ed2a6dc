"""Fingerprints of tensors, which can be stored and compared later on another machine.

Every standalone kernel file holds this text, which uses torch and the standard library only.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from typing import Any

import torch

CHUNK_ELEMENTS = 1 << 25
SAMPLED_ELEMENTS = 64
TOLERANCES = {
    **dict.fromkeys(("float64", "complex128"), 1e-8),
    **dict.fromkeys(("float32", "complex64"), 2e-4),
    **{"float16": 4e-3, "bfloat16": 2e-2},
}  # by element type; of the element and of the root mean square of its tensor. The 8-bit types have the next.
COARSE_TOLERANCE = 0.15


def fingerprint(tensors: Iterable[torch.Tensor]) -> dict[str, Any]:
    """What tensors hold, in a form that can be compared, and be written as a Python or JSON literal.

    Whole numbers and bools give a SHA-256 of their bytes. Floats, whose last bits may differ between machines, give the
    numbers of NaNs and infinities, the mean and the mean square of the rest, and some elements at fixed places.
    """
    return {"tensors": [_describe_tensor(tensor.detach()) for tensor in tensors]}


def _describe_tensor(tensor: torch.Tensor) -> dict[str, Any]:
    facts: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}
    if tensor.layout != torch.strided or tensor.is_mkldnn:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    flat = tensor.contiguous().reshape(-1)
    if not tensor.is_floating_point() or "float4" in str(tensor.dtype):
        facts["sha256"] = hashlib.sha256(flat.view(torch.uint8).cpu().numpy().tobytes()).hexdigest()
        return facts
    nans = infinities = 0
    total = squares = 0.0
    for chunk in flat.split(CHUNK_ELEMENTS):
        wide = chunk.to(torch.float32).to(torch.float64) if chunk.element_size() == 1 else chunk.to(torch.float64)
        nan, infinite = torch.isnan(wide), torch.isinf(wide)
        nans, infinities = nans + int(nan.sum()), infinities + int(infinite.sum())
        finite = torch.where(nan | infinite, torch.zeros_like(wide), wide)
        total, squares = total + float(finite.sum()), squares + float((finite * finite).sum())
    finite_count = max(flat.numel() - nans - infinities, 1)
    facts.update(nan=nans, inf=infinities, mean=total / finite_count, mean_square=squares / finite_count)
    facts["elements"] = _sample(flat)
    return facts


def _sample(flat: torch.Tensor) -> list[float | str]:
    count = flat.numel()
    many = count > SAMPLED_ELEMENTS
    places = [
        (index * 2654435761 + count // 3) % count if many else index for index in range(min(count, SAMPLED_ELEMENTS))
    ]
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    chosen = flat.view(bits)[torch.tensor(places, dtype=torch.int64, device=flat.device)]
    numbers = chosen.cpu().view(flat.dtype).to(torch.float32 if flat.element_size() == 1 else torch.float64).tolist()
    return [number if math.isfinite(number) else str(number) for number in numbers]


def count_differing(one: torch.Tensor, other: torch.Tensor, limit: float) -> int:
    """How many elements of two floating tensors of one type are further apart than ``limit``.

    It is relative to the element and to the root mean square of ``other``.
    """
    finite = other[torch.isfinite(other)].abs()
    scale = float(finite.square().mean().sqrt()) if finite.numel() else 0.0
    return int((~torch.isclose(one, other, rtol=limit, atol=limit * scale, equal_nan=True)).sum())


def same(found: dict[str, Any], reference: dict[str, Any], tolerance: float | None = None) -> tuple[bool, str]:
    """Whether two fingerprints agree, and in words if they do not.

    ``tolerance`` is relative to the element and to the root mean square of its tensor; ``None`` takes that of the
    element type.
    """
    ours, theirs = found["tensors"], reference["tensors"]
    if len(ours) != len(theirs):
        return False, f"{len(ours)} outputs, the reference has {len(theirs)}"
    for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
        why = _difference(one, other, tolerance)
        if why:
            return False, f"output {index}: {why}"
    return True, f"{len(ours)} outputs agree with the reference"


def _difference(one: dict[str, Any], other: dict[str, Any], tolerance: float | None) -> str:
    for key in ("shape", "dtype"):
        if one[key] != other[key]:
            return f"{key} {one[key]}, the reference has {other[key]}"
    if "sha256" in one or "sha256" in other:
        return "" if one.get("sha256") == other.get("sha256") else "its bytes differ from the reference"
    for key, title in (("nan", "NaNs"), ("inf", "infinities")):
        if one[key] != other[key]:
            return f"{one[key]} {title}, the reference has {other[key]}"
    limit = tolerance if tolerance is not None else TOLERANCES.get(one["dtype"], COARSE_TOLERANCE)
    scale = math.sqrt(max(other["mean_square"], 0.0))
    if abs(one["mean"] - other["mean"]) > limit * scale:
        return f"mean {one['mean']:.6g}, the reference has {other['mean']:.6g}"
    if abs(one["mean_square"] - other["mean_square"]) > 2 * limit * other["mean_square"]:
        return f"mean square {one['mean_square']:.6g}, the reference has {other['mean_square']:.6g}"
    for place, (mine, wanted) in enumerate(zip(one["elements"], other["elements"], strict=True)):
        if isinstance(mine, str) or isinstance(wanted, str):
            if mine != wanted:
                return f"sampled element {place} is {mine}, the reference has {wanted}"
        elif abs(mine - wanted) > limit * (abs(wanted) + scale):
            return f"sampled element {place} is {mine:.6g}, the reference has {wanted:.6g}"
    return ""
