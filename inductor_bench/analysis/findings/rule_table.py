"""The table of rules, and the function that applies them to a run. A new finding needs a rule and a row here.

``doubts.disturbed`` has no row: ``headline`` makes its finding the first line. Advice that rests on disturbed figures
is left out here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from ...records.run import Run
from ..step_costs import host_sets_pace, is_shared, whole_time_s
from . import (
    compile_findings,
    doubts,
    graph_findings,
    kernel_findings,
    product_findings,
    program_findings,
    step_findings,
)
from .finding import ADVICE, CAUTION, FINE, NOTE, Finding, RunEvidence


class Rule(NamedTuple):
    """A function that reports findings, and the kinds of findings that it can report."""

    kinds: tuple[str, ...]
    find: Callable[[RunEvidence], Iterator[Finding]]


UNCERTAINTY = Rule(("few-steps", "longer-profile", "untied", "longer-loop", "step-note"), step_findings.uncertainty)
"""It also applies to a step that was timed and not profiled."""

SHARED = Rule(("shared-gpu",), doubts.shared_gpu)
"""It also applies to a step that was timed and not profiled."""

STEP_RULES = (
    SHARED,
    Rule(("host-pace",), program_findings.host_work),
    Rule(("synchronisations",), program_findings.synchronisations),
    Rule(("data-loading",), step_findings.data_loading),
    Rule(("cpu-operators",), step_findings.cpu_operators),
    Rule(("host-waits",), step_findings.host_waits),
    Rule(("host-python",), step_findings.host_python),
    Rule(("garbage-collection",), step_findings.garbage_collection),
    Rule(("allocations",), program_findings.allocations),
    Rule(("small-graphs",), program_findings.small_graphs),
    Rule(("slow-guards",), compile_findings.slow_guards),
    Rule(("kernel-gaps",), program_findings.gaps_between_kernels),
    Rule(("cuda-graphs-unused",), program_findings.cuda_graphs_unused),
    Rule(("cuda-graphs-refused",), compile_findings.cuda_graphs_refused),
    Rule(("replay-inputs",), program_findings.replay_inputs),
    Rule(("eager-optimizer",), compile_findings.eager_optimizer),
    Rule(("eager-operators",), compile_findings.eager_operators),
    Rule(("anomaly-mode",), compile_findings.anomaly_mode),
    Rule(("collectives",), step_findings.collectives),
    Rule(("gradient-copies",), step_findings.gradient_copies),
    Rule(("uneven-ranks",), step_findings.uneven_ranks),
    Rule(("busy-step",), step_findings.busy_step),
    Rule(("unsteady-steps",), step_findings.unsteady_steps),
    Rule(("other-steps",), step_findings.other_steps),
    UNCERTAINTY,
    Rule(("alone-less", "alone-more"), step_findings.different_by_themselves),
    Rule(("against-eager",), program_findings.against_eager),
    Rule(("compile-time",), program_findings.compile_time),
    Rule(("first-step",), step_findings.first_step),
    Rule(("cuda-graphs-in-use",), program_findings.cuda_graphs_in_use),
)
"""Rules about the program's step; they apply if it was profiled."""

RULES = (
    Rule(("launch-bound",), graph_findings.launch_bound),
    Rule(("host-bound",), graph_findings.host_bound),
    Rule(("cuda-graph",), graph_findings.cuda_graph),
    Rule(("gaps",), graph_findings.gaps),
    Rule(("host-share",), graph_findings.host_share),
    Rule(("below-memory-limit", "below-compute-limit"), kernel_findings.below_limit),
    Rule(("few-blocks",), kernel_findings.few_blocks),
    Rule(("layout-copies",), kernel_findings.layout_copies),
    Rule(("library-below-limit",), kernel_findings.library_below_limit),
    Rule(("hotspot",), kernel_findings.hotspots),
    Rule(("attention-below-limit",), product_findings.attention_below_limit),
    Rule(("decomposed-attention",), product_findings.decomposed_attention),
    Rule(("unaligned-products",), product_findings.unaligned_products),
    Rule(("small-products",), product_findings.small_products),
    Rule(("float32-island",), product_findings.float32_island),
    Rule(("pageable-copies",), kernel_findings.pageable_copies),
    Rule(("host-copies",), kernel_findings.host_copies),
    Rule(("copies",), kernel_findings.device_copies),
    Rule(("copied-addends",), kernel_findings.copied_addends),
    Rule(("padded-products",), kernel_findings.padded_products),
    Rule(("full-float32",), kernel_findings.full_float32),
    Rule(("short-kernels",), kernel_findings.short_kernels),
    Rule(("spills",), kernel_findings.spills),
    Rule(("other",), kernel_findings.unnamed_kernels),
    Rule(("unsteady-kernels",), kernel_findings.unsteady_kernels),
    Rule(("graph-breaks",), kernel_findings.graph_breaks),
    Rule(("recompiles",), compile_findings.recompilations),
    Rule(("recompile-limit",), compile_findings.recompile_limit),
    Rule(("capture",), kernel_findings.capture_disagreement),
    Rule(("threads",), kernel_findings.threads),
    Rule(("no-peaks",), doubts.no_peaks),
    Rule(("beyond-peaks",), doubts.beyond_peaks),
    Rule(("noise",), doubts.noise),
    Rule(("busy-over-wall",), doubts.busy_over_wall),
    Rule(("outliers",), doubts.outliers),
    Rule(("few-samples",), doubts.few_samples),
    Rule(("profiler-overhead",), doubts.profiler_overhead),
    Rule(("method",), doubts.profiling_methods),
    Rule(("note",), doubts.graph_notes),
    Rule(("fine",), doubts.checks_without_problem),
)
"""Findings of the same level and gain are listed in the order of these rows, those about the step first."""

