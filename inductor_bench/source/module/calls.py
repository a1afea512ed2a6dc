"""Reads the calls of a compiled module in execution order, from its ``call`` function.

Calls of partitions and subgraphs are followed. Allocations, views, assertions and stream look-ups do not count as
calls.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...records.code.source import CallSite
from .comments import handle_matches, read_comment

_METHODS = {"copy_": "copy_", "zero_": "zero_", "fill_": "fill_", "item": "item", "clone": "clone"}
"""Methods of tensors that launch kernels; other methods only inspect a tensor."""

_FUNCTIONS = {"torch.stack": "aten.stack", "torch.cat": "aten.cat"}
_EXTERN = {
    "bias_addmm": "aten.addmm",
    "mm_dtype": "aten.mm",
    "bmm_dtype": "aten.bmm",
    "mm_plus_mm": "inductor._mm_plus_mm",
    "conv1x1_via_mm": "aten.matmul",
    "call_aten_dw": "aten.convolution_backward",
    "call_aten_dx": "aten.convolution_backward",
    "_linear_pointwise": "mkldnn._linear_pointwise",
    "_mkl_linear": "mkl._mkl_linear",
    "qlinear_pointwise": "onednn.qlinear_pointwise",
}
"""Operators by ``extern_kernels`` name, where the names differ."""

_NAMESPACES = {"aten": "aten", "inductor_ops": "inductor", "_quantized": "_quantized"}
_VIEWS = {"aten.view", "aten.as_strided", "inductor._reinterpret_tensor", "inductor._alloc_from_pool"}


@dataclass(frozen=True)
class _Target:
    """The target of one call expression: a kernel, a multi-kernel, an operator, or a function of the module."""

    name: str
    kernel: str | None = None
    operator: str | None = None
    alternatives: tuple[str, ...] = ()
    function: str | None = None
    commented: bool = True


def read_calls(
    tree: ast.Module, lines: Sequence[str], kernels: Collection[str], choices: Mapping[str, tuple[str, ...]]
) -> tuple[CallSite, ...]:
    """The calls of a parsed module.

    Args:
        tree: the syntax tree of the module.
        lines: the lines of its text, for the comments.
        kernels: the variables that hold kernels.
        choices: the kernels of each multi-kernel.
    """
    reader = _Reader(tree, lines, frozenset(kernels), choices)
    reader.read()
    return tuple(reader.sites)


class _Reader:
    def __init__(
        self, tree: ast.Module, lines: Sequence[str], kernels: frozenset[str], choices: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._lines = lines
        self._kernels = kernels
        self._choices = choices
        self._functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self._entry = find_entry(tree)
        self._partitions = partition_names(tree)
        self._open: list[str] = []
        self._read_to = 0
        self.sites: list[CallSite] = []

    def read(self) -> None:
        if self._entry is not None:
            self._enter(self._entry, conditional=False)

    def _enter(self, function: ast.FunctionDef, conditional: bool) -> None:
        outer, self._read_to = self._read_to, function.lineno
        self._open.append(function.name)
        self._statements(function.body, conditional)
        self._open.pop()
        self._read_to = outer

    def _statements(self, body: Sequence[ast.stmt], conditional: bool) -> None:
        for statement in body:
            inner = [getattr(statement, field, []) for field in ("body", "orelse", "finalbody")]
            if not any(inner):
                self._calls(statement, statement.lineno, conditional)
                continue
            for name, value in ast.iter_fields(statement):
                if name not in ("body", "orelse", "finalbody", "handlers"):
                    for node in value if isinstance(value, list) else [value]:
                        if isinstance(node, ast.AST):
                            self._calls(node, statement.lineno, conditional)
            branches = isinstance(statement, (ast.If, ast.While))
            for block in inner:
                self._statements(block, conditional or branches)

    def _calls(self, node: ast.AST, line: int, conditional: bool) -> None:
        for call in _in_order(node):
            target = self._target(call)
            if target is None:
                continue
            if target.function is not None:
                if target.function not in self._open and len(self._open) < DEEPEST_CALLS:
                    self._enter(self._functions[target.function], conditional)
                self._read_to = line
            else:
                self._add(target, line, conditional)

    def _add(self, target: _Target, line: int, conditional: bool) -> None:
        comment = read_comment(self._lines[self._read_to : line - 1] if target.commented else ())
        if target.commented:
            self._read_to = line
        self.sites.append(
            CallSite(
                index=len(self.sites),
                line=line,
                target=target.name,
                kernel=target.kernel,
                operator=target.operator,
                source_nodes=comment.source_nodes,
                aten_ops=comment.aten_ops,
                handle=comment.handle if handle_matches(comment.handle, target.name) else None,
                conditional=conditional,
                alternatives=target.alternatives,
            )
        )

    def _target(self, call: ast.Call) -> _Target | None:
        function = call.func
        if isinstance(function, ast.Subscript):
            return self._partition(function)
        path = dotted(function)
        head = path[0] if path else ""
        if head in self._kernels and (len(path) == 1 or path[1:] in (("run",), (head,))):
            return _Target(head, kernel=head)
        if head in self._choices and path[1:] == ("run",):
            return _Target(head, alternatives=self._choices[head])
        if len(path) == 1:
            return _Target(head, function=head) if head in self._functions else None
        operator = find_operator(path) if path else None
        if operator is not None:
            return _Target(".".join(path), operator=operator)
        if isinstance(function, ast.Attribute) and function.attr in _METHODS:
            return _Target(ast.unparse(function), operator=f"aten.{_METHODS[function.attr]}", commented=False)
        return None

    def _partition(self, function: ast.Subscript) -> _Target | None:
        number = function.slice.value if isinstance(function.slice, ast.Constant) else None
        if dotted(function.value) != ("self", "partitions") or not isinstance(number, int):
            return None
        name = self._partitions[number] if 0 <= number < len(self._partitions) else ""
        return _Target(name, function=name) if name in self._functions else None


def find_entry(tree: ast.Module) -> ast.FunctionDef | None:
    """The function that runs the module: ``Runner.call``, or ``call`` in a module without partitions."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            return node
        if isinstance(node, ast.ClassDef) and node.name == "Runner":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "call":
                    return method
    return None


