"""Computes what each graph, kernel and rank costs in the program's step."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..devices.table import find_device
from ..records.base import Category, Failure
from ..records.evidence import OtherSteps, take_different_times
from ..records.module import CategoryTotal, Kernel, ModuleRecord, StepSaving
from ..records.run import (
    COLLECTIVE,
    GRAPH,
    IDLE,
    LAUNCHING,
    QUEUED,
    Part,
    Prediction,
    Program,
    RankSteps,
    Run,
    StepKind,
)
from ..records.traced import StepWindow

# Costs of kernels and graphs: in one step of the program if it was observed, else in one iteration of each graph.
#
# Every table, finding and plot takes its costs from here. Pure functions of a record.


HOST_SETS_PACE = 0.1
"""A step is host-bound if the device waits for the host for more than this share of the step."""

FAR_OFF = 0.25
"""The smallest difference between a call's time by itself and in the program that is reported, as a share of its time
in the program."""


SLOWED = 1.5
"""If profiled steps take at most this many times as long as others, the profile's division of idle time holds for the
others."""

EQUAL_STEPS = 0.02
"""Smallest difference of a compiled and an eager step, as a share of the compiled one, from which one is faster."""


NOT_SIMULATED = StepSaving()


@dataclass(frozen=True)
class Cost:
    """The cost of a kernel: its calls, seconds and gain limit in the step, or in one iteration of its graph.

    ``repeats`` is how often the program has this cost: 1 for a step, else the calls of the graph.
    ``saving`` is the simulated saving of the step if the kernel ran at its roof.
    """

    calls: float
    time_s: float
    gain_limit_s: float | None = None
    repeats: float = 1.0
    saving: StepSaving = NOT_SIMULATED

    @property
    def gain_s(self) -> float | None:
        """What the step saves at the kernel's roof, simulated; else the kernel's gain limit."""
        simulated = self.saving.step_saving_s
        return self.gain_limit_s if simulated is None else simulated


@dataclass(frozen=True)
class GraphUse:
    """The use of a compiled graph in one step. ``time_s`` is its share of the step's wall time, in seconds."""

    calls: float = 0.0
    time_s: float = 0.0
    share: float = 0.0
    replays: float = 0.0
    launches: float = 0.0

    @property
    def replayed(self) -> bool:
        """Whether CUDA graphs replay most of its calls."""
        return self.calls > 0 and self.replays >= 0.5 * self.calls


def find_step(run: Run) -> Program | None:
    """Returns the program whose step gives the unit of a run's costs; ``None`` if no step was profiled."""
    return run.program if run.program is not None and run.program.parts else None


def is_uncompiled(run: Run) -> bool:
    """Whether a program has steps, and compiled nothing."""
    captured = run.capture.printed or run.capture.structured or run.modules
    return run.program is not None and not captured and not list_parts(run, GRAPH)


def is_beside_step(run: Run, failure: Failure) -> bool:
    """Whether a failure concerns only a module's own run, although the program's step has the answer."""
    return failure.stage == "profile" and failure.kind != "interrupted" and find_step(run) is not None


def compute_cost(run: Run, module: ModuleRecord, kernel: Kernel) -> Cost:
    """The cost of a kernel in the step, or in one iteration of its graph if there is no step."""
    if find_step(run) is None:
        return Cost(kernel.calls, kernel.time_s, kernel.roof.gain_limit_s, module.program_calls or 1)
    calls, time_s = kernel.step_calls or 0.0, kernel.step_time_s or 0.0
    if kernel.roof.gain_limit_s is None or not kernel.calls:
        return Cost(calls, time_s)
    return Cost(calls, time_s, kernel.roof.gain_limit_s * calls / kernel.calls, saving=kernel.saving)


def sum_by_category(run: Run, module: ModuleRecord) -> tuple[CategoryTotal, ...]:
    """The sums of a graph's kernels by category. In the step, ``share`` refers to the graph's kernels, ``wall_share``
    to the step."""
    program = find_step(run)
    if program is None:
        return module.categories
    groups: dict[Category, list[Cost]] = {}
    for kernel in module.kernels:
        cost = compute_cost(run, module, kernel)
        if cost.time_s:
            groups.setdefault(kernel.category, []).append(cost)
    whole = sum(cost.time_s for costs in groups.values() for cost in costs)
    totals = []
    for category, costs in groups.items():
        time_s, calls = sum(cost.time_s for cost in costs), sum(cost.calls for cost in costs)
        totals.append(CategoryTotal(category, time_s, time_s / whole, time_s / program.step_time_s, calls, len(costs)))
    return tuple(sorted(totals, key=lambda total: -total.time_s))


