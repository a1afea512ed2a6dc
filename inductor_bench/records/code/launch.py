"""What a kernel or a library operator was called with, exactly enough to call it again elsewhere.

Sizes are bytes, offsets and strides elements. Nothing here knows of torch: dtypes and devices are its names.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..forms import AnyFloat, FileName


@dataclass(frozen=True)
class Values:
    """How a storage is filled.

    ``kind`` is ``normal`` (floats, drawn from a normal distribution), ``integers`` (drawn uniformly from ``low`` to
    ``high``, both included; for ``bool`` with ``high`` as 1 and ``share`` as the share of true elements), ``zeros``,
    or ``recorded`` (the bytes that it really held: ``data``, zlib-compressed base64, or ``file``, a safetensors file
    beside the standalone file, under the key ``storage_<index>``).
    """

    kind: str
    low: int | None = None
    high: int | None = None
    share: float | None = None
    data: str | None = None
    file: FileName | None = None


@dataclass(frozen=True)
class Storage:
    """One allocation that arguments of a launch are views of; arguments that alias share one.

    ``alignment`` is the largest power of two, up to 256, that divided its address. ``dtype`` is that of its first view.
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


@dataclass(frozen=True)
class Argument:
    """One argument: exactly one field is set, by ``kind``.

    ``kind`` is ``tensor``, ``int``, ``float``, ``bool``, ``text``, ``none``, ``list`` (``items``), ``dtype``,
    ``device``, ``layout`` or ``memory_format`` (``text`` holds torch's name without the prefix), or ``opaque``
    (``text`` holds a description: such a call cannot be made again).
    """

    kind: str
    tensor: TensorView | None = None
    integer: int | None = None
    number: AnyFloat | None = None
    text: str | None = None
    items: tuple[Argument, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One distinct call. ``calls`` is how many of the module's calls in one run had just these arguments.

    ``kernel`` is the kernel's variable in the compiled module (empty for an operator); ``operator`` the full name of
    the overload for a library call (``aten.convolution.default``). ``positions`` are the places, counted over all
    launches of one run, where it was made. ``mutated`` are the indices of the arguments that it writes.
    """

    kernel: str
    operator: str | None
    calls: int
    positions: tuple[int, ...]
    storages: tuple[Storage, ...]
    arguments: tuple[Argument, ...]
    keywords: dict[str, Argument] = field(default_factory=dict)
    mutated: tuple[int, ...] = ()
