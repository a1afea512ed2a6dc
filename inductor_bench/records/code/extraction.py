"""What is said of each kernel that is extracted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..category import Category
from ..forms import FileName


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
    file: FileName | None = None
    reason: str = ""
    values: FileName | None = None
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
