"""Formats phrases about a run that console, Markdown, HTML and plots share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ... import units
from ...analysis.findings.doubts import METHOD_WORDS, list_methods
from ...analysis.findings.finding import ADVICE, Finding, join_words, plural
from ...analysis.findings.next_commands import find_proven_rows, find_searched_rows
from ...analysis.optimization.search_results import describe_result
from ...analysis.roofline import describe_rate, find_matrix_roof
from ...analysis.step_costs import (
    Cost,
    compute_alone_ratio,
    compute_cost,
    compute_weight_s,
    compute_whole_time_s,
    find_graph_use,
    find_module_time_s,
    find_step,
    is_far_off,
    is_simulated,
    sum_by_category,
)
from ...devices.protocol import Device
from ...devices.table import find_common_device, find_device
from ...errors import UsageError
from ...records.base import Failure
from ...records.module import Kernel, ModuleRecord
from ...records.optimization import Optimization
from ...records.run import Peaks, Run
from .. import names, palette
from ..optimization_document import STATES

SORTS = ("time", "gain", "calls")
FEW_GRAPHS = 6
"""Up to this number of graphs, all graphs are shown, even with a small share of the time."""

LEAST_WEIGHT = 0.02
"""Smallest share of the program's time of a selected graph."""


@dataclass(frozen=True)
class RankedKernel:
    """A ranked kernel with its graph, and its cost in the step or in one iteration of its graph.

    ``share`` refers to the step, or to the time of all graphs (see :func:`compute_whole_time_s`).
    """

    number: int
    module: ModuleRecord
    kernel: Kernel
    share: float | None
    cost: Cost


def rank_kernels(run: Run, sort: str = "time") -> tuple[RankedKernel, ...]:
    """Ranks the kernels of all graphs and numbers them from 1.

    Args:
        run: the record.
        sort: ``time`` or ``calls`` per step or per iteration, or ``gain``, the largest first; unknown gains come last.

    Raises:
        UsageError: ``sort`` is another word.
    """
    if sort not in SORTS:
        raise UsageError(f"cannot sort by {sort!r}", f"choose one of {', '.join(SORTS)}", "bad-word")
    rows = [(module, kernel, compute_cost(run, module, kernel)) for module in run.modules for kernel in module.kernels]
    rows.sort(key=lambda row: _make_sort_key(row[2], sort), reverse=True)
    whole = compute_whole_time_s(run)
    return tuple(
        RankedKernel(number, module, kernel, cost.time_s / whole if whole else None, cost)
        for number, (module, kernel, cost) in enumerate(rows, 1)
    )


def _make_sort_key(cost: Cost, sort: str) -> tuple[float, float]:
    if sort == "gain":
        return (-1.0 if cost.gain_s is None else cost.gain_s, cost.gain_limit_s or 0.0)
    return (cost.calls, cost.time_s) if sort == "calls" else (cost.time_s, cost.calls)


def list_main_modules(run: Run, most: int) -> tuple[ModuleRecord, ...]:
    """Selects the graphs that get a row of their own, in the record's order.

    Up to :data:`FEW_GRAPHS` graphs are all selected. Of more graphs, the two with the longest time in the program (time
    of an iteration times calls) are selected, and those with at least :data:`LEAST_WEIGHT` of the whole. If this leaves
    out a single graph, it is selected too. The result has at most ``most`` graphs.
    """
    if len(run.modules) <= min(FEW_GRAPHS, most):
        return run.modules
    heaviest = sorted(run.modules, key=lambda module: compute_weight_s(run, module), reverse=True)[:most]
    whole = sum(compute_weight_s(run, module) for module in run.modules)
    chosen = [
        module
        for place, module in enumerate(heaviest)
        if place < 2 or compute_weight_s(run, module) >= LEAST_WEIGHT * whole
    ]
    if len(chosen) + 1 >= len(run.modules) <= most:
        return run.modules
    slugs = {module.slug for module in chosen}
    return tuple(module for module in run.modules if module.slug in slugs)


def has_wall_times(run: Run) -> bool:
    """Whether the wall time of every graph is known. Shares then refer to wall time."""
    return all(module.times.wall_time_s for module in run.modules)


def name_idle_time(module: ModuleRecord) -> str:
    """Returns the name of the wall time outside kernels: host time on a CPU, idle time on another device."""
    return find_device(module.device).words.outside


