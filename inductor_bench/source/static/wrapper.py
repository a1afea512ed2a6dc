"""Follows the ``call`` of a compiled module in its text: shapes, strides, aliases and scalars of its variables.

The text holds no values. The classes derived from :class:`WrapperReader` collect what the calls are given.
"""

from __future__ import annotations

import ast
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...records.code.source import KernelDefinition, ModuleSource
from ..module.calls import DEEPEST_CALLS, dotted, partition_names
from ..module.definitions import read_multi_kernels
from .arguments import Pointer, Value, View, read_pointers
from .multi_kernels import read_argument_slices, select_arguments

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
        self._partitions = partition_names(tree)
        self._inputs = {item.name: item for item in source.inputs}
        self._device = source.device
        self._names: dict[str, Value] = {}
        self._returned: Value | None = None
        self._open: list[str] = []
        self._sizes: list[int] = []
        self._results: dict[int, tuple[str, ...]] = {}

    @abstractmethod
    def launched(self, alternatives: Sequence[KernelCall]) -> None:
        """Receives a call of a kernel, or of a multi-kernel, which runs one of several."""

    @abstractmethod
    def library_call(self, call: ast.Call) -> tuple[str, ...] | None:
        """Receives a call; returns the known element types of a library call's leading results, else ``None``."""

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
            self.launched([(self._kernels[name], [self._evaluate(node) for node in call.args])])
        elif name in self._choices:
            values = [self._evaluate(node) for node in call.args]
            taken = self._slices.get(name, {})
            chosen = enumerate(self._kernels[kernel] for kernel in self._choices[name])
            self.launched([(one, select_arguments(values, taken.get(index))) for index, one in chosen])
        elif self._operator(call) is None:
            self._evaluate(call)

    def _operator(self, call: ast.Call) -> View | None:
        """The result of a library call; ``None`` for any other call."""
        dtypes = self.library_call(call)
        if dtypes is None:
            return None
        result = self._new(dtype=dtypes[0] if dtypes else None)
        self._results[result.storage] = dtypes
        return result

    def _part(self, whole: View, index: int) -> View:
        """One of several results of a library call."""
        dtypes = self._results.get(whole.storage, ())
        return self._new(dtype=dtypes[index] if 0 <= index < len(dtypes) else None)

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
            if isinstance(whole, View) and isinstance(index, int):
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
        """The result of an allocation, a view, a function of the module or a library call; ``None`` where unknown."""
        path = dotted(call.func)
        name = path[0] if len(path) == 1 else self._partition(call.func)
        if name in self._functions:
            return self._enter(self._functions[name], tuple(self._known(node) for node in call.args))
        if _ALLOCATOR.fullmatch(name) and len(call.args) >= 2:
            places = [*call.args[2:], *(keyword.value for keyword in call.keywords)]
            dtype = next((path[1] for path in map(dotted, places) if path[:1] == ("torch",) and len(path) == 2), None)
            return self._new(self._sizes_of(call.args[0]), self._sizes_of(call.args[1]), dtype)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "as_strided" and len(call.args) == 2:
            padded = self._evaluate(call.func.value)  # a buffer with padded rows: empty_strided_cuda(…).as_strided(…)
            if isinstance(padded, View):
                return padded.with_layout(self._sizes_of(call.args[0]), self._sizes_of(call.args[1]))
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

    def _read_pointers(self, kernel: KernelDefinition) -> list[Pointer] | None:
        if kernel.name not in self._pointers:
            self._pointers[kernel.name] = read_pointers(kernel)
        return self._pointers[kernel.name]

    def _with_dtypes(self, values: Sequence[Value | None], pointers: Sequence[Pointer]) -> list[Value | None]:
        """The arguments of a kernel; a tensor of unknown element type gets that of its pointer."""
        kinds = iter(pointers)
        return [self._with_dtype(value, next(kinds).dtype) if isinstance(value, View) else value for value in values]

    def _with_dtype(self, view: View, dtype: str) -> View:
        return view if view.dtype else self._sized(replace(view, dtype=dtype))
