"""What the kernels of a compiled module are launched with, as far as its text tells: shapes, strides, aliasing and
scalars, followed through the allocations of ``call``. Values are not in the text; integers are then unknown.

For modules that cannot be run here. What a run would tell is better (see ``worker.launches``).
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..records.launch import Argument, Launch, Storage, TensorView, Values
from ..records.source import KernelDefinition, ModuleSource
from .calls import find_entry

ALLOCATORS = re.compile(r"empty_strided(_cuda|_cpu|_xpu|_cpu_pinned|_mtia|_p2p)?")
ITEM_SIZES = {"bool": 1, "uint8": 1, "int8": 1, "float16": 2, "bfloat16": 2, "int16": 2, "int32": 4, "float32": 4}
TRITON_TYPES = {
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "fp64": "float64",
    "i1": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u64": "uint64",
    "fp8e4nv": "float8_e4m3fn",
    "fp8e5": "float8_e5m2",
}
CPP_TYPES = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "bfloat16": "bfloat16",
    "int64_t": "int64",
    "int32_t": "int32",
    "int16_t": "int16",
    "int8_t": "int8",
    "uint8_t": "uint8",
    "bool": "bool",
}
ALIGNMENT = 64
"""What torch's allocators guarantee, at least."""

ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclass(frozen=True)
class _Buffer:
    """A tensor variable: where its storage began and how it views it. Unknown shapes are ``None``."""

    storage: int
    offset: int = 0
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] | None = None
    dtype: str | None = None


def read_static_launches(text: str, source: ModuleSource) -> tuple[Launch, ...]:
    """The distinct launches of the module's own kernels, in call order.

    A kernel whose arguments cannot be followed is left out. Integer storages are filled with zeros, as Inductor's own
    harness does, because the text holds no bounds.
    """
    reader = _Reader(source)
    entry = find_entry(ast.parse(text))
    if entry is not None:
        reader.follow(entry.body)
    return tuple(reader.launches())


