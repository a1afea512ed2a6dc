"""Reads the standalone files of a run's kernels as text."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import InductorBenchError
from ..files import read_text
from ..folder import RunFolder

MOST_BYTES = 1_000_000
"""Size of the largest file that is read; a kernel with recorded values beside it is far smaller."""


def read_kernel_files(folder: RunFolder, places: Iterable[str]) -> dict[str, str]:
    """The texts by path. Files that are gone, damaged or larger than :data:`MOST_BYTES` are left out."""
    texts = {}
    for place in dict.fromkeys(places):
        try:
            path = folder.optional_file(place)
            if path is not None and path.stat().st_size <= MOST_BYTES:
                texts[place] = read_text(path)
        except (InductorBenchError, OSError):
            continue
    return texts
