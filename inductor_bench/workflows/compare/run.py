"""Compares two runs: of two folders, or of one program that it runs twice and more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ...analysis.comparison.run import compare_runs
from ...errors import UsageError
from ...records.comparisons.run import EnvironmentDifference, RunComparison
from ..progress import Progress
from .bundle import kernel_files
from .pair import PairOptions, open_pair, run_pair
from .sides import KernelTexts, OpenedRun, check_run, is_batch, opened_run


@dataclass(frozen=True)
class Compared:
    """A comparison.

    Attributes:
        comparison: the record.
        kernels: the files of the kernels that differ, as ``a/NAME.py`` and ``b/NAME.py``; empty where unwanted.
        folder: the folder of the runs where they were made for this comparison.
    """

    comparison: RunComparison
    kernels: dict[str, bytes]
    folder: Path | None = None


def compare_records(a: Path, b: Path, *, files: bool = False) -> Compared:
    """Compares two RUN folders or zipped RUNs.

    Args:
        a, b: the runs.
        files: whether the files of the kernels that differ are wanted.

    Raises:
        UsageError: one of the paths is missing, or is a batch.
        InductorBenchError: a record cannot be read, or holds no measurement.
    """
    for path in (a, b):
        check_run(path)
        if is_batch(path):
            other = b if path == a else a
            raise UsageError(f"{path} is a batch, and {other} is not", "compare two runs or two batches")
    with ExitStack() as stack:
        opened = [stack.enter_context(opened_run(path)) for path in (a, b)]
        return _compare(opened[:1], opened[1:], files=files)


def compare_program(options: PairOptions, progress: Progress) -> Compared:
    """Runs one program in two settings, interleaved, and compares its runs.

    Raises:
        UsageError: the options do not fit.
        InductorBenchError: a run measured nothing.
    """
    pair = run_pair(options, progress)
    return replace(_compare(pair.a, pair.b, pair.changed), folder=pair.folder)


def compare_folder(folder: Path) -> Compared:
    """Compares the finished runs of an earlier comparison again.

    Raises:
        InductorBenchError: a side has no finished run, or a file is damaged.
    """
    pair = open_pair(folder)
    return replace(_compare(pair.a, pair.b, pair.changed), folder=folder)


def _compare(
    a: Sequence[OpenedRun],
    b: Sequence[OpenedRun],
    changed: Sequence[EnvironmentDifference] = (),
    *,
    files: bool = True,
) -> Compared:
    """Compares the runs of two sides, of which the first ones stand for their sides' files."""
    comparison = compare_runs(
        [one.run for one in a],
        [one.run for one in b],
        (a[0].name, b[0].name),
        (KernelTexts(a[0]), KernelTexts(b[0])),
        changed,
    )
    return Compared(comparison, kernel_files(comparison, a[0].folder, b[0].folder) if files else {})
