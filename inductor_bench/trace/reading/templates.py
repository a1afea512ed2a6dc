"""Templates: what all trace events of one shape have in common, and the classifier that makes them."""

from __future__ import annotations

from typing import Any

from ...records.traced.trace import TensorArguments
from .numbers import Fields
from .values import printable, real_number, size_lists, whole_number

DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
"""The kind of a device event by the profiler's category."""

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


class Template:
    """The fields that all events of one shape share.

    Attributes:
        kind: ``host``, ``device``, ``runtime`` or ``ignored``.
        ts, duration, external, correlation: positions in the event's numbers; -1 for a number that it lacks.
        synchronizes: whether the event is a synchronisation of the device.
        name: the event's name.
        place: ``(thread,)`` of a host operator; ``(kind, device, stream)`` of a device event.
        details: the last fields of ``HostOp`` from ``arguments`` on, or of ``DeviceEvent`` from ``registers`` on.
    """

    __slots__ = ("correlation", "details", "duration", "external", "kind", "name", "place", "synchronizes", "ts")

    def __init__(self, order: dict[str, int]) -> None:
        self.kind = "ignored"
        self.ts = order.get("ts", -1)
        self.duration = order.get("dur", -1)
        self.external = order.get("External id", -1)
        self.correlation = order.get("correlation", -1)
        self.synchronizes = False
        self.name = ""
        self.place: tuple[Any, ...] = ()
        self.details: tuple[Any, ...] = ()


class Classifier:
    """Turns a decoded event into a template. It stores equal texts and equal arguments once."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def keep(self, value: Any) -> Any:
        """The first of equal values."""
        return self._kept.setdefault(value, value)

    def __call__(self, event: Fields, order: dict[str, int]) -> Template:
        return self.classify(event, Template(order))

    def classify(self, event: Fields, template: Template) -> Template:
        """Fills the template of an event."""
        category = event.get("cat")
        if event.get("ph") != "X" or template.ts < 0 or not isinstance(category, str):
            return template
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        template.name = self.keep(printable(event.get("name", "")))
        if category == HOST_CATEGORY:
            template.kind = "host"
            template.place = (self.keep(f"{event.get('pid')}/{event.get('tid')}"),)
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
            *(whole_number(arguments.get(key)) for key in ("num_warps", "num_stages")),
        )

    def _device_details(self, arguments: Fields) -> tuple[Any, ...]:
        return (
            whole_number(arguments.get("registers per thread")),
            whole_number(arguments.get("shared memory")),
            self._triple(arguments.get("grid")),
            self._triple(arguments.get("block")),
            _occupancy(arguments),
            whole_number(arguments.get("bytes")),
        )

    def _text(self, value: object) -> str | None:
        return self.keep(printable(value)) if isinstance(value, str) else None

    def _triple(self, value: object) -> tuple[int, int, int] | None:
        parts = [whole_number(part) for part in value] if isinstance(value, list) else []
        return self.keep(tuple(parts)) if len(parts) == 3 and None not in parts else None

    def _tensor_arguments(self, arguments: Fields) -> TensorArguments | None:
        lists = [arguments.get(key) for key in ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")]
        if not isinstance(lists[0], list):
            return None
        dims, strides, types, concrete = (value if isinstance(value, list) else [] for value in lists)
        texts = (tuple(map(printable, value)) for value in (types, concrete))
        return self.keep(TensorArguments(size_lists(dims), size_lists(strides), *texts))  # type: ignore[no-any-return]


def _device_and_stream(event: Fields, arguments: Fields) -> tuple[int, int]:
    device = whole_number(arguments.get("device"))
    stream = whole_number(arguments.get("stream"))
    device = whole_number(event.get("pid")) if device is None else device
    stream = whole_number(event.get("tid")) if stream is None else stream
    return device or 0, stream or 0


def _occupancy(arguments: Fields) -> float | None:
    """The recorded percentage as a share, 0 to 1. ``None`` where the profiler wrote 0 because it could not tell."""
    percent = real_number(arguments.get("est. achieved occupancy %"))
    if percent is None or (percent == 0 and (real_number(arguments.get("warps per SM")) or 0) >= 1):
        return None
    return percent / 100
