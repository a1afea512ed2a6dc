"""The arguments that each kernel of a multi-kernel takes, from the module's tables of slices."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .arguments import Value


def read_argument_slices(tree: ast.Module) -> dict[str, dict[int, list[slice]]]:
    """By multi-kernel and by the index of its kernel: the slices of the arguments that the kernel takes."""
    tables: dict[str, ast.Dict] = {}
    found = {}
    for statement in tree.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            continue
        name, value = statement.targets[0].id, statement.value
        if isinstance(value, ast.Dict):
            tables[name] = value
        elif isinstance(value, ast.Call):
            given = [keyword.value for keyword in value.keywords if keyword.arg == "arg_index"]
            if given and isinstance(given[0], ast.Name) and given[0].id in tables:
                found[name] = _read_slices(tables[given[0].id])
    return found


def select_arguments(values: Sequence[Value | None], parts: Sequence[slice] | None) -> list[Value | None]:
    """The values in the slices; all values where there are no slices."""
    return list(values) if parts is None else [value for part in parts for value in values[part]]


def _read_slices(table: ast.Dict) -> dict[int, list[slice]]:
    parts: dict[int, list[slice]] = {}
    for key, value in zip(table.keys, table.values, strict=True):
        if isinstance(key, ast.Constant) and isinstance(value, ast.List):
            calls = [item for item in value.elts if isinstance(item, ast.Call)]
            found = [_read_slice(call) for call in calls]
            if isinstance(key.value, int) and None not in found:
                parts[key.value] = [one for one in found if one is not None]
    return parts


def _read_slice(call: ast.Call) -> slice | None:
    """The slice of a call with two or three whole numbers, as Inductor writes it; ``None`` for any other call."""
    ends = [argument.value for argument in call.args if isinstance(argument, ast.Constant)]
    whole = all(end is None or type(end) is int for end in ends) and len(ends) == len(call.args) in (2, 3)
    return slice(*ends) if whole and 0 not in ends[2:] else None
