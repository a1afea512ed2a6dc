"""The arguments of a launch that a module's text describes: storages, the views that share them, and their values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...records.code.launch import Argument, Launch, Storage, TensorView, Values
from ...records.code.source import KernelDefinition
from .kernel_writes import CPP_SIGNATURE, Buffer, cpp_buffers, triton_buffers

ALIGNMENT = 64
"""Alignment in bytes that all of torch's allocators guarantee."""

_SIGNATURE = re.compile(r"'signature': \{([^{}]*)\}")
_PARAMETER = re.compile(r"'(\w+)': '([^']*)'")
_MUTATED = re.compile(r"'mutated_arg_names': \[([^\[\]]*)\]")
_BITS = re.compile(r"\d{1,4}")
_SLACK_BYTES = 1 << 20
_BLOCK_BYTES = 256
_TRITON_TYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "i1": "bool",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
}
_CPP_TYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
}


@dataclass(frozen=True)
class View:
    """A tensor variable: a view of a storage from element ``offset`` on. An unknown shape is ``None``."""

    storage: int
    offset: int = 0
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    dtype: str | None = None

    def with_layout(self, shape: tuple[int, ...] | None, stride: tuple[int, ...] | None) -> View:
        """The view with a shape and strides; without both where one is unknown or their lengths differ."""
        if shape is None or stride is None or len(shape) != len(stride):
            shape = stride = None
        return replace(self, shape=shape, stride=stride)

    @property
    def extent(self) -> tuple[int, int]:
        """The range of bytes of its storage that the view covers: the first byte, and the byte after the last."""
        size, shape, stride = item_size(self.dtype or ""), self.shape or (), self.stride or ()
        start = self.offset * size
        if 0 in shape:
            return start, start
        return start, start + (1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))) * size


Value = View | int | float | tuple["Value", ...]
"""The value of a variable of ``call``."""


@dataclass(frozen=True)
class Pointer:
    """A pointer in a kernel's signature: its element type, and its use by the kernel."""

    dtype: str
    use: Buffer


def read_pointers(kernel: KernelDefinition) -> list[Pointer] | None:
    """The pointers of a kernel's signature in order; ``None`` where the signature cannot be read."""
    if kernel.language == "cpp":
        entry, uses = CPP_SIGNATURE.search(kernel.source), cpp_buffers(kernel.source)
        if entry is None or uses is None:
            return None
        pointers = (parameter for parameter in entry.group(1).split(",") if "*" in parameter)
        kinds = ((parameter.partition("*")[0].split() or [""])[-1] for parameter in pointers)
        return [Pointer(_cpp_type(kind), use) for kind, use in zip(kinds, uses, strict=True)]
    found = _SIGNATURE.search(kernel.source)
    if found is None:
        return None
    signature = dict(_PARAMETER.findall(found.group(1)))
    mutated = _MUTATED.search(kernel.source)
    names = frozenset(re.findall(r"'(\w+)'", mutated.group(1))) if mutated else frozenset[str]()
    return [
        Pointer(_TRITON_TYPES.get(kind := signature[use.name][1:], kind), use)
        for use in triton_buffers(signature, names, kernel.source)
    ]


def _cpp_type(kind: str) -> str:
    plain = kind.removeprefix("at::").lower()
    return _CPP_TYPES.get(plain, plain.removesuffix("_t"))


def item_size(dtype: str) -> int:
    """The bytes of an element, from the number of bits in the type's name; at least 1."""
    bits = _BITS.search(dtype)
    return max(1, int(bits.group()) // 8) if bits else 1


def describe_launch(
    kernel: KernelDefinition,
    values: Sequence[View | int | float],
    pointers: Sequence[Pointer],
    device: str,
    sizes: Sequence[int],
) -> Launch:
    """The launch of a kernel.

    Args:
        kernel: the definition.
        values: the arguments, all of them known.
        pointers: the pointers of the kernel's signature.
        device: the device type of the tensors.
        sizes: the bytes of each storage.
    """
    places = [index for index, value in enumerate(values) if isinstance(value, View)]
    views = [value for value in values if isinstance(value, View)]
    described, regions = lay_out(views, sizes)
    storages = tuple(
        _storage(described[members[0]].dtype, size, [pointers[member].use for member in members], device)
        for size, members in regions
    )
    tensors = iter([Argument("tensor", tensor=tensor) for tensor in described])
    arguments = tuple(next(tensors) if isinstance(value, View) else _scalar(value) for value in values)
    mutated = tuple(place for place, pointer in zip(places, pointers, strict=True) if pointer.use.written)
    return Launch(kernel.name, None, 1, (), storages, arguments, {}, mutated)


def lay_out(views: Sequence[View], sizes: Sequence[int]) -> tuple[list[TensorView], list[tuple[int, list[int]]]]:
    """Maps views to the storages of a launch.

    Returns:
        The views as tensors of the launch; for each storage of the launch its bytes and the indices of its views.
    """
    described: dict[int, TensorView] = {}
    regions = _find_regions(views, sizes)
    for number, (start, _, members) in enumerate(regions):
        described.update({member: _tensor_view(views[member], number, start) for member in members})
    return [described[index] for index in range(len(views))], [(size, members) for _, size, members in regions]


def _find_regions(views: Sequence[View], sizes: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """Start, size and views of the regions of memory that views cover, split as in ``worker.launches.regions``."""
    by_storage: dict[int, list[int]] = {}
    for index, view in enumerate(views):
        by_storage.setdefault(view.storage, []).append(index)
    regions = []
    for storage, members in by_storage.items():
        parts: list[tuple[int, int, list[int]]] = []
        for start, end, index in sorted((*views[index].extent, index) for index in members):
            if parts and start < parts[-1][1]:
                first, last, inside = parts[-1]
                parts[-1] = (first, max(last, end), [*inside, index])
            else:
                parts.append((start, end, [index]))
        whole = len(parts) == 1 and sizes[storage] - (parts[0][1] - parts[0][0]) <= _SLACK_BYTES
        for first, last, inside in parts:
            start = 0 if whole else first - first % _BLOCK_BYTES
            regions.append((start, max(last, sizes[storage] if whole else 0) - start, sorted(inside)))
    return sorted(regions, key=lambda region: region[2][0])


def _tensor_view(view: View, storage: int, start: int) -> TensorView:
    """A variable as a view of a region that begins at byte ``start`` of its storage."""
    dtype = view.dtype or ""
    size = item_size(dtype)
    return TensorView(storage, view.offset - start // size, view.shape or (), view.stride or (), dtype, size)


def _storage(dtype: str, size: int, uses: Sequence[Buffer], device: str) -> Storage:
    # The text holds no bounds of whole numbers: zeros, as in Inductor's own harness.
    cleared = any(use.cleared for use in uses) or all(use.output_only for use in uses)
    return Storage(size, dtype, device, ALIGNMENT, Values("normal" if is_drawn(dtype) and not cleared else "zeros"))


def is_drawn(dtype: str) -> bool:
    """Whether storages of this type are filled with random values."""
    return "float" in dtype or "complex" in dtype


def _scalar(value: int | float) -> Argument:
    if isinstance(value, bool):
        return Argument("bool", integer=int(value))
    return Argument("int", integer=value) if isinstance(value, int) else Argument("float", number=value)
