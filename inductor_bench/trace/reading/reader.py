"""Reads a Chrome trace of torch.profiler into a ``records.Trace``: host operators, device events and their links.

It reads CPU traces and the GPU traces of CUDA, ROCm and XPU, with events in any order and any layout of the file.
"""

from __future__ import annotations

from pathlib import Path

from ...records.traced.trace import Trace
from .events import EventReader
from .rows import Rows, build_device_events, build_host_ops, collector_paused, read_devices
from .templates import Classifier

_SKIPPED = frozenset(
    {
        *(b"ac2g", b"async_cpu_to_gpu", b"async_gpu", b"fwdbwd", b"overhead", b"python_function", b"Trace"),
        *(b"user_annotation", b"gpu_user_annotation", b"cpu_instant_event", b"cuda_sync", b"cuda_event"),
        *(b"cuda_profiler_range", b"gpu_pm_counter"),
    }
)
"""Categories that are not decoded. Annotations, on the host and on the device, are ranges around work."""


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
    """The trace of ``read_trace``, and the time of its second 0 on the file's own clock, in nanoseconds."""
    with collector_paused():
        return _read(path)


def _read(path: Path) -> tuple[Trace, int]:
    reader = EventReader(path, Classifier(), _SKIPPED)
    rows = {"host": Rows(), "device": Rows(), "runtime": Rows()}
    for shape, numbers, _ in reader:
        template = shape.digest
        if template.kind != "ignored":
            rows[template.kind].add(template, numbers)
    host, device, runtime = rows["host"], rows["device"], rows["runtime"]
    origin = min((start for kind in (host, device, runtime) for start in kind.starts), default=0)
    host_order = host.in_order()
    host_ops = build_host_ops(host, host_order, origin)
    device_events = build_device_events(device, host, host_order, runtime, origin)
    synchronizations = sorted(
        start for template, start in zip(runtime.templates, runtime.starts, strict=True) if template.synchronizes
    )
    trace = Trace(
        host_ops=host_ops,
        device_events=device_events,
        synchronizations=tuple((start - origin) / 1e9 for start in synchronizations),
        devices=read_devices(reader.header, reader.tail),
        truncated=reader.truncated,
    )
    return trace, origin
