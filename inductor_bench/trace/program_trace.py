"""Reads the trace of a whole program: its steps, who launched each device event, and the device's times."""

from __future__ import annotations

import itertools
import math
import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import NamedTuple

from ..records.run import COLLECTIVE, COPY, EAGER, GRAPH, GRAPH_INPUTS, OPTIMIZER
from ..records.traced import DeviceEvent, Gaps, GraphCall, HostOp, ProgramTrace, Range, StepWindow, Trace
from .events import ANNOTATION, DEVICE, FRAME, HOST, RUNTIME
from .iterations import is_compiled_kernel, is_operator
from .rows import Rows, build_device_events, build_host_ops, collector_paused, read_devices, read_rows

# Reads the trace of a whole program: the contents of a module's trace, and the host's other work.


@dataclass(frozen=True)
class Markers:
    """The names of the ranges that the observer records, before their number."""

    boundary: str
    graph_call: str


def read_program_trace(path: Path, markers: Markers, *, frames: bool = False) -> ProgramTrace:
    """Reads a program's trace once.

    Args:
        path: a Chrome trace of torch.profiler, plain or gzipped.
        markers: the names of the observer's ranges.
        frames: whether Python functions and modules are read.

    Raises:
        InductorBenchError: the file is missing or no trace.
    """
    with collector_paused():
        return _read(path, markers, frames)


def _read(path: Path, markers: Markers, frames: bool) -> ProgramTrace:
    kinds = (HOST, DEVICE, RUNTIME, ANNOTATION, FRAME)
    rows, reader = read_rows(path, kinds if frames else kinds[:-1], (markers.boundary, markers.graph_call))
    host, device, runtime = rows[HOST], rows[DEVICE], rows[RUNTIME]
    origin = min((start for found in rows.values() for start in found.starts), default=0)
    order = host.in_order()
    trace = Trace(
        host_ops=build_host_ops(host, order, origin),
        device_events=build_device_events(device, host, order, runtime, origin),
        synchronizations=(),
        devices=read_devices(reader.header, reader.tail),
        truncated=reader.truncated,
    )
    return ProgramTrace(
        trace=trace,
        annotations=_list_ranges(rows[ANNOTATION], origin),
        runtime=_list_ranges(runtime, origin),
        frames=_list_ranges(rows[FRAME], origin) if frames else (),
        sequences=tuple(host.sequences[row] for row in order),
        forward_threads=tuple(host.forward_threads[row] for row in order),
        origin_ns=origin,
    )


def _list_ranges(rows: Rows, origin: int) -> tuple[Range, ...]:
    found = []
    for row in rows.in_order():
        about = rows.abouts[row]
        start, duration = (rows.starts[row] - origin) / 1e9, rows.durations[row] / 1e9
        found.append(Range(about.name, start, duration, about.place[0], rows.correlations[row]))
    return tuple(found)


# Cuts a program's trace into steps, and finds the calls of compiled graphs.


def find_window(program: ProgramTrace, markers: Markers) -> StepWindow | None:
    """Returns all whole steps of a trace; ``None`` if it has fewer than two boundaries, or no time passes between
    them."""
    ops = [op for op in program.trace.host_ops if op.name.startswith(markers.boundary)]
    if len(ops) < 2:
        return None
    thread = Counter(op.thread for op in ops).most_common(1)[0][0]
    marks = tuple(op.start_s for op in ops)
    bounds = _find_device_bounds(program, marks)
    return StepWindow(thread, marks, bounds) if bounds[0] < bounds[-1] else None


def has_lost_steps(program: ProgramTrace, markers: Markers, profiled: int) -> bool:
    """Whether a stored trace holds fewer whole steps than ``profiled``: it was too large and lost the last ones."""
    return sum(op.name.startswith(markers.boundary) for op in program.trace.host_ops) <= profiled


def leave_out_first_step(window: StepWindow) -> StepWindow:
    """Returns the window without its first step, unless no time passes in the others.

    In the first step the device may still do work that was launched before the profile, and that the trace does not
    show.
    """
    if window.step_count < 2 or window.bounds[1] == window.bounds[-1]:
        return window
    return replace(window, marks=window.marks[1:], bounds=window.bounds[1:])


