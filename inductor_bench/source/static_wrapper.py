"""Follows the ``call`` of a compiled module in its text: shapes, strides, aliases and scalars of its variables.

The text holds no values. The classes derived from :class:`WrapperReader` collect what the calls are given.
"""

from __future__ import annotations

import ast
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..records.code import Argument, KernelDefinition, Launch, ModuleSource, Storage, TensorView, Values
from .calls import DEEPEST_CALLS, list_partition_names, read_multi_kernels, write_dotted_name
from .generated_text import CPP_SIGNATURE, Buffer, get_triton_buffers, list_cpp_buffers

# The arguments of a launch that a module's text describes: storages, the views that share them, and their values.


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
class StorageView:
    """A tensor variable: a view of a storage from element ``offset`` on. An unknown shape is ``None``."""

    storage: int
    offset: int = 0
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    dtype: str | None = None

    def with_layout(self, shape: tuple[int, ...] | None, stride: tuple[int, ...] | None) -> StorageView:
        """Returns the view with a shape and strides; without both if one is unknown or their lengths differ."""
        if shape is None or stride is None or len(shape) != len(stride):
            shape = stride = None
        return replace(self, shape=shape, stride=stride)

    @property
    def extent(self) -> tuple[int, int]:
        """Returns the range of bytes of its storage that the view covers: the first byte, and the byte after the
        last."""
        size, shape, stride = find_item_size(self.dtype or ""), self.shape or (), self.stride or ()
        start = self.offset * size
        if 0 in shape:
            return start, start
        return start, start + (1 + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))) * size


Value = StorageView | int | float | tuple["Value", ...]
"""The value of a variable of ``call``."""


@dataclass(frozen=True)
class Pointer:
    """A pointer in a kernel's signature: its element type, and its use by the kernel."""

    dtype: str
    use: Buffer


def read_pointers(kernel: KernelDefinition) -> list[Pointer] | None:
    """Returns the pointers of a kernel's signature in order; ``None`` if the signature cannot be read."""
    if kernel.language == "cpp":
        entry, uses = CPP_SIGNATURE.search(kernel.source), list_cpp_buffers(kernel.source)
        if entry is None or uses is None:
            return None
        pointers = (parameter for parameter in entry.group(1).split(",") if "*" in parameter)
        kinds = ((parameter.partition("*")[0].split() or [""])[-1] for parameter in pointers)
        return [Pointer(_find_cpp_type(kind), use) for kind, use in zip(kinds, uses, strict=True)]
    found = _SIGNATURE.search(kernel.source)
    if found is None:
        return None
    signature = dict(_PARAMETER.findall(found.group(1)))
    mutated = _MUTATED.search(kernel.source)
    names = frozenset(re.findall(r"'(\w+)'", mutated.group(1))) if mutated else frozenset[str]()
    return [
        Pointer(_TRITON_TYPES.get(kind := signature[use.name][1:], kind), use)
        for use in get_triton_buffers(signature, names, kernel.source)
    ]


def _find_cpp_type(kind: str) -> str:
    plain = kind.removeprefix("at::").lower()
    return _CPP_TYPES.get(plain, plain.removesuffix("_t"))


