"""Finds the line of the user's program that called an operator, from what a trace with Python stacks says of it.

The profiler names the function and the line on which it begins. The line of the call follows from the function's
text: it is the only one that calls a function of that name, that calls a variable or an attribute to which the file
assigns a module of that class, or that holds the operation. If there are several, the function's first line stands
for them. After a graph break Dynamo runs the rest of a function as one of its own, whose name says where it begins.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..records.code import SourceLine
from ..records.traced import UserCall

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<function>.+)_at_(?P<line>\d+)")
_FILE = "<module>"
"""The name of the function that runs a file."""

_OPERATIONS: dict[type[ast.AST], frozenset[str]] = {
    ast.Add: frozenset({"add", "add_"}),
    ast.Sub: frozenset({"sub", "sub_", "rsub"}),
    ast.Mult: frozenset({"mul", "mul_"}),
    ast.Div: frozenset({"div", "div_", "reciprocal"}),
    ast.MatMult: frozenset({"matmul", "mm", "bmm", "linear"}),
    ast.Pow: frozenset({"pow"}),
}
"""The operators that an operation calls."""

_SUBSCRIPT = frozenset({"select", "slice", "index", "index_put_", "unsqueeze"})


class UserFiles:
    """The files of the user's program.

    Args:
        roots: the folders to which the files of a trace are relative, in the order in which they are tried.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._found: dict[UserCall, SourceLine | None] = {}

    def find(self, call: UserCall) -> SourceLine | None:
        """The line of a call; ``None`` if it is unknown."""
        if call not in self._found:
            self._found[call] = self._find(call) if call.file else None
        return self._found[call]

    def _find(self, call: UserCall) -> SourceLine | None:
        path = next((root / call.file for root in self._roots if (root / call.file).is_file()), None)
        if path is None:
            return None if call.function == _FILE else SourceLine(call.file, call.line, call.function, "")
        line = _line_of_call(path, call)
        if line is None:
            return None
        return SourceLine(str(path), line, call.function, linecache.getline(str(path), line).strip())


def _line_of_call(path: Path, call: UserCall) -> int | None:
    tree = _parse(path)
    if tree is None:
        return None if call.function == _FILE else call.line
    resumed = _RESUMED.fullmatch(call.function)
    if resumed is not None:
        call = call._replace(function=resumed["function"], line=int(resumed["line"]))
    function = tree if call.function == _FILE else _function(tree, call)
    calls = list(_calls(function)) if function is not None else []
    made = _made(tree)
    for called in call.called:
        names, constructed = made.get(called, (set(), set()))
        wanted = {called, *names}
        lines = {line for line, found in calls if not wanted.isdisjoint(found)} - constructed
        if resumed is not None:
            lines = {line for line in lines if line >= call.line}
        if len(lines) == 1:
            return lines.pop()
    if resumed is not None:
        return None
    if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return function.lineno
    return None if call.function == _FILE else call.line


@functools.lru_cache(maxsize=64)
def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None


@functools.lru_cache(maxsize=64)
def _made(tree: ast.Module) -> dict[str, tuple[set[str], set[int]]]:
    """The variables and attributes to which a file assigns an object, and the lines that do, by the class."""
    found: dict[str, tuple[set[str], set[int]]] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        target, value = node.targets[0], node.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            pairs = list(zip(target.elts, value.elts, strict=False))
        for place, made in pairs:
            name = place.attr if isinstance(place, ast.Attribute) else getattr(place, "id", None)
            if name is not None and isinstance(made, ast.Call):
                names, lines = found.setdefault(_called_name(made), (set(), set()))
                names.add(name)
                if _called_name(made)[:1].isupper():  # a class
                    lines.add(made.func.end_lineno or made.lineno)
    return found


def _called_name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _function(tree: ast.Module, call: UserCall) -> ast.AST | None:
    """The innermost function of the call's name that holds its line. A decorator belongs to its function."""
    found: ast.AST | None = None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == call.function:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            if first <= call.line <= (node.end_lineno or first):
                found = node
    return found


def _calls(body: ast.AST) -> Iterator[tuple[int, frozenset[str]]]:
    """The lines of calls and operations in a function or a file, without the functions in it, and what each calls."""
    waiting = list(ast.iter_child_nodes(body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Call):
            yield node.func.end_lineno or node.lineno, frozenset({_called_name(node)})
        elif isinstance(node, ast.BinOp | ast.AugAssign):
            yield node.lineno, _OPERATIONS.get(type(node.op), frozenset())
        elif isinstance(node, ast.Subscript):
            yield node.lineno, _SUBSCRIPT
