"""What of the time until compilation has settled is compilation, with a clock of its own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from inductor_bench.records.evidence import FAILED, ClockSample, GpuSharing
from inductor_bench.worker.capture import step_measurement, step_recording
from inductor_bench.worker.capture.boundaries import Boundaries, CalledGraphs, Pattern
from inductor_bench.worker.capture.schedule import WindowLimits
from inductor_bench.worker.capture.step_measurement import Measurement, make_empty_steps
from inductor_bench.worker.capture.step_recording import CompileTimeMeter
from inductor_bench.worker.device.machine import GpuProcess


class Program:
    """A program whose steps take 0.1 s, a compilation 5 s, and the observation 1 s if it works at a boundary."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s, self.number = 100.0, 0
        monkeypatch.setattr(step_recording.time, "perf_counter", lambda: self.now_s)
        self.settling = CompileTimeMeter()
        self.settling.begin()

    def step(self, *, compiles: bool = False, work_s: float = 0.0, in_window: bool = False) -> None:
        self.number += 1
        self.now_s += 0.1 + 5 * compiles
        if in_window:
            self.settling.pass_by(self.number, self.now_s)
            return
        self.settling.arrive(self.number, self.now_s, noisy=compiles)
        arrived_s = self.now_s
        self.now_s += work_s
        self.settling.leave(arrived_s, self.now_s)

    def restart(self) -> None:
        """Other events are the boundaries from now on."""
        self.settling.restart()
        self.number = 0

    def compile_time_s(self, excluded_s: float = 0.0) -> float:
        found = self.settling.settled(make_empty_steps(), self.number, excluded_s)
        assert found.settled_after == self.number and found.settling_time_s is not None
        return found.settling_time_s - found.settling_steps_s - 0.1 * found.compiling_steps


def test_quiet_steps_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.step(compiles=True)
    for _ in range(2):
        program.step()
    assert program.compile_time_s() == pytest.approx(5)
    assert program.compile_time_s(excluded_s=2) == pytest.approx(3)


def test_a_window_and_a_profile_before_other_boundaries_take_over_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.step(compiles=True)
    program.step()
    for _ in range(15):
        program.step(in_window=True)
    program.step(work_s=1.0)
    program.restart()
    for _ in range(2):
        program.step()
    assert program.compile_time_s() == pytest.approx(5)


def test_a_compilation_that_makes_a_window_void_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program(monkeypatch)
    program.step(compiles=True)
    program.step()
    program.step(in_window=True)
    program.step(compiles=True, work_s=1.0)
    program.step()
    assert program.compile_time_s() == pytest.approx(10)


def test_a_gpus_clock_is_read_ten_times_a_second(tmp_path: Path) -> None:
    class Gpu:
        def clock_mhz(self) -> int:
            return 1980

        def throttles(self) -> tuple[str, ...]:
            return ("power cap",)

    measurement = Measurement(tmp_path, WindowLimits(), CalledGraphs())
    measurement._gpu.set_driver(Gpu())  # type: ignore[arg-type]
    pattern = Pattern()
    boundaries = Boundaries(lambda number: None, lambda: None, pattern)
    for number in range(60):
        measurement.cross_boundary(number, boundaries, number / 32, other_profiler=True, cycle_s=None)
    assert [clock.step for clock in measurement._gpu.clocks] == list(range(0, 60, 4))
    assert measurement._gpu.clocks[0] == ClockSample(0, 1980, ("power cap",))
    measurement.restart()
    assert measurement._gpu.clocks == [], "other steps have the same numbers"


def test_sizes_of_a_long_warm_up_that_compiles_leave_room(tmp_path: Path) -> None:
    """As with CUDA graphs, which are recorded for each size."""
    measurement = Measurement(tmp_path, WindowLimits(profiles=False), graphs := CalledGraphs())
    boundaries = Boundaries(lambda number: None, lambda: None, Pattern())
    for number in range(400):
        graphs.sizes.note(0, number)
        measurement.is_noisy = True
        measurement.cross_boundary(number, boundaries, number / 32, other_profiler=False, cycle_s=None)
    graphs.sizes.note(0, 1000)
    assert graphs.sizes.take() > 0


def test_how_a_gpu_is_shared_is_asked_once_the_steps_are_timed(tmp_path: Path) -> None:
    asked: list[int] = []

    class Gpu:
        def clock_mhz(self) -> None:
            return None

        def busy_by_process(self, time_us: int) -> None:
            asked.append(len(measurement.found.step_times_s))

        def busy_since(self, time_us: int) -> float:
            return 0.9

        def compute_processes(self) -> list[GpuProcess]:
            return []

        def used_bytes(self) -> None:
            return None

    measurement = Measurement(tmp_path, WindowLimits(steps=5, profiles=False), CalledGraphs())
    measurement._gpu.set_driver(Gpu())  # type: ignore[arg-type]
    boundaries = Boundaries(lambda number: None, lambda: None, Pattern())
    for number in range(12):
        if not measurement.is_complete:
            measurement.cross_boundary(number, boundaries, number / 32, other_profiler=False, cycle_s=None)
    assert measurement.is_complete and asked == [5], "never between timed steps"
    assert measurement.found.sharing == GpuSharing(busy=0.9)


def test_a_profiler_that_fails_costs_the_profile_and_not_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise RuntimeError("no rights")

    monkeypatch.setattr(step_measurement, "Recording", fail)
    measurement = Measurement(tmp_path, WindowLimits(), CalledGraphs())
    boundaries = Boundaries(lambda number: None, lambda: None, Pattern())
    number = 0
    while not measurement.is_complete and number < 100:
        number += 1
        arrived_s = 0.02 * number
        if not measurement.pass_within_window(number, arrived_s):
            measurement.cross_boundary(number, boundaries, arrived_s, other_profiler=False, cycle_s=None)
    found = measurement.found
    assert (found.state, found.error, found.trace) == (FAILED, "the profiler failed: RuntimeError: no rights", "")
    assert len(found.step_times_s) >= 25 and found.steps_before_profile == 2


@pytest.mark.parametrize("name", ["_recording", "_stacks"])
def test_a_profile_without_a_step_is_stopped_at_the_end_of_the_program(name: str, tmp_path: Path) -> None:
    """A process that ends while torch's profiler records may crash. (2.13)"""
    measurement = Measurement(tmp_path, WindowLimits(), CalledGraphs())
    stopped: list[bool] = []
    setattr(measurement, name, SimpleNamespace(is_here=True, stop=lambda: stopped.append(measurement.is_ours)))
    measurement.is_recording, measurement._marked = True, 1
    measurement._end_profile(cast(Any, SimpleNamespace(is_at_end=False)))
    assert stopped == [True] and not measurement.is_ours and not measurement.is_recording
