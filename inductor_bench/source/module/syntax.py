"""Parses untrusted Python text, and checks the syntax tree."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

from ...errors import InductorBenchError

_DEEPEST = 150
"""Maximum number of levels of a tree. Inductor's trees have about twenty; a level takes several frames of the stack."""

_STATEMENT = re.compile(r"^(?=[^\s)\]}#])", re.MULTILINE)
"""The begin of a line that may begin a top-level statement."""

_MOST_ENDS = 64
"""Number of ends that are tried for a statement before the whole text is parsed."""

_DIGITS = re.compile(r"\d{300}")
_LARGEST = 2**63
_UNPARSED = (SyntaxError, ValueError, RecursionError, MemoryError)
_LEAVES = (ast.Name, ast.expr_context, ast.operator)


def parse(text: str) -> ast.Module:
    """The syntax tree of a Python text. Its numbers fit into 64 bits, its texts are Unicode, and its depth is limited.

    Raises:
        InductorBenchError: the text is not Python, or exceeds a limit; the message says which.
    """
    _check_digits(text)
    try:
        tree = ast.parse(text)
    except _UNPARSED as error:
        what = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
        raise InductorBenchError(f"it is not Python ({what})") from None
    _check_limits(tree)
    return tree


def find_statement(text: str, first_line: re.Pattern[str]) -> ast.stmt | None:
    """The first top-level statement that begins where a pattern matches; ``None`` where the pattern does not match.

    It parses from there to the statement's end: a standalone file as a whole takes some thirty times as long. The line
    numbers are those of the text.

    Raises:
        InductorBenchError: as :func:`parse`.
    """
    found = first_line.search(text)
    if found is None:
        return None
    begin, lines_before = found.start(), text.count("\n", 0, found.start())
    for number, end in enumerate(_ends_after(text, begin)):
        if number == _MOST_ENDS:
            break
        statement = text[begin:end]
        try:
            tree = ast.parse("\n" * lines_before + statement)
        except _UNPARSED:
            continue
        _check_digits(statement)
        _check_limits(tree)
        return tree.body[0] if tree.body else None
    return next((node for node in parse(text).body if _first_line(node) == lines_before + 1), None)


def _ends_after(text: str, begin: int) -> Iterator[int]:
    """The places at which the statement that begins at ``begin`` may end."""
    yield from (found.start() for found in _STATEMENT.finditer(text, begin + 1))
    yield len(text)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(one.lineno for one in decorators)])


def _check_digits(text: str) -> None:
    if _DIGITS.search(text):
        raise InductorBenchError("it holds a number of hundreds of digits")


def _check_limits(tree: ast.Module) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node) if not isinstance(child, _LEAVES)]
        for node in level:
            if isinstance(node, ast.Constant) and not _is_usable(node.value):
                raise InductorBenchError(f"line {node.lineno} holds {_words(node.value)}")
        if not level:
            return
    raise InductorBenchError(f"it is nested more than {_DEEPEST} deep")


def _is_usable(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or value <= _LARGEST


def _words(value: object) -> str:
    return "half of a surrogate pair" if isinstance(value, str) else "a number beyond what 64 bits hold"
