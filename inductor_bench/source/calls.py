"""Reads the kernels of a compiled module, their calls in execution order, and Inductor's keys of Triton kernels."""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InductorBenchError
from ..records.base import Category
from ..records.code import CallSite, KernelDefinition
from .generated_text import (
    Comment,
    compute_cpp_kernel_id,
    compute_family_id,
    compute_text_kernel_id,
    compute_triton_kernel_id,
    find_statement,
    list_entries,
    read_comment,
)

# Reads the calls of a compiled module in execution order, from its ``call`` function.
#
# Calls of partitions and subgraphs are followed. Allocations, views, assertions and stream look-ups do not count as
# calls.


_METHODS = {"copy_": "copy_", "zero_": "zero_", "fill_": "fill_", "item": "item", "clone": "clone"}
"""Methods of tensors that launch kernels; other methods only inspect a tensor."""

_LAST_METHODS = {"sum": "aten.sum", "prod": "aten.prod", "to": "aten.to"}
"""Methods that are called on a workspace. A kernel that reduces rows and columns at once writes its partial results
over the columns there: ``buf3 = workspace_0[…].view(512, 1024).sum(dim=0)``."""

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
"""Operators by ``extern_kernels`` name, if the names differ."""

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
    handle_name: str = ""  # the name in its handle, if that is another one


def read_calls(
    tree: ast.Module, lines: Sequence[str], kernels: Collection[str], choices: Mapping[str, tuple[str, ...]]
) -> tuple[CallSite, ...]:
    """Returns the calls of a parsed module.

    Args:
        tree: the syntax tree of the module.
        lines: the lines of its text, for the comments.
        kernels: the variables that hold kernels.
        choices: the kernels of each multi-kernel.
    """
    reader = _CallReader(tree, lines, frozenset(kernels), choices)
    reader.read()
    return tuple(reader.sites)


class _CallReader:
    def __init__(
        self, tree: ast.Module, lines: Sequence[str], kernels: frozenset[str], choices: Mapping[str, tuple[str, ...]]
    ) -> None:
        self._lines = lines
        self._kernels = kernels
        self._choices = choices
        self._functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        self._entry = find_entry(tree)
        self._partitions = list_partition_names(tree)
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
        for call in _walk_in_order(node):
            target = self._target(call) or _find_last_reduction(node, call)
            if target is None:
                continue
            if target.function is not None:
                if target.function not in self._open and len(self._open) < DEEPEST_CALLS:
                    self._enter(self._functions[target.function], conditional)
                self._read_to = line
            else:
                self._add(target, line, conditional)

    def _add(self, target: _Target, line: int, conditional: bool) -> None:
        is_read = target.commented or target.handle_name
        comment = read_comment(self._lines[self._read_to : line - 1] if is_read else ())
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
                handle=comment.handle_of(target.handle_name or target.name),
                conditional=conditional,
                alternatives=target.alternatives,
            )
        )

    def _target(self, call: ast.Call) -> _Target | None:
        function = call.func
        if isinstance(function, ast.Subscript):
            return self._find_partition(function)
        path = write_dotted_name(function)
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

    def _find_partition(self, function: ast.Subscript) -> _Target | None:
        number = function.slice.value if isinstance(function.slice, ast.Constant) else None
        if write_dotted_name(function.value) != ("self", "partitions") or not isinstance(number, int):
            return None
        name = self._partitions[number] if 0 <= number < len(self._partitions) else ""
        return _Target(name, function=name) if name in self._functions else None


def _find_last_reduction(statement: ast.AST, call: ast.Call) -> _Target | None:
    """Returns the target of a call that reduces a workspace to a buffer; ``None`` for other calls.

    The handle of the call contains the buffer's name.
    """
    method = call.func
    if not (isinstance(method, ast.Attribute) and method.attr in _LAST_METHODS and isinstance(statement, ast.Assign)):
        return None
    node, buffer = method.value, statement.targets[0]
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    if not (isinstance(node, ast.Name) and node.id.startswith("workspace_") and isinstance(buffer, ast.Name)):
        return None
    name, operator = f"{node.id}.{method.attr}", _LAST_METHODS[method.attr]
    return _Target(name, operator=operator, commented=False, handle_name=buffer.id)


