"""Reads the launches of a compiled module from its text, for modules that cannot be run here.

It follows shapes, strides, aliasing and scalars through the allocations of ``call``. The text holds no values. Launches
that a run recorded are more complete; see ``worker.launches.recorder``.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...devices.cpu import CPU
from ...records.code.launch import Launch
from ...records.code.source import KernelDefinition, ModuleSource
from ..module.calls import DEEPEST_CALLS, dotted, find_entry, partition_names
from ..module.cpp_wrapper import autotuning_blocks
from ..module.definitions import read_multi_kernels
from ..module.reader import parse_module
from .arguments import Pointer, Value, View, describe_launch, read_pointers
from .multi_kernels import read_argument_slices, select_arguments
from .operators import call_parts, describe_operator, result_dtypes

_ALLOCATOR = re.compile(r"empty_strided(_cuda|_cpu|_xpu|_cpu_pinned|_mtia|_p2p)?|generate_example_value")
_BOUND = 2**63
"""Upper bound of the whole numbers that are computed."""

_BLOCKS = ("body", "orelse", "finalbody")
_ARITHMETIC: Mapping[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def read_static_launches(text: str, source: ModuleSource) -> tuple[Launch, ...]:
    """The distinct launches of the module's kernels and library calls, in call order.

    Launches with unknown arguments are left out. Storages of whole numbers hold zeros, as in Inductor's own harness,
    because the text holds no bounds. All kernels of a multi-kernel count as launched.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    tree = parse_module(text)
    reader = _Reader(tree, source)
    entry = find_entry(tree)
    if entry is not None:
        reader.follow(entry.body)
        return tuple(reader.launches.values())
    for block in autotuning_blocks(tree):
        reader.follow(block.body)
    # A compile-time tuning block launches each kernel once; the wrapper's calls tell the number of launches.
    names = [call.kernel for call in source.calls if call.kernel is not None]
    places = {name: tuple(place for place, other in enumerate(names) if other == name) for name in names}
    return tuple(
        replace(launch, calls=len(places[launch.kernel]), positions=places[launch.kernel])
        for launch in reader.launches.values()
        if launch.kernel in places
    )


