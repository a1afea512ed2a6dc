"""Changes the recorded facts and the source in the text of a standalone file."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from ...errors import InductorBenchError
from ..module.syntax import find_statement
from .cpp import quoted
from .header import recorded_text


def edit_standalone(text: str, changes: Mapping[str, Any], source: str = "") -> str:
    """The text of a standalone file with changes.

    Args:
        text: the text of the file.
        changes: new values of ``RECORDED`` by key.
        source: the new C++ text; empty where it stays.

    Raises:
        InductorBenchError: a part to change is missing or no plain literal, because the file was rewritten.
    """
    recorded = recorded_facts(text)
    text = _replaced(text, "RECORDED", recorded_text({**recorded, **changes}).rstrip("\n"))
    if source:
        text = _replaced(text, "SOURCE", f"SOURCE = {quoted(source)}")
    return text


def recorded_facts(text: str) -> dict[str, Any]:
    """The ``RECORDED`` of a standalone file.

    Raises:
        InductorBenchError: it is missing or no plain literal.
    """
    return _literal(text, "RECORDED")


def source_text(text: str) -> str:
    """The C++ text of a standalone file.

    Raises:
        InductorBenchError: it is missing or no plain literal.
    """
    try:
        value = ast.literal_eval(_assignment(text, "SOURCE").value)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, str):
        raise InductorBenchError("SOURCE is not a plain literal in this file, so it cannot be read")
    return value


def _assignment(text: str, name: str) -> ast.Assign:
    node = find_statement(text, re.compile(rf"^{name} = ", re.MULTILINE))
    if isinstance(node, ast.Assign):
        return node
    raise InductorBenchError(f"the file has no {name}", "give a file that inductor-bench extract wrote")


def _literal(text: str, name: str) -> dict[str, Any]:
    try:
        value = ast.literal_eval(_assignment(text, name).value)
    except (ValueError, TypeError):
        value = None
    if not isinstance(value, dict):
        raise InductorBenchError(f"{name} is not a plain literal in this file, so it can be neither read nor changed")
    return value


def _replaced(text: str, name: str, statement: str) -> str:
    node = _assignment(text, name)
    lines = text.split("\n")
    return "\n".join([*lines[: node.lineno - 1], *statement.split("\n"), *lines[node.end_lineno :]])