def find_entry(tree: ast.Module) -> ast.FunctionDef | None:
    """Returns the function that runs the module: ``Runner.call``, or ``call`` in a module without partitions."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == "call":
            return node
        if isinstance(node, ast.ClassDef) and node.name == "Runner":
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "call":
                    return method
    return None


def list_partition_names(tree: ast.Module) -> tuple[str, ...]:
    """Returns the names of the functions in ``self.partitions``, in order."""
    for node in tree.body:
        value = node.value if isinstance(node, ast.Assign) else None
        if isinstance(value, ast.Call) and write_dotted_name(value.func) == ("Runner",):
            lists = [keyword.value for keyword in value.keywords if keyword.arg == "partitions"]
            items = [item for one in lists if isinstance(one, ast.List) for item in one.elts]
            return tuple(item.id for item in items if isinstance(item, ast.Name))
    return ()


DEEPEST_CALLS = 16
"""Maximum depth of nested functions of a module that are followed; partitions and subgraphs have one or two levels."""

_LEAVES = (ast.Name, ast.Constant, ast.expr_context)


def _walk_in_order(node: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, _LEAVES):
            yield from _walk_in_order(child)
    if isinstance(node, ast.Call):
        yield node


def write_dotted_name(node: ast.expr) -> tuple[str, ...]:
    """Returns the parts of a dotted name; an empty tuple for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def find_operator(path: tuple[str, ...]) -> str | None:
    """Returns the operator of a dotted name, for example ``aten.convolution``; ``None`` for views and other names."""
    operator = _name_operator(path)
    return None if operator in _VIEWS else operator


def _name_operator(path: tuple[str, ...]) -> str | None:
    if path[0] == "extern_kernels" and len(path) > 1:
        return _EXTERN.get(path[1], f"aten.{path[1]}")
    if path[0] in _NAMESPACES and len(path) > 1:
        return f"{_NAMESPACES[path[0]]}.{path[1]}"
    if path[:2] == ("torch", "ops") and len(path) > 3:
        return f"{path[2]}.{path[3]}"
    if path[:2] == ("torch", "_higher_order_ops"):
        return f"higher_order.{path[-1]}"
    return _FUNCTIONS.get(".".join(path))


# Reads the kernels that a compiled module passes to ``async_compile``.
#
# The category of a kernel follows from its decorator and its calls, never from its name.


MULTI_KERNELS = ("multi_kernel", "size_hint_multi_kernel")
_CPP = ("cpp", "cpp_pybinding")
# Languages of matrix templates. Kernels in further languages (halide, pallas, metal) have the category OTHER.
_TEMPLATES = ("cuda", "cutlass", "rocm", "xpu", "cutedsl", "nv_universal_gemm")
_HEURISTICS = {
    "pointwise": Category.POINTWISE,
    "reduction": Category.REDUCTION,
    "persistent_reduction": Category.PERSISTENT_REDUCTION,
    "cooperative_reduction": Category.COOPERATIVE_REDUCTION,
    "split_scan": Category.SPLIT_SCAN,
    "template": Category.TEMPLATE,
    "user_autotune": Category.USER_TRITON,
    "foreach": Category.FOREACH,
}
_KIND = re.compile(r"^@triton_heuristics\.(\w+)\(", re.MULTILINE)
_NUMBER = r"'{}': ([0-9]{{1,18}}(?:\.[0-9]{{1,18}})?(?:e-[0-9]{{1,2}})?)"
_GIGABYTES = re.compile(_NUMBER.format("kernel_num_gb"))
_FLOP = re.compile(_NUMBER.format("kernel_flop"))
_REDUCTIONS = re.compile(_NUMBER.format("num_reduction"))
_FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class Definition:
    """A kernel's definition: the variable, the method of ``async_compile``, the source and the comment above it."""

    name: str
    language: str
    source: str
    line: int
    comment: Comment


def read_definitions(tree: ast.Module, lines: Sequence[str], first_line: int = 0) -> tuple[Definition, ...]:
    """Returns the kernels of a parsed module in order.

    Args:
        tree: the syntax tree.
        lines: the lines of the text, for the comments.
        first_line: added to the line numbers.
    """
    found = []
    for name, method, call in _list_compilations(tree):
        if method in MULTI_KERNELS:
            continue
        source = max(_list_strings(call), key=len, default="")
        comment = read_comment(_find_comment_above(lines, call.lineno - 1))
        found.append(Definition(name, method, source, call.lineno + first_line, comment))
    return tuple(found)