ALONE = "alone: time of a call if its graph runs by itself, divided by its time in the program; shown if over 25% off"

_BOUNDS = {"memory": 0, "cache": 1, "compute": 2}


def write_heading(run: Run) -> str:
    """Describes the run in one line: ``mixnet_l · training · batch 128 · float16 autocast``."""
    request = run.request
    parts = [run.title]
    if request.training is not None:
        parts.append("training" if request.training else "inference")
    if request.batch_size is not None:
        parts.append(f"batch {request.batch_size}")
    if request.amp:
        parts.append(f"{request.amp} autocast")
    if request.mode and request.mode != "default":
        parts.append(f"mode {request.mode}")
    if request.dynamic:
        parts.append("dynamic shapes")
    known = run.title.lower()
    return " · ".join([parts[0], *(part for part in parts[1:] if part.lower() not in known)])


def describe_machine(run: Run) -> str:
    """Describes the machine in one line: ``NVIDIA H200 · torch 2.11.0 · triton 3.6.0``."""
    environment = run.environment
    of_steps = [rank.device for rank in run.program.ranks] if run.program and not run.modules else []
    device = find_common_device([*(module.device for module in run.modules), *of_steps])
    parts = [device.name_in(environment) or environment.host.cpu]
    if device.runs_on_host and environment.host.threads:
        parts.append(f"{environment.host.threads} thread{'s' * (environment.host.threads > 1)}")
    if environment.versions.torch:
        parts.append(f"torch {environment.versions.torch}")
    if environment.versions.triton and device.generates_triton:
        parts.append(f"triton {environment.versions.triton}")
    return " · ".join(part for part in parts if part)


def write_sentence(text: str, run: Run) -> str:
    """Returns ``text`` with a full stop and a capital letter; a leading name of a graph or operator stays as it is."""
    text = names.clean(text)
    named = "." in text.split(" ")[0] or any(text.startswith(names.clean(m.label) or " ") for m in run.modules)
    if text and not named:
        text = text[0].upper() + text[1:]
    return text if text.endswith((".", "…")) else text + "."


def list_bar_parts(run: Run, module: ModuleRecord) -> list[tuple[str, float, str]]:
    """Returns categories and idle time as ``(short title, share, colour)``, the largest share first.

    Shares refer to the graph's time in the step if there is one, to wall time, or to device time if the wall time
    is unknown.
    """
    if find_step(run) is not None:
        return [
            (palette.shorten_title(total.name), total.share, palette.choose_category_colour(total.name))
            for total in sum_by_category(run, module)
        ]
    parts = [
        (
            palette.shorten_title(total.name),
            total.share if total.wall_share is None else total.wall_share,
            palette.choose_category_colour(total.name),
        )
        for total in module.categories
    ]
    idle = module.times.idle
    if module.times.wall_time_s and idle is not None:
        parts.append((name_idle_time(module), idle.time_s / find_module_time_s(module), palette.IDLE))
    return sorted(parts, key=lambda part: -part[1])


def list_method_notes(run: Run) -> list[str]:
    """Says why graphs were not profiled with their own harness: one sentence for each reason, with its graphs."""
    notes = []
    for name, reason, modules in list_methods(run):
        who = "all graphs" if len(modules) == len(run.modules) > 1 else ", ".join(module.label for module in modules)
        notes.append(names.clean(f"{METHOD_WORDS.get(name, name)}: {who}" + (f" ({reason})" if reason else "")))
    return notes


def describe_folded_graphs(run: Run, shown: Sequence[ModuleRecord]) -> str:
    """Returns a sentence about the graphs without a row of their own; empty if all graphs have one."""
    slugs = {module.slug for module in shown}
    others = [module for module in run.modules if module.slug not in slugs]
    if not others:
        return ""
    in_step = find_step(run) is not None
    time_s = sum(find_graph_use(run, module).time_s if in_step else find_module_time_s(module) for module in others)
    labels = ", ".join(names.clean(module.label) for module in others[:6]) + (", …" if len(others) > 6 else "")
    more = f"{len(others)} more graph{'s' * (len(others) > 1)}"
    if in_step and not time_s:
        return f"{more}, not called in the step: {labels}"
    return f"{more}, {units.seconds(time_s)} in all: {labels}"


def describe_ledger(run: Run) -> str:
    """Returns the title of the bars of :func:`list_bar_parts`."""
    if find_step(run) is not None:
        return "where its time in the step goes"
    return "where the wall time goes" if has_wall_times(run) else "where the device time goes"