def find_item_size(dtype: str) -> int:
    """Returns the bytes of an element, from the number of bits in the type's name; at least 1."""
    bits = _BITS.search(dtype)
    return max(1, int(bits.group()) // 8) if bits else 1


def describe_launch(
    kernel: KernelDefinition,
    values: Sequence[StorageView | int | float],
    pointers: Sequence[Pointer],
    device: str,
    sizes: Sequence[int],
) -> Launch:
    """Returns the launch of a kernel.

    Args:
        kernel: the definition.
        values: the arguments, all of them known.
        pointers: the pointers of the kernel's signature.
        device: the device type of the tensors.
        sizes: the bytes of each storage.
    """
    places = [index for index, value in enumerate(values) if isinstance(value, StorageView)]
    views = [value for value in values if isinstance(value, StorageView)]
    described, regions = lay_out(views, sizes)
    storages = tuple(
        _make_storage(described[members[0]].dtype, size, [pointers[member].use for member in members], device)
        for size, members in regions
    )
    tensors = iter([Argument("tensor", tensor=tensor) for tensor in described])
    arguments = tuple(next(tensors) if isinstance(value, StorageView) else _make_scalar(value) for value in values)
    mutated = tuple(place for place, pointer in zip(places, pointers, strict=True) if pointer.use.written)
    return Launch(kernel.name, None, 1, (), storages, arguments, {}, mutated)


def lay_out(views: Sequence[StorageView], sizes: Sequence[int]) -> tuple[list[TensorView], list[tuple[int, list[int]]]]:
    """Maps views to the storages of a launch.

    Returns:
        The views as tensors of the launch; for each storage of the launch its bytes and the indices of its views.
    """
    described: dict[int, TensorView] = {}
    regions = _find_regions(views, sizes)
    for number, (start, _, members) in enumerate(regions):
        described.update({member: _make_tensor_view(views[member], number, start) for member in members})
    return [described[index] for index in range(len(views))], [(size, members) for _, size, members in regions]


def _find_regions(views: Sequence[StorageView], sizes: Sequence[int]) -> list[tuple[int, int, list[int]]]:
    """Start, size and views of the regions of memory that views cover, split as in ``worker.profile.storages``."""
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


def _make_tensor_view(view: StorageView, storage: int, start: int) -> TensorView:
    """Returns a variable as a view of a region that begins at byte ``start`` of its storage."""
    dtype = view.dtype or ""
    size = find_item_size(dtype)
    return TensorView(storage, view.offset - start // size, view.shape or (), view.stride or (), dtype, size)


def _make_storage(dtype: str, size: int, uses: Sequence[Buffer], device: str) -> Storage:
    # The text holds no bounds of whole numbers: zeros, as in Inductor's harness.
    cleared = any(use.cleared for use in uses) or all(use.output_only for use in uses)
    return Storage(size, dtype, device, ALIGNMENT, Values("normal" if is_drawn(dtype) and not cleared else "zeros"))


def is_drawn(dtype: str) -> bool:
    """Whether storages of this type are filled with random values."""
    return "float" in dtype or "complex" in dtype


def _make_scalar(value: int | float) -> Argument:
    if isinstance(value, bool):
        return Argument("bool", integer=int(value))
    return Argument("int", integer=value) if isinstance(value, int) else Argument("float", number=value)


# The arguments that each kernel of a multi-kernel takes, from the module's tables of slices.


def read_argument_slices(tree: ast.Module) -> dict[str, dict[int, list[slice]]]:
    """Returns, by multi-kernel and by the index of its kernel, the slices of the arguments that the kernel takes."""
    tables: dict[str, ast.Dict] = {}
    found = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        name, value = statement.targets[0].id, statement.value
        if isinstance(value, ast.Dict):
            tables[name] = value
        elif isinstance(value, ast.Call):
            given = [keyword.value for keyword in value.keywords if keyword.arg == "arg_index"]
            if given and isinstance(given[0], ast.Name) and given[0].id in tables:
                found[name] = _read_slices(tables[given[0].id])
    return found


def select_arguments(values: Sequence[Value | None], parts: Sequence[slice] | None) -> list[Value | None]:
    """Returns the values in the slices; all values if there are no slices."""
    return list(values) if parts is None else [value for part in parts for value in values[part]]


def _read_slices(table: ast.Dict) -> dict[int, list[slice]]:
    parts: dict[int, list[slice]] = {}
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.List):
            calls = [item for item in value.elts if isinstance(item, ast.Call)]
            found = [_read_slice(call) for call in calls]
            if isinstance(key.value, int) and None not in found:
                parts[key.value] = [one for one in found if one is not None]
    return parts


def _read_slice(call: ast.Call) -> slice | None:
    """The slice of a call with two or three whole numbers, as Inductor writes it; ``None`` for any other call."""
    ends = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    whole = all(end is None or type(end) is int for end in ends) and len(ends) == len(call.args) in (2, 3)
    return slice(*ends) if whole and 0 not in ends[2:] else None


_ALLOCATOR = re.compile(r"empty_strided(_cuda|_cpu|_xpu|_cpu_pinned|_mtia|_p2p)?|generate_example_value")
_BOUND = 2**63
"""Upper bound of the whole numbers that this file computes with."""

_BLOCKS = ("body", "orelse", "finalbody")
_ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}

KernelCall = tuple[KernelDefinition, Sequence[Value | None]]
"""A kernel and the values of its arguments."""