def _find_device_bounds(program: ProgramTrace, marks: tuple[float, ...]) -> tuple[float, ...]:
    """Returns for each boundary of the host when all earlier launched device events ended, or the boundary if it is
    later."""
    events = program.trace.device_events
    launched = sorted(
        (event.start_s if event.launch_start_s is None else event.launch_start_s, event.start_s + event.duration_s)
        for event in events
    )
    bounds, place, latest = [], 0, float("-inf")
    for mark in marks:
        while place < len(launched) and launched[place][0] < mark:
            latest = max(latest, launched[place][1])
            place += 1
        bounds.append(max(mark, latest))
    return tuple(bounds)


def find_graph_calls(program: ProgramTrace, markers: Markers) -> tuple[GraphCall, ...]:
    """Returns the calls of compiled graphs, in order."""
    calls, ops = [], program.trace.host_ops
    for index, op in enumerate(ops):
        number = op.name.removeprefix(markers.graph_call)
        if number != op.name and number.isdecimal():
            above = op.parent
            while above >= 0 and not ops[above].name.startswith(NODE):
                above = ops[above].parent
            end_s = op.start_s + op.duration_s
            calls.append(GraphCall(int(number), index, op.start_s, end_s, op.thread, above >= 0))
    return tuple(calls)


# Finds the range of a thread that contains a moment.


class RangesByThread:
    """Ranges of threads, each with a number. Ranges of one thread do not overlap."""

    def __init__(self, ranges: Iterable[tuple[str, float, float, int]]) -> None:
        """``ranges`` are thread, start, end and number, sorted by start."""
        self._starts: dict[str, list[float]] = defaultdict(list)
        self._rest: dict[str, list[tuple[float, int]]] = defaultdict(list)
        for thread, start, end, number in ranges:
            self._starts[thread].append(start)
            self._rest[thread].append((end, number))

    def find(self, thread: str, moment: float) -> int:
        """Returns the number of the range that contains the moment, or -1."""
        starts = self._starts.get(thread)
        place = bisect_right(starts, moment) - 1 if starts else -1
        if place < 0:
            return -1
        end, number = self._rest[thread][place]
        return number if moment <= end else -1

    def find_on_any(self, moment: float) -> int:
        """Returns the number of the only range of all threads that contains the moment; -1 for none or several."""
        found = [number for thread in self._starts if (number := self.find(thread, moment)) >= 0]
        return found[0] if len(found) == 1 else -1


# Says for each device event of a program who launched it: a compiled graph, an operator, an optimizer or a copy.


NODE = "autograd::engine::evaluate_function: "
"""The beginning of the name of a backward node, before the name of its function."""

OWN_CUDA_GRAPH = "replay of a CUDA graph"
"""The label of a CUDA graph that the program itself recorded and replays outside of compiled graphs."""

_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)#(.+)\.\w+")
_NCCL = re.compile(r"(?:nccl|rccl)(?:Dev)?Kernel_?(?:Generic_)?([A-Za-z]+)")
_DIRECTIONS = (("HtoD", "host to device"), ("DtoH", "device to host"), ("DtoD", "device to device"))
_COPIES = re.compile(r"aten::(_foreach_)?copy_")
_REPLAY = re.compile(r"GraphLaunch")


class Owner(NamedTuple):
    """Who launched a device event; the fields are those of ``Work``. ``launch`` is the index of the host's call."""

    kind: str
    label: str
    call: int = -1
    replayed: bool = False
    op: int = -1
    launch: int = -1


