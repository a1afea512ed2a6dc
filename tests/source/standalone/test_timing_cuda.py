"""How calls on a GPU are timed, on a pretended GPU with a clock of its own: nothing here needs one."""

from __future__ import annotations

import pytest

from inductor_bench.source.harness import timing_cuda
from inductor_bench.source.harness.timing_cuda import GpuTimer, measure_cuda
from tests.support.fake_gpu import FRESH, LAUNCH, USED, Device, Kernel, copied

GAPS = {"cold": 5e-7, "warm": 2e-7}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(timing_cuda, "torch", made.torch())
    monkeypatch.setattr(timing_cuda, "copy_arguments", lambda launch, arguments, place: copied(arguments))
    monkeypatch.setattr(timing_cuda, "torch", made.torch())
    monkeypatch.setattr(timing_cuda, "_GAPS", {0: {"cold": 0.0, "warm": 0.0}})
    return made


@pytest.mark.parametrize("seconds", [1e-6, 40e-6, 5e-3])
def test_what_launches_graphs_and_events_cost_is_not_counted(device: Device, seconds: float) -> None:
    kernel = Kernel(device, seconds)
    found = measure_cuda(LAUNCH, kernel.arguments(), kernel.bind)
    assert found["method"] == "graphs"
    for state in ("cold", "warm"):
        assert found[state]["samples"] == timing_cuda.SAMPLES
        assert found[state]["samples_s"] == pytest.approx([seconds] * timing_cuda.SAMPLES, rel=1e-6)


@pytest.fixture
def profiled(device: Device, monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """The profiler's times of the addition, three times cold and then warm; by the device's clock it takes 3 µs."""
    found = [[9e-6, 1.5e-6, 1.5e-6], [1e-6] * 9, [2e-6] * 2, [0.5e-6] * 2, [1e-6] * 2, [2e-6] * 2]
    numbers = Kernel(device, 3e-6)
    monkeypatch.undo()
    monkeypatch.setattr(timing_cuda, "torch", device.torch())
    monkeypatch.setattr(timing_cuda, "torch", device.torch())
    monkeypatch.setattr(timing_cuda, "copy_arguments", lambda launch, arguments, place: copied(arguments))
    monkeypatch.setattr(timing_cuda, "build_arguments", lambda launch, place: numbers.arguments())
    monkeypatch.setattr(timing_cuda, "_bind_addition", numbers.bind)
    monkeypatch.setattr(timing_cuda, "device_durations", lambda run, *kinds: found.pop(0))
    monkeypatch.setattr(timing_cuda, "GAP_CALLS", 2)
    return found


def test_the_gap_between_launches_is_what_the_profiler_does_not_count(
    device: Device, profiled: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_cuda, "_FIRST_GRAPHS", [])
    monkeypatch.setattr(timing_cuda, "GAP_TOLERANCE_S", 1e-6)
    gap = timing_cuda._find_gap(0)
    assert len(timing_cuda._FIRST_GRAPHS) == 1, "they are kept"
    assert gap == pytest.approx({"cold": 1.5e-6, "warm": 2e-6}) and not profiled


def test_gaps_that_differ_are_measured_again(
    device: Device, profiled: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    profiled += [[1.5e-6] * 2, [1e-6] * 2] * 6
    assert timing_cuda._find_gap(0) == pytest.approx({"cold": 1.5e-6, "warm": 2e-6})
    assert len(profiled) == 2 * 4, "three of five agree"
    profiled[:] = [[1e-7 * number * (1 + number % 2)] * 2 for number in range(1, 19)]
    timing_cuda._find_gap(0)
    assert not profiled, "nine at most"


def test_a_process_takes_over_the_gap_that_another_one_measured(
    device: Device, profiled: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_cuda, "_FIRST_GRAPHS", [])
    monkeypatch.setattr(timing_cuda, "_GAPS", {})
    assert timing_cuda.launch_gap(GAPS) == GAPS
    assert timing_cuda.launch_gap() == GAPS and len(profiled) == 6, "the profiler is not asked"
    assert len(timing_cuda._FIRST_GRAPHS) == 1, "the first graphs of the process are none of a kernel that is timed"


def test_without_graphs_there_is_no_gap(
    device: Device, profiled: list[list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing_cuda, "_bind_addition", Kernel(device, 3e-6, captures=False).bind)
    assert timing_cuda._find_gap(0) == {} and len(profiled) == 6, "the profiler is not asked"


@pytest.mark.parametrize("seen", [[[], []], [[1e-6], []]])
def test_where_the_profiler_sees_too_little_gaps_are_not_known(
    device: Device, profiled: list[list[float]], seen: list[list[float]]
) -> None:
    profiled[:] = seen * 3
    assert timing_cuda._find_gap(0) == {}
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


def test_what_is_written_is_put_back_between_samples_if_it_is_read(device: Device) -> None:
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
    nothing = timer.bind(Kernel(device, -1e-9).bind)
    with pytest.raises(RuntimeError, match="too short"):
        timer.cold(nothing)


def test_what_cannot_be_captured_is_timed_by_events_without_its_resets(device: Device) -> None:
    kernel = Kernel(device, 200e-6, wants=FRESH, captures=False)
    found = measure_cuda(LAUNCH, kernel.arguments(), kernel.bind, reset=[1])
    assert found["method"] == "events, no graph: operation not permitted when stream is capturing"
    for state in ("cold", "warm"):
        assert found[state]["median_s"] == pytest.approx(200e-6, rel=0.01)
    assert device.captured is None


def test_a_call_that_cannot_be_captured_does_not_stop_the_capture_of_others(device: Device) -> None:
    timer = GpuTimer(LAUNCH, Kernel(device, 1e-5).arguments(), Kernel(device, 1e-5).bind)
    with pytest.raises(RuntimeError, match="not permitted"):
        timer.cold(timer.bind(Kernel(device, 1e-5, captures=False).bind))
    assert device.captured is None and timer.cold(timer.bind(Kernel(device, 1e-5).bind)) == pytest.approx(1e-5)
