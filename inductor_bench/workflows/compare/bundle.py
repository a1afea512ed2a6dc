"""The files of a bundle: the report, the record, and both versions of the kernels that differ, each of which runs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...errors import InductorBenchError
from ...records.comparisons.run import UNCHANGED, KernelSide, RunComparison
from ...store.folder import RunFolder
from ...store.kernel_index import rows_in


def kernel_files(comparison: RunComparison, a: RunFolder, b: RunFolder) -> dict[str, bytes]:
    """The standalone files of the kernels that differ, with their recorded values, as ``a/NAME.py`` and ``b/NAME.py``.

    A kernel whose file is gone is left out.
    """
    changes = [change for change in comparison.kernels if change.cause != UNCHANGED]
    files: dict[str, bytes] = {}
    for side, folder, kernels in (
        ("a", a, [kernel for change in changes for kernel in change.a]),
        ("b", b, [kernel for change in changes for kernel in change.b]),
    ):
        for place in _places(folder, kernels):
            try:
                files[f"{side}/{Path(place).name}"] = folder.file(place).read_bytes()
            except (InductorBenchError, OSError):
                continue
    return files


def _places(folder: RunFolder, kernels: Iterable[KernelSide]) -> list[str]:
    values = {row.file: row.values for row in rows_in(folder.kernels) if row.values}
    found = []
    for file in dict.fromkeys(kernel.file for kernel in kernels if kernel.file):
        beside = values.get(Path(file).name)
        found += [file, f"kernels/{beside}"] if beside else [file]
    return found
