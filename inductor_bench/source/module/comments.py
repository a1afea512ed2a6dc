"""Reads Inductor's comments above kernel definitions and calls: origins, provenance handles, kernel paths, padding."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

    ``padded_sides`` are as in :class:`~inductor_bench.records.code.source.KernelDefinition`.
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