def read_multi_kernels(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """Returns by name the kernels of each multi-kernel, which chooses one of them at run time."""
    choices = {}
    for name, method, call in _list_compilations(tree):
        if method in MULTI_KERNELS:
            nodes = (node for argument in call.args for node in ast.walk(argument))
            choices[name] = tuple(node.id for node in nodes if isinstance(node, ast.Name))
    return choices


def describe_kernel(definition: Definition, called_ops: Iterable[str]) -> KernelDefinition:
    """Makes the record of a kernel. ``called_ops`` are the ATen operators in the comments at its calls."""
    source, language = definition.source, definition.language
    category = _find_category(definition, {*definition.comment.aten_ops, *called_ops})
    flop = _FLOP.search(source) if category is Category.TEMPLATE else None
    moved = _GIGABYTES.search(source)
    kernel_hash = definition.comment.kernel_hash
    if kernel_hash is None and language == "triton":
        kernel_hash = _compute_file_hash(source)
    return KernelDefinition(
        name=definition.name,
        event_name=_name_event(definition),
        kernel_id=_compute_kernel_id(definition),
        category=category,
        language="cpp" if language in _CPP else language,
        source=source,
        line=definition.line,
        kernel_hash=kernel_hash,
        moved_bytes=round(float(moved.group(1)) * 1e9) if moved else None,
        template_flops=(round(float(flop.group(1))) or None) if flop else None,
        family_id=compute_family_id("cpp" if language in _CPP else language, source, definition.name),
        padded_sides=definition.comment.padded_sides,
    )


def _list_compilations(tree: ast.Module) -> Iterable[tuple[str, str, ast.Call]]:
    for statement in tree.body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call)):
            continue
        target, function = statement.targets[0], statement.value.func
        if not isinstance(target, ast.Name):
            continue
        if isinstance(function, ast.Attribute) and ast.unparse(function.value) == "async_compile":
            yield target.id, function.attr, statement.value
        elif isinstance(function, ast.Name) and function.id == "compile_mps_shader":  # torch before 2.13
            yield target.id, "metal", statement.value


