"""The two sides of a comparison, and how similar their kernels and graphs are."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import TypeVar

from ..records.comparison import PartChange
from ..records.module import Kernel, ModuleRecord
from ..records.run import EAGER, GRAPH, OTHERS, Part, Run
from .step_costs import compute_cost, compute_whole_time_s, find_graph_use, find_module_time_s, find_step, runs_on_host

# One side of a comparison: the step of one or more runs of a program, as kernels of graphs and other parts.
#
# Each figure is kept for each run; the figure of the side is the mean over its runs. So the parts of a side add up to
# its step, as in each record.


SAME_CALLS = 0.01
"""The largest relative difference of two numbers of calls per step that count as equal: they are means over few
steps."""

Key = TypeVar("Key", bound=Hashable)
Row = TypeVar("Row")


def make_kernel_key(kernel: Kernel) -> Hashable:
    """Returns the identity of a kernel's code: its id or, for a library's kernel, its operator and its name."""
    return (kernel.operator, kernel.name) if kernel.operator or not kernel.kernel_id else kernel.kernel_id


@dataclass(frozen=True)
class SideKernel:
    """A kernel of a graph. ``runs`` are its rows in the runs that have it; ``times_s`` has a time for each run."""

    graph: str
    runs: tuple[Kernel, ...]
    calls: float
    times_s: tuple[float, ...]
    float32_products: str = "float32"  # the type in which matrix products of float32 may be computed

    @property
    def kernel(self) -> Kernel:
        """The kernel's row in the first run that has the kernel."""
        return self.runs[0]

    @property
    def time_s(self) -> float:
        return fmean(self.times_s)

    @property
    def configs(self) -> tuple[dict[str, int], ...]:
        """The distinct configs in which the runs have the kernel."""
        found = [kernel.compiled.config for kernel in self.runs if kernel.compiled.config]
        return tuple(config for index, config in enumerate(found) if config not in found[:index])

    @property
    def key(self) -> Hashable:
        return make_kernel_key(self.kernel)


@dataclass(frozen=True)
class SideGraph:
    """A compiled graph.

    ``times_s`` has its seconds of the step for each run, ``kernels`` the kernels that the step runs.

    ``kernels`` is empty if the kernels of some run are unknown because its profile failed.
    """

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
    """A part of a step that is not a kernel of a graph."""

    kind: str
    label: str
    # the calls in each run; ``listed`` is the number of runs whose records have the calls
    run_calls: tuple[float, ...]
    times_s: tuple[float, ...]
    places: tuple[str, ...] = ()  # the lines of the program, as ``FILE:LINE``
    listed: int = 1

    @property
    def calls(self) -> float:
        """The number of calls in a step, as the mean of the runs that know it."""
        return sum(self.run_calls) / self.listed

    @property
    def time_s(self) -> float:
        return fmean(self.times_s)


@dataclass(frozen=True)
class Side:
    """The runs of one side of a comparison, and the means of their figures."""

    runs: tuple[Run, ...]
    in_step: bool  # whether the seconds are of the program's step; otherwise they are of an iteration
    lists_all: bool  # whether the parts are complete, so that an operator in no part was not called
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


def have_same_calls(a: float, b: float) -> bool:
    """Whether two numbers of calls per step are the same."""
    return abs(a - b) <= SAME_CALLS * max(a, b)


def has_other_calls(part: PartChange) -> bool:
    """Whether the part has another number of calls in a step of B."""
    return part.a_calls is not None and part.b_calls is not None and not have_same_calls(part.a_calls, part.b_calls)


def has_one_profiled_step(run: Run) -> bool:
    """Whether the parts of a run's step come from one profiled step. One step cannot show what other steps do."""
    program = find_step(run)
    return program is not None and any(rank.profiled_steps == 1 for rank in program.ranks)


def names_all_operators(run: Run) -> bool:
    """Whether the record names the operators that it sums up. Records of older versions do not."""
    program = find_step(run)
    parts = program.parts if program is not None else ()
    return all(part.summed for part in parts if (part.kind, part.label) == (EAGER, OTHERS))


def make_side(runs: Sequence[Run], *, in_step: bool, lists_all: bool) -> Side:
    """Makes the side from one or more runs of one program.

    Args:
        runs: the records.
        in_step: whether figures are per step of the program; each record must then have a step.
        lists_all: whether each operator that a record sums up becomes a part of its own; each record must then name
            them.
    """
    rows = tuple(run if in_step else replace(run, program=None) for run in runs)
    steps = tuple(compute_whole_time_s(run) for run in rows)
    return Side(rows, in_step, lists_all, steps, _average_graphs(rows), _average_parts(rows, lists_all=lists_all))


def _average_graphs(runs: Sequence[Run]) -> tuple[SideGraph, ...]:
    grouped = _group_rows((module.label, number, module) for number, run in enumerate(runs) for module in run.modules)
    found = [_average_graph(runs, label, dict(modules)) for label, modules in grouped]
    return tuple(graph for graph in found if graph.time_s or graph.kernels)


