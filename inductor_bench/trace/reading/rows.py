"""The events of a trace as columns, and the host operators, device events and devices that are built from them."""

from __future__ import annotations

import gc
import json
import re
from array import array
from collections.abc import Iterator
from contextlib import contextmanager

from ...records.traced.trace import DeviceEvent, HostOp, TraceDevice
from .nesting import find_parents
from .numbers import Fields, nanoseconds
from .templates import Template
from .values import printable, whole_number

_NEVER = -1


class Rows:
    """The events of one kind as columns; times in nanoseconds."""

    def __init__(self) -> None:
        self.templates: list[Template] = []
        self.starts = array("q")
        self.durations = array("q")
        self.externals = array("q")
        self.correlations = array("q")

    def add(self, template: Template, numbers: list[bytes]) -> None:
        self.templates.append(template)
        self.starts.append(nanoseconds(numbers[template.ts]))
        self.durations.append(max(0, nanoseconds(numbers[template.duration])) if template.duration >= 0 else 0)
        self.externals.append(int(numbers[template.external]) if template.external >= 0 else _NEVER)
        self.correlations.append(int(numbers[template.correlation]) if template.correlation >= 0 else _NEVER)

    def in_order(self) -> list[int]:
        """Row numbers sorted by start; of equal starts the longer event first, then the smaller external id."""
        starts, durations, externals = self.starts, self.durations, self.externals
        return sorted(range(len(starts)), key=lambda row: (starts[row], -durations[row], externals[row]))


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses cyclic garbage collection: a large trace makes many objects, keeps all of them and forms no cycles."""
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
    parents = find_parents(starts, ends, [host.templates[row].place for row in order])
    ops = []
    for row, parent in zip(order, parents, strict=True):
        template = host.templates[row]
        start, duration = (host.starts[row] - origin) / 1e9, host.durations[row] / 1e9
        (thread,) = template.place
        ops.append(HostOp(template.name, start, duration, thread, host.externals[row], parent, *template.details))
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
        template = device.templates[row]
        kind, index, stream = template.place
        start, duration = (device.starts[row] - origin) / 1e9, device.durations[row] / 1e9
        launched = (runtime.starts[launch] - origin) / 1e9 if launch >= 0 else None
        about = (template.name, kind, start, duration, index, stream, correlation, op, launched)
        events.append(DeviceEvent(*about, *template.details))
    return tuple(events)


def _find_launches(wanted: set[int], runtime: Rows) -> dict[int, int]:
    """The row of the launch by correlation; of a runtime call and the driver call within it, the runtime call's."""
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
    index = whole_number(entry.get("id"))
    major, minor = whole_number(entry.get("computeMajor")), whole_number(entry.get("computeMinor"))
    return TraceDevice(
        index=position if index is None else index,
        name=printable(entry.get("name", "")),
        compute_capability="" if major is None else f"{major}.{minor or 0}",
        multiprocessors=whole_number(entry.get("numSms")),
        memory_bytes=whole_number(entry.get("totalGlobalMem")),
    )
