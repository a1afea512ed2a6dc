"""Finds damage in a compiled module that was edited or cut short but is still valid Python."""

from __future__ import annotations

import ast
import builtins
from collections import Counter

from .calls import dotted, find_entry


def find_undefined(tree: ast.Module) -> tuple[tuple[str, int], ...]:
    """The names that the module calls, as ``name(...)`` or ``name.run(...)``, but never defines, with their counts."""
    known = set(dir(builtins))
    called: Counter[str] = Counter()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            head, *rest = dotted(node.func) or ("",)
            called.update([head] if head and rest in ([], ["run"]) else ())
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            known.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.arg):
            known.add(node.arg)
        elif isinstance(node, ast.alias):
            known.add((node.asname or node.name).partition(".")[0])
    return tuple((name, count) for name, count in called.items() if name not in known)


def is_cut_short(tree: ast.Module) -> bool:
    """Whether the function that runs the module lacks the ``return`` that Inductor always writes."""
    entry = find_entry(tree)
    return entry is not None and not any(isinstance(node, ast.Return) for node in ast.walk(entry))
