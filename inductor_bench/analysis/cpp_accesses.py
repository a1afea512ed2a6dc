"""How many elements of each buffer a C++ kernel reads or writes, from its text.

A kernel may be handed a whole table and read a few of its rows, or a whole tensor and read a slice of it. The loops
around each access, which Inductor writes with literal bounds where sizes are static, tell how often it happens.
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
_UNDERSTOOD = re.compile(r"x\d+|tmp\d+|static_cast|int64_t|c10|div_floor_integer|div_mod|at|std")


def accessed_elements(source: str) -> dict[str, int]:
    """The number of elements touched by parameter name; those are left out of which this text does not tell.

    An upper bound, as places may be touched more than once: the same place by the same expression counts once, an
    access at a loaded index counts each time.
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
        self._unclear: set[str] = set()

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
            self._add(access.group(1), _enclosed(line, access.end()))
        for name in _POINTER.findall(line):
            if sum(access.group(1) == name for access in found) < len(re.findall(rf"\b{name}\b", line)):
                self._unclear.add(self._names.get(name, name))
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
        if None in lengths or not used <= {variable for _, variable, _ in self._loops} or not _is_understood(index):
            self._unclear.add(name)
        self._seen[name][index, lengths] = math.prod(length for length in lengths if length is not None)

    def totals(self) -> dict[str, int]:
        return {name: sum(seen.values()) for name, seen in self._seen.items() if name not in self._unclear}


def _is_understood(index: str) -> bool:
    """Whether loop variables and loaded values are all that an index is made of.

    ``x1_inner`` runs through the elements of one step of ``x1``, so that it adds nothing where ``x1`` stands beside it.
    """
    names = set(_NAME.findall(index))
    inner = {name for name in names if name.endswith("_inner") and name.removesuffix("_inner") in names}
    return all(_UNDERSTOOD.fullmatch(name) for name in names - inner)


def _length(start: str, end: str) -> int | None:
    first, last = _LITERAL.match(start), _LITERAL.match(end)
    return int(last.group(1)) - int(first.group(1)) if first and last else None


def _enclosed(line: str, start: int) -> str:
    """The text from ``start`` to the parenthesis that closes what was opened before."""
    depth = 1
    for place in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[place], 0)
        if depth == 0:
            return line[start:place]
    return line[start:]
