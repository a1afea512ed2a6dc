"""How the samples of a race are queued on a GPU, on a pretended one whose host may be late."""

from __future__ import annotations

from typing import Any

import pytest

from inductor_bench.source.standalone.harness import timing_cuda
from inductor_bench.worker.device import race_timer
from inductor_bench.worker.device.race_timer import HOLD_CYCLES, MOST_RETAKEN, GpuRaceTimer
from tests.support.fake_gpu import CLOCK_HZ, FRESH, LAUNCH, Device, Kernel, copied


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


def ready_calls(timer: GpuRaceTimer, kernels: list[Kernel], state: str) -> list[Any]:
    calls = [timer.bind(kernel.bind) for kernel in kernels]
    for call in calls:
        timer.get_ready(call, state)
    return calls


@pytest.mark.parametrize("state", ["cold", "warm"])
def test_the_device_works_without_a_pause_from_the_first_sample_of_an_order_to_the_last(
    device: Device, state: str
) -> None:
    kernels = [Kernel(device, 20e-6), Kernel(device, 30e-6)]
    timer = timer_of(device, kernels[0])
    calls = ready_calls(timer, kernels, state)
    began, holds, places = device.now, device.holds, list[int]()
    found = timer.samples(calls * 10, state, places.append)
    assert found == pytest.approx([20e-6, 30e-6] * 10, rel=1e-6)
    assert device.holds == holds + 1 and timer.retaken == 0, "it is held before the first window only"
    assert places == list(range(20))
    windows_s = 20 * 2 * 2 * 7e-4  # two windows of a sample; a graph is replayed a whole number of times
    assert device.now - began < windows_s + HOLD_CYCLES / CLOCK_HZ


def test_a_sample_is_taken_again_where_the_host_was_late_with_a_launch(device: Device) -> None:
    kernel = Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    calls = ready_calls(timer, [kernel], "cold")
    restores = 1  # the replay that precedes the two windows of each sample
    device.stalls = [0.0] * (3 * (restores + 2)) + [0.0, 50e-3]
    assert timer.samples(calls * 6, "cold", lambda place: None) == pytest.approx([20e-6] * 6, rel=1e-6)
    assert timer.retaken == 1 and not device.stalls


def test_a_stall_that_the_queue_covers_is_no_delay(device: Device) -> None:
    kernel = Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    calls = ready_calls(timer, [kernel], "cold")
    device.stalls = [0.0] * 12 + [1e-3]
    assert timer.samples(calls * 6, "cold", lambda place: None) == pytest.approx([20e-6] * 6, rel=1e-6)
    assert timer.retaken == 0 and not device.stalls


def test_a_host_that_is_always_late_gets_its_last_samples(device: Device) -> None:
    kernel = Kernel(device, 20e-6)
    timer = timer_of(device, kernel)
    calls = ready_calls(timer, [kernel], "cold")
    device.stalls = [50e-3] * 1000
    (found,) = timer.samples(calls, "cold", lambda place: None)
    assert found > 0 and timer.retaken == MOST_RETAKEN


def test_a_call_that_takes_no_time_is_named_by_its_place(device: Device) -> None:
    kernels = [Kernel(device, 20e-6), Kernel(device, 0.0)]
    timer, places = timer_of(device, kernels[0]), list[int]()
    with pytest.raises(RuntimeError, match="too short"):
        timer.samples(ready_calls(timer, kernels, "cold"), "cold", places.append)
    assert places[-1] == 1


def test_what_calls_write_is_put_back_before_each_sample_by_one_launch(device: Device) -> None:
    kernel = Kernel(device, 50e-6)
    timer = timer_of(device, kernel)
    calls = ready_calls(timer, [kernel], "warm")
    timer.samples(calls, "warm", lambda place: None)
    kernel.found.clear()
    timer.samples(calls, "warm", lambda place: None)
    assert kernel.found[0] == FRESH
    host_s = device.host
    timer.restore()
    assert device.host - host_s == pytest.approx(device.launch_s) and len(timer.copies) > 9


def test_locks_are_reset_and_the_time_of_that_is_not_counted(device: Device) -> None:
    kernel = Kernel(device, 20e-6, wants=FRESH)
    timer = timer_of(device, kernel, reset=[1])
    for state in ("cold", "warm"):
        found = timer.samples(ready_calls(timer, [kernel], state) * 3, state, lambda place: None)
        assert found == pytest.approx([20e-6] * 3, rel=1e-6)


def test_what_cannot_be_captured_is_timed_by_launches(device: Device) -> None:
    kernel = Kernel(device, 200e-6, captures=False)
    timer = timer_of(device, kernel)
    assert timer.method.startswith("events")
    found = timer.samples(ready_calls(timer, [kernel], "cold") * 3, "cold", lambda place: None)
    assert found == pytest.approx([200e-6] * 3, rel=0.01) and timer.retaken == 0
