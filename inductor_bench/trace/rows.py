"""Reads a Chrome trace of torch.profiler into columns: host operators, device events and devices."""

from __future__ import annotations

import gc
import itertools
import json
import re
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ..records.traced import DeviceEvent, HostOp, Trace, TraceDevice
from .events import (
    DEVICE,
    HOST,
    RUNTIME,
    Classifier,
    EventArguments,
    EventFacts,
    EventReader,
    Fields,
    Kinds,
    printable,
    read_whole_number,
)

# Finds the interval that encloses each interval on its thread. Works on whole numbers, so that the result is exact.


def find_parents(starts: Sequence[int], ends: Sequence[int], threads: Sequence[object]) -> list[int]:
    """Returns for each interval the index of the innermost interval that encloses it on the same thread, or -1.

    Args:
        starts, ends: whole numbers of one unit, sorted by start; of equal starts the longer interval first.
        threads: one hashable key per interval; intervals of different threads never enclose each other.
    """
    stacks: dict[object, list[int]] = {}
    parents = []
    for index, (start, end, thread) in enumerate(zip(starts, ends, threads, strict=True)):
        stack = stacks.setdefault(thread, [])
        # An interval that ends before this one cannot be the innermost enclosing interval of any later one.
        while stack and (ends[stack[-1]] <= start or ends[stack[-1]] < end):
            stack.pop()
        parents.append(stack[-1] if stack else -1)
        stack.append(index)
    return parents


# The events of a trace as columns, and the host operators, device events and devices that are built from them.


_NEVER = -1

SYNCHRONIZATIONS = frozenset(
    {
        "cudaDeviceSynchronize",
        "cuCtxSynchronize",
        "hipDeviceSynchronize",
        "hipCtxSynchronize",
        "urQueueFinish",
        "piQueueFinish",
        "zeCommandQueueSynchronize",
        "zeCommandListHostSynchronize",
    }
)


class Rows:
    """The events of one kind as columns; times in nanoseconds."""

    def __init__(self) -> None:
        self.abouts: list[EventFacts] = []
        self.starts = array("q")
        self.durations = array("q")
        self.externals = array("q")
        self.correlations = array("q")
        self.sequences = array("q")
        self.forward_threads = array("q")

    def add(self, about: EventFacts, start: int, duration: int, arguments: EventArguments) -> None:
        self.abouts.append(about)
        self.starts.append(start)
        self.durations.append(duration)
        self.externals.append(arguments.external)
        self.correlations.append(arguments.correlation)
        self.sequences.append(arguments.sequence)
        self.forward_threads.append(arguments.forward_thread)

    def in_order(self) -> list[int]:
        """Returns row numbers sorted by start; of equal starts the longer event first, then the smaller external id."""
        starts, durations, externals = self.starts, self.durations, self.externals
        return sorted(range(len(starts)), key=lambda row: (starts[row], -durations[row], externals[row]))


