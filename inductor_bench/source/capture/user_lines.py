"""Finds the line of the user's program that called an operator, from what a trace with Python stacks says of it.

The profiler names the function and the line on which it begins. The line of the call follows from the function's text:
it is the only one that calls a function of the called name. Where there are several, the function's first line stands.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...records.code.source import SourceLine
from ...records.traced.program import UserCall


class UserFiles:
    """The files of the user's program.

    Args:
        roots: the folders to which the files of a trace are relative, in the order in which they are tried.
    """

    def __init__(self, roots: Sequence[Path]) -> None:
        self._roots = tuple(roots)
        self._found: dict[UserCall, SourceLine | None] = {}

    def find(self, call: UserCall) -> SourceLine | None:
        """The line of a call; ``None`` where the trace names no function of the user's."""
        if call not in self._found:
            self._found[call] = self._find(call) if call.file else None
        return self._found[call]

    def _find(self, call: UserCall) -> SourceLine:
        path = next((root / call.file for root in self._roots if (root / call.file).is_file()), None)
        if path is None:
            return SourceLine(call.file, call.line, call.function, "")
        line = call.line if call.running else _line_of_call(path, call)
        return SourceLine(str(path), line, call.function, linecache.getline(str(path), line).strip())


def _line_of_call(path: Path, call: UserCall) -> int:
    function = _functions(path).get((call.line, call.function))
    if function is None:
        return call.line
    lines = {line for line, name in _calls(function) if name == call.called}
    return lines.pop() if len(lines) == 1 else call.line


@functools.lru_cache(maxsize=64)
def _functions(path: Path) -> dict[tuple[int, str], ast.AST]:
    """The functions of a file by their first line and name. A decorator's line counts as the first."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return {}
    found: dict[tuple[int, str], ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            found[first, node.name] = found[node.lineno, node.name] = node
    return found


def _calls(function: ast.AST) -> Iterator[tuple[int, str]]:
    """The line and the bare name of each call in a function."""
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield node.func.end_lineno or node.lineno, name
