"""Aggregates the models of a batch into one row per model, and their kernels by id and by family. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from ..devices.table import find_device
from ..records.base import Category
from ..records.batch_record import BatchResults, GraphResult, KernelResult, ModelResult
from ..records.retune import FASTER, UNREACHED, RetuneRow, keep_best_of_each
from ..records.run import Peaks, Run
from .findings.doubts import explain_disturbance, find_disturbed_graphs
from .findings.finding import LAUNCH_BOUND, UNTUNABLE, WAITS_FOR_HOST, find_bottleneck
from .roofline import KernelRate, Roof, describe_other_work, find_refuted_roofs
from .step_costs import HOST_SETS_PACE, find_step, host_sets_pace

# Summaries of the retunes of a model's kernels. Pure functions.


@dataclass(frozen=True)
class RetuneSummary:
    """The retuned kernels of a model and their totals."""

    rows: tuple[RetuneRow, ...]  # one row per kernel, the largest saving first, failed retunes last
    faster: int  # number of kernels for which a faster configuration was found
    same: int  # number of kernels that keep their configuration
    without: int  # number of kernels whose retune failed
    unreached: int  # number of kernels that the budget left out
    saving_s: float  # projected saving of one step or iteration in seconds, without the kernels counted in ``waiting``
    left_s: float  # the part of ``saving_s`` that ``apply`` leaves to the user
    waiting: int  # number of kernels whose graphs all wait for the host, so that a faster kernel saves no time
    cautions: tuple[str, ...]  # doubts about single measurements, one sentence each


def summarize_retunes(rows: Iterable[RetuneRow], waiting: Collection[str] = ()) -> RetuneSummary | None:
    """Summarizes the rows of one model; ``None`` if there are no rows.

    Args:
        rows: the retunes of the model's kernels.
        waiting: labels of the graphs in which the device waits for the host.
    """
    best = keep_best_of_each(rows)
    if not best:
        return None
    counted = [row for row in best if not set(row.graphs) <= set(waiting)]
    faster = sum(row.verdict == FASTER for row in best)
    unreached = sum(row.problem == UNREACHED for row in best)
    without = sum(bool(row.problem) for row in best) - unreached
    return RetuneSummary(
        tuple(sorted(best, key=lambda row: (bool(row.problem), -(row.saving_s or 0.0), -row.time_s))),
        faster,
        len(best) - faster - without - unreached,
        without,
        unreached,
        sum(row.saving_s or 0.0 for row in counted),
        sum(row.saving_s or 0.0 for row in counted if row.left_to_user),
        len(best) - len(counted),
        tuple(row.caution for row in best if row.caution),
    )


def list_retunes(run: Run) -> RetuneSummary | None:
    """Summarizes the retunes of a run; ``None`` if the run has none."""
    if find_step(run) is not None:
        waiting = {module.label for module in run.modules if host_sets_pace(run)}
    else:
        waiting = {module.label for module in run.modules if find_bottleneck(module) in WAITS_FOR_HOST}
    return summarize_retunes((retune.row for retune in run.retunes), waiting)


_Member = tuple[str, KernelResult, bool]
"""The model's name, the kernel, and whether a faster kernel would shorten its graph."""


@dataclass(frozen=True)
class ModelSummary:
    """A model in one row. Times are seconds of one step of its program or, without a step, of one run of each graph."""

    model: ModelResult  # the model as it was read from the batch
    time_s: float  # the time of all its graphs
    # mean busy share of the device, weighted by the graphs' times; ``None`` if it is unknown
    busy_share: float | None
    # each category with its share of ``time_s``, the largest first; category ``None`` is idle or host time
    parts: tuple[tuple[Category | None, float], ...]
    launches: float  # the number of kernel launches
    kernels: int  # the number of kernels
    top: KernelResult | None  # the most expensive kernel
    gain_limit_s: float | None  # the time that its generated kernels would save at their roofs, an upper bound
    retunes: RetuneSummary | None  # the results of the retunes; ``None`` if none were requested

    @property
    def name(self) -> str:
        return self.model.model.request.name

    @property
    def status(self) -> str:
        """The status of the model in the batch, or the kind of problem with its record."""
        return self.model.problem.kind if self.model.problem else self.model.model.status


class KernelGroup(NamedTuple):
    """The kernels of all models that have the same id or the same family.

    Sums are over one step of each model's program. If a model has no step, they are over one run of each of its graphs.
    """

    key: str  # the shared id or family id
    name: str  # the properties of the most expensive kernel of the group
    kernel_id: str  # the properties of the most expensive kernel of the group
    category: str  # the properties of the most expensive kernel of the group
    operator: str | None  # the properties of the most expensive kernel of the group
    bound: str  # the properties of the most expensive kernel of the group
    ids: int  # the number of different kernels in the group
    models: tuple[str, ...]  # the names of the models that have a kernel of the group
    model: str  # the model that has the most expensive kernel
    launches: float  # sum of the launches
    time_s: float  # sum of the device times in seconds
    share: float  # ``time_s`` as a share of the time of all models
    peak_share: float | None  # mean share of peak weighted by time, over the kernels for which it is known
    gain_limit_s: float | None  # sum of the gain limits in seconds
    speedup: float | None = None  # the best speedup of a retune in the group; 1 if no retune was reliably faster
    saving_s: float | None = None  # the time in seconds that all retunes of the group would save