@contextmanager
def collector_paused() -> Iterator[None]:
    """In the block, no cyclic garbage is collected: a large trace makes many objects, keeps all of them and forms no
    cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def build_host_ops(host: Rows, order: list[int], origin: int) -> tuple[HostOp, ...]:
    starts = array("q", (host.starts[row] for row in order))
    ends = array("q", (host.starts[row] + host.durations[row] for row in order))
    parents = find_parents(starts, ends, [host.abouts[row].place for row in order])
    ops = []
    for row, parent in zip(order, parents, strict=True):
        about = host.abouts[row]
        start, duration = (host.starts[row] - origin) / 1e9, host.durations[row] / 1e9
        (thread,) = about.place
        ops.append(HostOp(about.name, start, duration, thread, host.externals[row], parent, *about.details))
    return tuple(ops)


def build_device_events(
    device: Rows, host: Rows, host_order: list[int], runtime: Rows, origin: int
) -> tuple[DeviceEvent, ...]:
    op_of = {host.externals[row]: index for index, row in enumerate(host_order)}
    op_of.pop(_NEVER, None)
    launches = _find_launches(set(device.correlations), runtime)
    events = []
    for row in device.in_order():
        correlation = device.correlations[row]
        launch = launches.get(correlation, -1)
        op = op_of.get(device.externals[row], -1)
        if op < 0 and launch >= 0:
            op = op_of.get(runtime.externals[launch], -1)
        about = device.abouts[row]
        kind, index, stream = about.place
        start, duration = (device.starts[row] - origin) / 1e9, device.durations[row] / 1e9
        launched = (runtime.starts[launch] - origin) / 1e9 if launch >= 0 else None
        shown = (about.name, kind, start, duration, index, stream, correlation, op, launched)
        events.append(DeviceEvent(*shown, *about.details))
    return tuple(events)


def _find_launches(wanted: set[int], runtime: Rows) -> dict[int, int]:
    """Returns the row of the launch by correlation.

    If a runtime call contains a driver call, that of the runtime call.
    """
    wanted.discard(_NEVER)
    launches: dict[int, int] = {}
    for row, correlation in enumerate(runtime.correlations):
        if correlation in wanted:
            known = launches.get(correlation)
            if known is None or runtime.starts[row] < runtime.starts[known]:
                launches[correlation] = row
    return launches


def read_devices(*texts: bytes) -> tuple[TraceDevice, ...]:
    for text in texts:
        found = re.search(rb'"deviceProperties"\s*:\s*(?=\[)', text)
        if found:
            try:
                listed, _ = json.JSONDecoder().raw_decode(text[found.end() :].decode("utf-8", "replace"))
            except (ValueError, RecursionError):
                continue
            return tuple(_read_device(index, entry) for index, entry in enumerate(listed) if isinstance(entry, dict))
    return ()


def _read_device(position: int, entry: Fields) -> TraceDevice:
    index = read_whole_number(entry.get("id"))
    major, minor = read_whole_number(entry.get("computeMajor")), read_whole_number(entry.get("computeMinor"))
    return TraceDevice(
        index=position if index is None else index,
        name=printable(entry.get("name", "")),
        compute_capability="" if major is None else f"{major}.{minor or 0}",
        multiprocessors=read_whole_number(entry.get("numSms")),
        memory_bytes=read_whole_number(entry.get("totalGlobalMem")),
    )


# Reads a Chrome trace of torch.profiler into a ``records.traced.Trace``: host operators, device events and their links.
#
# It reads CPU traces and the GPU traces of CUDA, ROCm and XPU, with events in any order and any layout of the file.


def read_trace(path: Path) -> Trace:
    """Reads a trace of torch.profiler, plain or gzipped.

    Returns:
        ``host_ops`` and ``device_events`` are sorted by their start; an enclosing operator comes before the operators
        that it encloses. Times are seconds after the first decoded event. Of a damaged file, or one that was cut short,
        the trace holds the whole events, and ``truncated`` is True.

    Raises:
        InductorBenchError: the file is missing, empty, not JSON or has no ``traceEvents``.
    """
    return read_trace_and_origin(path)[0]


def read_trace_and_origin(path: Path) -> tuple[Trace, int]:
    """Returns the trace of ``read_trace``, and the time of its second 0 on the file's own clock, in nanoseconds."""
    with collector_paused():
        return _read(path)


def read_rows(path: Path, kinds: Sequence[str], markers: tuple[str, ...] = ()) -> tuple[dict[str, Rows], EventReader]:
    """Returns the rows of each kind of events, and the reader that read them."""
    kind_of = Kinds(kinds)
    reader, classify = EventReader(path, kind_of), Classifier(kind_of, markers)
    rows = {kind: Rows() for kind in kinds}
    for event, start, duration, _ in reader:
        if start is not None and event.ph == "X":
            about = classify(event)
            rows[about.kind].add(about, start, duration, event.args)
    return rows, reader


def _read(path: Path) -> tuple[Trace, int]:
    rows, reader = read_rows(path, (HOST, DEVICE, RUNTIME))
    host, device, runtime = rows[HOST], rows[DEVICE], rows[RUNTIME]
    waits = [about.name in SYNCHRONIZATIONS for about in runtime.abouts]
    counted = [wait or number >= 0 for wait, number in zip(waits, runtime.correlations, strict=True)]
    starts = itertools.chain(host.starts, device.starts, itertools.compress(runtime.starts, counted))
    origin = min(starts, default=0)
    host_order = host.in_order()
    host_ops = build_host_ops(host, host_order, origin)
    device_events = build_device_events(device, host, host_order, runtime, origin)
    synchronizations = sorted(itertools.compress(runtime.starts, waits))
    trace = Trace(
        host_ops=host_ops,
        device_events=device_events,
        synchronizations=tuple((start - origin) / 1e9 for start in synchronizations),
        devices=read_devices(reader.header, reader.tail),
        truncated=reader.truncated,
    )
    return trace, origin
