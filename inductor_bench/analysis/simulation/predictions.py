"""Predicts what the findings of a run, and its kernels at their roofs, would save of the program's step."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ...records.evidence import CallPlace
from ...records.module import Kernel, ModuleRecord, StepSaving
from ...records.run import COLLECTIVE, GRAPH, IDLE, OPTIMIZER, OTHERS, SYNCHRONISING, Part, Prediction, Program, Run
from ...records.traced import Work
from ..findings.finding import UNTUNABLE, Finding, KernelPlace, RemovedWork
from ..findings.rule_table import list_findings
from ..kernel_aggregation import KernelIdentity
from ..ledger import make_activity_key, make_kernel_key
from ..step_costs import (
    GENERATED_KERNELS,
    compute_cost,
    compute_host_idle_share,
    find_step,
    has_idle_kinds,
    host_sets_pace,
    replay_limit_s,
    runs_on_host,
)
from .fitting import FittedQueue, SimulatedSaving, TimedCalls, compute_saving, compute_saving_of_durations, fit
from .profiled_queue import ProfiledQueue
from .queue import (
    WAIT,
    Replay,
    StepQueue,
    remove_host_time,
    remove_tasks,
    remove_waits,
    replay_as_graphs,
    scale_durations,
    scale_gaps,
)

LEAST = 0.003
"""Share of the step below which a kernel's limit is not simulated: it can save no more than that."""

LAUNCH_S = 15e-6
"""Seconds that the host takes to launch many tasks at once, as a CUDA graph or as one kernel."""

REPLAY_S, SLOW_REPLAY_S = 0.15e-3, 0.3e-3
"""Seconds that the host takes for a call that Inductor replays: it compares and copies inputs, launches, and makes the
outputs. In six recorded programs (H100, H200, torch 2.11) it took 0.07 to 0.27 ms."""

REPLAYED_GAP_S, SLOW_GAP_S = 1e-6, 2.4e-6
"""Seconds between two tasks of a replay: the time of the replay minus the tasks' time, divided by the launches. Of 58
recorded graphs with 30 or more launches (H100, H200) half had at most 0.9 µs, and nine of ten at most 2.4 µs. If a
module was replayed alone, its own gap counts."""

FEWEST_GAPS = 10
"""A replay shows how long a gap is only if it has at least this number of gaps."""

FUSED_SHARE = 0.4
"""The time of a fused optimizer as a share of the eager one's, whose operators each read and write all parameters and
states: 7 reads and writes of a parameter's bytes against 18 for Adam."""


def compute_replay_gap_s(replay_s: float, busy_s: float, launches: float) -> float:
    """Seconds between two tasks of a replay.

    Args:
        replay_s: the time of one replay by itself, from its launch until the host knows that it has ended.
        busy_s: the time of its tasks.
        launches: the number of its tasks.
    """
    if launches - 1 < FEWEST_GAPS:
        return REPLAYED_GAP_S
    return min(max((replay_s - busy_s - LAUNCH_S) / (launches - 1), 0.0), SLOW_GAP_S)


@dataclass(frozen=True)
class QueuedStep:
    """The profiled steps of a process as a queue, with the record's names of what is in it."""

    profiled: ProfiledQueue
    step_time_s: float  # the unprofiled step
    host_step_s: float | None  # the same on the host's clock
    graphs: Mapping[int, str]  # the slug of each graph, by its number
    calls: Sequence[int]  # the graph of each call, by the number of the call
    call_times_s: Mapping[int, float]  # the time of an unprofiled call of each graph on the host, by its number
    places: Mapping[int, CallPlace]  # the places of outermost operators, by their index

    def fitted(self) -> FittedQueue:
        """The queue with a host that is as fast as the unprofiled step needs."""
        collectives = [place for place, work in enumerate(self.profiled.works) if work.kind == COLLECTIVE]
        numbers: dict[int, set[int]] = defaultdict(set)
        for number in self.profiled.calls:
            numbers[self.calls[number]].add(number)
        times_s = self.call_times_s.items()
        calls = [TimedCalls(numbers[graph], time_s) for graph, time_s in times_s if graph in numbers]
        return fit(self.profiled.queue, self.step_time_s, collectives, self.host_step_s, calls)


def add_predictions(run: Run, step: QueuedStep | None, fitted: FittedQueue | None) -> Run:
    """Returns the run with the simulated savings in its kernels and its program.

    Args:
        run: the record with its modules and its program.
        step: the queue; ``None`` if there is none, as on a CPU, where all parts of a step follow one another.
        fitted: what ``step.fitted`` returns.
    """
    program = find_step(run)
    if program is None:
        return run
    if step is None or fitted is None:
        return _predict_findings(run, program, None) if runs_on_host(run) else run
    simulator = Simulator(step, fitted, run)
    modules = tuple(replace(module, kernels=tuple(simulator.kernels(module))) for module in run.modules)
    return _predict_findings(replace(run, modules=modules), program, simulator)