def find_graph_use(run: Run, module: ModuleRecord) -> GraphUse:
    """The use of a graph in the step; nothing if the step does not call it, or if there is no step."""
    parts = [part for part in list_parts(run, GRAPH) if part.graph == module.slug]
    return GraphUse(
        *(sum(getattr(part, name) for part in parts) for name in ("calls", "time_s", "share", "replays", "launches"))
    )


def list_step_factors(run: Run, label: str, kernel_id: str, category: Category) -> tuple[float, float]:
    """Returns the factors from a kernel's calls and time in an iteration to those in the step; ``(1, 1)`` if none.

    Args:
        run: the record.
        label: the label of the kernel's graph.
        kernel_id: the kernel. A library call that is no kernel of its own is repeated with its graph. Its time is
            scaled by the step time of all kernels of its category in the graph, divided by their own time.
        category: the category of the kernel.
    """
    module = next((module for module in run.modules if module.label == label), None)
    if find_step(run) is None or module is None:
        return 1.0, 1.0
    for kernel in module.kernels:
        if kernel.kernel_id == kernel_id and kernel.calls and kernel.time_s:
            return (kernel.step_calls or 0.0) / kernel.calls, (kernel.step_time_s or 0.0) / kernel.time_s
    calls = find_graph_use(run, module).calls
    alike = [kernel for kernel in module.kernels if kernel.category == category and kernel.time_s]
    own_s = sum(kernel.time_s for kernel in alike)
    return calls, sum(kernel.step_time_s or 0.0 for kernel in alike) / own_s if own_s else calls


def list_parts(run: Run, *kinds: str) -> list[Part]:
    """The parts of these kinds, the longest first; none if there is no step."""
    program = find_step(run)
    found = [part for part in program.parts if part.kind in kinds] if program else []
    return sorted(found, key=lambda part: -part.time_s)


def sum_part_times_s(run: Run, *kinds: str) -> float:
    """The seconds of the step in parts of these kinds."""
    return sum(part.time_s for part in list_parts(run, *kinds))


def sum_idle_by_label(run: Run) -> dict[str, float]:
    """What the host did while the device was idle, with seconds of the step, the longest first."""
    times: dict[str, float] = {}
    for part in list_parts(run, IDLE):
        times[part.label] = times.get(part.label, 0.0) + part.time_s
    return dict(sorted(times.items(), key=lambda item: -item[1]))


def find_longest_profile(program: Program) -> tuple[float, float]:
    """The seconds of a profiled step and of a timed step, of the process with the largest ratio of the two; zeros
    without a profile."""
    pairs = [(rank.profiled_step_time_s, rank.step_time_s) for rank in program.ranks]
    return max(((a, b) for a, b in pairs if a and b), key=lambda pair: pair[0] / pair[1], default=(0.0, 0.0))


def has_idle_kinds(run: Run) -> bool:
    """Whether it is known how unprofiled steps divide their idle time: by samples, or by a profile that slowed little.

    A profile that slows the host makes some of its work longer than other work.
    """
    program = find_step(run)
    if program is None:
        return False
    sampled = program.host is not None and bool(program.host.stretches)
    profiled_s, timed_s = find_longest_profile(program)
    return sampled or profiled_s <= SLOWED * timed_s


def compute_idle_share(run: Run) -> float:
    """The share of the step in which the device is idle, 0 to 1."""
    program = find_step(run)
    return sum_part_times_s(run, IDLE) / program.step_time_s if program and program.step_time_s else 0.0


def compute_host_idle_share(run: Run) -> float:
    """Returns the share of the step in which the device waits for the host, without gaps between launched kernels."""
    program = find_step(run)
    if program is None or not program.step_time_s:
        return 0.0
    return sum(time_s for label, time_s in sum_idle_by_label(run).items() if label != QUEUED) / program.step_time_s


def runs_on_host(run: Run) -> bool:
    """Whether the program's device is the host itself."""
    devices = [rank.device for rank in run.program.ranks] if run.program else []
    devices += [module.device for module in run.modules]
    return bool(devices) and find_device(devices[0]).runs_on_host


def replay_limit_s(run: Run, slugs: Collection[str]) -> float:
    """The most that replays of these graphs can save of the step, in seconds.

    The host launches graphs while the device waits for the launch, or runs the graphs' kernels.
    """
    labels = sum_idle_by_label(run)
    working_s = sum(part.time_s for part in list_parts(run, GRAPH) if part.graph in slugs)
    return labels.get(LAUNCHING, 0.0) + labels.get(QUEUED, 0.0) + working_s


