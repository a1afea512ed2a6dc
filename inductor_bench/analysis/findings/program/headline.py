"""Makes the first line of a summary from the program's step."""

from __future__ import annotations

from .... import units
from ....devices.table import common_device
from ....records.run import Run
from ...costs.step import host_sets_pace, idle_share, runs_on_host, step_of
from ..evidence import UNTUNABLE, RunEvidence, gain_of
from ..finding import Finding
from ..rules.busy_machine import disturbed_graphs
from .words import LEAST, idle_words, step_words, work_words

LEAST_GAIN = 0.01
"""Smallest possible saving that the first line reports, as a share of the step."""


def step_headline(run: Run) -> Finding | None:
    """Returns the first line about the program's step; ``None`` where no step was profiled."""
    program = step_of(run)
    if program is None:
        return None
    lead, work = step_words(program), work_words(run)
    busy, idle = 1 - idle_share(run), f"idle {idle_words(run)}" if idle_share(run) >= LEAST else ""
    if runs_on_host(run):
        return Finding("step", ". ".join(filter(None, [f"{lead}: {_joined(work, idle)}", _savings(run)])))
    if host_sets_pace(run):
        text = f"{lead}: the host sets the pace, GPU busy {units.whole_percent(busy)}: {_joined(idle, work)}"
        return Finding("step", f"{text}. Faster kernels shorten the step only once the host is faster")
    bound = f"{lead}: GPU-bound, busy {units.whole_percent(busy)}: {_joined(work, idle)}"
    return Finding("step", ". ".join(filter(None, [bound, _savings(run)])))


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _savings(run: Run) -> str:
    """``Could save: …``; empty where little could be saved, or where a busy machine disturbed the kernels' times."""
    if disturbed_graphs(run):
        return ""
    evidence = RunEvidence(run)
    gain = evidence.whole.part(gain_of(row for row in evidence.rows if row.kernel.category not in UNTUNABLE))
    kind = common_device(module.device for module in run.modules).words.generated_at_peaks
    return f"Could save: {kind} {units.percent(gain)} (upper bound)" if gain >= LEAST_GAIN else ""