def name_share_column(run: Run) -> str:
    """The title of a column of shares, which names what they are of: ``of step``, ``of wall``, ``of device time``."""
    if find_step(run) is not None:
        return "of step"
    return "of wall" if has_wall_times(run) else "of device time"


def describe_whole(run: Run) -> str:
    """Returns the time that shares of the whole refer to: ``62.3 ms wall, each graph once``."""
    if find_step(run) is not None:
        return f"a step of {units.seconds(compute_whole_time_s(run))}"
    times = [module.times for module in run.modules]
    stretched = any((one.busy_time_s or 0.0) > (one.wall_time_s or 0.0) * 1.0005 for one in times)
    what = " device time" if not has_wall_times(run) else "" if stretched else " wall"
    return f"{units.seconds(compute_whole_time_s(run))}{what}" + (", each graph once" if len(run.modules) > 1 else "")


EXPLAINED = ("of peak", "gain limit", "step saves", "alone")
"""The columns of the kernel table that need an explanation."""


def write_kernel_caption(run: Run, entries: Iterable[RankedKernel], columns: Collection[str] = EXPLAINED) -> list[str]:
    """Explains the columns of the kernel table, those that it shows, in one or two lines."""
    shown = list(entries)
    if find_step(run) is not None:
        lines = [f"calls and time in {describe_whole(run)} · of step: share of it"]
    else:
        lines = [f"time per iteration · {name_share_column(run)}: of {describe_whole(run)}"]
    if run.peaks is None:
        return lines
    if "step saves" in columns and is_simulated(run):
        lines[0] += " · step saves: at that peak, simulated; in brackets: once the host is faster"
    elif "gain limit" in columns:
        lines[0] += " · gain limit: upper bound, at that peak"
    bounds = {entry.kernel.roof.bound for entry in shown}
    notes = []
    if "of peak" in columns:
        roofs = _describe_roofs(run, shown)
        notes += [f"of peak: of {', '.join(roofs)}"] if roofs else []
        if any(map(_is_partly_cached, shown)):
            notes.append("of DRAM: bytes that the cache holds do not count")
        if "latency" in bounds and run.peaks.launch_floor_s is not None:
            notes.append(f"latency: nearest limit is an empty kernel's {units.seconds(run.peaks.launch_floor_s)}")
        if any(entry.kernel.category.is_library and entry.kernel.roof.peak_share is not None for entry in shown):
            notes.append("a library kernel counts with its part of the ATen call")
        if roofs and any(format_peak_share(entry) == units.MISSING for entry in shown):
            notes.append(f"{units.MISSING}: no peak is known for it")
    if "alone" in columns and any(is_far_off(compute_alone_ratio(run, entry.kernel)) for entry in shown):
        notes.append(ALONE)
    return [*lines, " · ".join(notes)] if notes else lines


PARTLY_CACHED = 0.9
"""If at most this share of a kernel's bytes reaches DRAM, its percent of the DRAM roof is not that of its bandwidth."""


def _is_partly_cached(entry: RankedKernel) -> bool:
    kernel, moved = entry.kernel, entry.kernel.work.moved_bytes
    if kernel.roof.bound != "memory" or kernel.roof.peak_share is None or kernel.dram_bytes is None or not moved:
        return False
    return kernel.dram_bytes <= PARTLY_CACHED * moved


def format_step_saving(cost: Cost) -> str:
    """Returns ``0.31 ms``, ``0``, or ``0 (0.31 ms)`` if the kernel waits for the host; a dash if it is unknown."""
    saving = cost.saving
    if saving.step_saving_s is None:
        return units.MISSING
    now = units.seconds(saving.step_saving_s) if saving.step_saving_s > 0 else "0"
    later_s = saving.device_saving_s or 0.0
    waits = later_s > 2 * max(saving.step_saving_s, saving.step_saving_uncertainty_s or 0.0)
    return f"{now} ({units.seconds(later_s)})" if waits else now


def describe_finding(finding: Finding, run: Run, search: Optimization | None = None) -> str:
    """Writes a finding as a sentence, with its simulated saving, and with the result of a search that tried it."""
    searched = search_words(finding, search) if search is not None else ""
    return " ".join(
        filter(None, (write_sentence(finding.text, run), describe_simulated_saving(finding, run), searched))
    )


