"""Rules about the methods of profiling, the notes of graphs, and the checks that found no problem.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ....devices.table import device_of
from ....records.module import ModuleRecord
from ....records.run import Run
from ...costs.step import host_sets_pace
from ..bottleneck import GAPS
from ..evidence import RunEvidence
from ..finding import FINE, NOTE, Finding
from ..phrases import labels, slugs
from .waiting import is_anything_waiting

_INPUT = re.compile(r"\binteger input \d+ \S+?\[[^\]]*\]")


def profiling_methods(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs that were profiled by another method than their own harness in a fresh process, and the reason."""
    run = evidence.run
    for name, reason, modules in methods(run):
        how = {
            "live": "profiled live, with the inputs that the program gave",
            "trace": "read from a trace",
            "-p": "profiled with -p",
        }.get(name, f"profiled by {name}")
        verb = "was" if len(modules) == 1 else "were"
        text = f"{labels(modules)} {verb} {how}" + (f": {reason}" if reason else "")
        yield Finding("method", text, slugs(modules), level=NOTE)


def graph_notes(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the notes of the graphs."""
    for module in evidence.run.modules:
        for note in module.notes:
            # The finding ``busy-over-wall`` reports such a note for all graphs together.
            if not note.startswith("under the profiler"):
                yield Finding("note", f"{module.label}: {note}", (module.slug,), level=NOTE)


def methods(run: Run) -> list[tuple[str, str, list[ModuleRecord]]]:
    """Groups the graphs that were profiled by another method than their own harness by method and reason.

    Returns:
        ``(method, reason, graphs)``. Reasons that differ only in the number and size of an input count as one.
    """
    groups: dict[tuple[str, str], list[ModuleRecord]] = {}
    for module in run.modules:
        measurement = module.measurement
        if measurement.method != "-p" or measurement.method_reason:
            reason = _INPUT.sub("integer inputs", measurement.method_reason)
            groups.setdefault((measurement.method, reason), []).append(module)
    return [(name, reason, modules) for (name, reason), modules in groups.items()]


def checks_without_problem(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the checks that found no problem, in one line. A check needs evidence in the record."""
    run = evidence.run
    fine = []
    launching = [module for module in run.modules if not device_of(module.device).runs_on_host]
    busy = all(module.times.busy_share is not None and module.times.busy_share >= GAPS for module in launching)
    if evidence.in_step:
        busy = not host_sets_pace(run)
    if launching and busy and not is_anything_waiting(evidence):
        fine.append("no launch gaps to speak of")
    if run.capture.structured and run.modules and not run.capture.disagreement:  # the trace holds all that compiled
        fine += [] if run.capture.graph_breaks else ["no graph breaks"]
        fine += [] if run.capture.recompiles else ["no recompilations"]
    if fine:
        yield Finding("fine", ", ".join(fine), level=FINE)
