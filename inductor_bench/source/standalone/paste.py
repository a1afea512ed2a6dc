"""The harness as text: its modules pasted one after another into a standalone kernel file."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable
from pathlib import Path

HARNESS = Path(__file__).resolve().parent / "harness"

HARNESS_TITLE = "# The harness; it is the same in every file.\n"
HARNESS_END = "# The end of the harness.\n"


def framed_harness(*names: str) -> str:
    """The text of harness modules, between lines by which a process finds it that has it compiled already."""
    return f"{HARNESS_TITLE}\n{harness_text(*names)}\n\n{HARNESS_END}"


@functools.cache
def harness_text(*names: str) -> str:
    """The text of harness modules one after another, with their imports at the top.

    Raises:
        ValueError: two modules define the same name.
    """
    plain: set[str] = set()
    taken: set[str] = set()
    members: dict[str, set[str]] = {}
    bodies = []
    for name in names:
        imports, body = _split_imports((HARNESS / name).read_text(encoding="utf-8"))
        bodies.append(body)
        if twice := taken & (defined := defined_names(body)):
            raise ValueError(f"{name} defines {', '.join(sorted(twice))} once more")
        taken |= defined
        for node in imports:
            if isinstance(node, ast.Import):
                plain.add(ast.unparse(node))
            elif not node.level and node.module and node.module != "__future__":
                members.setdefault(node.module, set()).update(map(ast.unparse, node.names))
    gathered = [f"from {module} import {', '.join(sorted(found))}" for module, found in sorted(members.items())]
    return "\n".join([*sorted(plain), *gathered]) + "\n\n\n" + "\n\n\n".join(bodies) + "\n"


def _split_imports(text: str) -> tuple[list[ast.Import | ast.ImportFrom], str]:
    """The imports at the top level, and the text without these imports and without the module's docstring."""
    lines, imports, dropped = text.splitlines(), [], set[int]()
    for index, node in enumerate(ast.parse(text).body):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif index or not isinstance(node, ast.Expr):
            continue
        dropped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    body = "\n".join(line for number, line in enumerate(lines, 1) if number not in dropped)
    return imports, body.strip("\n")


@functools.lru_cache(maxsize=64)
def defined_names(text: str) -> frozenset[str]:
    """The names that a Python text defines at its top level."""
    return names_in(ast.parse(text).body)


def names_in(statements: Iterable[ast.stmt]) -> frozenset[str]:
    """The names that statements define, without imported names."""
    found: set[str] = set()
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found.update(each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name))
    return frozenset(found)