def compute_suite_time_s(results: BatchResults) -> float:
    """Sums the seconds of all measured models: one step of each or, if it has no step, one run of each of its graphs.

    Shares over several models refer to this time.
    """
    return sum(graph.time_s for model in results.models for graph in model.graphs)


def summarize_model(model: ModelResult) -> ModelSummary:
    """Summarizes a model in one row. The times of an unmeasured model are 0."""
    whole = sum(graph.time_s for graph in model.graphs)
    times: dict[Category | None, float] = defaultdict(float)
    for graph in model.graphs:
        for category, time_s in graph.categories:
            times[category] += time_s
        times[None] += graph.idle_s or 0.0
    busy = [(graph.busy_share, graph.time_s) for graph in model.graphs if graph.busy_share is not None]
    kernels = [kernel for graph in model.graphs for kernel in graph.kernels]
    return ModelSummary(
        model,
        whole,
        sum(share * time_s for share, time_s in busy) / whole if busy and whole else None,
        tuple(sorted(((part, time_s / whole) for part, time_s in times.items() if time_s), key=lambda one: -one[1]))
        if whole
        else (),
        sum(graph.launches or 0.0 for graph in model.graphs),
        len(kernels),
        max(kernels, key=lambda kernel: kernel.time_s, default=None),
        _sum_gain_limits(
            kernel
            for graph in model.graphs
            for kernel in graph.kernels
            if kernel.category not in UNTUNABLE and not waits_for_host(graph)
        ),
        summarize_retunes(model.retunes, {graph.label for graph in model.graphs if waits_for_host(graph)}),
    )


def group_kernels(results: BatchResults, key: Callable[[KernelResult], str]) -> list[KernelGroup]:
    """Groups the kernels of all models by a key.

    Args:
        results: the models.
        key: :func:`key_by_id` or :func:`key_by_family`.

    Returns:
        The groups, the most expensive first.
    """
    groups: dict[str, list[_Member]] = defaultdict(list)
    for model in results.models:
        name = model.model.request.name
        for graph in model.graphs:
            shortens_run = not waits_for_host(graph)
            for kernel in graph.kernels:
                groups[key(kernel)].append((name, kernel, shortens_run))
    whole = compute_suite_time_s(results)
    found = sorted((_group(place, members, whole) for place, members in groups.items()), key=attrgetter("key"))
    return sorted(found, key=attrgetter("time_s"), reverse=True)


def key_by_id(kernel: KernelResult) -> str:
    return kernel.kernel_id


def key_by_family(kernel: KernelResult) -> str:
    return kernel.family_id


def _group(key: str, members: list[_Member], whole: float) -> KernelGroup:
    if len(members) == 1:  # a fast path: a batch may have a hundred thousand kernels, most of them in one model only
        model, one, shortens_run = members[0]
        category, share, models = one.category.value, one.time_s / whole if whole else 0.0, (model,)
        gain_s, saving_s = (one.gain_limit_s, one.retune.saving_s) if shortens_run else (None, None)
        named = key, one.name, one.kernel_id, category, one.operator, one.bound, 1, models, model
        costs = one.calls, one.time_s, share, one.peak_share, gain_s, one.retune.speedup, saving_s
        return KernelGroup._make(named + costs)
    model, costliest, _ = max(members, key=lambda member: member[1].time_s)
    kernels = [kernel for _, kernel, _ in members]
    time_s = sum(kernel.time_s for kernel in kernels)
    judged = [(kernel.peak_share, kernel.time_s) for kernel in kernels if kernel.peak_share is not None]
    weight = sum(seconds for _, seconds in judged)
    return KernelGroup(
        key,
        costliest.name,
        costliest.kernel_id,
        costliest.category.value,
        costliest.operator,
        costliest.bound,
        len({kernel.kernel_id for kernel in kernels}),
        tuple(dict.fromkeys(name for name, _, _ in members)),
        model,
        sum(kernel.calls for kernel in kernels),
        time_s,
        time_s / whole if whole else 0.0,
        sum(share * seconds for share, seconds in judged) / weight if weight else None,
        _sum_gain_limits(kernel for _, kernel, shortens_run in members if shortens_run),
        max((kernel.retune.speedup for kernel in kernels if kernel.retune.speedup is not None), default=None),
        _sum(kernel.retune.saving_s for _, kernel, shortens_run in members if shortens_run),
    )


