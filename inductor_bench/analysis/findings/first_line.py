"""The first line of a summary: the bottleneck, the parts of the time, and possible savings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ... import units
from ...devices.table import find_common_device
from ...records.base import Category
from ...records.module import ModuleRecord
from ...records.run import COLLECTIVE, COPY, EAGER, GRAPH, IDLE, KINDS, OPTIMIZER, Program, Run
from ..step_costs import (
    GENERATED_KERNELS,
    compute_idle_share,
    compute_weight_s,
    compute_whole_time_s,
    find_longest_profile,
    find_module_time_s,
    find_step,
    host_sets_pace,
    is_simulated,
    is_uncompiled,
    is_worth_faster_kernels,
    list_parts,
    runs_on_host,
    sum_idle_by_label,
    sum_part_times_s,
)
from .compile_findings import find_recompilations, recompiles_often
from .doubts import find_disturbed, find_disturbed_graphs
from .finding import (
    CAUTION,
    LIBRARY,
    UNTUNABLE,
    WAITS_FOR_HOST,
    Finding,
    RunEvidence,
    find_bottleneck,
    plural,
    sum_gain_limits,
)
from .graph_findings import find_faster_replays, find_host_bound_graphs, find_launch_bound_graphs
from .precision_findings import find_full_float32
from .step_phrases import describe_step

LEAST = 0.005
"""Smallest share of the step that the first line names."""

MOST_PARTS = 4
"""Largest number of working parts that the first line names."""

MUCH_LONGER_PROFILE = 3.0
"""If the profiled steps on a CPU take at least this many times as long as the timed ones, the first line says so."""

LEAST_GAIN = 0.01
"""Smallest possible saving that the first line reports, as a share of the step, or of the graphs' time without one."""


def write_step_headline(run: Run) -> Finding | None:
    """Returns the first line about the program's step; ``None`` if no step was profiled."""
    program = find_step(run)
    if program is None:
        return None
    lead, work = _write_lead(run, program), describe_work(run)
    busy, idle = (
        1 - compute_idle_share(run),
        f"idle {describe_idle_time(run)}" if compute_idle_share(run) >= LEAST else "",
    )
    if runs_on_host(run):
        rest = _doubt_parts(program) or _describe_program_savings(run)
        return Finding("step", ". ".join(filter(None, [f"{lead}: {_join_words(work, idle)}", rest])))
    if program.others is not None:
        busy_words = f"this program keeps it busy {units.whole_percent(busy)} of the time"
        text = f"{lead}: another program uses the same GPU; {busy_words}: "
        rest = (
            f"idle or used by others {units.whole_percent(compute_idle_share(run))} ({_describe_graph_idle_time(run)})"
            if idle
            else ""
        )
        return Finding("step", text + _join_words(work, rest))
    if host_sets_pace(run):
        text = f"{lead}: the host sets the pace, GPU busy {units.whole_percent(busy)}: {_join_words(idle, work)}"
        kernels = KERNELS_LATER if is_simulated(run) and not is_worth_faster_kernels(run) else ""
        return Finding("step", ". ".join(filter(None, [text, _list_simulated_savings(run), kernels])))
    bound = f"{lead}: GPU-bound, busy {units.whole_percent(busy)}: {_join_words(work, idle)}"
    savings = _list_simulated_savings(run) if program.predictions else _describe_program_savings(run)
    return Finding("step", ". ".join(filter(None, [bound, savings])))


def _doubt_parts(program: Program) -> str:
    """Says that the profiled steps of a CPU took much longer than the timed ones; empty if they did not."""
    profiled_s, timed_s = find_longest_profile(program)
    if not timed_s or profiled_s < MUCH_LONGER_PROFILE * timed_s:
        return ""
    times = f"{profiled_s / timed_s:.0f} times as long as the timed ones ({units.seconds(timed_s)})"
    return (
        f"The profiled steps took {units.seconds(profiled_s)}, {times}: all parts are scaled down, and their shares "
        "may be wrong"
    )


def _write_lead(run: Run, program: Program) -> str:
    """Describes the step, and says why it holds no compiled graph."""
    return (
        f"{describe_step(program)}; {_explain_nothing_compiled(run)}. The step"
        if is_uncompiled(run)
        else describe_step(program)
    )


def _explain_nothing_compiled(run: Run) -> str:
    why = run.capture.uncompiled
    return f"nothing is compiled: {why}" if why else "nothing is compiled"


