"""Findings about copies between the host and the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...records.base import Category
from ...records.program import COPY, COPYING, Part, ProgramChange
from ..step_costs import idle_labels, parts_of, runs_on_host
from .finding import LEAST_SHARE, Assumption, CostedKernel, Finding, RunEvidence, finding_of, join_words, time_of
from .program_findings import idle_parts, line_words, share_words
from .step_findings import spots

MOST_LINES = 3


def pageable_copies(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports copies to the device from pageable memory, which the driver first copies into memory of its own.

    It holds if the trace calls the memory pageable. Both the time of the copies and the device's wait for the host that
    makes them count. Copies to the host do not: ``.item()`` reads few bytes, and ``synchronisations`` tells of them.
    """
    run = evidence.run
    if runs_on_host(run):
        return
    parts = [part for part in parts_of(run, COPY) if part.label == "host to device" and part.pageable_s > 0]
    rows = [row for row in evidence.rows if is_pageable(row)]
    copied_s = sum(part.pageable_s for part in parts) + time_of(rows)
    idle_s = idle_labels(run).get(COPYING, 0.0)
    if not copied_s + idle_s or copied_s + idle_s < LEAST_SHARE * evidence.whole.time_s:
        return
    text = "copies to the device from pageable memory"
    if copied_s:
        text += f" take {share_words(run, copied_s)}{_where(parts)}"
    if idle_s:
        waits = f"the device idle for {share_words(run, idle_s)} of a step{spots(run, (COPYING,))}"
        text += f"{' and' if copied_s else ''} keep the host, and {waits}"
    text += ": pin the memory (pin_memory=True of the DataLoader, tensor.pin_memory()), and copy with non_blocking=True"
    changes = (ProgramChange("argument", "DataLoader.pin_memory", "True"),)
    found = finding_of("pageable-copies", text, rows, changes=changes)
    yield replace(
        found, gain_s=copied_s + idle_s, assumed=Assumption(parts=tuple(parts), idle=idle_parts(run, COPYING))
    )


def is_pageable(row: CostedKernel) -> bool:
    """Whether a kernel of a graph is a copy to the device from pageable memory."""
    return row.kernel.category is Category.COPY and "HtoD" in row.kernel.name and "Pageable" in row.kernel.name


def _where(parts: list[Part]) -> str:
    lines = list(dict.fromkeys(line_words(part.source) for part in parts if part.source))
    return f" ({join_words(lines, MOST_LINES)})" if lines else ""
