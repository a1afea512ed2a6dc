"""The rule about kernels whose time by themselves says little about the program."""

from __future__ import annotations

from collections.abc import Iterator

from .... import units
from ....records.run import Peaks
from ...costs.step import alone_ratio, is_far_off, runs_on_host
from ..evidence import LEAST_SHARE, Row, Rows, RunEvidence, finding_of, time_of
from ..finding import CAUTION, NOTE, Finding
from ..phrases import plural
from ..rules.busy_machine import busiest


def off_by_themselves(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels whose calls in the module's own run are far off those in the program, with the likely cause."""
    far = [row for row in evidence.rows if is_far_off(alone_ratio(evidence.run, row.kernel))]
    shorter = [row for row in far if (alone_ratio(evidence.run, row.kernel) or 0.0) < 1]
    longer = [row for row in far if row not in shorter]
    for rows, how in ((shorter, "less"), (longer, "more")):
        if rows:
            busy = runs_on_host(evidence.run) and busiest(evidence.run.modules) is not None
            cause = "the machine was busy" if busy else _cause(rows, evidence.run.peaks, how)
            text = (
                f"{plural(len(rows), 'kernel')}, {evidence.whole.format(time_of(rows))} of a step, "
                f"{'takes' if len(rows) == 1 else 'take'} over 25% {how} time in the module's own run than in the "
                f"program: {cause}"
            )
            matters = evidence.whole.part(time_of(rows)) >= LEAST_SHARE
            yield finding_of(f"alone-{how}", text, rows, CAUTION if matters else NOTE)


def _cause(rows: Rows, peaks: Peaks | None, how: str) -> str:
    first = rows[0]
    cache = first.device.words.whole_cache
    if all(row.module.dynamic for row in rows):
        return "its sizes are symbols, and its own run has the sizes for which it was compiled, not the program's"
    if first.device.runs_on_host:
        inside = f"its data is in {cache} there" if how == "less" else f"the program left its data in {cache}"
        return f"{inside}, or the number of threads differs"
    if how == "less" and _fits(first, peaks):
        size = units.size((peaks.cache_bytes if peaks else None) or 0)
        return f"each iteration finds its data in {cache} ({size}), which the program fills with other data meanwhile"
    if how == "less":
        return f"in the program other streams run beside it, the clock is lower, or {cache} holds other data"
    return f"the program leaves its data in {cache}, runs at a higher clock, or has other values"


def _fits(row: Row, peaks: Peaks | None) -> bool:
    """Whether the bytes of one call fit into the cache."""
    kernel, cache = row.kernel, peaks.cache_bytes if peaks else None
    return bool(cache and kernel.work.moved_bytes and kernel.calls and kernel.work.moved_bytes / kernel.calls <= cache)
