"""Reads the kernels that a compiled module passes to ``async_compile``.

The category of a kernel follows from its decorator and its calls, never from its name.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...records.category import Category
from ...records.code.source import KernelDefinition
from .comments import Comment, read_comment
from .identity import cpp_kernel_id, family_id, text_kernel_id, triton_kernel_id

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
    """The kernels of a parsed module in order.

    Args:
        tree: the syntax tree.
        lines: the lines of the text, for the comments.
        first_line: added to the line numbers.
    """
    found = []
    for name, method, call in _compilations(tree):
        if method in MULTI_KERNELS:
            continue
        source = max(_strings(call), key=len, default="")
        comment = read_comment(_block_above(lines, call.lineno - 1))
        found.append(Definition(name, method, source, call.lineno + first_line, comment))
    return tuple(found)


def read_multi_kernels(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    """The kernels of each multi-kernel, which chooses one of them at run time, by the multi-kernel's name."""
    choices = {}
    for name, method, call in _compilations(tree):
        if method in MULTI_KERNELS:
            nodes = (node for argument in call.args for node in ast.walk(argument))
            choices[name] = tuple(node.id for node in nodes if isinstance(node, ast.Name))
    return choices


def describe_kernel(definition: Definition, called_ops: Iterable[str]) -> KernelDefinition:
    """The record of a kernel. ``called_ops`` are the ATen operators in the comments at its calls."""
    source, language = definition.source, definition.language
    category = _category(definition, {*definition.comment.aten_ops, *called_ops})
    flop = _FLOP.search(source) if category is Category.TEMPLATE else None
    moved = _GIGABYTES.search(source)
    kernel_hash = definition.comment.kernel_hash
    if kernel_hash is None and language == "triton":
        kernel_hash = _file_hash(source)
    return KernelDefinition(
        name=definition.name,
        event_name=_event_name(definition),
        kernel_id=_kernel_id(definition),
        category=category,
        language="cpp" if language in _CPP else language,
        source=source,
        line=definition.line,
        kernel_hash=kernel_hash,
        moved_bytes=round(float(moved.group(1)) * 1e9) if moved else None,
        template_flops=(round(float(flop.group(1))) or None) if flop else None,
        family_id=family_id("cpp" if language in _CPP else language, source, definition.name),
        padded_sides=definition.comment.padded_sides,
    )


def _compilations(tree: ast.Module) -> Iterable[tuple[str, str, ast.Call]]:
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


def _strings(call: ast.Call) -> list[str]:
    return [node.value for node in call.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _block_above(lines: Sequence[str], place: int) -> list[str]:
    start = place
    while start > 0 and lines[start - 1].startswith("#"):
        start -= 1
    return list(lines[start:place])


def _category(definition: Definition, aten_ops: set[str]) -> Category:
    if definition.language in _CPP:
        return Category.CPP
    if definition.language in _TEMPLATES:
        return Category.TEMPLATE
    kind = _KIND.search(definition.source)
    if definition.language != "triton" or kind is None:
        return Category.OTHER
    if "'combo_grid_meta'" in definition.source:
        return _combined(kind.group(1), aten_ops)
    if kind.group(1) == "fixed_config":
        return _fixed(definition.source)
    return _HEURISTICS.get(kind.group(1), Category.OTHER)


def _combined(kind: str, aten_ops: set[str]) -> Category:
    # Foreach operators and horizontally fused kernels share a generator. Without autotuning of combo kernels both use
    # the foreach heuristic, so that only their operators distinguish them, which are not always recorded.
    if any("._foreach_" in name for name in aten_ops):
        return Category.FOREACH
    return Category.FOREACH if kind == "foreach" and not aten_ops else Category.COMBO


def _fixed(source: str) -> Category:
    reductions = _REDUCTIONS.search(source)
    if "'RSPLIT'" in source:
        return Category.COOPERATIVE_REDUCTION
    if reductions is None or float(reductions.group(1)) == 0:
        return Category.POINTWISE
    return Category.REDUCTION if re.search(r"for r\w*offset in", source) else Category.PERSISTENT_REDUCTION


def _event_name(definition: Definition) -> str:
    if definition.language != "triton":
        return definition.name
    kind = _KIND.search(definition.source)
    function = _FUNCTION.search(definition.source, kind.end()) if kind else None
    return function.group(1) if function else definition.name


def _kernel_id(definition: Definition) -> str:
    if definition.language == "triton":
        return triton_kernel_id(definition.source)
    if definition.language in _CPP:
        return cpp_kernel_id(definition.source)
    return text_kernel_id(definition.language, definition.source, definition.name)


def _file_hash(source: str) -> str:
    # Inductor names a kernel's file by a hash of its content; the module has no comment with the hash of user-defined
    # kernels.
    digest = hashlib.sha256(source.strip().encode()).digest()
    return "c" + base64.b32encode(digest)[:51].decode().lower()


def is_kernel_file(tree: ast.Module) -> bool:
    """Whether the text is Inductor's file of a single Triton kernel, and not a module."""
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    decorators = [ast.unparse(decorator) for function in functions for decorator in function.decorator_list]
    return any(text.startswith("triton_heuristics.") for text in decorators)
