"""How a race's samples are taken on a GPU, on a pretended one whose host may be late."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from inductor_bench.source.harness import timing_cuda
from inductor_bench.worker.device import nvidia_runtime
from inductor_bench.worker.device.nvidia_runtime import HOLD_CYCLES, MOST_RETAKEN, GpuRaceTimer
from tests.support.fake_gpu import CLOCK_HZ, FRESH, LAUNCH, Device, Kernel, copied

HOLD_S = HOLD_CYCLES / CLOCK_HZ


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    made.launch_s = 5e-6
    for module in (timing_cuda, nvidia_runtime):
        monkeypatch.setattr(module, "torch", made.torch())
    monkeypatch.setattr(timing_cuda, "copy_arguments", lambda launch, arguments, place: copied(arguments))
    return made


def timer_of(device: Device, kernel: Kernel, **how: Any) -> GpuRaceTimer:
    gap = {"cold": 0.0, "warm": 0.0}
    return GpuRaceTimer(LAUNCH, kernel.arguments(), kernel.bind, window_s=7e-4, warm_up_s=1e-3, gap=gap, **how)


def bound(device: Device, seconds: float = 20e-6) -> tuple[Kernel, GpuRaceTimer, Any]:
    """A kernel of so many seconds, its timer, and the call of it that is timed."""
    kernel = Kernel(device, seconds)
    timer = timer_of(device, kernel)
    return kernel, timer, timer.bind(kernel.bind)


def take(timer: GpuRaceTimer, kernel: Kernel, state: str = "cold", count: int = 6) -> list[float]:
    call = timer.bind(kernel.bind)
    timer.run_first(call, state)
    timer.get_ready(call, state)
    return [getattr(timer, state)(call) for _ in range(count)]


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_both_windows_of_a_sample_follow_one_hold(device: Device, state: str) -> None:
    _, timer, call = bound(device)
    timer.run_first(call, state)
    timer.get_ready(call, state)
    getattr(timer, state)(call)  # loads the graphs
    device.wait()
    holds, began = device.holds, device.now
    assert [getattr(timer, state)(call) for _ in range(10)] == pytest.approx([20e-6] * 10, rel=1e-6)
    assert device.holds == holds + 10 and timer.retaken == 0
    windows_s = 2 * 2 * 7e-4  # a graph is replayed a whole number of times
    assert device.now - began < 10 * (windows_s + HOLD_S)


def test_nothing_runs_on_the_device_while_graphs_are_captured(device: Device) -> None:
    _, timer, call = bound(device)
    timer.run_first(call, "cold")
    now = device.now
    timer.get_ready(call, "cold")
    assert device.now == now
    timer.run_first(call, "cold")
    timer.get_ready(call, "cold")
    assert device.now == now, "a call that is ready stays so"


@pytest.mark.parametrize(("late_s", "retaken"), [(50e-6, 0), (HOLD_S, 1), (2 * HOLD_S, 1), (50e-3, 1)])
def test_a_sample_is_taken_again_if_the_host_was_late_with_a_launch(
    device: Device, late_s: float, retaken: int
) -> None:
    _, timer, call = bound(device)
    timer.cold(call)
    device.stalls = [0.0, late_s]  # of the restore and of the first window
    assert timer.cold(call) == pytest.approx(20e-6)
    assert timer.retaken == retaken and not device.stalls
    device.stalls = [0.0, 0.0, 100e-6]  # of the second window, while the device works for more than 0.1 ms
    assert timer.cold(call) == pytest.approx(20e-6) and timer.retaken == retaken
    device.stalls = [0.0, 0.0, 50e-3]
    assert timer.cold(call) == pytest.approx(20e-6) and timer.retaken == retaken + 1


def test_a_host_that_needs_longer_for_each_launch_gets_a_longer_hold(device: Device) -> None:
    _, timer, call = bound(device)
    timer.cold(call)
    device.stalls = [1.5 * HOLD_S] * 1000
    assert timer.cold(call) == pytest.approx(20e-6) and 0 < timer.retaken < MOST_RETAKEN


def test_a_host_that_is_always_late_gets_its_last_sample(device: Device) -> None:
    _, timer, call = bound(device)
    timer.cold(call)
    before = timer.retaken
    device.stalls = [50e-3] * 1000
    assert timer.cold(call) > 0 and timer.retaken == before + MOST_RETAKEN


def test_what_calls_write_is_put_back_before_each_sample_by_one_launch(device: Device) -> None:
    kernel, timer, call = bound(device, 50e-6)
    timer.warm(call)
    for _ in range(2):
        kernel.found.clear()
        timer.warm(call)
        assert kernel.found[0] == FRESH
    host_s = device.host
    timer.restore()
    assert device.host - host_s == pytest.approx(device.launch_s) and len(timer.copies) > 9


def test_locks_are_reset_and_the_time_of_that_is_not_counted(device: Device) -> None:
    kernel = Kernel(device, 20e-6, wants=FRESH)
    timer = timer_of(device, kernel, reset=[1])
    for state in ("cold", "warm"):
        assert take(timer, kernel, state) == pytest.approx([20e-6] * 6, rel=1e-6)


def test_what_cannot_be_captured_is_timed_by_launches(device: Device) -> None:
    kernel = Kernel(device, 200e-6, captures=False)
    timer = timer_of(device, kernel)
    assert timer.method.startswith("events")
    assert take(timer, kernel) == pytest.approx([200e-6] * 6, rel=0.01) and timer.retaken == 0
    call = timer.bind(kernel.bind)
    timer.cold(call)
    kernel.stall_s = 50e-3  # at the next launch, which is that of the hold's window
    assert timer.cold(call) == pytest.approx(200e-6, rel=0.01) and timer.retaken == 1


def test_a_call_that_is_far_slower_than_the_default_is_timed_by_single_launches(device: Device) -> None:
    default = Kernel(device, 20e-6)
    timer = timer_of(device, default)
    for seconds, is_far_slower in ((100e-6, False), (0.2, True)):
        kernel = Kernel(device, seconds)
        assert take(timer, kernel, count=2) == pytest.approx([seconds] * 2, rel=0.01)
        assert (len(kernel.found) == 2) is is_far_slower, "the first launch is the first sample"
    locked = timer_of(device, default, reset=[1])
    slow = Kernel(device, 1e-3, wants=FRESH)
    assert take(locked, slow, count=1) == pytest.approx([1e-3]), "a lock is reset before every launch"


@pytest.mark.parametrize(("mutated", "captures"), [([], True), ([1], True), ([], False)])
def test_a_timer_is_freed_with_its_last_reference(device: Device, mutated: list[int], captures: bool) -> None:
    kernel = Kernel(device, 20e-6, captures=captures)
    gap = {"cold": 0.0, "warm": 0.0}
    timer = GpuRaceTimer({**LAUNCH, "mutated": mutated}, kernel.arguments(), kernel.bind, window_s=7e-4, gap=gap)
    take(timer, kernel, count=1)
    copies = weakref.ref(timer.copies[0].storages[0])
    gc.disable()
    try:
        del timer
        assert copies() is None, "its memory would wait for a collection"
    finally:
        gc.enable()


def test_each_launch_of_a_window_of_several_is_watched(device: Device) -> None:
    _, timer, call = bound(device)
    timer.window_s = 3e-3
    timer.cold(call)
    device.stalls = [0.0, 0.0, 50e-3]  # of the restore, and of the first window's first and second replay
    assert timer.cold(call) == pytest.approx(20e-6) and timer.retaken == 1


def test_a_host_that_is_late_with_the_last_event_takes_the_sample_again(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, timer, call = bound(device)
    timer.cold(call)
    stalls = [0.0, 0.0, 0.0, 4e-3]  # of the events of both windows
    record = nvidia_runtime._record

    def record_late() -> Any:
        device.host += stalls.pop(0) if stalls else 0.0
        return record()

    monkeypatch.setattr(nvidia_runtime, "_record", record_late)
    assert timer.cold(call) == pytest.approx(20e-6) and timer.retaken == 1 and not stalls


def test_a_call_that_waits_for_the_device_is_watched_no_longer(device: Device) -> None:
    kernel = Kernel(device, 200e-6, captures=False)
    bind = kernel.bind

    def bind_waiting(arguments: Any) -> Any:
        call = bind(arguments)
        return lambda: (call(), device.wait())

    kernel.bind = bind_waiting  # type: ignore[method-assign]
    timer = timer_of(device, kernel)
    assert timer.method.startswith("events")
    assert take(timer, kernel, count=10) == pytest.approx([200e-6] * 10, rel=0.1)
    assert timer.retaken <= 2 * MOST_RETAKEN, "in the first windows only"


def test_a_fast_call_whose_first_launch_is_late_is_not_taken_for_a_slow_one(device: Device) -> None:
    kernel, other = Kernel(device, 20e-6), Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    call = timer.bind(lambda arguments: lambda: (setattr(device, "host", device.host + 5e-3), other.bind(arguments)()))
    timer.run_first(call, "cold")
    assert "cold" in call.runs and "cold" not in call.samplers


def test_a_call_whose_first_launch_fails_is_launched_again(device: Device) -> None:
    kernel = Kernel(device, 20e-6)
    for how in ({}, {"reset": [1]}):
        timer = timer_of(device, kernel, **how)
        call = timer.bind(lambda arguments: lambda: 1 / 0)
        for _ in range(2):
            with pytest.raises(ZeroDivisionError):
                timer.run_first(call, "cold")


def test_a_call_of_a_new_timer_needs_no_separate_first_launch(device: Device) -> None:
    _, timer, call = bound(device)
    timer.get_ready(call, "cold")
    assert timer.cold(call) == pytest.approx(20e-6)


def test_the_device_is_used_in_this_process_turn_only(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    held, seen = 0, list[bool]()
    launch = device.launch

    @contextlib.contextmanager
    def exclusive() -> Iterator[None]:
        nonlocal held
        held += 1
        yield
        held -= 1

    def watched(seconds: float, effect: Any = lambda: None) -> None:
        if device.captured is None:
            seen.append(held > 0)
        launch(seconds, effect)

    monkeypatch.setattr(nvidia_runtime, "using_device_alone", exclusive)
    monkeypatch.setattr(device, "launch", watched)
    for how in ({}, {"reset": [1]}):
        kernel = Kernel(device, 20e-6, wants=FRESH if how else None)
        timer = timer_of(device, kernel, **how)
        take(timer, kernel)
        timer.restore()
    assert seen and all(seen)