def _predict_findings(run: Run, program: Program, simulator: Simulator | None) -> Run:
    """The run with the predictions of its findings."""
    bare = replace(run, program=replace(program, predictions=()))
    made = []
    for finding in (*list_findings(bare), _assume_all_generated(bare)):
        if finding.assumed == RemovedWork():
            continue
        saving = simulator.saving(finding.assumed) if simulator else _predict_in_series(program, finding)
        device_s = _round_seconds(saving.device_s) if simulator else None
        times = _round_seconds(saving.time_s), _round_seconds(saving.uncertainty_s)
        made.append(Prediction(finding.key, finding.kind, *times, device_s, finding.changes))
    made.sort(key=lambda one: -one.saving_s)
    return replace(run, program=replace(program, predictions=tuple(made)))


def _round_seconds(seconds: float) -> float:
    """Rounds to picoseconds, so that a difference of sums that should be 0 is 0."""
    return round(seconds, 12) + 0.0


def _predict_in_series(program: Program, finding: Finding) -> SimulatedSaving:
    """Predicts what a change saves if nothing runs in parallel: the part of the step that goes."""
    pairs = [(one.profiled_step_time_s, one.step_time_s) for one in program.ranks]
    slower = max((abs(a / b - 1) for a, b in pairs if a and b), default=0.0)
    return SimulatedSaving(finding.gain_s, finding.gain_s * min(1.0, slower), 0.0)


def _assume_all_generated(run: Run) -> Finding:
    shares, gain_s = [], 0.0
    for module in run.modules:
        for kernel in module.kernels:
            cost = compute_cost(run, module, kernel)
            if kernel.category not in UNTUNABLE and cost.gain_limit_s and cost.time_s:
                share, gain_s = min(1.0, cost.gain_limit_s / cost.time_s), gain_s + cost.gain_limit_s
                shares.append((KernelPlace(module.slug, kernel.name), share))
    return Finding(GENERATED_KERNELS, "", gain_s=gain_s, assumed=RemovedWork(kernels=tuple(shares)))