def waits_for_host(graph: GraphResult) -> bool:
    """Whether the device waits for the host in this graph, so that a faster kernel would not shorten the run."""
    if find_device(graph.device).runs_on_host:
        return False
    if graph.host_idle_share is not None:
        return graph.host_idle_share > HOST_SETS_PACE
    return graph.busy_share is not None and graph.busy_share < LAUNCH_BOUND


def _sum_gain_limits(kernels: Iterable[KernelResult]) -> float | None:
    return _sum(kernel.gain_limit_s for kernel in kernels)


def _sum(seconds: Iterable[float | None]) -> float | None:
    """Sums the known values; ``None`` if all are unknown."""
    known = [each for each in seconds if each is not None]
    return sum(known) if known else None


# Removes gain limits from a batch if the figures below them do not count. The reports of runs do the same.


def leave_out_uncounted_gains(results: BatchResults) -> BatchResults:
    """Returns the results. Models whose figures do not count have a ``doubt`` instead of gain limits.

    If a kernel runs faster than a peak, no kernel of the models with the same peaks keeps its share of that peak, or
    its gain limit at that peak.
    """
    refuted: list[tuple[Peaks, set[Roof]]] = []
    for model in results.models:
        if (peaks := _find_peaks(model)) is not None:
            roofs = next((roofs for known, roofs in refuted if known == peaks), None)
            if roofs is None:
                refuted.append((peaks, roofs := set()))
            kernels = list(_list_kernels(model))
            judged_s = sum(kernel.time_s for kernel, _ in kernels if kernel.peak_share is not None)
            rates = (_describe_rate(kernel, tf32) for kernel, tf32 in kernels if kernel.peak_share is None)
            roofs |= find_refuted_roofs(rates, peaks, judged_s)
    found = (_leave_out_refuted_roofs(model, refuted) for model in results.models)
    return replace(results, models=tuple(map(_leave_out_uncounted, found)))


def _find_peaks(model: ModelResult) -> Peaks | None:
    return model.outline.peaks if model.outline is not None else None


def _list_kernels(model: ModelResult) -> Iterator[tuple[KernelResult, bool]]:
    """The kernels, each with whether float32 matrix products of its graph may use TF32."""
    tf32 = {module.label: module.tf32 for module in model.outline.modules} if model.outline is not None else {}
    for graph in model.graphs:
        yield from ((kernel, tf32.get(graph.label, False)) for kernel in graph.kernels)


def _describe_rate(kernel: KernelResult, tf32: bool) -> KernelRate:
    time_s = kernel.time_s
    bandwidth, flop_rate = (
        amount / time_s if amount is not None and time_s > 0 else None for amount in (kernel.moved_bytes, kernel.flops)
    )
    rates = bandwidth, flop_rate, kernel.peak_share
    return KernelRate(
        kernel.bound, kernel.dtype, tf32, time_s, *rates, (kernel.moved_bytes or 0.0) / (kernel.calls or 1)
    )


def _leave_out_refuted_roofs(model: ModelResult, refuted: Sequence[tuple[Peaks, set[Roof]]]) -> ModelResult:
    peaks = _find_peaks(model)
    roofs = next((roofs for known, roofs in refuted if known == peaks), None)
    if not roofs:
        return model
    lost = {id(kernel) for kernel, tf32 in _list_kernels(model) if _describe_rate(kernel, tf32).roof in roofs}
    graphs = (
        replace(graph, kernels=tuple(_remove_roof(one) if id(one) in lost else one for one in graph.kernels))
        for graph in model.graphs
    )
    return replace(model, graphs=tuple(graphs))


def _remove_roof(kernel: KernelResult) -> KernelResult:
    return kernel._replace(peak_share=None, gain_limit_s=None)


def _leave_out_uncounted(model: ModelResult) -> ModelResult:
    program = model.outline.program if model.outline is not None else None
    if program is not None and program.others is not None:
        graphs = tuple(_leave_out_gains(graph, {graph.label}) for graph in model.graphs)
        return replace(model, graphs=graphs, doubt=describe_other_work(program.others, "its steps"))
    concerned = find_disturbed_graphs(model.outline) if model.outline is not None else ()
    on_host = [module for module in concerned if find_device(module.device).runs_on_host]  # a GPU's kernel times count
    if model.outline is None or not on_host:
        return model
    labels = {module.label for module in on_host}
    graphs = tuple(_leave_out_gains(graph, labels) for graph in model.graphs)
    return replace(model, graphs=graphs, doubt=explain_disturbance(model.outline, on_host))


def _leave_out_gains(graph: GraphResult, labels: Collection[str]) -> GraphResult:
    if graph.label not in labels:
        return graph
    kernels = (kernel._replace(gain_limit_s=None) for kernel in graph.kernels)
    return replace(graph, kernels=tuple(kernels))
