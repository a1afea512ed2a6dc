"""Rules about single launches: short, spilling, unnamed and unsteady kernels.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from .... import units
from ....records.category import Category
from ..evidence import LEAST_SHARE, SHORT_S, SHORT_TIME, Row, RunEvidence, finding_of, in_program, time_of
from ..finding import ADVICE, CAUTION, NOTE, Finding
from ..phrases import plural

UNSTEADY = 0.25  # spread of the middle half of a kernel's samples, as a share of their median


def short_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports a large number of launches shorter than :data:`SHORT_S`."""
    rows, whole = evidence.critical_rows, evidence.whole
    short = [
        row for row in rows if not row.device.runs_on_host and 0 < row.cost.time_s < SHORT_S * max(row.cost.calls, 1)
    ]
    calls, every = sum(row.cost.calls for row in short), sum(row.cost.calls for row in rows)
    if calls >= 20 and whole.part(time_of(short)) >= SHORT_TIME:
        text = (
            f"{units.count(calls)} of {units.count(every)} launches last under 5 µs, {whole.format(time_of(short))} "
            "together: fewer and larger ones would help, tuning them would not"
        )
        yield finding_of("short-kernels", text, short, gain_s=in_program(short, lambda row: row.cost.time_s))


def spills(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels that spill registers to memory."""
    rows, whole = evidence.rows, evidence.whole
    spilling = [row for row in rows if row.kernel.compiled.spills]
    if spilling:
        most = max(row.kernel.compiled.spills or 0 for row in spilling)
        text = (
            f"{plural(len(spilling), 'kernel')} {'spills' if len(spilling) == 1 else 'spill'} registers to memory "
            f"(up to {most} a thread): {whole.format(time_of(spilling))}"
        )
        matters = whole.part(time_of(spilling)) >= LEAST_SHARE
        yield finding_of("spills", text, spilling, ADVICE if matters else NOTE)


def unnamed_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels that could not be put into a category."""
    rows, whole = evidence.rows, evidence.whole
    other = [row for row in rows if row.kernel.category is Category.OTHER]
    if whole.part(time_of(other)) >= LEAST_SHARE / 2:
        number = plural(len(other), "kernel")
        text = f"{number} could not be put into a category: {whole.format(time_of(other))}; please report the names"
        yield finding_of("other", text, other, CAUTION)


def unsteady_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels whose time varies between iterations."""
    rows, whole = evidence.rows, evidence.whole

    def moves(row: Row) -> bool:
        every, steady = row.kernel.samples_s, row.module.profiled.steady_iterations
        samples = [every[i] for i in steady if 0 <= i < len(every)] or list(every)
        if len(samples) < 5 or whole.part(row.cost.time_s) < LEAST_SHARE:
            return False
        low, middle, high = statistics.quantiles(samples, n=4)
        return middle > 0 and (high - low) / middle > UNSTEADY

    unsteady = [row for row in rows if moves(row)]
    if unsteady:
        text = (
            f"{plural(len(unsteady), 'kernel')} {'takes' if len(unsteady) == 1 else 'take'} a different time in each "
            "iteration: clocks, another user of the device, or work that depends on data"
        )
        matters = whole.part(time_of(unsteady)) >= SHORT_TIME
        yield finding_of("unsteady-kernels", text, unsteady, CAUTION if matters else NOTE)
