"""A Chrome trace of torch.profiler as a ``records.Trace``: host operators, device events and what ties them.

Reads GPU traces of CUDA, ROCm and XPU and CPU traces. Relies neither on the order of events in the file nor on its
layout; knows no kernel names.
"""

from __future__ import annotations

import gc
import json
import re
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...records.traced.trace import DeviceEvent, HostOp, TensorArguments, Trace, TraceDevice
from .events import EventReader, Fields, nanoseconds
from .nesting import find_parents

DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
HOST_CATEGORY = "cpu_op"
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
# Passed over undecoded. Annotations are ranges that enclose work, not work, on the host and on the device.
_SKIPPED = frozenset(
    {
        *(b"ac2g", b"async_cpu_to_gpu", b"async_gpu", b"fwdbwd", b"overhead", b"python_function", b"Trace"),
        *(b"user_annotation", b"gpu_user_annotation", b"cpu_instant_event", b"cuda_sync", b"cuda_event"),
        *(b"cuda_profiler_range", b"gpu_pm_counter"),
    }
)
_NEVER = -1


class _Template:
    """What all events of one shape share. ``ts`` … are places in the event's numbers, -1 where it has none.

    ``place`` is where it happened: the thread of a host operator; kind, device and stream of a device event.
    ``details`` are the last fields of the record, from ``arguments`` or ``registers`` on.
    """

    __slots__ = ("correlation", "details", "duration", "external", "kind", "name", "place", "synchronizes", "ts")

    def __init__(self, order: dict[str, int]) -> None:
        self.kind = "ignored"  # or "host", "device", "runtime"
        self.ts = order.get("ts", -1)
        self.duration = order.get("dur", -1)
        self.external = order.get("External id", -1)
        self.correlation = order.get("correlation", -1)
        self.synchronizes = False
        self.name = ""
        self.place: tuple[Any, ...] = ()
        self.details: tuple[Any, ...] = ()


class _Rows:
    """Columns of one kind of event while the file is being read; times in nanoseconds."""

    def __init__(self) -> None:
        self.templates: list[_Template] = []
        self.starts = array("q")
        self.durations = array("q")
        self.externals = array("q")
        self.correlations = array("q")

    def add(self, template: _Template, numbers: list[bytes]) -> None:
        self.templates.append(template)
        self.starts.append(nanoseconds(numbers[template.ts]))
        self.durations.append(max(0, nanoseconds(numbers[template.duration])) if template.duration >= 0 else 0)
        self.externals.append(int(numbers[template.external]) if template.external >= 0 else _NEVER)
        self.correlations.append(int(numbers[template.correlation]) if template.correlation >= 0 else _NEVER)

    def in_order(self) -> list[int]:
        """Row numbers by start; of equal starts the longer first, then the one that was begun first."""
        starts, durations, externals = self.starts, self.durations, self.externals
        return sorted(range(len(starts)), key=lambda row: (starts[row], -durations[row], externals[row]))


