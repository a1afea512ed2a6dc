"""How many bytes a generated kernel touches, from its signature and the arguments that it was launched with."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..records.code.launch import Argument, TensorView
from .cpp_accesses import accessed_elements

CPP_SIGNATURE = re.compile(r"\bkernel\s*\(([^)]*)\)")
TRITON_SIGNATURE = re.compile(r"'signature': \{([^}]*)\}")


def touched_bytes(language: str, source: str, arguments: Sequence[Argument]) -> int | None:
    """Bytes read and written by one launch: each buffer argument once, in-out buffers twice, as Inductor counts.

    Of a buffer that a C++ kernel uses only in part (a table that it gathers rows from, a slice) that part counts.

    Args:
        language: ``cpp`` or ``triton``.
        source: the kernel's text, whose signature names its pointers ``in_ptr*``, ``out_ptr*``, ``in_out_ptr*``
            (a user-defined kernel's may have any name: they count once).
        arguments: of one launch, in order.

    Returns:
        ``None`` where the text and the launch do not fit together. What a Triton kernel gathers from counts whole.
    """
    names = _cpp_pointers(source) if language == "cpp" else _triton_pointers(source)
    tensors = [argument.tensor for argument in arguments if argument.tensor is not None]
    if names is None or len(names) != len(tensors):
        return None
    accessed = accessed_elements(source) if language == "cpp" else {}
    total = 0
    for name, tensor in zip(names, tensors, strict=True):
        size = _stored_elements(tensor)
        size = min(size, accessed.get(name, size)) * tensor.itemsize
        total += 2 * size if name.startswith("in_out_ptr") else size
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


def _stored_elements(view: TensorView) -> int:
    """What a tensor occupies: an expanded dimension (stride 0) is stored once, a strided view counts its elements."""
    pairs = zip(view.shape, view.stride, strict=True)
    return math.prod(size if stride else min(size, 1) for size, stride in pairs)