def _list_strings(call: ast.Call) -> list[str]:
    return [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _find_comment_above(lines: Sequence[str], place: int) -> list[str]:
    start = place
    while start > 0 and lines[start - 1].startswith("#"):
        start -= 1
    return list(lines[start:place])


def _find_category(definition: Definition, aten_ops: set[str]) -> Category:
    if definition.language in _CPP:
        return Category.CPP
    if definition.language in _TEMPLATES:
        return Category.TEMPLATE
    kind = _KIND.search(definition.source)
    if definition.language != "triton" or kind is None:
        return Category.OTHER
    if "'combo_grid_meta'" in definition.source:
        return _combine_categories(kind.group(1), aten_ops)
    if kind.group(1) == "fixed_config":
        return _remove_variable_parts(definition.source)
    return _HEURISTICS.get(kind.group(1), Category.OTHER)


def _combine_categories(kind: str, aten_ops: set[str]) -> Category:
    # Foreach operators and horizontally fused kernels share a generator. Without autotuning of combo kernels both use
    # the foreach heuristic, so that only their operators distinguish them, which are not always recorded.
    if any("._foreach_" in name for name in aten_ops):
        return Category.FOREACH
    return Category.FOREACH if kind == "foreach" and not aten_ops else Category.COMBO


def _remove_variable_parts(source: str) -> Category:
    reductions = _REDUCTIONS.search(source)
    if "'RSPLIT'" in source:
        return Category.COOPERATIVE_REDUCTION
    if reductions is None or float(reductions.group(1)) == 0:
        return Category.POINTWISE
    return Category.REDUCTION if re.search(r"for r\w*offset in", source) else Category.PERSISTENT_REDUCTION


def _name_event(definition: Definition) -> str:
    if definition.language != "triton":
        return definition.name
    kind = _KIND.search(definition.source)
    function = _FUNCTION.search(definition.source, kind.end()) if kind else None
    return function.group(1) if function else definition.name


def _compute_kernel_id(definition: Definition) -> str:
    if definition.language == "triton":
        return compute_triton_kernel_id(definition.source)
    if definition.language in _CPP:
        return compute_cpp_kernel_id(definition.source)
    return compute_text_kernel_id(definition.language, definition.source, definition.name)


def _compute_file_hash(source: str) -> str:
    # Inductor names a kernel's file by a hash of its content; the module has no comment with the hash of user-defined
    # kernels.
    digest = hashlib.sha256(source.strip().encode()).digest()
    return "c" + base64.b32encode(digest)[:51].decode().lower()


def is_kernel_file(tree: ast.Module) -> bool:
    """Whether the text is Inductor's file of a single Triton kernel, and not a module."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    decorators = [ast.unparse(decorator) for function in functions for decorator in function.decorator_list]
    return any(text.startswith("triton_heuristics.") for text in decorators)


# Keys of Triton kernels in ``torch._inductor.config.autotune_lookup_table``.
#
# The key is a hash of the size hints and of the function's text without its name. Inductor computes it in
# ``generate_lookup_hash_from_source_code`` of ``runtime/triton_heuristics.py`` (torch 2.9 to 2.15).


FUSED = "_fused_"
"""Inductor looks up only kernels whose text holds this."""

_HEURISTIC = re.compile(r"^@triton_heuristics\.", re.MULTILINE)
_NAME = re.compile(r"^def [^(]+\(")
_NO_X_DIM = "no_x_dim"
"""Key in ``inductor_meta`` of reductions and scans: if it is set, heuristics set the size hint of ``x`` to 1."""


@dataclass(frozen=True)
class KernelKey:
    """The values that distinguish a Triton kernel from others in a process."""

    key: str  # Inductor's key; kernels that differ only in the types of their arguments share it
    types: str  # the types of the parameters, see :func:`format_types`
    name: str  # the name of the function

    @property
    def is_looked_up(self) -> bool:
        """Whether Inductor looks for this kernel in its table."""
        return FUSED in self.name


def lookup_key(size_hints: str, function: str) -> str:
    """Returns the key of a kernel, from ``str(size_hints)`` and the function's text, which begins with ``def``."""
    return hashlib.sha256((size_hints + _NAME.sub("(", function.strip(), count=1)).encode()).hexdigest()


def format_types(signature: dict[str, str]) -> str:
    """Returns the types of a kernel's parameters in one text, from ``triton_meta["signature"]``."""
    return ",".join(f"{name}:{kind}" for name, kind in sorted(signature.items()))


def find_kernel_key(text: str) -> KernelKey | None:
    """Returns the key of the one kernel that a text defines, such as a standalone file; ``None`` if it defines none.

    Raises:
        InductorBenchError: the text does not parse.
    """
    node = find_statement(text, _HEURISTIC)
    decorator = find_heuristic(node) if isinstance(node, ast.FunctionDef) else None
    if not isinstance(node, ast.FunctionDef) or decorator is None:
        return None
    function = "\n".join(text.split("\n")[node.lineno - 1 : node.end_lineno])
    key = lookup_key(str(_read_size_hints(decorator)), function)
    return KernelKey(key, format_types(_read_signature(decorator)), node.name)


def _read_size_hints(decorator: ast.Call) -> dict[str, int] | None:
    """Returns the size hints as the heuristics of a kernel leave them; ``None`` if it has none."""
    node = _read_argument(decorator, "size_hints")
    if not isinstance(node, ast.Dict):
        return None
    hints: dict[str, int] = _read_table(node, "size hints")
    return hints | {"x": 1} if _is_set(_read_table_value(decorator, "inductor_meta", _NO_X_DIM)) else hints


def _is_set(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def find_heuristic(function: ast.FunctionDef) -> ast.Call | None:
    """Returns the decorator of Inductor's launcher."""
    calls = [decorator for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    return next((call for call in calls if write_dotted_name(call.func)[:1] == ("triton_heuristics",)), None)


def _read_signature(decorator: ast.Call) -> dict[str, str]:
    node = _read_table_value(decorator, "triton_meta", "signature")
    types = _read_table(node, "signature") if node is not None else {}
    return {str(name): str(kind) for name, kind in types.items()}


def _read_table_value(decorator: ast.Call, table: str, name: str) -> ast.expr | None:
    """Returns the value of an entry of a table, which is an argument of the decorator."""
    return dict(list_entries(_read_argument(decorator, table))).get(name)


def _read_argument(decorator: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in decorator.keywords if keyword.arg == name), None)


def _read_table(node: ast.expr, what: str) -> Any:
    """Returns the table that a node contains as literals."""
    try:
        return dict(ast.literal_eval(node))
    except (ValueError, TypeError) as error:
        raise InductorBenchError(f"the {what} of a kernel cannot be read as a table") from error
