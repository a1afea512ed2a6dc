"""Makes the first line of a summary from the record: the bottleneck, the parts of the time, and possible savings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ... import units
from ...devices.table import common_device
from ...records.category import Category
from ...records.module import ModuleRecord
from ...records.run import Run
from ..step_costs import host_sets_pace, idle_share, module_time_s, runs_on_host, step_of, weight_s, whole_time_s
from .doubts import cuda_graph, disturbed, disturbed_graphs, host_bound, launch_bound
from .finding import LIBRARY, UNTUNABLE, WAITS_FOR_HOST, Finding, RunEvidence, bottleneck, gain_of, plural
from .program_findings import LEAST, idle_words, step_words, work_words

# Makes the first line of a summary from the program's step.


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
        return Finding("step", ". ".join(filter(None, [f"{lead}: {_joined(work, idle)}", _program_savings(run)])))
    if host_sets_pace(run):
        text = f"{lead}: the host sets the pace, GPU busy {units.whole_percent(busy)}: {_joined(idle, work)}"
        return Finding("step", f"{text}. Faster kernels shorten the step only once the host is faster")
    bound = f"{lead}: GPU-bound, busy {units.whole_percent(busy)}: {_joined(work, idle)}"
    return Finding("step", ". ".join(filter(None, [bound, _program_savings(run)])))


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _program_savings(run: Run) -> str:
    """``Could save: …``; empty where little could be saved, or where a busy machine disturbed the kernels' times."""
    if disturbed_graphs(run):
        return ""
    evidence = RunEvidence(run)
    gain = evidence.whole.part(gain_of(row for row in evidence.rows if row.kernel.category not in UNTUNABLE))
    kind = common_device(module.device for module in run.modules).words.generated_at_peaks
    return f"Could save: {kind} {units.percent(gain)} (upper bound)" if gain >= LEAST_GAIN else ""


LEAST_SAVING = 0.01
"""Smallest saving that is reported, as a share of the program's time."""

WITHOUT_GRAPHS = "timed without the CUDA graphs that the program asks for"

_DATA = (Category.COPY, Category.MEMSET, Category.COLLECTIVE)


def headline(run: Run) -> Finding | None:
    """Selects or makes the most important finding about a run.

    Returns:
        The parts of the program's step where it was profiled. Otherwise, from the graphs: the finding about a busy
        machine if it disturbed most of the program; else the launch-bound or host-bound
        finding if it concerns most of the program's time; else the parts of the time with possible savings.
        ``None`` where nothing was measured.
    """
    if (step := step_headline(run)) is not None:
        return step
    found = _of_graphs(run)
    if found is None or run.program is None:
        return found
    return replace(found, text=f"{step_words(run.program)}, not profiled; its graphs by themselves: {found.text}")


def _of_graphs(run: Run) -> Finding | None:
    measured = [module for module in run.modules if module_time_s(module)]
    if not measured:
        return None
    if (busy := disturbed(run)) is not None:
        return busy
    whole = sum(weight_s(run, module) for module in measured)
    evidence = RunEvidence(run)
    for finding in (*launch_bound(evidence), *host_bound(evidence)):
        concerned = [module for module in measured if module.slug in finding.modules]
        if 2 * sum(weight_s(run, module) for module in concerned) >= whole:
            return finding
    graphs = f"; {WITHOUT_GRAPHS}" if any(module.cuda_graphs for module in measured) else ""
    return Finding("parts", f"{_parts(measured, run)}{graphs}. {_savings(run, whole)}".rstrip(". "))


def _savings(run: Run, whole: float) -> str:
    """Returns ``Could save: generated kernels at their peaks 12.6% (upper bound), CUDA graphs 4.8% (measured)``.

    Shares refer to the time of the program. Library kernels are left out, because tuning cannot bring them to their
    peaks. The text is empty where no saving reaches :data:`LEAST_SAVING`.
    """
    peaks = sum(
        (kernel.roof.gain_limit_s or 0.0) * (module.program_calls or 1)
        for module in run.modules
        if bottleneck(module) not in WAITS_FOR_HOST
        for kernel in module.kernels
        if kernel.category not in UNTUNABLE
    )
    graphs = sum(finding.gain_s for finding in cuda_graph(RunEvidence(run)))
    kind = common_device(module.device for module in run.modules).words.generated_at_peaks
    savings = [(peaks / whole, kind, "upper bound"), (graphs / whole, "CUDA graphs", "measured")]
    words = [
        f"{name} {units.percent(share)} ({how})"
        for share, name, how in sorted(savings, reverse=True)
        if share >= LEAST_SAVING
    ]
    return f"Could save: {', '.join(words)}" if words else ""


def _parts(modules: Sequence[ModuleRecord], run: Run) -> str:
    """Returns ``GPU-bound: library kernels 62% of 62.3 ms, generated kernels 32%, idle 6%``."""
    whole = whole_time_s(run)
    words = common_device(module.device for module in modules).words
    library = _time(modules, LIBRARY)
    data = _time(modules, _DATA)
    every = sum(total.time_s for module in modules for total in module.categories)
    times = [module.times for module in modules]
    idle = sum(one.idle.time_s for one in times if one.wall_time_s and one.idle is not None)
    parts = [
        (library, words.library),
        (every - library - data, words.generated),
        (data, "copies and collectives" if _time(modules, (Category.COLLECTIVE,)) else "copies and memsets"),
        (idle, words.outside),
    ]
    shown = [(seconds, name) for seconds, name in sorted(parts, reverse=True) if seconds >= 0.005 * whole]
    if not shown:
        return f"{plural(len(modules), 'graph')} of {units.seconds(whole)}"
    (first, name), *others = shown
    graphs = f" ({len(modules)} graphs, each once)" if len(modules) > 1 else ""
    limit = "" if idle > 0.3 * whole else words.bound
    text = f"{limit}{name} {units.whole_percent(first / whole)} of {units.seconds(whole)}{graphs}"
    return ", ".join([text, *(f"{name} {units.whole_percent(seconds / whole)}" for seconds, name in others)])


def _time(modules: Sequence[ModuleRecord], categories: Sequence[Category]) -> float:
    return sum(total.time_s for module in modules for total in module.categories if total.name in categories)