def partition_names(tree: ast.Module) -> tuple[str, ...]:
    """The functions that ``self.partitions`` holds, in order."""
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call) and dotted(value.func) == ("Runner",):
            lists = [keyword.value for keyword in value.keywords if keyword.arg == "partitions"]
            items = [item for one in lists if isinstance(one, ast.List) for item in one.elts]
            return tuple(item.id for item in items if isinstance(item, ast.Name))
    return ()


DEEPEST_CALLS = 16
"""Maximum depth of nested functions of a module that are followed; partitions and subgraphs have one or two levels."""

_LEAVES = (ast.Name, ast.Constant, ast.expr_context)


def _in_order(node: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _LEAVES):
            yield from _in_order(child)
    if isinstance(node, ast.Call):
        yield node


def dotted(node: ast.expr) -> tuple[str, ...]:
    """The parts of a dotted name; an empty tuple for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def find_operator(path: tuple[str, ...]) -> str | None:
    """The operator of a dotted name, for example ``aten.convolution``; ``None`` for views and other names."""
    operator = _operator(path)
    return None if operator in _VIEWS else operator


def _operator(path: tuple[str, ...]) -> str | None:
    if path[0] == "extern_kernels" and len(path) > 1:
        return _EXTERN.get(path[1], f"aten.{path[1]}")
    if path[0] in _NAMESPACES and len(path) > 1:
        return f"{_NAMESPACES[path[0]]}.{path[1]}"
    if path[:2] == ("torch", "ops") and len(path) > 3:
        return f"{path[2]}.{path[3]}"
    if path[:2] == ("torch", "_higher_order_ops"):
        return f"higher_order.{path[-1]}"
    return _FUNCTIONS.get(".".join(path))
