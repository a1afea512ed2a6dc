"""Parses untrusted Python text, and checks the syntax tree."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import InductorBenchError

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


# Reads Inductor's comments above kernel definitions and calls: origins, provenance handles, kernel paths, padding.


_ORIGINS = re.compile(r"Source Nodes: \[(.*?)\], Original ATen: \[(.*)\]\s*$")
_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+:\d+)\s*$")
_KERNEL_PATH = re.compile(r"kernel path: (?:.*\W)?(\w+)\.py\s*$")
_NODE = re.compile(r'^#\s+%(\w+) : (?:Tensor "\w+\[([^\]]*)\])?.*?= (PlaceHolder|call_function)\[target=([\w.]+)\]')
_PADS = re.compile(r"constant_pad_nd\.default\]\(args = \(%\w+, \[([\d, ]+)\]")
_PADDED_BY_INDUCTOR = re.compile(r"constant_pad_nd_default(_\d+)?")
"""The name of a node with which Inductor pads a matrix (``pad_mm``); the program's own padding has another name."""

_VIEWS = ("permute", "view", "reshape", "_unsafe_view", "expand", "squeeze", "unsqueeze", "t", "transpose")


@dataclass(frozen=True)
class Comment:
    """The statements of a block of comment lines; the last one of each kind counts.

    ``padded_sides`` are as in :class:`~inductor_bench.records.code.KernelDefinition`.
    """

    source_nodes: tuple[str, ...] = ()
    aten_ops: tuple[str, ...] = ()
    handle: str | None = None
    kernel_hash: str | None = None
    padded_sides: tuple[tuple[int, int], ...] = ()


def read_comment(lines: Iterable[str]) -> Comment:
    """Reads comment lines (``#`` or ``//``), and skips lines of code among them."""
    nodes: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    handle = kernel_hash = None
    fragment = []
    for line in lines:
        stripped = line.lstrip()
        if not stripped.startswith(("#", "//")):
            continue
        if origins := _ORIGINS.search(stripped):
            nodes, ops = _names(origins.group(1)), _names(origins.group(2))
        elif found := _HANDLE.search(stripped):
            handle = found.group(1)
        elif found := _KERNEL_PATH.search(stripped):
            kernel_hash = found.group(1)
        elif node := _NODE.match(stripped):
            fragment.append(node)
    return Comment(nodes, ops, handle, kernel_hash, _padded_sides(fragment))


def handle_matches(handle: str | None, target: str) -> bool:
    """Whether a provenance handle (``name:index``) names ``target``."""
    return handle is not None and handle.rpartition(":")[0] == target


def _padded_sides(fragment: Sequence[re.Match[str]]) -> tuple[tuple[int, int], ...]:
    """The sides before and after padding, of a kernel whose graph fragment holds nothing but Inductor's padding."""
    given = {node.group(1) for node in fragment if node.group(3) == "PlaceHolder"}
    sides: dict[tuple[int, int], None] = {}
    for node in fragment:
        name, shape, _, target = node.groups()
        if name in given or _operator(target) in _VIEWS:
            continue
        pads = _PADS.search(node.string)
        sizes = (shape or "").split(", ")
        if pads is None or not _PADDED_BY_INDUCTOR.fullmatch(name) or not all(size.isdecimal() for size in sizes):
            return ()
        after = [int(number) for number in pads.group(1).split(", ")][1::2]
        for size, added in zip(map(int, reversed(sizes)), after, strict=False):
            if added:
                sides[(size - added, size)] = None
    return tuple(sides)


def _operator(target: str) -> str:
    """The operator of a node's target: ``permute`` of ``torch.ops.aten.permute.default``."""
    return target.split(".")[-2] if "." in target else target


def _names(text: str) -> tuple[str, ...]:
    # A node without a name leaves an empty entry.
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
