"""Reads Inductor's comments above kernel definitions and calls: origins, provenance handles, kernel paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_ORIGINS = re.compile(r"Source Nodes: \[(.*?)\], Original ATen: \[(.*)\]\s*$")
_HANDLE = re.compile(r"\[Provenance debug handles\] (\S+:\d+)\s*$")
_KERNEL_PATH = re.compile(r"kernel path: .*?(\w+)\.py\s*$")


@dataclass(frozen=True)
class Comment:
    """The statements of a block of comment lines; the last one of each kind counts."""

    source_nodes: tuple[str, ...] = ()
    aten_ops: tuple[str, ...] = ()
    handle: str | None = None
    kernel_hash: str | None = None


def read_comment(lines: Iterable[str]) -> Comment:
    """Reads comment lines (``#`` or ``//``), and skips lines of code among them."""
    nodes: tuple[str, ...] = ()
    ops: tuple[str, ...] = ()
    handle = kernel_hash = None
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
    return Comment(nodes, ops, handle, kernel_hash)


def handle_matches(handle: str | None, target: str) -> bool:
    """Whether a provenance handle (``name:index``) names ``target``."""
    return handle is not None and handle.rpartition(":")[0] == target


def _names(text: str) -> tuple[str, ...]:
    # A node without a name leaves an empty entry.
    return tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
