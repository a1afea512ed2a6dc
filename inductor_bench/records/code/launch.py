"""The arguments of a kernel or a library operator, complete enough to repeat the call elsewhere.

Sizes are bytes; offsets and strides are elements. Dtypes and devices are torch's names as text.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..forms import AnyFloat, FileName


@dataclass(frozen=True)
class Values:
    """The values of a storage.

    Attributes:
        kind: ``normal`` (floats from a normal distribution), ``positive`` (their absolute values, for kernels that
            compute more NaNs from negative numbers, as from a variance), ``integers`` (uniform), ``zeros``, or
            ``recorded`` (the bytes of the original storage, in ``data`` or ``file``; with ``positive`` ones beside
            them, floats in ``data`` may be absolute values, too).
        low, high: the range of ``integers``, both ends included; 0 and 1 for ``bool``.
        share: the share of true elements of a ``bool`` storage.
        data: recorded bytes, zlib-compressed and in base64.
        file: a safetensors file beside the standalone file; its key is ``storage_<index>``.
    """

    kind: str
    low: int | None = None
    high: int | None = None
    share: float | None = None
    data: str | None = None
    file: FileName | None = None


@dataclass(frozen=True)
class Storage:
    """One allocation; tensor arguments are views of it, and arguments that alias share it.

    ``alignment`` is the largest power of two, up to 256, that divided its address. ``dtype`` is its first view's.
    """

    size_bytes: int
    dtype: str
    device: str  # "cuda" or "cpu"
    alignment: int
    values: Values


@dataclass(frozen=True)
class TensorView:
    """A tensor argument: a view of ``Launch.storages[storage]``. ``offset`` is in elements of ``dtype``."""

    storage: int
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    itemsize: int

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.stride):
            raise ValueError(f"has {len(self.shape)} sizes and {len(self.stride)} strides")


@dataclass(frozen=True)
class Argument:
    """One argument. ``kind`` tells which field holds its value.

    ``kind`` is ``tensor``, ``int``, ``float``, ``bool``, ``text``, ``none``, ``list`` (in ``items``), ``dtype``,
    ``device``, ``layout`` or ``memory_format`` (``text`` holds torch's name without the prefix), or ``opaque``
    (``text`` describes the value; the call cannot be repeated).
    """

    kind: str
    tensor: TensorView | None = None
    integer: int | None = None
    number: AnyFloat | None = None
    text: str | None = None
    items: tuple[Argument, ...] = ()

    def plain(self) -> Any:
        """The value of an argument that is no tensor, as JSON has it."""
        if self.kind == "list":
            return [one.plain() for one in self.items]
        if self.kind == "bool":
            return bool(self.integer)
        return next((value for value in (self.integer, self.number, self.text) if value is not None), None)


@dataclass(frozen=True)
class Launch:
    """One distinct launch of a kernel, or one distinct call of a library operator.

    Attributes:
        kernel: the kernel's variable in the compiled module; empty for an operator.
        operator: the full name of the overload of a library call, for example ``aten.convolution.default``.
        calls: the number of calls with these arguments in one run.
        positions: the positions of these calls among all launches of one run.
        storages: the allocations that the tensor arguments view.
        arguments, keywords: positional and keyword arguments.
        mutated: indices of the arguments that the call writes.
    """

    kernel: str
    operator: str | None
    calls: int
    positions: tuple[int, ...]
    storages: tuple[Storage, ...]
    arguments: tuple[Argument, ...]
    keywords: dict[str, Argument] = field(default_factory=dict)
    mutated: tuple[int, ...] = ()