class _Reader:
    def __init__(self, source: ModuleSource) -> None:
        self._kernels = {kernel.name: kernel for kernel in source.kernels}
        self._inputs = {item.name: item for item in source.inputs}
        self._device = source.device
        self._names: dict[str, _Buffer | int] = {}
        self._storages = 0
        self._found: dict[tuple[object, ...], Launch] = {}
        self._position = 0

    def launches(self) -> Sequence[Launch]:
        return list(self._found.values())

    def follow(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._assign(statement.targets[0], statement.value)
            elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
                self._call(statement.value)
            for field in ("body", "orelse"):
                self.follow(getattr(statement, field, []))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Name) and value.id == "args":
            for name in target.elts:
                if isinstance(name, ast.Name):
                    self._names[name.id] = self._input(name.id)
        elif isinstance(target, ast.Name):
            found = self._evaluate(value)
            self._names[target.id] = found if found is not None else self._new()

    def _new(self, **known: object) -> _Buffer:
        self._storages += 1
        return _Buffer(self._storages - 1, **known)  # type: ignore[arg-type]

    def _input(self, name: str) -> _Buffer | int:
        item = self._inputs.get(name)
        if item is not None and item.kind == "int":
            return item.value or 0
        if item is None or item.kind != "tensor":
            return self._new()
        return self._new(shape=item.shape, stride=item.stride, dtype=item.dtype)

    def _call(self, call: ast.Call) -> None:
        name = _name_of(call.func)
        if name == "assert_size_stride" and len(call.args) >= 3 and isinstance(call.args[0], ast.Name):
            known = self._names.get(call.args[0].id)
            if isinstance(known, _Buffer):
                shape, stride = self._sizes(call.args[1]), self._sizes(call.args[2])
                if shape is not None and stride is not None:
                    self._names[call.args[0].id] = replace(known, shape=shape, stride=stride)
            return
        head = name.removesuffix(".run")
        if head in self._kernels:
            self._launch(self._kernels[head], call.args)

    def _evaluate(self, node: ast.expr) -> _Buffer | int | None:
        if isinstance(node, ast.Name):
            return self._names.get(node.id)
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return int(node.value)
        if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            left, right = self._evaluate(node.left), self._evaluate(node.right)
            if isinstance(left, int) and isinstance(right, int) and right:
                return ARITHMETIC[type(node.op)](left, right)
            return None
        return self._allocated(node) if isinstance(node, ast.Call) else None

    def _allocated(self, call: ast.Call) -> _Buffer | None:
        name = _name_of(call.func)
        if ALLOCATORS.fullmatch(name) and len(call.args) >= 2:
            shape, stride = self._sizes(call.args[0]), self._sizes(call.args[1])
            places = [*call.args[2:], *(keyword.value for keyword in call.keywords)]
            dtype = next((text[6:] for text in map(ast.unparse, places) if text.startswith("torch.")), None)
            return self._new(shape=shape, stride=stride, dtype=dtype)
        if name == "reinterpret_tensor" and len(call.args) >= 3:
            base = self._evaluate(call.args[0])
            offset = self._evaluate(call.args[3]) if len(call.args) > 3 else 0
            if isinstance(base, _Buffer) and isinstance(offset, int):
                shape, stride = self._sizes(call.args[1]), self._sizes(call.args[2])
                return replace(base, shape=shape, stride=stride, offset=base.offset + offset)
        return None

    def _sizes(self, node: ast.expr) -> tuple[int, ...] | None:
        if not isinstance(node, ast.Tuple):
            return None
        values = [self._evaluate(item) for item in node.elts]
        sizes = tuple(value for value in values if isinstance(value, int))
        return sizes if len(sizes) == len(values) else None

    def _launch(self, kernel: KernelDefinition, nodes: Sequence[ast.expr]) -> None:
        self._position += 1
        values = [self._evaluate(node) for node in nodes]
        types = pointer_types(kernel)
        buffers = [value for value in values if isinstance(value, _Buffer)]
        if None in values or types is None or len(types) != len(buffers):
            return
        if any(buffer.shape is None or buffer.stride is None for buffer in buffers):
            return
        launch = self._describe(kernel, [value for value in values if value is not None], types)
        key = (launch.kernel, launch.arguments, launch.storages)
        known = self._found.get(key)
        if known is None:
            self._found[key] = replace(launch, positions=(self._position - 1,))
        else:
            positions = (*known.positions, self._position - 1)
            self._found[key] = replace(known, calls=known.calls + 1, positions=positions)

    def _describe(
        self, kernel: KernelDefinition, values: Sequence[_Buffer | int], types: Sequence[tuple[str, str]]
    ) -> Launch:
        places: dict[int, int] = {}
        views: list[TensorView] = []
        arguments: list[Argument] = []
        mutated: list[int] = []
        pointers = iter(types)
        for index, value in enumerate(values):
            if isinstance(value, int):
                arguments.append(Argument("int", integer=value))
                continue
            name, dtype = next(pointers)
            if "out_ptr" in name:
                mutated.append(index)
            view = TensorView(
                storage=places.setdefault(value.storage, len(places)),
                offset=value.offset,
                shape=value.shape or (),
                stride=value.stride or (),
                dtype=dtype,
                itemsize=ITEM_SIZES.get(dtype, 8 if dtype.endswith("64") else 1),
            )
            views.append(view)
            arguments.append(Argument("tensor", tensor=view))
        storages = tuple(self._storage([view for view in views if view.storage == place]) for place in places.values())
        return Launch(kernel.name, None, 1, (), storages, tuple(arguments), {}, tuple(mutated))

    def _storage(self, views: Sequence[TensorView]) -> Storage:
        size = max(_extent(view) for view in views)
        dtype = views[0].dtype
        kind = "normal" if "float" in dtype else "zeros"
        return Storage(size, dtype, self._device, ALIGNMENT, Values(kind))


def pointer_types(kernel: KernelDefinition) -> list[tuple[str, str]] | None:
    """The pointer parameters of a kernel's signature as ``(name, dtype)``, in order; ``None`` if it has none."""
    if kernel.language == "cpp":
        match = re.search(r"\bkernel\s*\(([^)]*)\)", kernel.source)
        parameters = [part for part in match.group(1).split(",") if "*" in part] if match else None
        return None if parameters is None else [_cpp_pointer(part) for part in parameters]
    match = re.search(r"'signature': \{([^}]*)\}", kernel.source)
    if match is None:
        return None
    pairs = re.findall(r"'(\w+)': '\*(\w+)'", match.group(1))
    return [(name, TRITON_TYPES.get(kind, kind)) for name, kind in pairs]


def _cpp_pointer(parameter: str) -> tuple[str, str]:
    kind, _, name = parameter.replace("const ", "").strip().rpartition("*")
    return name.strip(), CPP_TYPES.get(kind.strip(), kind.strip())


def _extent(view: TensorView) -> int:
    if 0 in view.shape:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(view.shape, view.stride, strict=True))
    return (view.offset + last + 1) * view.itemsize


def _name_of(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Name | ast.Attribute) else ""
