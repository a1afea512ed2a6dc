"""The table of rules, and the function that applies them to a run. A new finding needs a rule and a row here.

``rules.busy_machine`` has no row: ``headline`` writes its finding as the first line, and here it removes advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from ...records.run import Run
from ..costs.step import host_sets_pace
from .evidence import RunEvidence
from .finding import ADVICE, CAUTION, FINE, NOTE, Finding
from .program import alone, compiling, cuda_graphs, eager, host, ranks, steadiness
from .rules import busy_machine, certainty, compilation, copies, float32, headroom, launches, library, method, waiting


class Rule(NamedTuple):
    """A function that reports findings, and the kinds of findings that it can report."""

    kinds: tuple[str, ...]
    find: Callable[[RunEvidence], Iterator[Finding]]


CERTAINTY = Rule(("few-steps", "longer-profile", "untied", "longer-loop", "step-note"), steadiness.certainty)
"""It also applies to a step that was timed and not profiled."""

STEP_RULES = (
    Rule(("host-pace",), host.host_work),
    Rule(("synchronisations",), host.synchronisations),
    Rule(("data-loading",), host.data_loading),
    Rule(("allocations",), host.allocations),
    Rule(("kernel-gaps",), host.gaps_between_kernels),
    Rule(("cuda-graphs-unused",), cuda_graphs.cuda_graphs_unused),
    Rule(("cuda-graphs-refused",), cuda_graphs.cuda_graphs_refused),
    Rule(("replay-inputs",), cuda_graphs.replay_inputs),
    Rule(("eager-optimizer",), eager.eager_optimizer),
    Rule(("eager-operators",), eager.eager_operators),
    Rule(("collectives",), ranks.collectives),
    Rule(("gradient-copies",), ranks.gradient_copies),
    Rule(("uneven-ranks",), ranks.uneven_ranks),
    Rule(("busy-step",), steadiness.busy_step),
    Rule(("unsteady-steps",), steadiness.unsteady_steps),
    CERTAINTY,
    Rule(("alone-less", "alone-more"), alone.off_by_themselves),
    Rule(("against-eager",), compiling.against_eager),
    Rule(("compile-time",), compiling.compile_time),
    Rule(("first-step",), steadiness.first_step),
    Rule(("cuda-graphs-in-use",), cuda_graphs.cuda_graphs_in_use),
)
"""Rules about the program's step; they apply where it was profiled."""

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
    Rule(("copied-addends",), copies.copied_addends),
    Rule(("padded-products",), copies.padded_products),
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
    Rule(("beyond-peaks",), certainty.beyond_peaks),
    Rule(("noise",), certainty.noise),
    Rule(("busy-over-wall",), certainty.busy_over_wall),
    Rule(("outliers",), certainty.outliers),
    Rule(("few-samples",), certainty.few_samples),
    Rule(("profiler-overhead",), certainty.profiler_overhead),
    Rule(("method",), method.profiling_methods),
    Rule(("note",), method.graph_notes),
    Rule(("fine",), method.checks_without_problem),
)
"""Findings of the same level and gain are listed in the order of these rows, those about the step first."""

_LEVELS = (ADVICE, CAUTION, NOTE, FINE)


def findings(run: Run) -> tuple[Finding, ...]:
    """Returns all findings of a run: advice by the largest possible gain, then cautions, notes, and passed checks.

    Advice is left out where its gain was computed from figures that do not count, because the machine was busy. Advice
    about kernels is a note while the host sets the pace of the program's step.
    """
    evidence, disturbed = RunEvidence(run), busy_machine.disturbed_graphs(run)
    of_step = STEP_RULES if evidence.in_step else (CERTAINTY,) if run.program is not None else ()
    rules = (*of_step, *RULES)
    every = (finding for rule in rules for finding in rule.find(evidence))
    found = [finding for finding in every if not busy_machine.rests_on(finding, disturbed)]
    if host_sets_pace(run):
        found = [replace(one, level=NOTE) if one.kernels and one.level == ADVICE else one for one in found]
    return tuple(sorted(found, key=lambda finding: (_LEVELS.index(finding.level), -finding.gain_s)))


def findings_beside(run: Run, lead: Finding | None) -> list[Finding]:
    """The findings without the one that the first line tells."""
    return [finding for finding in findings(run) if lead is None or finding.kind != lead.kind]