class Owners:
    """The owners of a program's device events, and the outermost eager operators."""

    def __init__(self, program: ProgramTrace, calls: Sequence[GraphCall]) -> None:
        self._program = program
        self._calls = calls
        self.in_call, self.tops = _list_units(program, calls)
        ops = program.trace.host_ops
        self._threads = {op.thread for op in ops}
        self._by_call = RangesByThread((call.thread, call.start_s, call.end_s, at) for at, call in enumerate(calls))
        self._by_top = RangesByThread(
            (ops[top].thread, ops[top].start_s, ops[top].start_s + ops[top].duration_s, top)
            for top in dict.fromkeys(top for top in self.tops if top >= 0)
        )
        self.optimizers = [
            (found.group(1), one) for one in program.annotations if (found := _OPTIMIZER.fullmatch(one.name))
        ]
        self._by_optimizer = RangesByThread(
            (one.thread, one.start_s, one.end_s, at) for at, (_, one) in enumerate(self.optimizers)
        )

    @cached_property
    def eager_tops(self) -> list[int]:
        """Returns ``tops`` without the operators in graph calls."""
        return [top if call < 0 else -1 for top, call in zip(self.tops, self.in_call, strict=True)]

    def optimizer_at(self, thread: str, moment: float) -> str:
        """Returns the optimizer whose step runs on a thread at a moment; empty for none."""
        place = self._by_optimizer.find(thread, moment)
        return self.optimizers[place][0] if place >= 0 else ""

    def all(self) -> list[Owner]:
        """Returns the owner of each device event."""
        launches = _list_launches(self._program)
        owners = [
            self._owner(event, launches.get(event.correlation, -1)) for event in self._program.trace.device_events
        ]
        replaying = {owner.call for owner in owners if owner.replayed}
        return [self._replace_by_input_copy(owner) if owner.call in replaying else owner for owner in owners]

    def _replace_by_input_copy(self, owner: Owner) -> Owner:
        """Returns the copy of a CUDA graph's inputs, if the owner is one; otherwise the owner."""
        if owner.kind != GRAPH or owner.replayed or owner.op < 0:
            return owner
        if not _COPIES.fullmatch(self._program.trace.host_ops[owner.op].name):
            return owner
        return Owner(COPY, GRAPH_INPUTS, owner.call, False, owner.op, owner.launch)

    def _owner(self, event: DeviceEvent, launch: int) -> Owner:
        ops = self._program.trace.host_ops
        by = self._program.runtime[launch] if launch >= 0 else None
        top = self.tops[event.host_op] if event.host_op >= 0 else -1
        call = self.in_call[event.host_op] if event.host_op >= 0 else -1
        if by is not None and call < 0:
            known = by.thread in self._threads
            call = self._by_call.find(by.thread, by.start_s) if known else self._by_call.find_on_any(by.start_s)
        if by is not None and top < 0:
            top = self._by_top.find(by.thread, by.start_s)
        replayed = by is not None and _REPLAY.search(by.name) is not None
        collective = _NCCL.match(event.name)
        if collective:
            return Owner(COLLECTIVE, collective.group(1), call, replayed, top, launch)
        if call >= 0:
            return Owner(GRAPH, "", call, replayed, top, launch)
        if event.kind == "memcpy":
            label = next((words for short, words in _DIRECTIONS if short in event.name), event.name)
            return Owner(COPY, label, -1, replayed, top, launch)
        optimizer = self._optimizer(by, top)
        if optimizer:
            return Owner(OPTIMIZER, optimizer, -1, replayed, top, launch)
        label = name_unit(ops[top].name) if top >= 0 else OWN_CUDA_GRAPH if replayed else event.name
        return Owner(EAGER, label, -1, replayed, top, launch)

    def _optimizer(self, by: Range | None, top: int) -> str:
        if by is not None:
            return self.optimizer_at(by.thread, by.start_s)
        op = self._program.trace.host_ops[top] if top >= 0 else None
        return self.optimizer_at(op.thread, op.start_s) if op else ""


def name_unit(name: str) -> str:
    """Returns the name of an outermost operator; for a backward node the name of its function."""
    return name.removeprefix(NODE).rpartition("::")[2] if name.startswith(NODE) else name


def _list_units(program: ProgramTrace, calls: Sequence[GraphCall]) -> tuple[list[int], list[int]]:
    """Returns for each host operator the graph call around it, and the outermost operator around it."""
    ops = program.trace.host_ops
    call_of = {call.op: number for number, call in enumerate(calls)}
    holding: set[int] = set()
    for call in calls:
        above = call.op
        while above >= 0 and above not in holding:
            holding.add(above)
            above = ops[above].parent
    in_call: list[int] = []
    tops: list[int] = []
    for index, op in enumerate(ops):
        inside = call_of.get(index, in_call[op.parent] if op.parent >= 0 else -1)
        above = tops[op.parent] if op.parent >= 0 else -1
        if above < 0 and index not in holding and _is_unit(op):
            above = index
        in_call.append(inside)
        tops.append(above)
    return in_call, tops


def _is_unit(op: HostOp) -> bool:
    """Whether an operation is an operator, a kernel or a node of the backward, and not a mere range around them."""
    return is_operator(op.name) or op.name.startswith(NODE) or is_compiled_kernel(op)


def _list_launches(program: ProgramTrace) -> dict[int, int]:
    """Returns the index of the host's call by correlation.

    If a runtime call contains a driver call, that of the runtime call.
    """
    wanted = {event.correlation for event in program.trace.device_events}
    wanted.discard(-1)
    found: dict[int, int] = {}
    for index, call in enumerate(program.runtime):
        if call.correlation in wanted:
            found.setdefault(call.correlation, index)
    return found


# The durations on the device of each profiled step, in total and by the name of the event.


