"""Aggregation over the models of a batch: a row for each model, and kernels by id and by family. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..devices.table import device_of
from ..records.batch_results import BatchResults, GraphResult, KernelResult, ModelResult
from ..records.category import Category
from .findings.bottleneck import LAUNCH_BOUND
from .findings.evidence import UNTUNABLE
from .retunes import RetuneSummary, summarize_retunes

_Member = tuple[str, KernelResult, bool]
"""The model's name, the kernel, and whether its time decides that of its graph."""


@dataclass(frozen=True)
class ModelSummary:
    """A model in one row. Times are of one iteration, each graph once; shares are of ``time_s``.

    ``parts`` are categories, the largest first, and ``None`` with the share of idle (or host) time. ``gain_limit_s`` is
    what its generated kernels would save at their roofs: an upper bound. ``retunes`` are there where asked for.
    """

    model: ModelResult
    time_s: float
    busy_share: float | None
    parts: tuple[tuple[Category | None, float], ...]
    launches: float
    kernels: int
    top: KernelResult | None
    gain_limit_s: float | None
    retunes: RetuneSummary | None

    @property
    def name(self) -> str:
        return self.model.model.request.name

    @property
    def status(self) -> str:
        """As in the batch, or what is wrong with the record."""
        return self.model.problem.kind if self.model.problem else self.model.model.status


class KernelGroup(NamedTuple):
    """Kernels of all models that are the same, or of the same family.

    ``launches``, ``time_s`` and ``gain_limit_s`` are sums of one iteration of every model; ``share`` is of the suite's
    time. ``peak_share`` is the mean by time over what is known, ``ids`` how many different kernels these are, and
    ``name`` and ``kernel_id`` those of the most expensive one, which ``model`` has. ``speedup`` is that of the best
    retune of one of them, 1 where none was surely faster, ``saving_s`` what all retunes would save.
    """

    key: str
    name: str
    kernel_id: str
    category: str
    operator: str | None
    bound: str
    ids: int
    models: tuple[str, ...]
    model: str
    launches: float
    time_s: float
    share: float
    peak_share: float | None
    gain_limit_s: float | None
    speedup: float | None = None
    saving_s: float | None = None


def suite_time_s(results: BatchResults) -> float:
    """One iteration of every model that was measured, each graph once: what shares over models refer to."""
    return sum(graph.time_s for model in results.models for graph in model.graphs)


def summarize_model(model: ModelResult) -> ModelSummary:
    """The row of a model; one that was not measured has no times."""
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
        _gain(
            kernel
            for graph in model.graphs
            for kernel in graph.kernels
            if kernel.category not in UNTUNABLE and not waits_for_host(graph)
        ),
        summarize_retunes(model.retunes, {graph.label for graph in model.graphs if waits_for_host(graph)}),
    )


def without_kernels(summary: ModelSummary) -> ModelSummary:
    """The row without the kernels of its model, which are most of it."""
    graphs = tuple(replace(graph, kernels=()) for graph in summary.model.graphs)
    return replace(summary, model=replace(summary.model, graphs=graphs))


def group_kernels(results: BatchResults, key: Callable[[KernelResult], str]) -> list[KernelGroup]:
    """The kernels of all models with the same key put together, those first that take most of the suite's time.

    Args:
        results: the models.
        key: :func:`by_id` or :func:`by_family`.
    """
    groups: dict[str, list[_Member]] = defaultdict(list)
    for model in results.models:
        name = model.model.request.name
        for graph in model.graphs:
            decides = not waits_for_host(graph)
            for kernel in graph.kernels:
                groups[key(kernel)].append((name, kernel, decides))
    whole = suite_time_s(results)
    found = [_group(place, members, whole) for place, members in groups.items()]
    return sorted(found, key=lambda group: (-group.time_s, group.key))


def by_id(kernel: KernelResult) -> str:
    return kernel.kernel_id


def by_family(kernel: KernelResult) -> str:
    return kernel.family_id


def _group(key: str, members: list[_Member], whole: float) -> KernelGroup:
    if len(members) == 1:  # as most kernels are, of which there may be a hundred thousand
        model, kernel, decides = members[0]
        return KernelGroup(
            *(
                key,
                kernel.name,
                kernel.kernel_id,
                kernel.category.value,
                kernel.operator,
                kernel.bound,
                1,
                (model,),
                model,
            ),
            *(kernel.calls, kernel.time_s, kernel.time_s / whole if whole else 0.0, kernel.peak_share),
            *((kernel.gain_limit_s, kernel.speedup, kernel.saving_s) if decides else (None, kernel.speedup, None)),
        )
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
        _gain(kernel for _, kernel, decides in members if decides),
        max((kernel.speedup for kernel in kernels if kernel.speedup is not None), default=None),
        _sum(kernel.saving_s for _, kernel, decides in members if decides),
    )


def waits_for_host(graph: GraphResult) -> bool:
    """Whether the graph waits for its host, so that a faster kernel would not shorten the run."""
    if device_of(graph.device).runs_on_host:
        return False
    return graph.busy_share is not None and graph.busy_share < LAUNCH_BOUND


def _gain(kernels: Iterable[KernelResult]) -> float | None:
    return _sum(kernel.gain_limit_s for kernel in kernels)


def _sum(seconds: Iterable[float | None]) -> float | None:
    """What is known of it."""
    known = [each for each in seconds if each is not None]
    return sum(known) if known else None
