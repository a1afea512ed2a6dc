"""The rows of an extraction: one for each kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .base import FileName
from .category import Category


@dataclass(frozen=True)
class ExtractedKernel:
    """A kernel, and its file or the reason why it has none.

    Attributes:
        name: the kernel's name; for a library call the operator and a number.
        kernel_id: 16 hexadecimal digits, the same for the same kernel in other models and runs.
        category: the category of the kernel.
        module: the label of its module, such as ``forward``.
        calls: the number of its launches in one run of the module.
        time_s: its time in the model in seconds per iteration, where it was measured.
        file: the name of the standalone file; ``None`` where the kernel can have none.
        reason: the reason why there is no file; empty where there is one.
        values: the name of the safetensors file of its recorded values, where there is one.
        note: the values that are drawn although recorded ones were requested; empty where there are none.
        sha256: the hash of the file as it was written; ``None`` in rows of older versions.
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
        path: the absolute path of ``file``; ``None`` where the kernel can have none.
        values_path: the absolute path of ``values``, where there is one.
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
