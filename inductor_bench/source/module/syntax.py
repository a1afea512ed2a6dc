"""Parses untrusted Python text, and checks the syntax tree."""

from __future__ import annotations

import ast
import math
import re

from ...errors import InductorBenchError

_DEEPEST = 150
"""Maximum number of levels of a tree. Inductor's trees have about twenty; a level takes several frames of the stack."""

_DIGITS = re.compile(r"\d{300}")
_LARGEST = 2**63
_LEAVES = (ast.Name, ast.expr_context, ast.operator)


def parse(text: str) -> ast.Module:
    """The syntax tree of a Python text. Its numbers fit into 64 bits, its texts are Unicode, and its depth is limited.

    Raises:
        InductorBenchError: the text is not Python, or exceeds a limit; the message says which.
    """
    if _DIGITS.search(text):
        raise InductorBenchError("it holds a number of hundreds of digits")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else error
        raise InductorBenchError(f"it is not Python ({what})") from None
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node) if not isinstance(child, _LEAVES)]
        for node in level:
            if isinstance(node, ast.Constant) and not _is_usable(node.value):
                raise InductorBenchError(f"line {node.lineno} holds {_words(node.value)}")
        if not level:
            return tree
    raise InductorBenchError(f"it is nested more than {_DEEPEST} deep")


def _is_usable(value: object) -> bool:
    if isinstance(value, str):
        return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or value <= _LARGEST


def _words(value: object) -> str:
    return "half of a surrogate pair" if isinstance(value, str) else "a number beyond what 64 bits hold"
