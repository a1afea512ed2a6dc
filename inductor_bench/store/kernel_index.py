"""The index of an extraction: a row for each kernel, in the folder of the kernel files."""

from __future__ import annotations

from pathlib import Path

from ..errors import InductorBenchError
from ..records.code.extraction import ExtractedKernel
from .files import read_json, sha256_of_file
from .formats import codec

INDEX = "kernels.json"


def read_index(folder: Path) -> tuple[ExtractedKernel, ...]:
    """The rows of the kernels whose files are in a folder.

    Raises:
        InductorBenchError: the index is missing or damaged.
    """
    rows = read_json(folder / INDEX)
    if not isinstance(rows, list):
        raise InductorBenchError(f"{folder / INDEX} is not a list of kernels")
    return tuple(codec.decode(ExtractedKernel, row) for row in rows)


def rows_in(folder: Path) -> tuple[ExtractedKernel, ...]:
    """The rows of :func:`read_index`; none where the index cannot be read."""
    try:
        return read_index(folder)
    except InductorBenchError:
        return ()


def is_edited(row: ExtractedKernel, folder: Path) -> bool:
    """Whether the file of a row exists and differs from the file that was written."""
    if row.file is None or row.sha256 is None:
        return False
    return sha256_of_file(folder / row.file) not in (None, row.sha256)
