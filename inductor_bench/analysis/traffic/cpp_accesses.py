"""Counts the elements of each buffer that a C++ kernel accesses, from the kernel's source text.

A kernel may receive a whole table and read a few of its rows, or a whole tensor and read a slice of it. The number of
accesses is the product of the lengths of the surrounding loops. Inductor writes their bounds as literals where sizes
are static.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict

_POINTER = re.compile(r"\b(?:in_out|in|out)_ptr\d+\b")
_ACCESS = re.compile(r"\b((?:in_out|in|out)_ptr\d+)\s*(?:\[|\+)\s*static_cast<int64_t>\(")
_ALIAS = re.compile(r"^\s*auto (\w+_ptr\d+) = (\w+_ptr\d+);")
_BODY = re.compile(r"\bkernel\s*\([^)]*\)")
_LOOP = re.compile(r"\bfor\s*\(\s*(?:int64_t|long|int)\s+(\w+)\s*=([^;]*);\s*\w+\s*<([^;]*);")
_LITERAL = re.compile(r"^\s*(?:static_cast<int64_t>\()?\s*(\d+)L?\s*\)?\s*$")
_VARIABLE = re.compile(r"\bx\d+\b")
_LOADED = re.compile(r"\btmp\d+\b")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_KNOWN_NAME = re.compile(r"x\d+|tmp\d+|static_cast|int64_t|c10|div_floor_integer|div_mod|at|std")


def accessed_elements(source: str) -> dict[str, int]:
    """Counts the elements that a kernel accesses through each pointer.

    Args:
        source: the C++ text of the kernel.

    Returns:
        An upper bound of the number of elements by parameter name. An index expression that occurs several times in
        the same loops counts once; an access at a loaded index counts in every iteration. A parameter is missing where
        the text does not determine its number.
    """
    signature = _BODY.search(source)
    if signature is None:
        return {}
    accesses = _Accesses()
    for line in source[signature.end() :].splitlines():
        accesses.read(line)
    return accesses.totals()


class _Accesses:
    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._loops: list[tuple[int, str, int | None]] = []  # depth of the loop's own braces, variable, length
        self._depth = 0
        self._seen: dict[str, dict[tuple[str, tuple[int | None, ...]], int]] = defaultdict(dict)
        self._unknown: set[str] = set()

    def read(self, line: str) -> None:
        alias = _ALIAS.match(line)
        if alias:
            self._names[alias.group(1)] = self._names.get(alias.group(2), alias.group(2))
            return
        loop = _LOOP.search(line)
        if loop:
            self._loops.append((self._depth, loop.group(1), _length(loop.group(2), loop.group(3))))
        found = list(_ACCESS.finditer(line))
        for access in found:
            self._add(access.group(1), _index_text(line, access.end()))
        for name in _POINTER.findall(line):
            if sum(access.group(1) == name for access in found) < len(re.findall(rf"\b{name}\b", line)):
                self._unknown.add(self._names.get(name, name))
        for brace in re.findall(r"[{}]", line):
            self._depth += 1 if brace == "{" else -1
            if brace == "}":
                self._loops = [one for one in self._loops if one[0] < self._depth]

    def _add(self, name: str, index: str) -> None:
        used = set(_VARIABLE.findall(index))
        lengths = tuple(
            length
            for _, variable, length in self._loops
            if _VARIABLE.fullmatch(variable) and (variable in used or _LOADED.search(index))
        )
        name = self._names.get(name, name)
        if None in lengths or not used <= {variable for _, variable, _ in self._loops} or not _has_known_names(index):
            self._unknown.add(name)
        self._seen[name][index, lengths] = math.prod(length for length in lengths if length is not None)

    def totals(self) -> dict[str, int]:
        return {name: sum(seen.values()) for name, seen in self._seen.items() if name not in self._unknown}


def _has_known_names(index: str) -> bool:
    """Whether an index consists of loop variables and loaded values only.

    ``x1_inner`` is accepted in an index that contains ``x1``: it runs through the elements of one step of ``x1``, which
    the length of the loop over ``x1`` already includes.
    """
    names = set(_NAME.findall(index))
    inner = {name for name in names if name.endswith("_inner") and name.removesuffix("_inner") in names}
    return all(_KNOWN_NAME.fullmatch(name) for name in names - inner)


def _length(start: str, end: str) -> int | None:
    first, last = _LITERAL.match(start), _LITERAL.match(end)
    return int(last.group(1)) - int(first.group(1)) if first and last else None


def _index_text(line: str, start: int) -> str:
    """The text from ``start`` to the closing parenthesis that matches the one before ``start``."""
    depth = 1
    for place in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[place], 0)
        if depth == 0:
            return line[start:place]
    return line[start:]
