"""Reads the paths of compiled modules from Inductor's output in a log."""

from __future__ import annotations

import re

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
# A path may hold spaces; it always ends in .py.
_LINE = re.compile(r"Compiled module path: *([^\s\0][^\0]{0,4095}?\.py)(?=[\s'\"]|$|Compiled)")


def printed_module_paths(text: str) -> tuple[str, ...]:
    """The distinct paths of the ``Compiled module path:`` lines, in order.

    The lines may have prefixes (ranks, log levels, time stamps) and colour codes.
    """
    found = (match.group(1) for line in _ESCAPES.sub("", text).splitlines() for match in _LINE.finditer(line))
    return tuple(dict.fromkeys(found))