@dataclass
class StepDurations:
    """The device's work that the host launched in one step, in seconds.

    Overlapping activities count each for itself: the sum is work, and no stretch of time.
    """

    total_s: float = 0.0
    by_name: dict[str, float] = field(default_factory=lambda: defaultdict(float))


def compute_step_durations(program: ProgramTrace, markers: Markers) -> list[StepDurations]:
    """Computes the durations of each whole step of a trace, in order; empty if it holds none.

    A kernel belongs to the step in which it was launched, even if it runs later.
    """
    window = find_window(program, markers)
    if window is None:
        return []
    steps = [StepDurations() for _ in range(window.step_count)]
    for event in program.trace.device_events:
        if event.kind != "kernel":
            continue
        launched_s = event.start_s if event.launch_start_s is None else event.launch_start_s
        place = bisect_right(window.marks, launched_s) - 1
        if 0 <= place < len(steps):
            steps[place].total_s += event.duration_s
            steps[place].by_name[event.name] += event.duration_s
    return steps


# Arithmetic on time intervals in seconds: busy time as a union, and the gaps in it.


_RESOLUTION_S = 0.5e-9
"""The shortest gap in seconds. A trace counts whole nanoseconds, so a shorter gap is only a rounding error."""


def merge_intervals(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Returns the union of ``(start, end)`` pairs as disjoint pairs in order; drops pairs that end before they
    start."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted(interval for interval in intervals if interval[1] >= interval[0]):
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def compute_union_length(intervals: Iterable[tuple[float, float]]) -> float:
    """Computes the total time that the intervals cover; overlapping parts count once."""
    return math.fsum(end - start for start, end in merge_intervals(intervals))


def list_spans(events: Iterable[DeviceEvent]) -> list[tuple[float, float]]:
    """Returns the ``(start, end)`` of each event, in the given order."""
    return [(event.start_s, event.start_s + event.duration_s) for event in events]


def compute_busy_time(events: Iterable[DeviceEvent]) -> dict[int, float]:
    """Computes the busy seconds of each device by its index; overlapping activities on several streams count once."""
    return {device: compute_union_length(list_spans(found)) for device, found in _group_by_device(events).items()}


def gaps(events: Iterable[DeviceEvent]) -> Gaps:
    """Returns the gaps between the first and the last activity of each device, summarised over all devices."""
    return _summarise(
        pause for on_device in _group_by_device(events).values() for pause in _find_pauses(list_spans(on_device))
    )


def find_gaps_between(intervals: Iterable[tuple[float, float]]) -> Gaps:
    """Returns the gaps between the first and the last interval: stretches that no interval covers."""
    return _summarise(_find_pauses(intervals))


def _find_pauses(intervals: Iterable[tuple[float, float]]) -> Iterator[float]:
    busy = merge_intervals(intervals)
    for (_, end), (start, _) in itertools.pairwise(busy):
        if start - end > _RESOLUTION_S:
            yield start - end


def _summarise(pauses: Iterable[float]) -> Gaps:
    found = list(pauses)
    if not found:
        return Gaps(count=0, median_s=0.0, longest_s=0.0)
    return Gaps(count=len(found), median_s=median(found), longest_s=max(found))


def _group_by_device(events: Iterable[DeviceEvent]) -> dict[int, list[DeviceEvent]]:
    groups: dict[int, list[DeviceEvent]] = {}
    for event in events:
        groups.setdefault(event.device, []).append(event)
    return groups


# Measures the device's work in the profiled steps of a program.


@dataclass(frozen=True)
class StepWork:
    """The device's work in one step."""

    time_s: float  # the sum of the durations in seconds
    launches: float  # the number of activities
    busy_time_s: float  # the seconds in which at least one activity runs


def measure_work(program: ProgramTrace, markers: Markers) -> StepWork | None:
    """Returns the mean work of the profiled steps; ``None`` if the trace holds no whole step or no device activity."""
    window = find_window(program, markers)
    if window is None:
        return None
    window = leave_out_first_step(window)
    begin, end = window.bounds[0], window.bounds[-1]
    events = [one for one in program.trace.device_events if begin <= one.start_s < end]
    if not events or end <= begin:
        return None
    inside = [(start, min(stop, end)) for start, stop in list_spans(events)]
    return StepWork(
        time_s=sum(stop - start for start, stop in inside) / window.step_count,
        launches=len(events) / window.step_count,
        busy_time_s=compute_union_length(inside) / window.step_count,
    )
