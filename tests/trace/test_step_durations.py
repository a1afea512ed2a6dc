"""The durations of a program's profiled steps, in a trace from an H200."""

from __future__ import annotations

import pytest
from breakdown_runs import H200

from inductor_bench.records.evidence import BOUNDARY, GRAPH_CALL
from inductor_bench.trace.program_trace import Markers, compute_step_durations, read_program_trace

MARKERS = Markers(BOUNDARY, GRAPH_CALL)


@pytest.mark.parametrize(("name", "busy_s", "copies"), [("decode", 0.000744, 0.05), ("breaks", 0.000681, 0.25)])
def test_each_step_has_the_kernels_that_were_launched_in_it(name: str, busy_s: float, copies: float) -> None:
    """The busy time of these programs is in the README; their kernels hardly overlap, and copies take the rest."""
    program = read_program_trace(H200 / "programs" / name / "steps.trace.json.gz", MARKERS)
    steps = compute_step_durations(program, MARKERS)
    kernels = [event for event in program.trace.device_events if event.kind == "kernel"]
    assert len(steps) >= 2
    assert sum(step.total_s for step in steps) <= sum(event.duration_s for event in kernels) + 1e-12
    for step in steps[1:]:
        assert (1 - copies) * busy_s <= step.total_s <= 1.02 * busy_s
        assert sum(step.by_name.values()) == pytest.approx(step.total_s)
