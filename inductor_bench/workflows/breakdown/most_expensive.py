"""Finds the kernels of a RUN that take most time, and what is at stake with each."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from ...analysis.costs.step import cost_of, step_factors
from ...autotune.stake import Stake, find_least
from ...errors import InductorBenchError
from ...records.code.extraction import ExtractedKernel
from ...records.retune import EDITED, Retune
from ...records.run import Failure, Run
from ...store.folder import RunFolder
from ...store.kernel_index import is_edited, read_index
from ..options import RetuneOptions

STAGE = "retune"


class _Use(NamedTuple):
    """A kernel of one module, and its calls and seconds in the program's step or in one iteration of its graph."""

    kernel: ExtractedKernel
    calls: float
    time_s: float


def most_expensive(run: Run, folder: RunFolder, options: RetuneOptions) -> list[Retune]:
    """The kernels with the most time in the program's step, or in one iteration of all graphs, without duplicates.

    Of many kernels those are left out that can win next to nothing, all together; see ``stake.find_least``.

    Raises:
        InductorBenchError: the index of the standalone files is missing or damaged.
    """
    groups: dict[str, list[_Use]] = defaultdict(list)
    for kernel in read_index(folder.kernels):
        calls, time = step_factors(run, kernel.module, kernel.kernel_id, kernel.category)
        if kernel.time_s and time:
            groups[kernel.kernel_id].append(_Use(kernel, kernel.calls * calls, kernel.time_s * time))
    ranked = sorted(groups.values(), key=lambda uses: -_time_s(uses))
    rows = [_row(uses, folder, options.method) for uses in ranked[: options.top]]
    stakes = [find_stake(row, run) for row in rows]
    least_s = find_least(stakes)
    kept = (stake.is_library_call or stake.most_s >= least_s for stake in stakes)
    return [row for row, is_kept in zip(rows, kept, strict=True) if is_kept]


def _time_s(uses: Sequence[_Use]) -> float:
    return sum(use.time_s for use in uses)


def _row(uses: Sequence[_Use], folder: RunFolder, method: str) -> Retune:
    first = max(uses, key=lambda use: (use.kernel.file is not None, use.time_s)).kernel
    return Retune(
        first.name,
        first.kernel_id,
        first.category,
        tuple(dict.fromkeys(use.kernel.module for use in uses)),
        float(sum(use.calls for use in uses)),
        _time_s(uses),
        f"kernels/{first.file}" if first.file else None,
        method,
        failure=_find_refusal(first, folder),
    )


def find_stake(row: Retune, run: Run) -> Stake:
    """What is at stake with a kernel: its time in the step, and the gain limit of all its launches."""
    limits = [
        cost_of(run, module, kernel).gain_limit_s
        for module in run.modules
        if module.label in row.graphs
        for kernel in module.kernels
        if kernel.kernel_id == row.kernel_id
    ]
    known = [limit for limit in limits if limit is not None]
    gain_limit_s = sum(known) if known and len(known) == len(limits) else None
    return Stake(row.time_s, gain_limit_s, is_library_call=row.category.is_library)


def _find_refusal(kernel: ExtractedKernel, folder: RunFolder) -> Failure | None:
    """The failure of a kernel that cannot be tuned by its standalone file; ``None`` where it can."""
    if kernel.file is None:
        return Failure(STAGE, "missing", f"it has no standalone file: {kernel.reason}", subject=kernel.name)
    if is_edited(kernel, folder.kernels):
        by_itself = f"inductor-bench kernel {shlex.quote(str(folder.kernels / kernel.file))} --autotune"
        return Failure(STAGE, "edited", EDITED, f"{by_itself} retunes it as it is", subject=kernel.name)
    return None


def are_written(run: Run, folder: RunFolder, options: RetuneOptions) -> bool:
    """Whether the files of the most expensive kernels are there."""
    try:
        return all((folder.path / row.file).is_file() for row in most_expensive(run, folder, options) if row.file)
    except InductorBenchError:
        return False
