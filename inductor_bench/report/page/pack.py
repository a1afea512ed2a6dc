"""Packs the files that a page offers to read and copy."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping

from ...units import printable_json
from .parts import SourceFile

BETWEEN = "\n\n"
"""What separates the blocks of a file. Files of kernels share most blocks, which are packed once."""


def pack(files: Mapping[str, SourceFile]) -> str:
    """Packs files as base64 of compressed JSON; an empty text without files.

    The JSON has ``blocks``, a list of texts, and ``files``: by path ``[indices of blocks, first, last]``. A file is its
    blocks, joined by :data:`BETWEEN`; ``first`` and ``last`` enclose the part that is shown first, in units of UTF-16,
    of which strings in a browser consist.
    """
    if not files:
        return ""
    blocks: dict[str, int] = {}
    table = {}
    for path, file in files.items():
        indices = [blocks.setdefault(block, len(blocks)) for block in file.text.split(BETWEEN)]
        ends = file.own or (0, len(file.text))
        table[path] = [indices, *(_utf16_units(file.text[:end]) for end in ends)]
    text = printable_json(json.dumps({"blocks": list(blocks), "files": table}, ensure_ascii=False))
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode("ascii")


def _utf16_units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