def is_shared(run: Run) -> bool:
    """Whether other programs worked on the GPU during the steps, so that idle time may be theirs."""
    return run.program is not None and run.program.others is not None


def host_sets_pace(run: Run) -> bool:
    """Whether the step is host-bound: the device waits for the host, so faster kernels do not shorten the step.

    It is false for a GPU that other programs used as well, because it is not known there.
    """
    if find_step(run) is None or runs_on_host(run) or is_shared(run):
        return False
    return compute_host_idle_share(run) > HOST_SETS_PACE


def find_prediction(run: Run, kind: str) -> Prediction | None:
    """What the findings of a kind would save of the step, the one that saves most; ``None`` if none was simulated."""
    program = find_step(run)
    found = [one for one in program.predictions if one.kind == kind] if program else []
    return max(found, key=lambda one: one.saving_s, default=None)


GENERATED_KERNELS = "generated-kernels"
"""The kind of the prediction of all generated kernels at their roofs, which is no finding."""


WORTH_TUNING = 0.01
"""Share of the step from which it is worth making kernels faster."""


def is_simulated(run: Run) -> bool:
    """Whether a simulation says what faster kernels save of the step."""
    return any(one.saving.step_saving_s is not None for module in run.modules for one in module.kernels)


def is_worth_faster_kernels(run: Run) -> bool:
    """Whether faster generated kernels shorten the step.

    Without a simulation, they do unless the step is host-bound.
    """
    program, predicted = find_step(run), find_prediction(run, GENERATED_KERNELS)
    if program is None or predicted is None:
        return not host_sets_pace(run)
    return predicted.saving_s >= WORTH_TUNING * program.step_time_s


def compute_alone_ratio(run: Run, kernel: Kernel) -> float | None:
    """Returns a call's time in its graph's own run, divided by its time in the program; ``None`` if unknown."""
    slowdown = kernel.step_slowdown if find_step(run) is not None else None
    return 1 / slowdown if slowdown is not None else None


def is_far_off(ratio: float | None) -> bool:
    """Whether a call's time in its graph's own run is so different that it says little about the program."""
    return ratio is not None and abs(ratio - 1) > FAR_OFF


def compute_eager_ratio(program: Program) -> float | None:
    """The time of an eager step divided by that of a compiled one; ``None`` if the program was not run eagerly.

    It is exactly 1 if the difference of the means, or that of the medians, is below :data:`EQUAL_STEPS` or the width
    of the middle half of the compiled steps, or if the two differences have different signs. The steps were timed in
    different runs, and a few slow steps change a mean, so neither can be called faster.
    """
    if program.eager_step_time_s is None or not program.step_time_s:
        return None
    ratio = program.eager_step_time_s / find_time_beside_eager(program)
    medians = compute_median_steps(program)
    ratios = [ratio, medians[1] / medians[0]] if medians else [ratio]
    least = max(EQUAL_STEPS, compute_step_spread(program))
    return ratio if min(ratios) > 1 + least or max(ratios) < 1 - least else 1.0


def find_time_beside_eager(program: Program) -> float:
    """The seconds of a compiled step to compare with an eager one: of several kinds the mean of all timed steps."""
    several = take_different_times(program.step_kinds) and program.step_times_s
    return statistics.fmean(program.step_times_s) if several else program.step_time_s


def compute_median_steps(program: Program) -> tuple[float, float] | None:
    """The medians of the compiled and of the eager steps in seconds; ``None`` if either is unknown."""
    compiled_s = statistics.median(program.step_times_s) if program.step_times_s else 0.0
    eager_s = program.eager_median_step_time_s
    return (compiled_s, eager_s) if compiled_s and eager_s is not None else None


def compute_step_spread(program: Program) -> float:
    """The width of the middle half of the timed steps, as a share of their median."""
    if len(program.step_times_s) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(program.step_times_s, n=4)
    return (high - low) / middle if middle else 0.0


# Finds the slowest process of a distributed program, for which the others wait.


EQUAL = 0.02
"""Difference of two ranks' step times, as a share of the longer one, up to which collectives keep them in step."""


def find_pace_setter(ranks: Sequence[RankSteps]) -> RankSteps:
    """Finds the rank that the others wait for.

    Among the ranks whose steps are as long as the longest, it spends the least time in exposed collectives, in which
    the other ranks wait for it. Ranks with a profile come first.
    """
    profiled = [rank for rank in ranks if rank.parts] or ranks
    longest = max(rank.step_time_s for rank in profiled)
    as_long = [rank for rank in profiled if rank.step_time_s >= (1 - EQUAL) * longest]
    return min(as_long, key=lambda rank: (compute_exposed_s(rank), -rank.step_time_s))