def _join_words(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


KERNELS_LATER = "Faster kernels shorten the step only once the host is faster"
MOST_SAVINGS = 3

_SAVED_BY = {
    "synchronisations": "no waiting for results",
    "data-loading": "data loaded beside the step",
    "allocations": "no memory from the driver",
    "small-graphs": "calls without guards",
    "kernel-gaps": "no gaps between kernels",
    "cuda-graphs-unused": "CUDA graphs",
    "replay-inputs": "inputs that stay in place",
    "eager-optimizer": "the optimizer in one launch",
    "eager-operators": "no eager operators",
    "collectives": "collectives behind computation",
    "gradient-copies": "no copies of gradients",
    "library-below-limit": "library kernels at their peaks",
    "layout-copies": "no rearranged tensors",
    "full-float32": "TF32",
}
"""What a first line calls the changes of findings."""

TIMED_PRODUCTS = "products in bfloat16"
"""What a first line calls products of a CPU whose shapes were faster in bfloat16."""

_SAVED_ON_HOST = {
    "data-loading": _SAVED_BY["data-loading"],
    "eager-optimizer": "a fused or compiled optimizer",
    "eager-operators": _SAVED_BY["eager-operators"],
}
"""The changes that a first line names on a CPU, beside faster kernels: the whole time of the part that they remove."""


def _list_simulated_savings(run: Run) -> str:
    """``Could save: CUDA graphs 8.9%, TF32 4.1% (simulated)``; empty if little could be saved."""
    program = find_step(run)
    if program is None:
        return ""
    words = _SAVED_BY | {
        GENERATED_KERNELS: find_common_device(module.device for module in run.modules).words.generated_at_peaks
    }
    largest: dict[str, float] = {}
    for one in program.predictions:
        share = one.saving_s / program.step_time_s
        if one.kind in words and share >= LEAST_GAIN:
            largest.setdefault(words[one.kind], share)
    named = [f"{name} {units.percent(share)}" for name, share in list(largest.items())[:MOST_SAVINGS]]
    return f"Could save: {', '.join(named)} (simulated, each by itself)" if named else ""


def _describe_program_savings(run: Run) -> str:
    """``Could save: …``; empty if little could be saved, or if a busy machine disturbed the kernels' times."""
    if find_disturbed_graphs(run):
        return ""
    evidence = RunEvidence(run)
    products_s = sum(finding.gain_s for finding in find_full_float32(evidence)) if runs_on_host(run) else 0.0
    gains = {
        TIMED_PRODUCTS: products_s,
        find_common_device(module.device for module in run.modules).words.generated_at_peaks: sum_gain_limits(
            row for row in evidence.rows if row.kernel.category not in UNTUNABLE
        ),
    }
    predictions = run.program.predictions if run.program is not None and runs_on_host(run) else ()
    gains |= {_SAVED_ON_HOST[one.kind]: one.saving_s for one in predictions if one.kind in _SAVED_ON_HOST}
    shares = sorted(((evidence.whole.part(gain_s), words) for words, gain_s in gains.items()), reverse=True)
    named = [(words, f"{words} {units.percent(share)}") for share, words in shares if share >= LEAST_GAIN][
        :MOST_SAVINGS
    ]
    bounds = [text for words, text in named if words != TIMED_PRODUCTS]
    said = [f"{text} (timed)" for words, text in named if words == TIMED_PRODUCTS]
    said += [f"{', '.join(bounds)} (upper bound{'s' if len(bounds) > 1 else ''})"] if bounds else []
    return f"Could save: {', '.join(said)}" if said else ""


WITHOUT_GRAPHS = "timed without the CUDA graphs that the program asks for"

_DATA = (Category.COPY, Category.MEMSET, Category.COLLECTIVE)


def write_first_line(run: Run) -> Finding | None:
    """Selects or makes the most important finding about a run.

    Returns:
        The parts of the program's step if it was profiled, or that a busy machine disturbed it. Otherwise, from the
        graphs: the finding about a busy machine if it disturbed most of the program; else the launch-bound or
        host-bound finding if it concerns most of the program's time; else the parts of the time with possible savings.
        ``None`` if nothing was measured.
    """
    if (step := write_step_headline(run)) is not None:
        return find_disturbed(run) or step
    found, why = (
        _describe_frequent_recompilation(run) or _write_headline_of_graphs(run),
        _write_unprofiled_headline(run),
    )
    if found is None and run.program is not None and is_uncompiled(run):
        return Finding("step", f"{why}; {_explain_nothing_compiled(run)}")
    if found is None or not why:
        return found
    graphs = "" if found.kind == "recompiles" else "its graphs by themselves: "
    return replace(found, text=f"{why}; {graphs}{found.text}")


def _write_unprofiled_headline(run: Run) -> str:
    """Describes a step that was not profiled, and says why; empty if no program was observed."""
    if run.program is None:
        return f"no step was timed ({run.capture.no_steps})" if run.capture.no_steps else ""
    why = f" ({run.program.unprofiled})" if run.program.unprofiled else ""
    return f"{describe_step(run.program)}, not profiled{why}"


def _describe_frequent_recompilation(run: Run) -> Finding | None:
    """Returns the finding about recompilations if the program's steps did not settle because of them."""
    if run.program is None or not recompiles_often(run):
        return None
    return next((one for one in find_recompilations(RunEvidence(run)) if one.level == CAUTION), None)


def _write_headline_of_graphs(run: Run) -> Finding | None:
    measured = [module for module in run.modules if find_module_time_s(module)]
    if not measured:
        return None
    if (busy := find_disturbed(run)) is not None:
        return busy
    whole = sum(compute_weight_s(run, module) for module in measured)
    evidence = RunEvidence(run)
    for finding in (*find_launch_bound_graphs(evidence), *find_host_bound_graphs(evidence)):
        concerned = [module for module in measured if module.slug in finding.modules]
        if 2 * sum(compute_weight_s(run, module) for module in concerned) >= whole:
            return finding
    graphs = f"; {WITHOUT_GRAPHS}" if any(module.cuda_graphs for module in measured) else ""
    return Finding("parts", f"{_describe_parts(measured, run)}{graphs}. {_describe_savings(run, whole)}".rstrip(". "))


def _describe_savings(run: Run, whole: float) -> str:
    """Returns ``Could save: generated kernels at their peaks 12.6% (upper bound), CUDA graphs 4.8% (measured)``."""
    peaks = sum(
        (kernel.roof.gain_limit_s or 0.0) * (module.program_calls or 1)
        for module in run.modules
        if find_bottleneck(module) not in WAITS_FOR_HOST
        for kernel in module.kernels
        if kernel.category not in UNTUNABLE
    )
    graphs = sum(finding.gain_s for finding in find_faster_replays(RunEvidence(run)))
    kind = find_common_device(module.device for module in run.modules).words.generated_at_peaks
    savings = [(peaks / whole, kind, "upper bound"), (graphs / whole, "CUDA graphs", "measured")]
    words = [
        f"{name} {units.percent(share)} ({how})"
        for share, name, how in sorted(savings, reverse=True)
        if share >= LEAST_GAIN
    ]
    return f"Could save: {', '.join(words)}" if words else ""


def _describe_parts(modules: Sequence[ModuleRecord], run: Run) -> str:
    """Returns ``GPU-bound: library kernels 62% of 62.3 ms, generated kernels 32%, idle 6% (3.74 ms)``."""
    whole = compute_whole_time_s(run)
    words = find_common_device(module.device for module in modules).words
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
    said = {name: f"{name} {units.whole_percent(seconds / whole)}" for seconds, name in others}
    if words.outside in said:
        said[words.outside] += f" ({units.seconds(idle)})"
    return ", ".join([text, *said.values()])


def _time(modules: Sequence[ModuleRecord], categories: Sequence[Category]) -> float:
    return sum(total.time_s for module in modules for total in module.categories if total.name in categories)


def describe_work(run: Run) -> str:
    """Returns the working parts with their shares: ``Block.forward 38%, AdamW 21%, eager operators 12%``."""
    whole = run.program.step_time_s if run.program else 0.0
    named: dict[str, float] = {}
    for part in list_parts(run, GRAPH, OPTIMIZER):
        named[part.label] = named.get(part.label, 0.0) + part.time_s
    named["eager operators"] = sum_part_times_s(run, EAGER)
    named["exposed collectives"] = sum_part_times_s(run, COLLECTIVE)
    named["copies"] = sum_part_times_s(run, COPY)
    for part in run.program.parts if run.program else ():
        if part.kind not in KINDS:  # of a newer version
            named[part.kind] = named.get(part.kind, 0.0) + part.time_s
    shown = sorted(named.items(), key=lambda item: -item[1])
    shown = [(label, seconds) for label, seconds in shown if seconds >= LEAST * whole > 0]
    most = MOST_PARTS if len(shown) > MOST_PARTS + 1 else len(shown)
    words = [f"{label} {units.whole_percent(seconds / whole)}" for label, seconds in shown[:most]]
    rest = sum(seconds for _, seconds in shown[most:])
    return ", ".join([*words, f"{len(shown) - most} more {units.whole_percent(rest / whole)}"] if rest else words)


def describe_idle_time(run: Run) -> str:
    """The idle time with what the host did, the longest first: ``37% (7.40 ms; Python 20%, launching 12%)``."""
    whole = run.program.step_time_s if run.program else 0.0
    labels = [(label, seconds / whole) for label, seconds in sum_idle_by_label(run).items() if whole]
    shown = [(label, share) for label, share in labels if share >= LEAST][:2]
    named = [f"{label} {units.whole_percent(share)}" for label, share in shown]
    doing = labels[0][0] if len(labels) == 1 else ", ".join(named)
    return (
        f"{units.whole_percent(compute_idle_share(run))} "
        f"({'; '.join(filter(None, (_describe_graph_idle_time(run), doing)))})"
    )


def _describe_graph_idle_time(run: Run) -> str:
    return units.seconds(sum_part_times_s(run, IDLE))