class _Classifier:
    """Turns a decoded event into a template. Equal texts and equal arguments are kept once."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def _keep(self, value: Any) -> Any:
        return self._kept.setdefault(value, value)

    def __call__(self, event: Fields, order: dict[str, int]) -> _Template:
        template = _Template(order)
        category = event.get("cat")
        if event.get("ph") != "X" or template.ts < 0 or not isinstance(category, str):
            return template
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        template.name = self._keep(_printable(event.get("name", "")))
        if category == HOST_CATEGORY:
            template.kind = "host"
            template.place = (self._keep(f"{event.get('pid')}/{event.get('tid')}"),)
            template.details = self._host_details(arguments)
        elif category in DEVICE_KINDS:
            template.kind = "device"
            template.place = (DEVICE_KINDS[category], *_device_and_stream(event, arguments))
            template.details = self._device_details(arguments)
        elif category.endswith(("_runtime", "_driver")):
            template.synchronizes = template.name in SYNCHRONIZATIONS
            if template.synchronizes or template.correlation >= 0:
                template.kind = "runtime"
        return template

    def _host_details(self, arguments: Fields) -> tuple[Any, ...]:
        return (
            self._tensor_arguments(arguments),
            *(self._text(arguments.get(key)) for key in ("kernel_file", "kernel_hash", "kernel_kwargs")),
            *(_whole(arguments.get(key)) for key in ("num_warps", "num_stages")),
            *(_real(arguments.get(key)) for key in ("kernel_num_gb", "kernel_flop")),
        )

    def _device_details(self, arguments: Fields) -> tuple[Any, ...]:
        return (
            _whole(arguments.get("registers per thread")),
            _whole(arguments.get("shared memory")),
            self._triple(arguments.get("grid")),
            self._triple(arguments.get("block")),
            _occupancy(arguments),
            _whole(arguments.get("bytes")),
        )

    def _text(self, value: object) -> str | None:
        return self._keep(_printable(value)) if isinstance(value, str) else None

    def _triple(self, value: object) -> tuple[int, int, int] | None:
        parts = [_whole(part) for part in value] if isinstance(value, list) else []
        return self._keep(tuple(parts)) if len(parts) == 3 and None not in parts else None

    def _tensor_arguments(self, arguments: Fields) -> TensorArguments | None:
        lists = [arguments.get(key) for key in ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")]
        if not isinstance(lists[0], list):
            return None
        dims, strides, types, concrete = (value if isinstance(value, list) else [] for value in lists)
        texts = (tuple(map(_printable, value)) for value in (types, concrete))
        return self._keep(TensorArguments(_lists(dims), _lists(strides), *texts))  # type: ignore[no-any-return]


def read_trace(path: Path) -> Trace:
    """Read a trace of torch.profiler, plain or gzipped.

    Both ``host_ops`` and ``device_events`` are in the order of their start, an enclosing operator before what it
    encloses. Times are seconds after the first event that is kept. A file that was cut short or is damaged yields
    what was whole, with ``truncated`` set.

    Raises:
        InductorBenchError: where the file is missing, empty, not JSON or has no ``traceEvents``.
    """
    return read_trace_and_origin(path)[0]


def read_trace_and_origin(path: Path) -> tuple[Trace, int]:
    """As ``read_trace``, with the moment of the file's own clock, in nanoseconds, that second 0 stands for."""
    with _collector_paused():
        return _read(path)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Without cyclic garbage collection: a large trace makes many objects, all of them kept, and no cycles."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _read(path: Path) -> tuple[Trace, int]:
    reader = EventReader(path, _Classifier(), _SKIPPED)
    rows = {"host": _Rows(), "device": _Rows(), "runtime": _Rows()}
    for shape, numbers, _ in reader:
        template = shape.digest
        if template.kind != "ignored":
            rows[template.kind].add(template, numbers)
    host, device, runtime = rows["host"], rows["device"], rows["runtime"]
    origin = min((start for kind in (host, device, runtime) for start in kind.starts), default=0)
    host_order = host.in_order()
    host_ops = _build_host_ops(host, host_order, origin)
    device_events = _build_device_events(device, host, host_order, runtime, origin)
    synchronizations = sorted(
        start for template, start in zip(runtime.templates, runtime.starts, strict=True) if template.synchronizes
    )
    trace = Trace(
        host_ops=host_ops,
        device_events=device_events,
        synchronizations=tuple((start - origin) / 1e9 for start in synchronizations),
        devices=_read_devices(reader.header, reader.tail),
        truncated=reader.truncated,
    )
    return trace, origin


def _build_host_ops(host: _Rows, order: list[int], origin: int) -> tuple[HostOp, ...]:
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


def _build_device_events(
    device: _Rows, host: _Rows, host_order: list[int], runtime: _Rows, origin: int
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


def _find_launches(wanted: set[int], runtime: _Rows) -> dict[int, int]:
    """Correlation to row of the launch; where a runtime call and the driver call in it share one, the outer."""
    wanted.discard(_NEVER)
    launches: dict[int, int] = {}
    for row, correlation in enumerate(runtime.correlations):
        if correlation in wanted:
            known = launches.get(correlation)
            if known is None or runtime.starts[row] < runtime.starts[known]:
                launches[correlation] = row
    return launches


def _device_and_stream(event: Fields, arguments: Fields) -> tuple[int, int]:
    device = _whole(arguments.get("device"))
    stream = _whole(arguments.get("stream"))
    device = _whole(event.get("pid")) if device is None else device
    stream = _whole(event.get("tid")) if stream is None else stream
    return device or 0, stream or 0


def _read_devices(*texts: bytes) -> tuple[TraceDevice, ...]:
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
    index = _whole(entry.get("id"))
    major, minor = _whole(entry.get("computeMajor")), _whole(entry.get("computeMinor"))
    return TraceDevice(
        index=position if index is None else index,
        name=_printable(entry.get("name", "")),
        compute_capability="" if major is None else f"{major}.{minor or 0}",
        multiprocessors=_whole(entry.get("numSms")),
        memory_bytes=_whole(entry.get("totalGlobalMem")),
    )


def _occupancy(arguments: Fields) -> float | None:
    """The recorded whole percentage as a share. It is 0 where the profiler could not tell: no figure then."""
    percent = _real(arguments.get("est. achieved occupancy %"))
    if percent is None or (percent == 0 and (_real(arguments.get("warps per SM")) or 0) >= 1):
        return None
    return percent / 100


def _whole(value: object) -> int | None:
    """A whole number that fits 64 bits, also one written as a text or a real number."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**62:
        return None
    return int(value)


def _real(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _GREATEST:
        return None
    return float(value)


_GREATEST = 1e30  # of what a trace counts: its squares and sums are finite


def _printable(value: object) -> str:
    """A text that can be written as UTF-8: JSON may hold half of a surrogate pair."""
    return str(value).encode("utf-8", "replace").decode()


def _lists(values: list[Any]) -> tuple[Any, ...]:
    return tuple(_sizes(value) if isinstance(value, list) else () for value in values)


def _sizes(values: list[Any]) -> tuple[Any, ...]:
    """Nested lists of sizes as tuples; what is no whole number in them counts as nothing."""
    return tuple(_sizes(value) if isinstance(value, list) else _whole(value) or 0 for value in values)
