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
    edits = [_edit(text, calls[0], name, value) for name, value in keywords.items()]
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


def _end(text: str, node: ast.expr) -> int:
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