MOST_TRIED = 3


def search_words(finding: Finding, search: Optimization) -> str:
    """Says in a sentence what a search of ``optimize`` found about a finding's change; empty if it tries no such
    change. A proven change has its step before and after; another change has the reason.
    """
    rows, proven = find_searched_rows(finding, search), find_proven_rows(finding, search)
    if proven and search.winner is not None:
        others = len(search.winner.slugs) - len(proven)
        titles = [*(row.title for row in proven), *([plural(others, "other setting")] if others else [])]
        return f"Proven with {join_words(titles, len(titles))}: {describe_result(search)}."
    tried = [row for row in rows if row in search.tried]
    if tried:
        said = [f"{row.title} ({STATES.get(row.state, row.state)})" for row in tried]
        return f"Tried by optimize: {join_words(said, MOST_TRIED)}."
    if finding.level != ADVICE:
        return ""
    reason = next((row.reason for row in rows if "--" in row.reason), rows[0].reason if rows else "")
    return f"Not tried by optimize ({reason})." if reason else ""


def describe_origin(kernel: Kernel, place_of: Mapping[str, str]) -> str:
    """The user's line and the operation of a kernel; ``place_of`` has the short names of files."""
    is_call = kernel.category.is_library and kernel.operator
    source = names.describe_source_place(kernel, place_of) if is_call else names.describe_source_line(kernel, place_of)
    return " · ".join(filter(None, (source, names.describe_operation(kernel))))


LEAST_SAVING = 0.002
"""Share of the step below which a simulated saving counts as nothing."""


def describe_simulated_saving(finding: Finding, run: Run) -> str:
    """Says in a sentence what a finding's change would save of the step; empty if that was not simulated."""
    predicted, whole_s = finding.prediction, compute_whole_time_s(run)
    if predicted is None or predicted.device_saving_s is None or not whole_s:
        return ""
    later_s = predicted.device_saving_s
    if predicted.saving_s >= LEAST_SAVING * whole_s:
        off = units.seconds(predicted.uncertainty_s)
        return f"Simulated: the step {_format_share(predicted.saving_s, whole_s)} shorter, ± {off}."
    if predicted.uncertainty_s >= LEAST_SAVING * whole_s:
        return f"Simulated: the step at most {_format_share(predicted.uncertainty_s, whole_s)} shorter, or not at all."
    if later_s >= LEAST_SAVING * whole_s:
        later = _format_share(later_s, whole_s)
        return f"Simulated: the step does not get shorter; {later} shorter if the host were faster."
    return "Simulated: the step does not get shorter."


def _format_share(seconds: float, whole_s: float) -> str:
    return f"{units.seconds(seconds)} ({units.percent(seconds / whole_s)})"


def _describe_roofs(run: Run, entries: Sequence[RankedKernel]) -> list[str]:
    """Returns the measured roofs with which the shown kernels are compared."""
    peaks = run.peaks
    if peaks is None:
        return []
    entries = [entry for entry in entries if entry.kernel.roof.peak_share is not None]
    judged = ((entry.kernel.roof.bound, find_device(entry.module.device)) for entry in entries)
    bounds = {(bound, name_bound(bound, device)) for bound, device in judged}
    roofs = []
    for bound, name in sorted(bounds, key=lambda item: (_BOUNDS.get(item[0], len(_BOUNDS)), item)):
        if bound == "memory":
            roofs.append(f"{name} {units.rate(peaks.memory_bandwidth)}")
        elif bound == "cache":
            roofs.append(_describe_cache_roofs(name, peaks, entries))
        elif bound == "compute":
            roofs.append(_describe_matrix_roofs(run, entries))
    return roofs


def _describe_cache_roofs(name: str, peaks: Peaks, entries: Sequence[RankedKernel]) -> str:
    """Returns ``L2 9.30 TB/s``, or the range of a CPU's caches: the fewer bytes a call moves, the faster they are."""
    rates = (describe_rate(entry.module, entry.kernel) for entry in entries if entry.kernel.roof.bound == "cache")
    found = sorted(peak for rate in rates if (peak := rate.find_peak(peaks)))
    if not found:
        return name
    text = f"{name} {units.rate(found[0])}"
    return text if found[0] == found[-1] else f"{text} to {units.rate(found[-1])}, by the bytes of a call"


