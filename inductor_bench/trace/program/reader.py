"""Reads the trace of a whole program: what a module's trace holds, and what the host did besides."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

from ...records.traced.program import ProgramTrace, Range
from ...records.traced.trace import Trace
from ..reading.events import EventReader
from ..reading.numbers import Fields
from ..reading.rows import Rows, build_device_events, build_host_ops, collector_paused, read_devices
from ..reading.templates import Classifier, Template

_SKIPPED = frozenset(
    {
        *(b"ac2g", b"async_cpu_to_gpu", b"async_gpu", b"fwdbwd", b"overhead", b"Trace", b"gpu_user_annotation"),
        *(b"cpu_instant_event", b"cuda_sync", b"cuda_event", b"cuda_profiler_range", b"gpu_pm_counter"),
    }
)
_ANNOTATION, _FRAME = "user_annotation", "python_function"


@dataclass(frozen=True)
class Markers:
    """The names of the ranges that the observer records, before their number."""

    boundary: str
    graph_call: str


class _Template(Template):
    """A template with the positions of the autograd numbers."""

    __slots__ = ("forward_thread", "sequence")

    def __init__(self, order: dict[str, int]) -> None:
        super().__init__(order)
        self.sequence = order.get("Sequence number", -1)
        self.forward_thread = order.get("Fwd thread id", -1)


class _ProgramClassifier(Classifier):
    def __init__(self, markers: Markers) -> None:
        super().__init__()
        self._markers = (markers.boundary, markers.graph_call)

    def __call__(self, event: Fields, order: dict[str, int]) -> Template:
        template = self.classify(event, _Template(order))
        category = event.get("cat")
        if event.get("ph") != "X" or template.ts < 0 or not isinstance(category, str):
            return template
        marked = template.name.startswith(self._markers)
        if category == _ANNOTATION:
            template.kind = "host" if marked else "annotation"
            template.details = (None,) * 6
        elif category == _FRAME:
            template.kind = "frame"
        elif category.endswith(("_runtime", "_driver")):
            template.kind = "runtime"
        if template.kind not in ("ignored", "device"):
            template.place = (self.keep(f"{event.get('pid')}/{event.get('tid')}"),)
        return template


class _HostRows(Rows):
    """The rows of host operators with their autograd numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.sequences = array("q")
        self.forward_threads = array("q")

    def add(self, template: Template, numbers: list[bytes]) -> None:
        super().add(template, numbers)
        assert isinstance(template, _Template)
        self.sequences.append(int(numbers[template.sequence]) if template.sequence >= 0 else -1)
        self.forward_threads.append(int(numbers[template.forward_thread]) if template.forward_thread >= 0 else 0)


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
    skipped = _SKIPPED if frames else _SKIPPED | {_FRAME.encode()}
    reader = EventReader(path, _ProgramClassifier(markers), skipped)
    host, device, runtime, annotations, functions = _HostRows(), Rows(), Rows(), Rows(), Rows()
    kinds: dict[str, Rows] = {"host": host, "device": device, "runtime": runtime, "annotation": annotations}
    if frames:
        kinds["frame"] = functions
    for shape, numbers, _ in reader:
        rows = kinds.get(shape.digest.kind)
        if rows is not None:
            rows.add(shape.digest, numbers)
    origin = min((start for rows in kinds.values() for start in rows.starts), default=0)
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
        annotations=_ranges(annotations, origin),
        runtime=_ranges(runtime, origin),
        frames=_ranges(functions, origin),
        sequences=tuple(host.sequences[row] for row in order),
        forward_threads=tuple(host.forward_threads[row] for row in order),
        origin_ns=origin,
    )


def _ranges(rows: Rows, origin: int) -> tuple[Range, ...]:
    found = []
    for row in rows.in_order():
        template = rows.templates[row]
        start, duration = (rows.starts[row] - origin) / 1e9, rows.durations[row] / 1e9
        found.append(Range(template.name, start, duration, template.place[0], rows.correlations[row]))
    return tuple(found)
