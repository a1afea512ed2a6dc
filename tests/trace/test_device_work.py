"""The device's work in the profiled steps of a program."""

from __future__ import annotations

from pathlib import Path

import pytest
from program_traces import MARKERS, ProgramTraceBuilder

from inductor_bench.trace.program_trace import measure_work, read_program_trace


def test_the_work_of_a_step_is_a_mean_over_whole_steps(tmp_path: Path) -> None:
    trace = ProgramTraceBuilder()
    for number, begin in enumerate((0, 100, 200, 300)):
        trace.boundary(number, begin)
        if number < 3:
            trace.launch("first", begin + 5, begin + 10, 30)
            trace.launch("second", begin + 15, begin + 30, 20, stream=8)
    work = measure_work(read_program_trace(trace.write(tmp_path / "t.json"), MARKERS), MARKERS)
    assert work is not None and work.launches == 2
    assert work.time_s == pytest.approx(50e-6) and work.busy_time_s == pytest.approx(40e-6)


def test_a_trace_without_steps_or_without_a_device_has_none(tmp_path: Path) -> None:
    trace = ProgramTraceBuilder()
    trace.boundary(0, 0)
    trace.launch("first", 5, 10, 30)
    assert measure_work(read_program_trace(trace.write(tmp_path / "a.json"), MARKERS), MARKERS) is None
    trace = ProgramTraceBuilder()
    trace.boundary(0, 0)
    trace.boundary(1, 100)
    assert measure_work(read_program_trace(trace.write(tmp_path / "b.json"), MARKERS), MARKERS) is None
