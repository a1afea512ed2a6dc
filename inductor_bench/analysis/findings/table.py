"""The table of rules, and the function that applies them to a run. A new finding needs a rule and a row here.

``rules.busy_machine`` has no row: ``headline`` writes its finding as the first line, and here it removes advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ...records.run import Run
from .evidence import RunEvidence
from .finding import ADVICE, CAUTION, FINE, NOTE, Finding
from .rules import busy_machine, certainty, compilation, copies, float32, headroom, launches, library, method, waiting


class Rule(NamedTuple):
    """A function that reports findings, and the kinds of findings that it can report."""

    kinds: tuple[str, ...]
    find: Callable[[RunEvidence], Iterator[Finding]]


RULES = (
    Rule(("launch-bound",), waiting.launch_bound),
    Rule(("host-bound",), waiting.host_bound),
    Rule(("cuda-graph",), waiting.cuda_graph),
    Rule(("gaps",), waiting.gaps),
    Rule(("host-share",), waiting.host_share),
    Rule(("below-memory-limit", "below-compute-limit"), headroom.below_limit),
    Rule(("few-blocks",), headroom.few_blocks),
    Rule(("layout-copies",), library.layout_copies),
    Rule(("library-below-limit",), library.library_below_limit),
    Rule(("hotspot",), library.hotspots),
    Rule(("host-copies",), copies.host_copies),
    Rule(("copies",), copies.device_copies),
    Rule(("full-float32",), float32.full_float32),
    Rule(("short-kernels",), launches.short_kernels),
    Rule(("spills",), launches.spills),
    Rule(("other",), launches.unnamed_kernels),
    Rule(("unsteady-kernels",), launches.unsteady_kernels),
    Rule(("graph-breaks",), compilation.graph_breaks),
    Rule(("recompiles",), compilation.recompilations),
    Rule(("capture",), compilation.capture_disagreement),
    Rule(("threads",), compilation.threads),
    Rule(("no-peaks",), certainty.no_peaks),
    Rule(("noise",), certainty.noise),
    Rule(("busy-over-wall",), certainty.busy_over_wall),
    Rule(("outliers",), certainty.outliers),
    Rule(("few-samples",), certainty.few_samples),
    Rule(("profiler-overhead",), certainty.profiler_overhead),
    Rule(("method",), method.profiling_methods),
    Rule(("note",), method.graph_notes),
    Rule(("fine",), method.checks_without_problem),
)
"""Findings of the same level and gain are listed in the order of these rows."""

_LEVELS = (ADVICE, CAUTION, NOTE, FINE)


def findings(run: Run) -> tuple[Finding, ...]:
    """Returns all findings of a run: advice by the largest possible gain, then cautions, notes, and passed checks.

    Advice is left out where its gain was computed from figures that do not count, because the machine was busy.
    """
    evidence, disturbed = RunEvidence(run), busy_machine.disturbed_graphs(run)
    every = (finding for rule in RULES for finding in rule.find(evidence))
    found = [finding for finding in every if not busy_machine.rests_on(finding, disturbed)]
    return tuple(sorted(found, key=lambda finding: (_LEVELS.index(finding.level), -finding.gain_s)))
