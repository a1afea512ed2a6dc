"""Reads compiled modules with a C++ wrapper, whose kernels and calls are in strings of the Python file."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ...errors import InductorBenchError
from ...records.code.source import CallSite
from .comments import Comment, handle_matches, read_comment
from .cpp_text import find_cpp_functions
from .definitions import Definition, read_definitions
from .syntax import parse

_AUTOTUNING = "Compile-time auto-tuning block"
_LAZY = re.compile(r'\b(\w+)_source = R"TRITON\(\n(.*?)\n\)TRITON"', re.DOTALL)
_ENTRY = re.compile(r"^void inductor_entry_impl\(", re.MULTILINE)
_ENTRY_END = re.compile(r"^\}", re.MULTILINE)
_CALL = re.compile(r"^(?:[\w:<>*&\s]+= )?(?:AOTI_TORCH_ERROR_CODE_CHECK\()?(\w+)\(")
_SHIM = re.compile(r"aoti_torch_(?:cpu|cuda|xpu|mps)_(mkldnn__|mkl__)?(\w+?)(?:_out)?$")
_DISPATCHED = re.compile(r'aoti_torch_call_dispatcher\("(\w+)::(\w+)"')
_COPIES = {"aoti_torch_copy_": "aten.copy_", "aoti_torch_zero_": "aten.zero_"}
_ITEM = re.compile(r"aoti_torch_item_\w+$")
_PROXY = "aoti_torch_proxy_executor_call_function"


@dataclass(frozen=True)
class _Text:
    """A string constant of the module, and the line on which it begins."""

    text: str
    line: int


def read_wrapped_definitions(tree: ast.Module) -> tuple[Definition, ...]:
    """The kernels that a module with a C++ wrapper defines: C++ functions, and Triton kernels as text."""
    found: dict[str, Definition] = {}
    for one in _strings(tree):
        if one.text.lstrip().startswith(_AUTOTUNING):
            found |= {kernel.name: kernel for kernel in _autotuned(one)}
            continue
        for name, source, offset in find_cpp_functions(one.text):
            line = one.line + one.text.count("\n", 0, offset)
            found.setdefault(name, Definition(name, "cpp", source, line, Comment()))
        for match in _LAZY.finditer(one.text):
            line = one.line + one.text.count("\n", 0, match.start())
            found.setdefault(match.group(1), _lazy(match.group(1), match.group(2), line))
    return tuple(found.values())


def read_wrapped_calls(tree: ast.Module, kernels: Collection[str]) -> tuple[CallSite, ...]:
    """The calls of the C++ entry function, in order."""
    sites: list[CallSite] = []
    for one in _strings(tree):
        start = _ENTRY.search(one.text)
        if start is None:
            continue
        end = _ENTRY_END.search(one.text, start.end())
        first = one.line + one.text.count("\n", 0, start.start())
        body = one.text[start.start() : end.start() if end else None].splitlines()
        sites += _entry_calls(body, first, frozenset(kernels))
    return tuple(sites)


def _entry_calls(body: list[str], first_line: int, kernels: frozenset[str]) -> list[CallSite]:
    sites: list[CallSite] = []
    read_to = 0
    for place, line in enumerate(body):
        match = _CALL.match(line.strip())
        if match is None:
            continue
        called = match.group(1).removeprefix("call_")
        comment = read_comment(body[read_to:place])
        operator = None if called in kernels else _operator(match.group(1), line, comment)
        if called not in kernels and operator is None:
            continue
        read_to = place + 1
        sites.append(
            CallSite(
                index=len(sites),
                line=first_line + place,
                target=called,
                kernel=called if called in kernels else None,
                operator=operator,
                source_nodes=comment.source_nodes,
                aten_ops=comment.aten_ops,
                handle=comment.handle if handle_matches(comment.handle, called) else None,
            )
        )
    return sites


def _operator(function: str, line: str, comment: Comment) -> str | None:
    if function in _COPIES:
        return _COPIES[function]
    if _ITEM.match(function):
        return "aten.item"
    if dispatched := _DISPATCHED.search(line):
        return f"{dispatched.group(1)}.{dispatched.group(2)}"
    if function == _PROXY:
        return comment.aten_ops[-1] if comment.aten_ops else "other"
    shim = _SHIM.match(function)
    if shim is None:
        return None
    namespace, name = (shim.group(1) or "aten").rstrip("_"), shim.group(2)
    if namespace != "aten":
        return f"{namespace}._{name}"
    # The shim's name ends in the overload; the comment tells where the operator's own name ends.
    known = [op for op in comment.aten_ops if f"aten.{name}".startswith(op)]
    return max(known, key=len, default=f"aten.{name}")


def autotuning_blocks(tree: ast.Module) -> Iterator[ast.Module]:
    """The blocks of Python code before a C++ wrapper that launch each Triton kernel once to tune it."""
    for one in _strings(tree):
        if one.text.lstrip().startswith(_AUTOTUNING) and (block := _parse_block(one)[0]) is not None:
            yield block


def _parse_block(block: _Text) -> tuple[ast.Module | None, str, int]:
    """The code below the heading as a tree (``None`` where it does not parse), as text, and the lines before it."""
    heading, _, code = block.text.partition("\n")
    lines_before = 1
    if not heading.strip():
        _, _, code = code.partition("\n")
        lines_before = 2
    try:
        return parse(code), code, lines_before
    except InductorBenchError:
        return None, code, lines_before


def _autotuned(block: _Text) -> tuple[Definition, ...]:
    tree, code, lines_before = _parse_block(block)
    return () if tree is None else read_definitions(tree, code.splitlines(), block.line + lines_before - 1)


def _lazy(name: str, text: str, line: int) -> Definition:
    try:
        tree = parse(f"{name} = {text}")
    except InductorBenchError:
        return Definition(name, "triton", text, line, Comment())
    for kernel in read_definitions(tree, ()):
        return Definition(name, kernel.language, kernel.source, line, Comment())
    return Definition(name, "triton", text, line, Comment())


def _strings(tree: ast.Module) -> Iterator[_Text]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            yield _Text(node.value, node.lineno)