def _average_graph(runs: Sequence[Run], label: str, modules: dict[int, ModuleRecord]) -> SideGraph:
    first = next(iter(modules.values()))
    kernels = [_average_kernel(runs, modules, label, rows) for rows in _group_rows_by_kernel(modules)]
    times, calls = [0.0] * len(runs), [0.0] * len(runs)
    for number, module in modules.items():
        if find_step(runs[number]) is not None:
            use = find_graph_use(runs[number], module)
            times[number], calls[number] = use.time_s, use.calls
        else:
            times[number], calls[number] = find_module_time_s(module), 1.0
    unknown = any(times[number] and not module.kernels for number, module in modules.items())
    shown = () if unknown else tuple(kernel for kernel in kernels if kernel.time_s or kernel.calls)
    return SideGraph(label, first.role, fmean(calls), tuple(times), shown)


def _group_rows_by_kernel(modules: dict[int, ModuleRecord]) -> list[dict[int, Kernel]]:
    """Returns the rows of each kernel by run.

    Rows with equal code and name join first, then rows with equal code, because another run may number a kernel
    differently.
    """
    found: list[dict[int, Kernel]] = []
    for number, module in modules.items():
        left = list(module.kernels)
        for by_name in (True, False):
            left = list(_list_unplaced_kernels(left, number, found, by_name=by_name))
        found += [{number: kernel} for kernel in left]
    return found


def _list_unplaced_kernels(
    kernels: Iterable[Kernel], number: int, found: Iterable[dict[int, Kernel]], *, by_name: bool
) -> Iterator[Kernel]:
    """Puts each kernel of a run into the first rows with its code that lack this run.

    Yields kernels without such rows.
    """
    free: dict[Hashable, list[dict[int, Kernel]]] = {}
    for rows in found:
        if number not in rows:
            one = next(iter(rows.values()))
            free.setdefault((make_kernel_key(one), one.name if by_name else ""), []).append(rows)
    for kernel in kernels:
        rows_of_code = free.get((make_kernel_key(kernel), kernel.name if by_name else ""))
        if rows_of_code:
            rows_of_code.pop(0)[number] = kernel
        else:
            yield kernel


def _average_kernel(
    runs: Sequence[Run], modules: dict[int, ModuleRecord], label: str, rows: dict[int, Kernel]
) -> SideKernel:
    times, calls = [0.0] * len(runs), [0.0] * len(runs)
    for number, kernel in rows.items():
        run, module = runs[number], modules[number]
        if (
            find_step(run) is None or find_graph_use(run, module).time_s
        ):  # the step is that of one rank, without the kernels of other ranks
            cost = compute_cost(run, module, kernel)
            times[number], calls[number] = cost.time_s, cost.calls
    products = max((module.float32_products for module in modules.values()), key=lambda dtype: dtype != "float32")
    return SideKernel(label, tuple(rows.values()), fmean(calls), tuple(times), products)


def _average_parts(runs: Sequence[Run], *, lists_all: bool) -> tuple[SidePart, ...]:
    rows: list[tuple[tuple[str, str], int, Part]] = []
    for number, run in enumerate(runs):
        slugs = {module.slug for module in run.modules}
        program = find_step(run)
        listed_parts = program.parts if program is not None else ()
        for part in chain.from_iterable(map(_divide_part, listed_parts)) if lists_all else listed_parts:
            if part.kind != GRAPH or part.graph not in slugs:
                rows.append(((part.kind, part.label), number, part))
    found = []
    for (kind, label), parts in _group_rows(rows):
        times, calls = [0.0] * len(runs), [0.0] * len(runs)
        for number, part in parts:
            times[number] += part.time_s
            calls[number] += part.calls
        listed = len(runs) if lists_all else len({number for number, _ in parts})
        places = (f"{part.source.file}:{part.source.line}" for _, part in parts if part.source is not None)
        found.append(SidePart(kind, label, tuple(calls), tuple(times), tuple(dict.fromkeys(places)), listed))
    return tuple(found)


def _divide_part(part: Part) -> Iterable[Part]:
    """Returns the operators that a part sums up; the part itself if it is a single operator."""
    return [Part(part.kind, one.label, one.calls, one.time_s, 0.0) for one in part.summed] or [part]


def _group_rows(rows: Iterable[tuple[Key, int, Row]]) -> list[tuple[Key, list[tuple[int, Row]]]]:
    """Groups the rows by key, in the order of the keys. Each row comes with the number of its run."""
    groups: dict[Key, list[tuple[int, Row]]] = {}
    for key, number, row in rows:
        groups.setdefault(key, []).append((number, row))
    return list(groups.items())


# How likely two kernels with different code do the same work, judged by origin, operator, name and text.


Sources = Mapping[tuple[str, str], str]
"""The texts of kernels by the label of their graph and their name; a kernel whose text is unknown is missing."""

