"""What is said of each kernel that is extracted, and the index that keeps it beside the files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..errors import InductorBenchError
from ..records.category import Category
from ..store import codec
from ..store.files import read_json, sha256_of_file

INDEX = "kernels.json"
"""Beside the files of an extraction: the row of each kernel."""


@dataclass(frozen=True)
class ExtractedKernel:
    """One row of an extraction: a kernel, and its file or the reason why it has none.

    ``time_s`` is its time per iteration in the model and ``calls`` its launches, where known. ``values`` is the file
    of its recorded values; ``note`` says what of them was asked for and is not there. ``sha256`` is that of ``file`` as
    it was written; rows of older versions have none.
    """

    name: str
    kernel_id: str
    category: Category
    module: str
    calls: int
    time_s: float | None = None
    file: str | None = None
    reason: str = ""
    values: str | None = None
    note: str = ""
    sha256: str | None = None


@dataclass(frozen=True)
class KernelFile(ExtractedKernel):
    """A row of :func:`inductor_bench.extract`.

    Attributes:
        name: of the kernel; of a library call the operator and a number.
        kernel_id: the same for the same kernel in other models and runs; 16 hexadecimal digits.
        category: what kind of kernel it is.
        module: the label of its module, such as ``forward``.
        calls: how often one run of the module launches it.
        time_s: its time in the model per iteration, in seconds, where it was measured.
        path: the absolute path of the file that runs by itself; ``None`` where there can be none.
        reason: why there is none, or an empty string.
        values_path: the absolute path of the safetensors file of its recorded values, where there is one.
        note: what of its values is drawn although recorded ones were asked for, or an empty string.
        file, values: the names of ``path`` and ``values_path``.
        sha256: of the file as it was written.
    """

    path: Path | None = None
    values_path: Path | None = None


def locate_file(row: ExtractedKernel, folder: Path) -> KernelFile:
    """The row with the paths of its files in ``folder``."""
    return KernelFile(
        **vars(row),
        path=folder / row.file if row.file else None,
        values_path=folder / row.values if row.values else None,
    )


def read_index(folder: Path) -> tuple[ExtractedKernel, ...]:
    """The rows of the kernels whose files are in a folder.

    Raises:
        InductorBenchError: their index is missing or damaged.
    """
    rows = read_json(folder / INDEX)
    if not isinstance(rows, list):
        raise InductorBenchError(f"{folder / INDEX} is not a list of kernels")
    return tuple(codec.decode(ExtractedKernel, row) for row in rows)


def rows_in(folder: Path) -> tuple[ExtractedKernel, ...]:
    """Like :func:`read_index`, and none where that cannot be read."""
    try:
        return read_index(folder)
    except InductorBenchError:
        return ()


def is_edited(row: ExtractedKernel, folder: Path) -> bool:
    """Whether the file of a row is there, and is not as it was written."""
    if row.file is None or row.sha256 is None:
        return False
    return sha256_of_file(folder / row.file) not in (None, row.sha256)