class _Reader:
    """Follows statements: it tracks the value of each variable and collects the launches."""

    def __init__(self, tree: ast.Module, source: ModuleSource) -> None:
        self.launches: dict[tuple[object, ...], Launch] = {}
        self._kernels = {kernel.name: kernel for kernel in source.kernels}
        self._pointers: dict[str, list[Pointer] | None] = {}
        self._choices = {
            name: kernels for name, kernels in read_multi_kernels(tree).items() if self._kernels.keys() >= set(kernels)
        }
        self._slices = read_argument_slices(tree)
        self._functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self._partitions = partition_names(tree)
        self._inputs = {item.name: item for item in source.inputs}
        self._device = source.device
        self._names: dict[str, Value] = {}
        self._returned: Value | None = None
        self._open: list[str] = []
        self._sizes: list[int] = []
        self._results: dict[int, tuple[str, ...]] = {}
        self._position = 0

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
        """An argument of the module; a tensor of unknown shape where the harness does not describe it."""
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
    ) -> View:
        self._sizes.append(0)
        return self._sized(View(len(self._sizes) - 1, 0, dtype=dtype).with_layout(shape, stride))

    def _sized(self, view: View) -> View:
        if view.shape is not None and view.stride is not None and view.dtype is not None:
            self._sizes[view.storage] = max(self._sizes[view.storage], view.extent[1])
        return view

    def _known(self, node: ast.expr) -> Value:
        value = self._evaluate(node)
        return self._new() if value is None else value

    def _call(self, call: ast.Call) -> None:
        path = dotted(call.func)
        name = path[0] if path else ""
        if name == "assert_size_stride" and len(call.args) >= 3 and isinstance(call.args[0], ast.Name):
            self._learn_shape(call.args[0].id, self._sizes_of(call.args[1]), self._sizes_of(call.args[2]))
        elif name in self._kernels and path[1:] in ((), ("run",)):
            self._launch([(self._kernels[name], [self._evaluate(node) for node in call.args])])
        elif name in self._choices:
            values = [self._evaluate(node) for node in call.args]
            taken = self._slices.get(name, {})
            chosen = enumerate(self._kernels[kernel] for kernel in self._choices[name])
            self._launch([(one, select_arguments(values, taken.get(index))) for index, one in chosen])
        elif self._operator(call) is None:
            self._evaluate(call)

    def _operator(self, call: ast.Call) -> View | None:
        """Collects the launch of a library call and returns its result; ``None`` for any other call."""
        parts = call_parts(call)
        if parts is None:
            return None
        overload, arguments = parts
        launch = describe_operator(
            overload, arguments, call.keywords, self._evaluate, device=self._device, sizes=self._sizes
        )
        if launch is not None:
            self._count(launch)
        self._position += 1
        dtypes = result_dtypes(launch) if launch is not None else ()
        result = self._new(dtype=dtypes[0] if dtypes else None)
        self._results[result.storage] = dtypes
        return result

    def _learn_shape(self, name: str, shape: tuple[int, ...] | None, stride: tuple[int, ...] | None) -> None:
        known = self._names.get(name)
        if isinstance(known, View) and shape is not None and stride is not None:
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
            if isinstance(whole, View) and isinstance(index, int):  # one of several results of an operator
                dtypes = self._results.get(whole.storage, ())
                return self._new(dtype=dtypes[index] if 0 <= index < len(dtypes) else None)
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
        """The result of an allocation, a view, a function of the module or a library call; ``None`` where unknown."""
        path = dotted(call.func)
        name = path[0] if len(path) == 1 else self._partition(call.func)
        if name in self._functions:
            return self._enter(self._functions[name], tuple(self._known(node) for node in call.args))
        if _ALLOCATOR.fullmatch(name) and len(call.args) >= 2:
            places = [*call.args[2:], *(keyword.value for keyword in call.keywords)]
            dtype = next((path[1] for path in map(dotted, places) if path[:1] == ("torch",) and len(path) == 2), None)
            return self._new(self._sizes_of(call.args[0]), self._sizes_of(call.args[1]), dtype)
        if name == "reinterpret_tensor" and len(call.args) >= 3:
            base = self._evaluate(call.args[0])
            offset = self._evaluate(call.args[3]) if len(call.args) > 3 else 0
            if isinstance(base, View) and isinstance(offset, int):
                shape, stride = self._sizes_of(call.args[1]), self._sizes_of(call.args[2])
                return replace(base, offset=base.offset + offset).with_layout(shape, stride)
        return self._operator(call)

    def _partition(self, function: ast.expr) -> str:
        if isinstance(function, ast.Subscript) and dotted(function.value) == ("self", "partitions"):
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

    def _launch(self, alternatives: Sequence[tuple[KernelDefinition, Sequence[Value | None]]]) -> None:
        for kernel, values in alternatives:
            launch = self._describe(kernel, values)
            if launch is not None:
                self._count(launch)
        self._position += 1

    def _count(self, launch: Launch) -> None:
        key = (launch.kernel, launch.operator, launch.arguments, tuple(launch.keywords.items()), launch.storages)
        known = self.launches.get(key, replace(launch, calls=0))
        positions = (*known.positions, self._position)
        self.launches[key] = replace(known, calls=len(positions), positions=positions)

    def _describe(self, kernel: KernelDefinition, values: Sequence[Value | None]) -> Launch | None:
        if kernel.name not in self._pointers:
            self._pointers[kernel.name] = read_pointers(kernel)
        pointers = self._pointers[kernel.name]
        views = [value for value in values if isinstance(value, View)]
        if pointers is None or len(pointers) != len(views) or any(view.stride is None for view in views):
            return None
        kinds = iter(pointers)
        known: list[View | int | float] = []
        for value in values:
            if value is None or isinstance(value, tuple):
                return None
            if isinstance(value, View):
                kind = next(kinds).dtype
                value = value if value.dtype else self._sized(replace(value, dtype=kind))
            known.append(value)
        device = CPU.type if kernel.language == "cpp" else self._device
        return describe_launch(kernel, known, pointers, device, self._sizes)