class WrapperReader(ABC):
    """Follows the statements of a module's ``call`` and tracks the value of each variable."""

    def __init__(self, tree: ast.Module, source: ModuleSource) -> None:
        self._kernels = {kernel.name: kernel for kernel in source.kernels}
        self._pointers: dict[str, list[Pointer] | None] = {}
        self._choices = {
            name: kernels for name, kernels in read_multi_kernels(tree).items() if self._kernels.keys() >= set(kernels)
        }
        self._slices = read_argument_slices(tree)
        self._functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self._partitions = list_partition_names(tree)
        self._inputs = {item.name: item for item in source.inputs}
        self._device = source.device
        self._names: dict[str, Value] = {}
        self._returned: Value | None = None
        self._open: list[str] = []
        self._sizes: list[int] = []
        self._results: dict[int, tuple[str, ...]] = {}

    @abstractmethod
    def receive_kernel_call(self, alternatives: Sequence[KernelCall]) -> None:
        """Is called for each call of a kernel, or of a multi-kernel, which runs one of several alternatives."""

    @abstractmethod
    def receive_library_call(self, call: ast.Call) -> tuple[str, ...] | None:
        """Is called for each other call; returns the known element types of a library call's leading results, else
        ``None``."""

    def follow(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._call(statement.value)
            elif isinstance(statement, ast.Return) and statement.value is not None:
                self._returned = self._evaluate(statement.value)
            elif not isinstance(statement, ast.FunctionDef | ast.ClassDef):
                for field in _BLOCKS:
                    self.follow(getattr(statement, field, ()))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._names[target.id] = self._known(value)
        elif isinstance(target, ast.Tuple):
            values = self._evaluate(value)
            parts = values if isinstance(values, tuple) and len(values) == len(target.elts) else None
            for index, name in enumerate(target.elts):
                if isinstance(name, ast.Name):
                    self._names[name.id] = self._input(name.id) if parts is None else parts[index]

    def _input(self, name: str) -> Value:
        """Returns an argument of the module; a tensor of unknown shape if the harness does not describe it."""
        item = self._inputs.get(name)
        if item is not None and item.kind == "int":
            return item.value or 0
        if item is None or item.kind != "tensor":
            return self._new()
        return self._new(item.shape, item.stride, item.dtype)

    def _new(
        self,
        shape: tuple[int, ...] | None = None,
        stride: tuple[int, ...] | None = None,
        dtype: str | None = None,
    ) -> StorageView:
        self._sizes.append(0)
        return self._sized(StorageView(len(self._sizes) - 1, 0, dtype=dtype).with_layout(shape, stride))

    def _sized(self, view: StorageView) -> StorageView:
        if view.shape is not None and view.stride is not None and view.dtype is not None:
            self._sizes[view.storage] = max(self._sizes[view.storage], view.extent[1])
        return view

    def _known(self, node: ast.expr) -> Value:
        value = self._evaluate(node)
        return self._new() if value is None else value

    def _call(self, call: ast.Call) -> None:
        path = write_dotted_name(call.func)
        name = path[0] if path else ""
        if name == "assert_size_stride" and len(call.args) >= 3 and isinstance(call.args[0], ast.Name):
            self._learn_shape(call.args[0].id, self._sizes_of(call.args[1]), self._sizes_of(call.args[2]))
        elif name in self._kernels and path[1:] in ((), ("run",)):
            self.receive_kernel_call([(self._kernels[name], [self._evaluate(node) for node in call.args])])
        elif name in self._choices:
            values = [self._evaluate(node) for node in call.args]
            taken = self._slices.get(name, {})
            chosen = enumerate(self._kernels[kernel] for kernel in self._choices[name])
            self.receive_kernel_call([(one, select_arguments(values, taken.get(index))) for index, one in chosen])
        elif self._operator(call) is None:
            self._evaluate(call)

    def _operator(self, call: ast.Call) -> StorageView | None:
        """Returns the result of a library call; ``None`` for any other call."""
        dtypes = self.receive_library_call(call)
        if dtypes is None:
            return None
        result = self._new(dtype=dtypes[0] if dtypes else None)
        self._results[result.storage] = dtypes
        return result

    def _part(self, whole: StorageView, index: int) -> StorageView:
        """Returns one of several results of a library call."""
        dtypes = self._results.get(whole.storage, ())
        return self._new(dtype=dtypes[index] if 0 <= index < len(dtypes) else None)

    def _learn_shape(self, name: str, shape: tuple[int, ...] | None, stride: tuple[int, ...] | None) -> None:
        known = self._names.get(name)
        if isinstance(known, StorageView) and shape is not None and stride is not None:
            self._names[name] = self._sized(known.with_layout(shape, stride))

    def _evaluate(self, node: ast.expr) -> Value | None:
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, int | float) else None
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self._known(item) for item in node.elts)
        if isinstance(node, ast.Call):
            return self._result(node)
        if isinstance(node, ast.Subscript):
            whole, index = self._evaluate(node.value), self._evaluate(node.slice)
            if isinstance(whole, StorageView) and isinstance(index, int):
                return self._part(whole, index)
            inside = isinstance(whole, tuple) and isinstance(index, int) and -len(whole) <= index < len(whole)
            return whole[index] if inside else None  # type: ignore[index]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._evaluate(node.operand)
            return -value if isinstance(value, int | float) else None
        if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            left, right = self._evaluate(node.left), self._evaluate(node.right)
            if isinstance(left, int) and isinstance(right, int) and right:
                result = _ARITHMETIC[type(node.op)](left, right)
                return result if abs(result) < _BOUND else None
        return None

    def _result(self, call: ast.Call) -> Value | None:
        """The result of an allocation, a view, a function of the module or a library call; ``None`` if unknown."""
        path = write_dotted_name(call.func)
        name = path[0] if len(path) == 1 else self._find_partition(call.func)
        if name in self._functions:
            return self._enter(self._functions[name], tuple(self._known(node) for node in call.args))
        if _ALLOCATOR.fullmatch(name) and len(call.args) >= 2:
            places = [*call.args[2:], *(keyword.value for keyword in call.keywords)]
            dtype = next(
                (path[1] for path in map(write_dotted_name, places) if path[:1] == ("torch",) and len(path) == 2), None
            )
            return self._new(self._sizes_of(call.args[0]), self._sizes_of(call.args[1]), dtype)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "as_strided" and len(call.args) == 2:
            padded = self._evaluate(call.func.value)  # a buffer with padded rows: empty_strided_cuda(…).as_strided(…)
            if isinstance(padded, StorageView):
                return padded.with_layout(self._sizes_of(call.args[0]), self._sizes_of(call.args[1]))
        if name == "reinterpret_tensor" and len(call.args) >= 3:
            base = self._evaluate(call.args[0])
            offset = self._evaluate(call.args[3]) if len(call.args) > 3 else 0
            if isinstance(base, StorageView) and isinstance(offset, int):
                shape, stride = self._sizes_of(call.args[1]), self._sizes_of(call.args[2])
                return replace(base, offset=base.offset + offset).with_layout(shape, stride)
        return self._operator(call)

    def _find_partition(self, function: ast.expr) -> str:
        if isinstance(function, ast.Subscript) and write_dotted_name(function.value) == ("self", "partitions"):
            number = self._evaluate(function.slice)
            if isinstance(number, int) and 0 <= number < len(self._partitions):
                return self._partitions[number]
        return ""

    def _enter(self, function: ast.FunctionDef, values: tuple[Value, ...]) -> Value | None:
        if function.name in self._open or len(self._open) >= DEEPEST_CALLS:
            return None
        outer, returned = self._names, self._returned
        parameters = [parameter.arg for parameter in function.args.args]
        self._names, self._returned = dict(zip(parameters, values, strict=False)), None
        self._open.append(function.name)
        self.follow(function.body)
        self._open.pop()
        result, self._names, self._returned = self._returned, outer, returned
        return result

    def _sizes_of(self, node: ast.expr) -> tuple[int, ...] | None:
        values = self._evaluate(node) if isinstance(node, ast.Tuple) else None
        if not isinstance(values, tuple):
            return None
        sizes = tuple(value for value in values if isinstance(value, int))
        return sizes if len(sizes) == len(values) else None

    def _read_pointers(self, kernel: KernelDefinition) -> list[Pointer] | None:
        if kernel.name not in self._pointers:
            self._pointers[kernel.name] = read_pointers(kernel)
        return self._pointers[kernel.name]

    def _with_dtypes(self, values: Sequence[Value | None], pointers: Sequence[Pointer]) -> list[Value | None]:
        """Returns the arguments of a kernel. A tensor of unknown element type gets that of its pointer."""
        kinds = iter(pointers)
        return [
            self._with_dtype(value, next(kinds).dtype) if isinstance(value, StorageView) else value for value in values
        ]

    def _with_dtype(self, view: StorageView, dtype: str) -> StorageView:
        return view if view.dtype else self._sized(replace(view, dtype=dtype))
