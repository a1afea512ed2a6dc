"""How a race's samples are taken on a GPU, on a pretended one whose host may be late."""

from __future__ import annotations

from typing import Any

import pytest

from inductor_bench.source.standalone.harness import timing_cuda
from inductor_bench.worker.device import race_timer
from inductor_bench.worker.device.race_timer import HOLD_CYCLES, MOST_RETAKEN, GpuRaceTimer
from tests.support.fake_gpu import CLOCK_HZ, FRESH, LAUNCH, Device, Kernel, copied

HOLD_S = HOLD_CYCLES / CLOCK_HZ


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    made.launch_s = 5e-6
    for module in (timing_cuda, race_timer):
        monkeypatch.setattr(module, "torch", made.torch())
    monkeypatch.setattr(timing_cuda, "copy_arguments", lambda launch, arguments, place: copied(arguments))
    return made


def timer_of(device: Device, kernel: Kernel, **how: Any) -> GpuRaceTimer:
    gap = {"cold": 0.0, "warm": 0.0}
    return GpuRaceTimer(LAUNCH, kernel.arguments(), kernel.bind, window_s=7e-4, warm_up_s=1e-3, gap=gap, **how)


def take(timer: GpuRaceTimer, kernel: Kernel, state: str = "cold", count: int = 6) -> list[float]:
    call = timer.bind(kernel.bind)
    timer.run_first(call, state)
    timer.get_ready(call, state)
    return [getattr(timer, state)(call) for _ in range(count)]


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_both_windows_of_a_sample_follow_one_hold(device: Device, state: str) -> None:
    kernel = Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    call = timer.bind(kernel.bind)
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
    kernel = Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    call = timer.bind(kernel.bind)
    timer.run_first(call, "cold")
    now = device.now
    timer.get_ready(call, "cold")
    assert device.now == now
    timer.run_first(call, "cold")
    timer.get_ready(call, "cold")
    assert device.now == now, "a call that is ready stays so"


@pytest.mark.parametrize(("late_s", "retaken"), [(50e-6, 0), (HOLD_S, 1), (2 * HOLD_S, 1), (50e-3, 1)])
def test_a_sample_is_taken_again_where_the_host_was_late_with_a_launch(
    device: Device, late_s: float, retaken: int
) -> None:
    kernel = Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    call = timer.bind(kernel.bind)
    timer.cold(call)
    device.stalls = [0.0, late_s]  # of the restore and of the first window
    assert timer.cold(call) == pytest.approx(20e-6)
    assert timer.retaken == retaken and not device.stalls
    device.stalls = [0.0, 0.0, 100e-6]  # of the second window, while the device works for more than 0.1 ms
    assert timer.cold(call) == pytest.approx(20e-6) and timer.retaken == retaken
    device.stalls = [0.0, 0.0, 50e-3]
    assert timer.cold(call) == pytest.approx(20e-6) and timer.retaken == retaken + 1


def test_a_host_that_needs_longer_for_each_launch_gets_a_longer_hold(device: Device) -> None:
    kernel = Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    call = timer.bind(kernel.bind)
    timer.cold(call)
    device.stalls = [1.5 * HOLD_S] * 1000
    assert timer.cold(call) == pytest.approx(20e-6) and 0 < timer.retaken < MOST_RETAKEN


def test_a_host_that_is_always_late_gets_its_last_sample(device: Device) -> None:
    kernel = Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    call = timer.bind(kernel.bind)
    timer.cold(call)
    before = timer.retaken
    device.stalls = [50e-3] * 1000
    assert timer.cold(call) > 0 and timer.retaken == before + MOST_RETAKEN


def test_what_calls_write_is_put_back_before_each_sample_by_one_launch(device: Device) -> None:
    kernel = Kernel(device, 50e-6)
    timer = timer_of(device, kernel)
    call = timer.bind(kernel.bind)
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
