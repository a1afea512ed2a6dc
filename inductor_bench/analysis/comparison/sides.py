"""One side of a comparison: the step of one or more runs of a program, as kernels of graphs and other parts.

Every figure is kept by run; the figure of the side is their mean. Means add up, so that the parts of a side add up to
its step as those of each record do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TypeVar

from ...records.kernel import Kernel
from ...records.module import ModuleRecord
from ...records.program import EAGER, GRAPH, Part
from ...records.run import Run
from ..costs.step import cost_of, graph_use, runs_on_host, step_of
from ..costs.times import module_time_s, whole_time_s

OTHERS = "other eager operators"
"""The label under which the ledger sums up short eager operators."""
SMALL = 0.004
"""Share of the longer step below which an eager operator that some runs do not list is one of :data:`OTHERS`: the
ledger lists operators from 0.2% on, so that an operator of about that time is listed in some runs only."""

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")


@dataclass(frozen=True)
class SideKernel:
    """A kernel of a graph. ``runs`` are its rows in the runs that have it; ``times_s`` has a time for each run."""

    graph: str
    runs: tuple[Kernel, ...]
    calls: float
    times_s: tuple[float, ...]
    tf32: bool = False

    @property
    def kernel(self) -> Kernel:
        """Its row in the first run that has it."""
        return self.runs[0]

    @property
    def time_s(self) -> float:
        return fmean(self.times_s)

    @property
    def configs(self) -> tuple[dict[str, int], ...]:
        """The distinct configs in which the runs have it."""
        found = [kernel.compiled.config for kernel in self.runs if kernel.compiled.config]
        return tuple(config for index, config in enumerate(found) if config not in found[:index])

    @property
    def key(self) -> Hashable:
        """The identity of its code: the id, or the operator and the name of a library's kernel."""
        kernel = self.kernel
        return (kernel.operator, kernel.name) if kernel.operator or not kernel.kernel_id else kernel.kernel_id


@dataclass(frozen=True)
class SideGraph:
    """A compiled graph; ``times_s`` are its seconds of the step by run, ``kernels`` those that the step runs."""

    label: str
    role: str
    calls: float
    times_s: tuple[float, ...]
    kernels: tuple[SideKernel, ...]

    @property
    def time_s(self) -> float:
        return fmean(self.times_s)


@dataclass(frozen=True)
class SidePart:
    """What is no kernel of a graph.

    Attributes:
        calls: the mean of the runs that list it; ``listed`` is their number.
        places: the lines of the program, as ``FILE:LINE``.
    """

    kind: str
    label: str
    calls: float
    times_s: tuple[float, ...]
    places: tuple[str, ...] = ()
    listed: int = 1

    @property
    def time_s(self) -> float:
        return fmean(self.times_s)


@dataclass(frozen=True)
class Side:
    """One side. ``in_step`` says whether its seconds are those of the program's step, else of an iteration."""

    runs: tuple[Run, ...]
    in_step: bool
    steps_s: tuple[float, ...]
    graphs: tuple[SideGraph, ...]
    parts: tuple[SidePart, ...]

    @property
    def step_s(self) -> float:
        return fmean(self.steps_s)

    @property
    def on_host(self) -> bool:
        return runs_on_host(self.runs[0])

    @property
    def kernels(self) -> tuple[SideKernel, ...]:
        return tuple(kernel for graph in self.graphs for kernel in graph.kernels)


def make_side(runs: Sequence[Run], *, in_step: bool) -> Side:
    """The side of one or more runs of one program.

    Args:
        runs: the records.
        in_step: whether the currency is the program's step, which each record then has.
    """
    rows = tuple(run if in_step else replace(run, program=None) for run in runs)
    steps = tuple(whole_time_s(run) for run in rows)
    return Side(rows, in_step, steps, _graphs(rows), _parts(rows))


def fold_small_operators(a: Side, b: Side) -> tuple[Side, Side]:
    """Both sides, with short eager operators that only some runs list among the ledger's other operators.

    They stay listed where the calls of the other operators are the same in both: then the operators are new.
    """
    listed = [{part.label: part for part in side.parts if part.kind == EAGER} for side in (a, b)]
    others = [labels.get(OTHERS) for labels in listed]
    if others[0] is None or others[1] is None or others[0].calls == others[1].calls:
        return a, b
    always = [
        {label for label, part in labels.items() if part.listed == len(side.runs)}
        for labels, side in zip(listed, (a, b), strict=True)
    ]
    lone = (listed[0].keys() | listed[1].keys()) - (always[0] & always[1])
    least_s = SMALL * max(a.step_s, b.step_s)
    return _folded(a, others[0], lone, least_s), _folded(b, others[1], lone, least_s)