_NUMBER = re.compile(r"_\d+$")
_KIND = re.compile(r"^(?:triton_[a-z]{3}|triton|cpp)_(?:fused_+)?")
FAMILY = 0.95
"""The smallest similarity of kernels of one family, which differ only in sizes."""


def is_library(side: SideKernel) -> bool:
    """Whether a kernel belongs to a call of a library, and not to the module's text."""
    return side.kernel.line is None and side.kernel.operator is not None


def has_same_configs(a: SideKernel, b: SideKernel) -> bool:
    """Whether both sides ran in the same configs equally often. An unknown config does not count as another config."""
    shares = _compute_config_shares(a), _compute_config_shares(b)
    return not shares[0] or not shares[1] or shares[0] == shares[1]


def _compute_config_shares(side: SideKernel) -> dict[frozenset[tuple[str, int]], float]:
    """Returns the share of the runs in each config, out of the runs whose config is known."""
    found = Counter(frozenset(one.compiled.config.items()) for one in side.runs if one.compiled.config)
    return {config: count / sum(found.values()) for config, count in found.items()}


def has_other_precision(a: SideKernel, b: SideKernel) -> bool:
    """Whether both sides compute matrix products of float32, but in different types."""
    return a.float32_products != b.float32_products and _multiplies_float32(a) and _multiplies_float32(b)


def _multiplies_float32(side: SideKernel) -> bool:
    work = side.kernel.work
    return work.dtype == "tf32" or bool(work.flops and work.dtype in ("float32", side.float32_products))


def name_words(name: str) -> frozenset[str]:
    """Returns the words in the name of a generated kernel. They name the operators that the kernel computes."""
    return frozenset(_KIND.sub("", _NUMBER.sub("", name)).split("_")) - {""}


def compute_shared_work(a: SideKernel, b: SideKernel) -> float:
    """Returns the share of the smaller kernel's origin that the other kernel has as well, 0 to 1.

    A kernel of a library shares work with kernels of the same operator, and with generated ones that compute it.
    """
    first, second = a.kernel, b.kernel
    if is_library(a) and is_library(b):
        return float(first.operator == second.operator) * (
            0.5 + 0.5 * _compute_jaccard_index(_list_shapes(a), _list_shapes(b))
        )
    if is_library(a) or is_library(b):
        library, generated = (first, second) if is_library(a) else (second, first)
        return float(library.operator in generated.origin.aten_ops)
    for one, other in _compare_origins(a, b):
        if one and other:
            return len(one & other) / min(len(one), len(other))
    return 0.0


def compute_similarity(a: SideKernel, b: SideKernel, a_texts: Sources, b_texts: Sources) -> float:
    """Returns how similar two kernels are, 0 to 1: the mean over all properties that are known for both kernels."""
    if is_library(a) or is_library(b):
        return compute_shared_work(a, b) if is_library(a) and is_library(b) else 0.0
    found = [_compute_jaccard_index(one, other) for one, other in _compare_origins(a, b) if one and other]
    found.append(float(a.kernel.category == b.kernel.category))
    texts = a_texts.get((a.graph, a.kernel.name)), b_texts.get((b.graph, b.kernel.name))
    if texts[0] and texts[1]:
        found.append(compute_text_similarity(texts[0], texts[1]))
    mean = sum(found) / len(found)
    related = a.kernel.family_id and a.kernel.family_id == b.kernel.family_id
    return FAMILY + (1 - FAMILY) * mean if related else mean


def compute_text_similarity(a: str, b: str) -> float:
    """Returns the share of lines that two texts have in common, 0 to 1. The position of a line does not count."""
    lines = _normalise_lines(a), _normalise_lines(b)
    whole = sum(lines[0].values()) + sum(lines[1].values())
    return 2 * sum((lines[0] & lines[1]).values()) / whole if whole else 1.0


@functools.lru_cache(maxsize=4096)
def _normalise_lines(text: str) -> Counter[str]:
    return Counter(line.strip() for line in text.splitlines() if line.strip())


def _compare_origins(a: SideKernel, b: SideKernel) -> list[tuple[frozenset[str], frozenset[str]]]:
    """Returns the known origins of both kernels, pair by pair, the most exact pair first."""
    first, second = a.kernel.origin, b.kernel.origin
    lines = [frozenset(f"{line.file}:{line.line}" for line in one.source_lines) for one in (first, second)]
    return [
        (frozenset(first.source_nodes), frozenset(second.source_nodes)),
        (frozenset(first.aten_ops), frozenset(second.aten_ops)),
        (lines[0], lines[1]),
        (name_words(a.kernel.name), name_words(b.kernel.name)),
    ]


def _list_shapes(side: SideKernel) -> frozenset[str]:
    return frozenset(group.shapes for kernel in side.runs for group in kernel.shapes)


def _compute_jaccard_index(a: frozenset[str], b: frozenset[str]) -> float:
    return len(a & b) / len(a | b) if a or b else 1.0
