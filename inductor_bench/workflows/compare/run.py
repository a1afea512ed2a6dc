"""Compares two runs from their records."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ...analysis.comparison.run import compare_runs
from ...errors import UsageError
from ...records.comparisons.run import RunComparison
from .sides import KernelTexts, OpenedRun, check_exists, is_batch, opened_run


@dataclass(frozen=True)
class CompareOptions:
    """The request of a comparison.

    Attributes:
        bundle: the zip file to write; ``None`` for none.
    """

    bundle: Path | None = None


def compare_records(a: Path, b: Path, options: CompareOptions) -> RunComparison:
    """Compares two RUN folders or zipped RUNs.

    Raises:
        UsageError: one of the paths is missing, or one is a batch.
        InductorBenchError: a record cannot be read, or holds no measurement.
    """
    for path in (a, b):
        check_exists(path)
    if is_batch(a) != is_batch(b):
        batch, other = (a, b) if is_batch(a) else (b, a)
        raise UsageError(f"{batch} is a batch, and {other} is not", "compare two runs or two batches")
    with ExitStack() as stack:
        opened = [stack.enter_context(opened_run(path)) for path in (a, b)]
        return compare_opened(opened[:1], opened[1:], options)


def compare_opened(a: Sequence[OpenedRun], b: Sequence[OpenedRun], options: CompareOptions) -> RunComparison:
    """Compares the runs of two sides, the first of which stands for its side's files."""
    return compare_runs(
        [one.run for one in a],
        [one.run for one in b],
        (a[0].name, b[0].name),
        (KernelTexts(a[0]), KernelTexts(b[0])),
    )
