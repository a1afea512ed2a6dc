"""How calls on a GPU are timed, on a pretended GPU with a clock of its own: nothing here needs one."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from inductor_bench.source.standalone.harness import launch_gap, timing_cuda
from inductor_bench.source.standalone.harness.arguments import Arguments
from inductor_bench.source.standalone.harness.launch_gap import measure_cuda
from inductor_bench.source.standalone.harness.timing_cuda import GpuTimer

GAPS = {"cold": 5e-7, "warm": 2e-7}
COPY_S, FLUSH_S, GRAPH_S, EVENT_S = 3e-6, 50e-6, 8e-6, 2e-6
FRESH, USED = "fresh", "used"


class Device:
    """A GPU on which everything takes its time at once, and what is captured takes it when it is replayed."""

    def __init__(self) -> None:
        self.now = 0.0
        self.captured: list[tuple[float, Callable[[], None]]] | None = None
        self.disturbances: list[float] = []
        """Seconds that the next windows take longer."""

    def launch(self, seconds: float, effect: Callable[[], None] = lambda: None) -> None:
        if self.captured is not None:
            self.captured.append((seconds, effect))
        else:
            self.now += seconds
            effect()

    def torch(self) -> Any:
        properties = SimpleNamespace(L2_cache_size=60 << 20)
        graph = SimpleNamespace(default_capture_stream=None)
        cuda = SimpleNamespace(
            Event=lambda enable_timing: Event(self),
            CUDAGraph=lambda: Graph(self),
            Stream=lambda: None,
            stream=lambda stream: Nothing(),
            graph=graph,
            synchronize=lambda: None,
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
        self.device.now += EVENT_S
        self.at = self.device.now

    def synchronize(self) -> None: ...

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
        self.device.now += GRAPH_S
        for seconds, effect in self.nodes:
            self.device.launch(seconds, effect)


class Storage:
    def __init__(self, device: Device, value: str) -> None:
        self.device, self.value = device, value

    def numel(self) -> int:
        return 40 << 20

    def clone(self) -> Storage:
        return Storage(self.device, self.value)

    def copy_(self, other: Storage) -> None:
        self.device.launch(COPY_S, lambda: setattr(self, "value", other.value))


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(timing_cuda, "torch", made.torch())
    monkeypatch.setattr(timing_cuda, "copy_arguments", lambda launch, arguments, place: copied(arguments))
    monkeypatch.setattr(launch_gap, "torch", made.torch())
    monkeypatch.setattr(launch_gap, "_gap_on", lambda index: {"cold": 0.0, "warm": 0.0})
    return made


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
    """Reads storage 0 and writes storage 1; ``wants`` is what it must find in the latter, if anything."""

    def __init__(self, device: Device, seconds: float, wants: str | None = None, captures: bool = True) -> None:
        self.device, self.seconds, self.wants, self.captures = device, seconds, wants, captures
        self.found: list[str] = []

    def arguments(self) -> Arguments:
        return Arguments([], {}, [Storage(self.device, FRESH), Storage(self.device, FRESH)])  # type: ignore[list-item]

    def bind(self, arguments: Arguments) -> Callable[[], None]:
        written: Any = arguments.storages[1]

        def write() -> None:
            self.found.append(written.value)
            assert self.wants in (None, written.value), "it would wait for ever"
            written.value = USED

        def call() -> None:
            if self.device.captured is not None and not self.captures:
                raise RuntimeError("operation not permitted when stream is capturing")
            self.device.launch(self.seconds, write)

        return call


@pytest.mark.parametrize("seconds", [1e-6, 40e-6, 5e-3])
def test_what_launches_graphs_and_events_cost_is_not_counted(device: Device, seconds: float) -> None:
    kernel = Kernel(device, seconds)
    found = measure_cuda(LAUNCH, kernel.arguments(), kernel.bind)
    assert found["method"] == "graphs"
    for state in ("cold", "warm"):
        assert found[state]["samples"] == launch_gap.SAMPLES
        assert found[state]["samples_s"] == pytest.approx([seconds] * launch_gap.SAMPLES, rel=1e-6)


@pytest.fixture
def profiled(device: Device, monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """The profiler's times of the addition, three times cold and then warm; by the device's clock it takes 3 µs."""
    found = [[9e-6, 1.5e-6, 1.5e-6], [1e-6] * 9, [2e-6] * 2, [0.5e-6] * 2, [1e-6] * 2, [2e-6] * 2]
    numbers = Kernel(device, 3e-6)
    monkeypatch.undo()
    monkeypatch.setattr(timing_cuda, "torch", device.torch())
    monkeypatch.setattr(launch_gap, "torch", device.torch())
    monkeypatch.setattr(timing_cuda, "copy_arguments", lambda launch, arguments, place: copied(arguments))
    monkeypatch.setattr(launch_gap, "build_arguments", lambda launch, place: numbers.arguments())
    monkeypatch.setattr(launch_gap, "_bind_addition", numbers.bind)
    monkeypatch.setattr(launch_gap, "device_durations", lambda run, *kinds: found.pop(0))
    monkeypatch.setattr(launch_gap, "GAP_CALLS", 2)
    return found


def test_the_gap_between_launches_is_what_the_profiler_does_not_count(
    device: Device, profiled: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_gap, "_FIRST_GRAPHS", [])
    gap = launch_gap._gap_on.__wrapped__(0)
    assert len(launch_gap._FIRST_GRAPHS) == 1, "they are kept"
    assert gap == pytest.approx({"cold": 1.5e-6, "warm": 2e-6}) and not profiled


def test_without_graphs_there_is_no_gap(
    device: Device, profiled: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_gap, "_bind_addition", Kernel(device, 3e-6, captures=False).bind)
    assert launch_gap._gap_on.__wrapped__(0) == {} and len(profiled) == 6, "the profiler is not asked"


@pytest.mark.parametrize("seen", [[[], []], [[1e-6], []]])
def test_where_the_profiler_sees_too_little_gaps_are_not_known(
    device: Device, profiled: list[list[float]], seen: list[list[float]]
) -> None:
    profiled[:] = seen * 3
    assert launch_gap._gap_on.__wrapped__(0) == {}
    timer = GpuTimer(LAUNCH, Kernel(device, 1e-5).arguments(), Kernel(device, 1e-5).bind, gap={})
    assert timer.method == "graphs, gaps between launches included"
    assert timer.cold(timer.bind(Kernel(device, 1e-5).bind)) == pytest.approx(1e-5)


def test_the_gap_is_taken_off_every_sample(device: Device) -> None:
    kernel = Kernel(device, 20e-6)
    timer = GpuTimer(LAUNCH, kernel.arguments(), kernel.bind, gap=GAPS)
    call = timer.bind(kernel.bind)
    assert timer.method == "graphs"
    assert timer.cold(call) == pytest.approx(19.5e-6) and timer.warm(call) == pytest.approx(19.8e-6)


def test_a_lock_is_as_it_was_before_every_single_call_and_that_is_not_counted(device: Device) -> None:
    kernel = Kernel(device, 20e-6, wants=FRESH)
    timer = GpuTimer(LAUNCH, kernel.arguments(), kernel.bind, reset=[1])
    for each in (kernel, Kernel(device, 30e-6, wants=FRESH)):
        call = timer.bind(each.bind)
        for take in (timer.cold, timer.warm, timer.cold):
            assert take(call) == pytest.approx(each.seconds, rel=1e-6)


def test_what_is_written_is_put_back_between_samples_where_it_is_read(device: Device) -> None:
    for kept, first in ((None, FRESH), ([], USED)):
        kernel = Kernel(device, 50e-6)
        timer = GpuTimer(LAUNCH, kernel.arguments(), kernel.bind, kept=kept)
        call = timer.bind(kernel.bind)
        timer.warm(call)
        kernel.found.clear()
        timer.warm(call)
        assert kernel.found[0] == first


def test_a_disturbed_sample_is_taken_again(device: Device) -> None:
    kernel = Kernel(device, 10e-6)
    timer = GpuTimer(LAUNCH, kernel.arguments(), kernel.bind)
    call = timer.bind(kernel.bind)
    timer.cold(call)
    device.disturbances = [1.0, 0.0]  # the short graph's window comes first in the second sample
    assert timer.cold(call) == pytest.approx(10e-6) and not device.disturbances
    nothing = timer.bind(Kernel(device, 0.0).bind)
    with pytest.raises(RuntimeError, match="too short"):
        timer.cold(nothing)


def test_what_cannot_be_captured_is_timed_by_events_without_its_resets(device: Device) -> None:
    kernel = Kernel(device, 200e-6, wants=FRESH, captures=False)
    found = measure_cuda(LAUNCH, kernel.arguments(), kernel.bind, reset=[1])
    assert found["method"] == "events, no graph: operation not permitted when stream is capturing"
    for state in ("cold", "warm"):
        assert found[state]["median_s"] == pytest.approx(200e-6, rel=0.01)
    assert device.captured is None


def test_one_that_cannot_be_captured_is_not_held_against_others_that_can(device: Device) -> None:
    timer = GpuTimer(LAUNCH, Kernel(device, 1e-5).arguments(), Kernel(device, 1e-5).bind)
    with pytest.raises(RuntimeError, match="not permitted"):
        timer.cold(timer.bind(Kernel(device, 1e-5, captures=False).bind))
    assert device.captured is None and timer.cold(timer.bind(Kernel(device, 1e-5).bind)) == pytest.approx(1e-5)