def _folded(side: Side, others: SidePart, lone: Set[str], least_s: float) -> Side:
    def is_small(part: SidePart) -> bool:
        return part.kind == EAGER and part.label in lone - {OTHERS} and part.time_s < least_s

    small = [part for part in side.parts if is_small(part)]
    merged = replace(
        others,
        calls=others.calls + sum(part.calls for part in small),
        times_s=tuple(map(sum, zip(others.times_s, *(part.times_s for part in small), strict=True))),
    )
    return replace(side, parts=tuple(merged if part == others else part for part in side.parts if part not in small))


def _graphs(runs: Sequence[Run]) -> tuple[SideGraph, ...]:
    grouped = _grouped((module.label, number, module) for number, run in enumerate(runs) for module in run.modules)
    found = [_graph(runs, label, dict(modules)) for label, modules in grouped]
    return tuple(graph for graph in found if graph.time_s or graph.kernels)


def _graph(runs: Sequence[Run], label: str, modules: dict[int, ModuleRecord]) -> SideGraph:
    first = next(iter(modules.values()))
    keyed: list[tuple[Hashable, int, Kernel]] = []
    for number, module in modules.items():
        seen: dict[Hashable, int] = {}
        for kernel in module.kernels:
            key: Hashable = (SideKernel(label, (kernel,), 0.0, ()).key, kernel.name)
            seen[key] = seen.get(key, 0) + 1
            keyed.append(((key, seen[key]), number, kernel))
    kernels = [_kernel(runs, modules, label, dict(rows)) for _, rows in _grouped(keyed)]
    times, calls = [0.0] * len(runs), [0.0] * len(runs)
    for number, module in modules.items():
        if step_of(runs[number]) is not None:
            use = graph_use(runs[number], module)
            times[number], calls[number] = use.time_s, use.calls
        else:
            times[number], calls[number] = module_time_s(module), 1.0
    shown = tuple(kernel for kernel in kernels if kernel.time_s or kernel.calls)
    return SideGraph(label, first.role, fmean(calls), tuple(times), shown)


def _kernel(runs: Sequence[Run], modules: dict[int, ModuleRecord], label: str, rows: dict[int, Kernel]) -> SideKernel:
    times, calls = [0.0] * len(runs), [0.0] * len(runs)
    for number, kernel in rows.items():
        cost = cost_of(runs[number], modules[number], kernel)
        times[number], calls[number] = cost.time_s, cost.calls
    tf32 = any(module.tf32 for module in modules.values())
    return SideKernel(label, tuple(rows.values()), fmean(calls), tuple(times), tf32)


def _parts(runs: Sequence[Run]) -> tuple[SidePart, ...]:
    rows: list[tuple[tuple[str, str], int, Part]] = []
    for number, run in enumerate(runs):
        slugs = {module.slug for module in run.modules}
        program = step_of(run)
        for part in program.parts if program is not None else ():
            if part.kind != GRAPH or part.graph not in slugs:
                rows.append(((part.kind, part.label), number, part))
    found = []
    for (kind, label), parts in _grouped(rows):
        times = [0.0] * len(runs)
        for number, part in parts:
            times[number] += part.time_s
        listed = len({number for number, _ in parts})
        calls = sum(part.calls for _, part in parts) / listed
        places = (f"{part.source.file}:{part.source.line}" for _, part in parts if part.source is not None)
        found.append(SidePart(kind, label, calls, tuple(times), tuple(dict.fromkeys(places)), listed))
    return tuple(found)


def _grouped(rows: Iterable[tuple[Key, int, Row]]) -> list[tuple[Key, list[tuple[int, Row]]]]:
    """The rows by their key, in the order of the keys; each with the number of its run."""
    groups: dict[Key, list[tuple[int, Row]]] = {}
    for key, number, row in rows:
        groups.setdefault(key, []).append((number, row))
    return list(groups.items())