class Simulator:
    """Answers questions about a step, with the names that its record uses."""

    def __init__(self, step: QueuedStep, fitted: FittedQueue, run: Run) -> None:
        self._step, self._run, self.fitted = step, run, fitted
        self._works, self._whole_s = step.profiled.works, step.step_time_s

    def kernels(self, module: ModuleRecord) -> Iterator[Kernel]:
        """The kernels of a module with what the step would save if each ran at its roof."""
        for kernel in module.kernels:
            limit_s, places = (
                self._limit_s(module, kernel),
                self._kernels.get((module.slug, make_kernel_key(kernel)), ()),
            )
            if limit_s is None or not places:
                yield replace(kernel, saving=StepSaving())
                continue
            saving = SimulatedSaving(0.0, limit_s, limit_s)
            if limit_s >= LEAST * self._whole_s:
                changed = dict.fromkeys(places, 1 - self._share(kernel, limit_s))
                saving = self._without_doubted_host(compute_saving_of_durations(self.fitted, changed))
            elif self.is_device_bound:
                saving = SimulatedSaving(limit_s, 0.0, limit_s)
            yield replace(kernel, saving=StepSaving(*(_round_seconds(one) for one in saving)))

    @cached_property
    def is_device_bound(self) -> bool:
        """Whether slightly shorter works shorten the step by at least half as much."""
        factors = dict.fromkeys(range(len(self._works)), 1 - LEAST)
        saved = compute_saving_of_durations(self.fitted, factors)
        return saved.time_s >= saved.device_s / 2 > 0

    def _limit_s(self, module: ModuleRecord, kernel: Kernel) -> float | None:
        return compute_cost(self._run, module, kernel).gain_limit_s if kernel.step_time_s else None

    def _share(self, kernel: Kernel, seconds: float) -> float:
        return min(1.0, seconds / kernel.step_time_s) if kernel.step_time_s else 0.0

    def saving(self, assumed: RemovedWork) -> SimulatedSaving:
        """What the step saves without the work that ``assumed`` removes."""
        queue = self.fitted.queue
        shares = self._shares(assumed.kernels)
        gone = {place for place, share in shares.items() if share >= 1} | self._of_parts(assumed.parts)
        less = {place: 1 - share for place, share in shares.items() if place not in gone}
        queue = scale_durations(queue, less) if less else queue
        queue = self._without_idle(queue, assumed.idle)
        if assumed.graphs:
            saving = self._saving_of_replays(queue, assumed.graphs)
            return self._without_doubted_host(self._within_idle(saving, assumed))
        queue = scale_gaps(queue, 0.0) if assumed.gaps else queue
        joined = self._joined(queue, assumed.joined) if assumed.joined else queue
        saving = compute_saving(self.fitted, remove_tasks(joined, gone) if gone else joined)
        if not assumed.joined:
            return self._without_doubted_host(self._within_idle(self._with_unseen(saving, assumed.idle), assumed))
        # It is not known how much longer the device needs for the joined works than for one kernel.
        fused = scale_durations(joined, dict.fromkeys(self._of_parts(assumed.joined), FUSED_SHARE))
        most = compute_saving(self.fitted, fused)
        middle, half = (saving.time_s + most.time_s) / 2, abs(most.time_s - saving.time_s) / 2
        return SimulatedSaving(middle, half + saving.uncertainty_s, (saving.device_s + most.device_s) / 2)

    def _without_doubted_host(self, saving: SimulatedSaving) -> SimulatedSaving:
        """Returns the saving of a device-bound step: no measurement says when the host would be ready."""
        if host_sets_pace(self._run) or saving.device_s <= saving.time_s:
            return saving
        return SimulatedSaving(
            saving.device_s, max(saving.uncertainty_s, saving.device_s - saving.time_s), saving.device_s
        )

    def _with_unseen(self, saving: SimulatedSaving, parts: Collection[Part]) -> SimulatedSaving:
        """Adds the idle time that host samples show, and that has another label in the profile."""
        seen = {piece.label for action in self.fitted.queue.actions for piece in action.pieces}
        unseen_s = math.fsum(part.time_s for part in parts if part.label not in {*seen, SYNCHRONISING})
        return SimulatedSaving(saving.time_s + unseen_s, saving.uncertainty_s + unseen_s / 4, saving.device_s)

    def _within_idle(self, saving: SimulatedSaving, assumed: RemovedWork) -> SimulatedSaving:
        """Limits the saving of a host that does less to the measured time for which the device waits for the host."""
        if assumed.kernels or assumed.parts or assumed.gaps or not (assumed.idle or assumed.graphs):
            return saving
        most_s = compute_host_idle_share(self._run) * self._whole_s
        if assumed.graphs and not assumed.idle and has_idle_kinds(self._run):
            most_s = min(most_s, replay_limit_s(self._run, assumed.graphs))
        over_s = saving.time_s - most_s
        if over_s <= 0:
            return saving
        return SimulatedSaving(most_s, max(saving.uncertainty_s, min(over_s, most_s)), saving.device_s)

    # Finds the works and actions that the record's names mean.

    @cached_property
    def _kernels(self) -> Mapping[tuple[str, KernelIdentity], Sequence[int]]:
        """The works of each row of a module, by the row's key."""
        found: dict[tuple[str, KernelIdentity], list[int]] = defaultdict(list)
        rows = {module.slug: {make_kernel_key(kernel) for kernel in module.kernels} for module in self._run.modules}
        for place, work in enumerate(self._works):
            slug = self._slug(work)
            if work.activity is None or slug not in rows:
                continue
            key = make_activity_key(work.activity)
            if key not in rows[slug]:
                # A library call can run another kernel here than in the module's own run.
                key = next((row for row in rows[slug] if (row[0], row[2]) == (key[0], key[2]) and key[2]), key)
            found[slug, key].append(place)
        return found

    def _slug(self, work: Work) -> str:
        return self._step.graphs.get(work.graph, "") if work.graph is not None else ""

    def _shares(self, kernels: Iterable[tuple[KernelPlace, float]]) -> dict[int, float]:
        """Returns the share that is removed from each work of these kernels."""
        wanted = dict(kernels)
        found: dict[int, float] = {}
        for (slug, key), places in self._kernels.items() if wanted else ():
            share = wanted.get(KernelPlace(slug, key[1]))
            if share is not None:
                found.update(dict.fromkeys(places, share))
        return found

    def _of_parts(self, parts: Collection[Part]) -> set[int]:
        found = (place for place, work in enumerate(self._works) if any(self._belongs(work, part) for part in parts))
        return set(found) if parts else set()

    def _belongs(self, work: Work, part: Part) -> bool:
        if work.kind != part.kind or (part.kind == GRAPH and self._slug(work) != (part.graph or "")):
            return False
        if part.label == OTHERS:
            return work.label in {one.label for one in part.summed}
        place = self._step.places.get(work.op, CallPlace())
        known = part.source in (None, place.source) and part.module in ("", place.module)
        return part.kind == GRAPH or (work.label == part.label and known)

    def _without_idle(self, queue: StepQueue, parts: Collection[Part]) -> StepQueue:
        """Returns the queue whose host neither works nor waits in these parts."""
        waits: set[int] = set()
        shares: dict[int, dict[int, float]] = defaultdict(dict)
        going = self._removed_idle_shares(parts)
        for number, action in enumerate(queue.actions) if parts else ():
            label = action.label or SYNCHRONISING
            if action.kind == WAIT and any(part.label == label and self._is_at(action.op, part) for part in parts):
                waits.add(number)
            for place, piece in enumerate(action.pieces):
                if piece.label in going:
                    shares[number][place] = going[piece.label]
        return remove_waits(remove_host_time(queue, shares), waits)

    def _removed_idle_shares(self, parts: Collection[Part]) -> dict[str, float]:
        """Returns the share of the host's work to remove, by label: its share of the idle time in the record."""
        every: dict[str, float] = defaultdict(float)
        gone: dict[str, float] = defaultdict(float)
        for part in self._run.program.parts if self._run.program is not None else ():
            if part.kind == IDLE:
                every[part.label] += part.time_s
                gone[part.label] += part.time_s if part in parts else 0.0
        # Work that is in no part of the record is removed completely.
        return {part.label: gone[part.label] / every[part.label] if every[part.label] else 1.0 for part in parts}

    def _is_at(self, op: int, part: Part) -> bool:
        place = self._step.places.get(op, CallPlace())
        return part.source in (None, place.source) and part.module in ("", place.module)

    # Launches that become one launch.

    def _saving_of_replays(self, queue: StepQueue, slugs: Collection[str]) -> SimulatedSaving:
        """Predicts what replays of these graphs save. If no replay was measured alone, the saving may be smaller."""
        saving = compute_saving(self.fitted, self._as_graphs(queue, slugs, REPLAY_S, REPLAYED_GAP_S))
        measured = {module.slug for module in self._run.modules if module.times.graph_time_s}
        unmeasured = set(slugs) - measured
        if not unmeasured:
            return saving
        slow = self._as_graphs(queue, set(slugs) & measured, REPLAY_S, REPLAYED_GAP_S)
        least = compute_saving(self.fitted, self._as_graphs(slow, unmeasured, SLOW_REPLAY_S, SLOW_GAP_S))
        less_s = max(0.0, saving.time_s - least.time_s)
        return saving._replace(uncertainty_s=saving.uncertainty_s + less_s)

    def _as_graphs(self, queue: StepQueue, slugs: Collection[str], replay_s: float, gap_s: float) -> StepQueue:
        replays = []
        for number, actions in sorted(self._step.profiled.calls.items()):
            slug = self._step.graphs.get(self._step.calls[number])
            if slug is not None and slug in slugs:
                replays.append(Replay(actions, replay_s, self._measured_gaps_s.get(slug, gap_s), replay_s))
        return replay_as_graphs(queue, replays) if replays else queue

    @cached_property
    def _measured_gaps_s(self) -> Mapping[str, float]:
        """The gaps of the modules that were replayed by themselves, by slug."""
        found = {}
        for module in self._run.modules:
            times = module.times
            if times.graph_time_s and times.busy_time_s and module.launches:
                found[module.slug] = compute_replay_gap_s(times.graph_time_s, times.busy_time_s, module.launches)
        return found

    def _joined(self, queue: StepQueue, parts: Collection[Part]) -> StepQueue:
        """The queue in which each call of these parts' optimizers launches its works at once."""
        places = self._of_parts([part for part in parts if part.kind == OPTIMIZER])
        numbers = [
            number
            for number, action in enumerate(queue.actions)
            if action.work_indices and places.issuperset(action.work_indices)
        ]
        stretches = _find_stretches(numbers, queue)
        return replay_as_graphs(queue, [Replay(actions, LAUNCH_S, REPLAYED_GAP_S, LAUNCH_S) for actions in stretches])


def _find_stretches(numbers: Sequence[int], queue: StepQueue) -> Iterator[range]:
    """The stretches of actions in which no other works are launched."""
    begin = last = -1
    for number in numbers:
        others = any(action.work_indices for action in queue.actions[last + 1 : number]) if last >= 0 else True
        if begin >= 0 and others:
            yield range(begin, last + 1)
        begin, last = (number if begin < 0 or others else begin), number
    if begin >= 0:
        yield range(begin, last + 1)