_LEVELS = (ADVICE, CAUTION, NOTE, FINE)


def findings(run: Run) -> tuple[Finding, ...]:
    """Returns all findings of a run: advice by what it saves of the step, then cautions, notes, and passed checks.

    The saving is simulated; see ``saving_s``. Advice is left out if its gain was computed from figures that do not
    count, because the machine was busy, or from idle time of a GPU that others used, too. That they did comes first.
    """
    evidence, disturbed, is_busy = RunEvidence(run), doubts.disturbed_graphs(run), bool(doubts.disturbed_step(run))
    of_step = STEP_RULES if evidence.in_step else (SHARED, UNCERTAINTY) if run.program is not None else ()
    rules = (*of_step, *RULES)
    every = (finding for rule in rules for finding in rule.find(evidence))
    predicted = {one.finding: one for one in run.program.predictions} if run.program is not None else {}
    found = [
        replace(finding, prediction=predicted.get(finding.key))
        for finding in every
        if not doubts.depends_only_on(finding, disturbed)
        and not (is_busy and finding.level == ADVICE and finding.gain_s)
        and not (is_shared(run) and doubts.rests_on_idle_time(finding))
    ]
    if any(one.kind in HOST_CAUSES and saving_s(one, run) >= WORTH_MUCH * whole_time_s(run) for one in found):
        found = [one for one in found if one.kind != "host-pace"]
    return tuple(sorted(found, key=lambda finding: _order(finding, run)))


HOST_CAUSES = frozenset(
    (
        *("host-python", "data-loading", "cpu-operators", "host-waits", "garbage-collection", "synchronisations"),
        *("allocations", "pageable-copies", "slow-guards", "small-graphs", "eager-optimizer", "eager-operators"),
        *("cuda-graphs-unused", "cuda-graphs-refused"),
    )
)
"""Kinds of findings that name what the device waits for, beside which "the host sets the pace" says nothing new."""


WORTH_MUCH = 0.03
"""Share of the step from which a saving is worth much."""


MEASUREMENT = frozenset(
    (
        *("few-steps", "longer-profile", "untied", "longer-loop", "step-note", "busy-step", "busy-machine"),
        "shared-gpu",
        *("unsteady-steps", "other-steps", "alone-less", "alone-more", "noise", "busy-over-wall", "outliers"),
        *(
            "few-samples",
            "unsteady-kernels",
            "profiler-overhead",
            "method",
            "note",
            "no-peaks",
            "beyond-peaks",
            "capture",
        ),
        *("against-eager", "first-step", "compile-time", "step", "parts"),
    )
)
"""Kinds of findings about the measurement, or that only divide the step."""


FIRST = "shared-gpu"
"""The kind of the caution that stands before all advice."""


def _order(finding: Finding, run: Run) -> tuple[int, bool, float, float]:
    """Cautions about the program stand before those about the measurement.

    Advice that names no cause stands behind other advice that is worth much.
    """
    saved_s = saving_s(finding, run)
    if finding.kind == "host-pace":
        saved_s = min(saved_s, WORTH_MUCH * whole_time_s(run))
    level = -1 if finding.kind == FIRST else _LEVELS.index(finding.level)
    return level, finding.kind in MEASUREMENT, -saved_s, -finding.gain_s


def saving_s(finding: Finding, run: Run) -> float:
    """What a finding's change saves of the step, simulated.

    Without a simulation it is the largest possible gain; nothing for faster kernels and collectives while the host sets
    the pace.
    """
    if finding.prediction is not None:
        return finding.prediction.saving_s
    on_device = bool(finding.kernels) or finding.kind == "collectives"
    return 0.0 if on_device and host_sets_pace(run) else finding.gain_s


def findings_beside(run: Run, lead: Finding | None) -> list[Finding]:
    """The findings without the one that the first line tells."""
    return [finding for finding in findings(run) if lead is None or finding.kind != lead.kind]
