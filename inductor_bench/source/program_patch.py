"""Puts settings into the text of a program: keywords into its calls, and lines after its imports."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

OPTIMIZERS = frozenset(
    {"Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
)


def with_keywords(text: str, names: Iterable[str], keywords: Mapping[str, str]) -> str | None:
    """The text with keywords in the only call of a function of one of these names.

    Args:
        text: the program.
        names: names as they stand before the parenthesis, without what is before the last dot; ``torch.compile`` with
            its dot is only that.
        keywords: the values as Python writes them. One that the call has already is replaced.

    Returns:
        ``None`` if there is no such call, or more than one, or if it cannot be changed.
    """
    wanted = frozenset(names)
    calls = [node for node in _calls(text) if _name(node) in wanted or _last(node) in wanted]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return None
    return _changed(text, [_edit(text, calls[0], name, value) for name, value in keywords.items()])


CAPTURABLE = OPTIMIZERS - {"Adagrad", "SGD"}
"""The optimizers that can count their steps on the device."""


def with_compiled_step(text: str, *, on_host: bool) -> str | None:
    """The text with the only optimizer's step compiled: its learning rate a tensor, and a line after it.

    Returns:
        ``None`` if there is no optimizer or more than one, or if it is not assigned to a name.
    """
    calls = [node for node in _calls(text) if _last(node) in OPTIMIZERS]
    if len(calls) != 1 or any(keyword.arg is None for keyword in calls[0].keywords):
        return None
    call, given = calls[0], {keyword.arg: keyword.value for keyword in calls[0].keywords if keyword.arg}
    made = next((node for node in ast.walk(ast.parse(text)) if _assigns(node, call)), None)
    if not isinstance(made, ast.Assign):
        return None
    name = ast.unparse(made.targets[0])
    keywords = {} if on_host else {"foreach": "True", **({"capturable": "True"} if _last(call) in CAPTURABLE else {})}
    keywords |= {other: "False" for other in ("fused", *(["foreach"] if on_host else [])) if other in given}
    edits = [_edit(text, call, key, value) for key, value in keywords.items()]
    rate = given.get("lr") or (call.args[1] if len(call.args) > 1 else None)
    if rate is not None:
        begin, end = _offset(text, rate.lineno, rate.col_offset), _end(text, rate)
        edits.append((begin, end, f"torch.tensor({text[begin:end]})"))
    place, indent = _end(text, made), " " * made.col_offset
    edits.append((place, place, f"\n{indent}{name}.step = torch.compile(type({name}).step).__get__({name})"))
    return _changed(text, edits)


def _assigns(node: ast.AST, call: ast.Call) -> bool:
    """Whether a node assigns what a call of the same place returns to one name."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return False
    same = (node.value.lineno, node.value.col_offset) == (call.lineno, call.col_offset)
    return same and isinstance(node.targets[0], ast.Name | ast.Attribute)


def with_decorator(text: str, name: str, line: int) -> str | None:
    """The text with ``@torch.compile`` above the innermost function of a name around a line; ``None`` without one."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    found = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == name and node.lineno <= line <= (node.end_lineno or 0)
    ]
    imports = (one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names)
    if not found or all(one.split(".")[0] != "torch" for one in imports):
        return None
    node = max(found, key=lambda one: one.lineno)
    place = _offset(text, node.lineno, 0)
    return _changed(text, [(place, place, f"{' ' * node.col_offset}@torch.compile\n")])


def with_calls(text: str, path: str, name: str) -> str | None:
    """The text in which calls of a function of torch call another one; ``None`` if it calls it nowhere.

    Args:
        text: the program.
        path: of the function; it may be imported by its module, as in ``F.cross_entropy``, or by its name.
        name: what is called instead.
    """
    last = path.rpartition(".")[2]
    calls = [node for node in _calls(text) if _name(node) in (path, f"F.{last}", f"functional.{last}", last)]
    functions = [call.func for call in calls]
    edits = [(_offset(text, one.lineno, one.col_offset), _end(text, one), name) for one in functions]
    return _changed(text, edits) if edits else None


def _changed(text: str, edits: Sequence[tuple[int, int, str]]) -> str | None:
    """The text with all edits, if it is Python still."""
    for begin, end, words in sorted(edits, reverse=True):
        text = text[:begin] + words + text[end:]
    try:
        ast.parse(text)
    except SyntaxError:
        return None
    return text


def _calls(text: str) -> Iterator[ast.Call]:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _name(call: ast.Call) -> str:
    return ast.unparse(call.func)


def _last(call: ast.Call) -> str:
    function = call.func
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def _edit(text: str, call: ast.Call, name: str, value: str) -> tuple[int, int, str]:
    """The begin and the end of what is replaced, and the new text."""
    for keyword in call.keywords:
        if keyword.arg == name:
            node = keyword.value
            return _offset(text, node.lineno, node.col_offset), _end(text, node), value
    values = [*call.args, *(keyword.value for keyword in call.keywords)]
    last = max(values, key=lambda node: _end(text, node), default=None)
    if last is None:
        place = _end(text, call) - 1
        return place, place, f"{name}={value}"
    place = _end(text, last)
    closed = text[place : _end(text, call) - 1]
    place += len(closed) - len(closed.lstrip(")")) if closed.startswith(")") else 0
    return place, place, f", {name}={value}"


def _end(text: str, node: ast.expr | ast.stmt) -> int:
    assert node.end_lineno is not None and node.end_col_offset is not None
    return _offset(text, node.end_lineno, node.end_col_offset)


def _offset(text: str, line: int, column: int) -> int:
    """The place of a character; columns of syntax trees count bytes."""
    lines = text.splitlines(keepends=True)
    before = sum(map(len, lines[: line - 1]))
    return before + len(lines[line - 1].encode()[:column].decode(errors="ignore"))


def with_lines(text: str, added: Sequence[str]) -> str | None:
    """The text with lines after its last import at the outermost level; ``None`` if it cannot be read."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    if not imports:
        return None
    last = imports[-1].end_lineno or imports[-1].lineno
    lines = text.splitlines(keepends=True)
    if not lines[last - 1].endswith("\n"):
        lines[last - 1] += "\n"
    return "".join([*lines[:last], "\n", *(f"{line}\n" for line in added), *lines[last:]])


def difference(before: str, after: str, name: str) -> str:
    """The change of a file in the form of ``diff -u``."""
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{name}", f"b/{name}"
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)
