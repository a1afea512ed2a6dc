"""Counts the bytes that a generated kernel reads and writes, from its signature and the arguments of a launch."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ...records.code.buffers import BufferUse
from ...records.code.launch import Argument
from ...records.traced.activity import Activity
from .cpp_accesses import accessed_elements

CPP_SIGNATURE = re.compile(r"\bkernel\s*\(([^)]*)\)")
TRITON_SIGNATURE = re.compile(r"'signature': \{([^}]*)\}")
_BUFFER = re.compile(r"(in|out|in_out)_ptr\d+")
_ELEMENTS = re.compile(r"^    ([xyz]|r\d?_?)numel = (\d+)$", re.MULTILINE)


def touched_bytes(language: str, source: str, arguments: Sequence[Argument]) -> int | None:
    """Counts the bytes that one launch reads and writes. Each buffer counts once, an in-out buffer twice.

    This is Inductor's way of counting. If a C++ kernel uses a part of a buffer (rows of a table, a slice), only that
    part counts; a buffer of a Triton kernel always counts whole.

    Args:
        language: ``cpp`` or ``triton``.
        source: the kernel's text. Its signature names the pointers ``in_ptr*``, ``out_ptr*`` and ``in_out_ptr*``; the
            pointers of a user-defined kernel may have any name and count once.
        arguments: the arguments of one launch, in order.

    Returns:
        The number of bytes, or ``None`` where the signature does not match the arguments.
    """
    names = _cpp_pointers(source) if language == "cpp" else _triton_pointers(source)
    tensors = [argument.tensor for argument in arguments if argument.tensor is not None]
    if names is None or len(names) != len(tensors):
        return None
    accessed = accessed_elements(source) if language == "cpp" else {}
    total = 0
    for name, tensor in zip(names, tensors, strict=True):
        size = stored_elements(tensor.shape, tensor.stride)
        size = min(size, accessed.get(name, size)) * tensor.itemsize
        total += 2 * size if name.startswith("in_out_ptr") else size
    return total


def least_bytes(source: str, arguments: Sequence[Argument]) -> int | None:
    """The least that Inductor means to count of one launch: of each buffer no more than the kernel has elements.

    Inductor leaves out buffers that it knows by another name because they were changed in place before: by an atomic
    addition, a user's kernel, or a collective. Its count is then less than this one.

    Args:
        source: the text of a generated Triton kernel.
        arguments: the arguments of one launch, in order.

    Returns:
        The number of bytes, or ``None`` where the text does not tell the number of elements.
    """
    names, tensors = _triton_pointers(source), [one.tensor for one in arguments if one.tensor is not None]
    sizes = dict(_ELEMENTS.findall(source))
    if names is None or len(names) != len(tensors) or "x" not in sizes:
        return None
    elements = math.prod(int(size) for size in sizes.values())
    total = 0
    for name, tensor in zip(names, tensors, strict=True):
        size = min(stored_elements(tensor.shape, tensor.stride), elements) * tensor.itemsize
        total += size * (2 if name.startswith("in_out_ptr") else 1) if _BUFFER.fullmatch(name) else 0
    return total


def _cpp_pointers(source: str) -> list[str] | None:
    match = CPP_SIGNATURE.search(source)
    if match is None:
        return None
    parameters = [parameter for parameter in match.group(1).split(",") if "*" in parameter]
    return [parameter.split()[-1].lstrip("*&") for parameter in parameters]


def _triton_pointers(source: str) -> list[str] | None:
    match = TRITON_SIGNATURE.search(source)
    return re.findall(r"'(\w+)': '\*", match.group(1)) if match else None


def stored_elements(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of stored elements of a view: an expanded dimension (stride 0) is stored once."""
    return math.prod(size if stride else min(size, 1) for size, stride in zip(shape, strides, strict=True))


def fit_uses(uses: Sequence[BufferUse], moved_bytes: float | None) -> tuple[BufferUse, ...]:
    """The uses of a generated kernel, limited to the parts of large buffers that it accesses.

    A kernel that takes rows of a table, or a slice, is given the whole buffer. Inductor counts no more of a buffer than
    the kernel has elements, so its count tells the largest possible access.

    Args:
        uses: whole buffers.
        moved_bytes: Inductor's count for one call; ``None`` where there is none.
    """
    # Inductor's count leaves out the second access of some buffers that are updated in place.
    if not moved_bytes or sum(use.touched for use in uses) <= moved_bytes:
        return tuple(uses)
    level = _common_limit([size for use in uses for size in (use.read, use.written)], moved_bytes)
    return tuple(
        replace(
            use,
            touched=min(use.touched, max(min(use.read, level), min(use.written, level))),
            read=min(use.read, level),
            written=min(use.written, level),
        )
        for use in uses
    )


def _common_limit(sizes: Sequence[int], total: float) -> int:
    """The limit of each size with which the sizes add up to ``total``."""
    left = total
    for number, size in enumerate(ordered := sorted(sizes)):
        if size * (len(ordered) - number) > left:
            return round(left / (len(ordered) - number))
        left -= size
    return max(sizes, default=0)


def transferred_bytes(activities: Iterable[Activity]) -> float | None:
    """The bytes of copies and memsets, from the profiler. A copy within the device counts them twice."""
    total = 0.0
    for activity in activities:
        if activity.event is None or activity.event.moved_bytes is None:
            return None
        total += activity.event.moved_bytes * (2 if "DtoD" in activity.name else 1)
    return total
