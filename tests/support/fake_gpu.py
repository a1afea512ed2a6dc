"""A pretended GPU with a clock of its own, a queue, and CUDA graphs, in place of the ``torch`` of a timer's module."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from inductor_bench.source.harness.common import Arguments

COPY_S, FLUSH_S, GRAPH_S, EVENT_S = 3e-6, 50e-6, 8e-6, 2e-6
CLOCK_HZ = 1.9e9
FRESH, USED = "fresh", "used"


class Device:
    """A GPU that begins what is launched once it is free. What is captured takes its time when it is replayed.

    Attributes:
        now: seconds at which the device has done all that was launched.
        host: seconds on the host, which waits for the device if it synchronizes.
        launch_s: seconds of the host for each launch.
        stalls: seconds by which the host is late with the next replays of graphs.
        holds: number of times that the device was held without work.
    """

    def __init__(self) -> None:
        self.now = self.host = self.launch_s = 0.0
        self.stalls: list[float] = []
        self.holds = 0
        self.captured: list[tuple[float, Callable[[], None]]] | None = None
        self.disturbances: list[float] = []
        """Seconds that the next windows take longer."""

    def launch(self, seconds: float, effect: Callable[[], None] = lambda: None) -> None:
        if self.captured is not None:
            self.captured.append((seconds, effect))
        else:
            self.host += self.launch_s
            self.now = max(self.now, self.host) + seconds
            effect()

    def wait(self) -> None:
        self.host = max(self.host, self.now)

    def sleep(self, cycles: int) -> None:
        self.holds += 1
        self.launch(cycles / CLOCK_HZ)

    def torch(self) -> Any:
        properties = SimpleNamespace(L2_cache_size=60 << 20)
        graph = SimpleNamespace(default_capture_stream=None)
        cuda = SimpleNamespace(
            Event=lambda enable_timing: Event(self),
            CUDAGraph=lambda: Graph(self),
            Stream=lambda: None,
            stream=lambda stream: Nothing(),
            graph=graph,
            synchronize=self.wait,
            _sleep=self.sleep,
            current_device=lambda: 0,
            get_device_properties=lambda index: properties,
            mem_get_info=lambda: (10 << 30, 20 << 30),
            memory_reserved=lambda: 0,
            memory_allocated=lambda: 0,
        )
        return SimpleNamespace(
            cuda=cuda,
            Tensor=Nothing,
            float32=None,
            zeros=lambda *_, **__: Nothing(),
            sum=lambda *_, **__: self.launch(FLUSH_S),
        )


class Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class Event:
    def __init__(self, device: Device) -> None:
        self.device, self.at = device, 0.0

    def record(self) -> None:
        self.device.launch(EVENT_S)
        self.at = self.device.now

    def query(self) -> bool:
        return self.at <= self.device.host

    def synchronize(self) -> None:
        self.device.host = max(self.device.host, self.at)

    def elapsed_time(self, end: Event) -> float:
        late = self.device.disturbances.pop(0) if self.device.disturbances else 0.0
        return (end.at - self.at + late) * 1e3


class Graph:
    def __init__(self, device: Device) -> None:
        self.device, self.nodes = device, list[tuple[float, Callable[[], None]]]()

    def capture_begin(self) -> None:
        assert self.device.captured is None
        self.device.captured = self.nodes

    def capture_end(self) -> None:
        self.device.captured = None

    def replay(self) -> None:
        self.device.host += self.device.stalls.pop(0) if self.device.stalls else 0.0
        self.device.launch(GRAPH_S)
        for seconds, effect in self.nodes:
            self.device.now += seconds
            effect()


class Storage:
    def __init__(self, device: Device, value: str) -> None:
        self.device, self.value = device, value

    def numel(self) -> int:
        return 40 << 20

    def clone(self) -> Storage:
        return Storage(self.device, self.value)

    def copy_(self, other: Storage) -> None:
        self.device.launch(COPY_S, lambda: setattr(self, "value", other.value))


def copied(arguments: Arguments) -> Arguments:
    return Arguments([], {}, [storage.clone() for storage in arguments.storages])  # type: ignore[misc]


LAUNCH = {
    "storages": [{"size_bytes": 40 << 20}, {"size_bytes": 40 << 20}],
    "arguments": [
        {"kind": "tensor", "items": [], "tensor": {"storage": index, "shape": [10], "stride": [1], "itemsize": 4}}
        for index in range(2)
    ],
    "keywords": {},
    "mutated": [1],
}


class Kernel:
    """Reads storage 0 and writes storage 1.

    ``wants`` is what it must find in the latter, if anything; ``stall_s`` by how much the host is late with the next
    launch.
    """

    def __init__(self, device: Device, seconds: float, wants: str | None = None, captures: bool = True) -> None:
        self.device, self.seconds, self.wants, self.captures = device, seconds, wants, captures
        self.found: list[str] = []
        self.stall_s = 0.0

    def arguments(self) -> Arguments:
        return Arguments([], {}, [Storage(self.device, FRESH), Storage(self.device, FRESH)])  # type: ignore[list-item]

    def bind(self, arguments: Arguments) -> Callable[[], None]:
        written: Any = arguments.storages[1]

        def write() -> None:
            self.found.append(written.value)
            assert self.wants in (None, written.value), "it would wait for ever"
            written.value = USED

        def call() -> None:
            stall_s, self.stall_s = self.stall_s, 0.0
            self.device.host += stall_s
            if self.device.captured is not None and not self.captures:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.device.launch(self.seconds, write)

        return call