def describe_cache_rates(peaks: Peaks) -> str:
    """Returns ``9.30 TB/s``, or ``28.7 GB/s to 158 GB/s`` for the caches of a CPU; empty if none was measured."""
    if not peaks.cache_bandwidth:
        return ""
    least, most = peaks.cache_bandwidth, peaks.find_cache_bandwidth(0) or 0.0
    return units.rate(least) + (f" to {units.rate(most)}" if most > least else "")


def describe_peaks(peaks: Peaks) -> str:
    """Returns the measured peaks of a device in a row, and when they were measured."""
    parts = [f"memory {units.rate(peaks.memory_bandwidth)}"]
    if rates := describe_cache_rates(peaks):
        parts.append(f"cache {rates} ({units.size(peaks.cache_bytes)})")
    parts += [f"{dtype} matrix multiply {units.flop_rate(rate)}" for dtype, rate in peaks.matmul_flops.items()]
    if peaks.launch_floor_s is not None:
        parts.append(f"empty kernel {units.seconds(peaks.launch_floor_s)}")
    return ", ".join(parts) + (f"; measured {peaks.measured_at}" if peaks.measured_at else "")


def _describe_matrix_roofs(run: Run, entries: Sequence[RankedKernel]) -> str:
    """Returns ``compute 686 TFLOP/s (float16)`` with the element types of the compute-bound kernels."""
    peaks = run.peaks
    rates: dict[str, float] = {}
    for entry in entries:
        roof = find_matrix_roof(entry.kernel.work.dtype, peaks, tf32=entry.module.tf32) if peaks else None
        if entry.kernel.roof.bound == "compute" and roof is not None:
            tf32 = entry.module.tf32 and entry.kernel.work.dtype == "float32"
            rates["tf32" if tf32 else entry.kernel.work.dtype or ""] = roof
    if not rates:
        return "compute"
    return "compute " + ", ".join(f"{units.flop_rate(roof)} ({dtype})" for dtype, roof in list(rates.items())[:2])


def name_bound(bound: str, device: Device) -> str:
    """Returns the name of a roof: ``DRAM``, the device's cache, ``compute`` or ``latency``."""
    return {"memory": "DRAM", "cache": device.words.cache, "unknown": units.MISSING}.get(bound, names.clean(bound))


def format_peak_share(entry: RankedKernel) -> str:
    """Returns ``18% DRAM``, ``12% compute``, ``<1% L2``, ``latency``, ``L2`` (the share is unknown), or a dash."""
    name = name_bound(entry.kernel.roof.bound, find_device(entry.module.device))
    if entry.kernel.roof.peak_share is None:
        return name
    return f"{units.whole_percent(entry.kernel.roof.peak_share)} {name}"


def format_alone_ratio(run: Run, entry: RankedKernel) -> str:
    """Returns ``0.62x`` for a kernel whose time alone differs much from its time in the program; else nothing."""
    ratio = compute_alone_ratio(run, entry.kernel)
    if ratio is None or not is_far_off(ratio):
        return ""
    return "<0.1x" if ratio < 0.1 else ">100x" if ratio > 100 else f"{ratio:.3g}x"


def format_rates(kernel: Kernel) -> str:
    """Returns the achieved rate of a kernel: ``812 GB/s``, else ``18.6 TFLOP/s``, or a dash."""
    roof = kernel.roof
    return units.rate(roof.bandwidth) if roof.bandwidth is not None else units.flop_rate(roof.flop_rate)


def find_rows(finding: Finding, entries: Iterable[RankedKernel]) -> str:
    """Lists a finding's rows in the kernel table and the number of its other kernels: ``no. 1-3, 8 and 4 more``."""
    numbers = {(entry.module.slug, entry.kernel.name): entry.number for entry in entries}
    found = sorted({numbers[place] for place in finding.kernels if place in numbers})
    if not found:
        return ""
    others = len(finding.kernels) - len(found)
    return f"no. {', '.join(_format_ranges(found))}" + (f" and {others} more" if others > 0 else "")


def _format_ranges(numbers: Sequence[int]) -> list[str]:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return [f"{s[0]}-{s[-1]}" if len(s) > 2 else ", ".join(map(str, s)) for s in spans]


def write_failure(failure: Failure) -> str:
    """Returns ``profile of forward: the process was killed by signal 9``."""
    subject = f" of {names.clean(failure.subject)}" if failure.subject else ""
    return f"{names.clean(failure.stage)}{subject}: {names.clean(failure.message)}"