def compute_exposed_s(rank: RankSteps) -> float:
    """Seconds of the step in collectives that no other work hides."""
    return sum(part.time_s for part in rank.parts if part.kind == COLLECTIVE)


def find_idle_s(rank: RankSteps) -> float:
    """Seconds of the step in which the rank's device is idle."""
    return sum(part.time_s for part in rank.parts if part.kind == IDLE)


def compute_work_s(rank: RankSteps) -> float:
    """Seconds of the step in which the rank's device computes or copies: neither idle nor only in collectives."""
    return sum(part.time_s for part in rank.parts if part.kind not in (COLLECTIVE, IDLE))


# Times of graphs: one iteration, one step of the program, and the whole program. Pure functions of a record.


def find_module_time_s(module: ModuleRecord) -> float:
    """The seconds of one iteration of a graph: the longer of wall time and busy time.

    The busy time is longer if the profiler slowed the kernels.
    """
    longer = max(module.times.wall_time_s or 0.0, module.times.busy_time_s or 0.0)
    return longer or sum(kernel.time_s for kernel in module.kernels)


def compute_whole_time_s(run: Run) -> float:
    """Returns the seconds that count as 100%: a step of the program or, without a step, an iteration of each graph."""
    program = find_step(run)
    return program.step_time_s if program else sum(find_module_time_s(module) for module in run.modules)


def compute_weight_s(run: Run, module: ModuleRecord) -> float:
    """The seconds that a graph takes in the step, else in the captured program: one iteration times its calls."""
    return (
        find_graph_use(run, module).time_s
        if find_step(run)
        else find_module_time_s(module) * (module.program_calls or 1)
    )


def calls_differ(run: Run) -> bool:
    """Whether the program called some graphs more often than others; the step tells the calls if there is one."""
    return find_step(run) is None and len({module.program_calls for module in run.modules if module.program_calls}) > 1


def compute_time_as_profiled(kinds: Sequence[OtherSteps] | Sequence[StepKind]) -> float | None:
    """The mean of the kinds' medians, each kind with the weight of its profiled steps; ``None`` if none was profiled.

    The profile has few steps, and seldom as many of each kind as the timed ones. Its parts add up to this time.
    """
    profiled = sum(kind.profiled or 0 for kind in kinds)
    return sum(kind.time_s * (kind.profiled or 0) for kind in kinds) / profiled if profiled else None


FRACTIONS = 2**20
"""The weights of profiled steps are multiples of 1 divided by this number. Any sum of them is exact, so that a graph
that each step calls once has one call in a step."""


def weigh_steps(window: StepWindow, kinds: Sequence[OtherSteps]) -> StepWindow:
    """The window in which each kind of steps has its share of the timed steps; as it is if all kinds take the same
    time, or one of them is not in it."""
    if not take_different_times(kinds):
        return window
    weights, timed = [0.0] * window.step_count, sum(kind.count for kind in kinds)
    for kind in kinds:
        places = [place for place in kind.profiled_places if place < len(weights)]
        if not places:
            return window
        for place in places:
            weights[place] = round(FRACTIONS * len(weights) * kind.count / (timed * len(places))) / FRACTIONS
    weights[weights.index(max(weights))] += len(weights) - math.fsum(weights)
    return replace(window, weights=tuple(weights))


def list_kinds(kinds: Iterable[OtherSteps], modules: Sequence[str], labels: Mapping[str, str]) -> Iterator[StepKind]:
    """The kinds of steps with their graphs, those that take most time first, and the pooled ones last.

    Args:
        kinds: the kinds of steps that were observed in a process.
        modules: the slug of each graph of the process; empty if it is unknown.
        labels: the name of each graph by its slug.
    """
    for one in sorted(kinds, key=lambda one: (bool(one.pooled), -(one.share or 0.0), -one.count)):
        known = (modules[number] for number in one.graphs if number < len(modules))
        slugs = tuple(dict.fromkeys(filter(None, known)))
        yield StepKind(
            *(one.count, one.time_s, slugs, one.among),
            labels=tuple(labels[slug] for slug in slugs if slug in labels),
            sizes=one.sizes,
            p90_s=one.p90_s,
            share=one.share,
            profiled=one.profiled,
            pooled=one.pooled,
            interrupted=one.interrupted,
            error_s=one.error_s,
        )
