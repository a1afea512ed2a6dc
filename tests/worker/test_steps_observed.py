"""Real programs that observe their steps: what delimits them, and what is kept of programs that end early."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import breakdown_runs as runs
import forking_python
import pytest

from inductor_bench.messages.observed import REQUEST
from inductor_bench.records.evidence import BOUNDARY, DONE, GRAPH_CALL, TIMING, WAITING, ObservedSteps
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import LONGER_LOOP, MARKS, OPTIMIZER_STEPS, PATTERN
from inductor_bench.source.labels import group_ranks
from inductor_bench.store import codec
from inductor_bench.workflows.modules.compile_environment import SITE, make_observed_environment

pytestmark = pytest.mark.slow


STEPS = str(runs.PROGRAMS / "steps.py")
RANKS = str(runs.PROGRAMS / "ranks.py")


@functools.cache
def observe(kind: str, steps: int, **variables: str) -> tuple[ObservedSteps, str]:
    """The observation and the output of ``tests/programs/steps.py``, run in a fork. All share the compiled kernels."""
    folder = Path(tempfile.mkdtemp(prefix=f"steps-{kind}-{steps}-", dir=runs.scratch()))
    ended = forking_python.run([STEPS, kind, str(steps)], INDUCTOR_BENCH_CAPTURE=folder, **cache(), **variables)
    assert ended.returncode == 0, ended.stderr
    (found,) = observations(folder, ended)
    return found, ended.stdout


@functools.cache
def start(*words: str, **variables: str) -> tuple[list[ObservedSteps], str]:
    """Runs a program in separate processes, observed from their start, as a capture runs it."""
    folder = Path(tempfile.mkdtemp(dir=runs.scratch()))
    path = os.pathsep.join([str(SITE), runs.environment()["PYTHONPATH"]])
    ended = subprocess.run(
        [sys.executable, *words],
        env=runs.environment(PYTHONPATH=path, INDUCTOR_BENCH_CAPTURE=folder, **cache(), **variables),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stderr
    return observations(folder, ended), ended.stdout


def start_ranks(**variables: str) -> list[ObservedSteps]:
    """Data-parallel training in two forks that find each other by a file."""
    folder = Path(tempfile.mkdtemp(dir=runs.scratch()))
    ended = forking_python.run_ranks([RANKS, "160"], folder, INDUCTOR_BENCH_CAPTURE=folder, **cache(), **variables)
    return observations(folder, ended)


def asked(**options: Any) -> dict[str, str]:
    """The variable of a request with these options, as a capture sets it."""
    request = replace(BreakdownRequest("steps.py", "script", samples=False), **options)
    return {REQUEST: make_observed_environment(request, Path(tempfile.mkdtemp(dir=runs.scratch())), {})[REQUEST]}


def cache() -> dict[str, str]:
    return {"TORCHINDUCTOR_CACHE_DIR": str(runs.scratch() / "steps-cache")}


def observations(folder: Path, ended: subprocess.CompletedProcess[str]) -> list[ObservedSteps]:
    assert "Traceback" not in ended.stderr, ended.stderr
    files = sorted(folder.glob("*.steps.json"))
    return [codec.decode(ObservedSteps, json.loads(file.read_text())) for file in files]


def ranges(trace: str, prefix: str) -> list[tuple[float, int]]:
    """The ranges with a prefix in a trace: when each began, and the number after the prefix."""
    events = json.loads(Path(trace).read_text())["traceEvents"]
    found = [event for event in events if event["name"].startswith(prefix) and event["cat"] == "cpu_op"]
    return sorted((event["ts"], int(event["name"].removeprefix(prefix))) for event in found)


def whole_window(found: ObservedSteps) -> int:
    """The number of steps in the timed window: 50, or on a busy machine fewer, because half a second was over."""
    steps = len(found.step_times_s) - found.steps_before_profile
    assert 5 <= steps <= 50
    assert found.window_s == pytest.approx(sum(found.step_times_s))
    assert list(found.step_numbers) == sorted(found.step_numbers) and len(found.step_numbers) == len(found.step_times_s)
    return steps


def test_an_optimizer_delimits_steps_that_are_profiled_and_timed() -> None:
    (found,), _ = start(STEPS, "plain", "120")
    assert (found.state, found.source, found.settled_after, found.notes) == (DONE, OPTIMIZER_STEPS, 1, ())
    assert sys.platform != "linux" or (found.peak_memory_bytes or 0) > 10**7, "the size of a process with torch"
    steps = whole_window(found)
    assert (found.first_step_time_s or 0) > 10 * found.window_s / (2 + steps)
    assert found.step_numbers[:2] == (1, 2) and found.steps_before_profile == 2 and found.other_steps == ()
    boundaries = [number for _, number in ranges(found.trace, BOUNDARY)]
    assert boundaries == list(range(4, 4 + found.profiled_steps + 1))
    assert found.step_numbers[2] == boundaries[-1] + 3, "then comes the step with stacks, and one that is left out"
    calls = ranges(found.trace, GRAPH_CALL)
    assert len(calls) == 8 * found.profiled_steps and {number for _, number in calls} == set(range(len(found.graphs)))
    assert all(Path(graph.path).is_file() for graph in found.graphs)
    line = 1 + Path(STEPS).read_text().splitlines().index("        blocks(values).square().mean().backward()")
    assert {(one.line, one.function) for graph in found.callers for one in graph.lines} == {(line, "train")}
    assert sum(len(graph.calls) for graph in found.callers) == len(calls)
    step_s = found.window_s / steps
    times_s = [graph.host_time_s or 0.0 for graph in found.graphs]
    assert all(times_s) and 8 / len(times_s) * sum(times_s) < step_s, "each graph is called as often as the others"
    assert "nn.Module: Block" in Path(found.lines_trace).read_text()
    assert len(ranges(found.lines_trace, BOUNDARY)) == 2


def test_the_observation_changes_no_result() -> None:
    _, observed = start(STEPS, "plain", "120")
    alone = forking_python.run([STEPS, "plain", "120"], **cache())
    assert observed == alone.stdout and "result:" in observed


def test_the_host_is_sampled_in_steps_after_the_window() -> None:
    found, _ = observe("plain", 500, **asked(samples=True))
    samples = found.samples
    assert found.state == DONE and samples is not None and found.notes == ()
    assert samples.steps == sum(map(len, samples.blocks[1::2])) > 0 and not samples.sees_device
    assert set(samples.blocks[0]) < set(found.step_times_s), "steps between the samples count as timed"
    assert len(found.step_numbers) + samples.steps < found.steps
    own = [frame for frame in samples.frames if frame.file == STEPS]
    assert {"own"} == {frame.owner for frame in own} and sum(stack.waiting for stack in samples.stacks) > 0
    assert len(samples.parents) == len(samples.frame_of) and max(samples.frame_of) < len(samples.frames)


def test_a_window_before_the_profile_keeps_its_times_beside_those_between_samples() -> None:
    found, _ = observe("plain", 500, **asked(skip=10, samples=True))
    assert found.state == DONE and found.samples is not None and found.step_numbers[0] == found.settled_after
    profiled = [number for _, number in ranges(found.trace, BOUNDARY)]
    before = [number for number in found.step_numbers if number < profiled[0]]
    assert len(before) >= 5 and len(found.step_times_s) == len(found.step_numbers)


def test_marks_come_before_the_optimizer() -> None:
    found, _ = observe("marks", 240)
    assert (found.state, found.source) == (DONE, MARKS)
    assert len(ranges(found.trace, GRAPH_CALL)) == 2 * 8 * found.profiled_steps, "a mark after every second step"


def test_steps_before_the_marks_are_no_compilation() -> None:
    found, _ = observe("late-marks", 60, INDUCTOR_BENCH_PROFILES="0")
    assert (found.state, found.source) == (DONE, MARKS)
    assert found.settling_time_s is not None and 15 * 0.02 < found.settling_steps_s < found.settling_time_s
    assert 1 <= found.compiling_steps <= 2


def test_blocks_that_share_a_graph_repeat_with_their_parameters() -> None:
    found, _ = observe("pattern", 200)
    assert (found.state, found.source, len(found.graphs)) == (DONE, PATTERN, 1)
    assert len(ranges(found.trace, GRAPH_CALL)) == 4 * found.profiled_steps


def test_the_steps_of_nested_loops_are_those_of_the_outer_one() -> None:
    found, _ = observe("requests", 90)
    assert (found.state, found.source, found.notes) == (DONE, PATTERN, ())
    calls = ranges(found.trace, GRAPH_CALL)
    assert len(calls) == (4 + 12 * 4) * found.profiled_steps and len(found.graphs) == 2
    whole_window(found)


def test_each_call_of_a_service_is_a_step_whatever_graph_it_takes() -> None:
    found, _ = observe("answers", 600)
    assert (found.state, found.source) == (DONE, PATTERN) and found.other_steps == ()
    assert sorted(one.sizes for one in found.step_kinds) == [(), (16,), (8192,)]
    assert sum(one.share or 0.0 for one in found.step_kinds) == pytest.approx(1)
    assert all(one.count > 2 and (one.p90_s or 0.0) >= one.time_s for one in found.step_kinds)
    assert sum(one.profiled or 0 for one in found.step_kinds) == found.profiled_steps, "each kind is in the profile"
    assert min(one.profiled or 0 for one in found.step_kinds) > 0
    calls, boundaries = ranges(found.trace, GRAPH_CALL), ranges(found.trace, BOUNDARY)
    assert len(calls) == found.profiled_steps == len(boundaries) - 1 > 5, "a call in each step"
    assert len({number for _, number in calls}) == 2, "the graph of one row, and that of any number"


def test_few_iterations_of_an_outer_loop_leave_the_steps_of_the_inner_one() -> None:
    found, _ = observe("requests", 3)
    assert (found.state, found.source) == (DONE, PATTERN)
    assert len(ranges(found.trace, GRAPH_CALL)) == 4 * found.profiled_steps
    assert found.notes[0].startswith(LONGER_LOOP) and "after every 12 steps" in found.notes[0]


def test_an_evaluation_among_the_steps_is_no_timed_step_and_ends_no_window() -> None:
    found, _ = observe("evaluate", 120)
    assert (found.state, found.source) == (DONE, OPTIMIZER_STEPS)
    assert len(ranges(found.trace, GRAPH_CALL)) == 8 * found.profiled_steps
    (other,) = found.other_steps
    assert other.count in (2, 3, 4) and set(other.graphs) == set(range(len(found.graphs)))
    assert other.among is not None and 15 * other.count <= other.among <= 25 * other.count + 20, "every 20th step"
    numbers = set(range(*found.step_numbers[:: len(found.step_numbers) - 1]))
    assert {number for number in numbers if number % 20 == 19}.isdisjoint(found.step_numbers)


def test_gradients_that_accumulate_are_one_step() -> None:
    found, _ = observe("accumulate", 90)
    assert (found.state, found.source) == (DONE, OPTIMIZER_STEPS)
    assert len(ranges(found.trace, GRAPH_CALL)) == 3 * 8 * found.profiled_steps


def test_a_program_of_few_steps_is_profiled() -> None:
    found, _ = observe("plain", 8)
    assert (found.state, found.steps) == (DONE, 8) and found.profiled_steps >= 3 and len(found.step_times_s) >= 2
    last_s, _ = ranges(found.trace, BOUNDARY)[-1]
    calls = [number for begin_s, number in ranges(found.trace, GRAPH_CALL) if begin_s < last_s]
    assert len(calls) == 8 * found.profiled_steps


def test_a_program_of_three_steps_gives_the_times_of_two_and_can_be_profiled_when_asked() -> None:
    found, _ = observe("plain", 3)
    assert (found.state, found.steps, len(found.step_times_s), found.settled_after) == (TIMING, 3, 2, 1)
    assert "there were 2; run 5 more" in found.unprofiled and found.trace == ""
    found, _ = observe("plain", 3, **asked(skip=0, steps=1))
    assert (found.state, len(found.step_times_s), found.profiled_steps) == (DONE, 1, 1)
    assert len(ranges(found.trace, BOUNDARY)) == 2


def test_the_users_number_of_steps_is_timed_and_profiled() -> None:
    found, _ = observe("plain", 40, **asked(steps=6))
    assert (found.state, len(found.step_times_s), found.profiled_steps) == (DONE, 6, 7)
    assert found.step_numbers[0] > found.settled_after - 1 and found.steps_before_profile == 0


def test_a_program_that_compiles_in_each_step_is_told_so() -> None:
    found, _ = observe("recompile", 5)
    assert (found.state, found.steps, found.step_times_s) == (WAITING, 5, ())
    assert "step 5 of 5 still compiled" in found.unprofiled


def test_a_program_that_profiles_itself_keeps_its_profile() -> None:
    found, printed = observe("profiler", 60)
    assert "own events: True" in printed and found.trace == ""
    assert "own profiler" in found.unprofiled


def test_forked_children_and_a_sudden_exit_within_the_window_lose_no_step() -> None:
    found, printed = observe("exit", 22)
    assert printed.count("result:") == 1 and Path(found.trace).is_file()
    assert len(found.step_times_s) >= 5, "os._exit calls no exit handlers"


def test_ranks_measure_the_same_steps() -> None:
    ranks = sorted(start_ranks(), key=lambda one: one.rank or 0)
    assert [one.rank for one in ranks] == [0, 1]
    assert {one.state for one in ranks} == {DONE}
    (numbers,) = {tuple(number for _, number in ranges(one.trace, BOUNDARY)) for one in ranks}
    assert len(numbers) == ranks[0].profiled_steps + 1 and len({one.settled_after for one in ranks}) == 1
    loaded = {graph.path: [one.rank] for one in ranks for graph in one.graphs}
    assert len(loaded) == 4, "each rank has separate files"
    pairs = group_ranks({path: Path(path).read_text() for path in loaded}, loaded)
    assert pairs == tuple(zip(*[(graph.path for graph in one.graphs) for one in ranks], strict=True))


EAGER = {"INDUCTOR_BENCH_EAGER": "cpu", "TORCH_COMPILE_DISABLE": "1"}
"""Variables that are read at the start of Python and at the import of torch."""


def test_the_steps_of_a_program_without_compilation_are_timed_only() -> None:
    found, printed = observe("plain", 90, **EAGER)
    assert (found.state, found.source, found.settled_after, found.device) == (DONE, OPTIMIZER_STEPS, 3, "cpu")
    assert whole_window(found)
    assert (found.graphs, found.trace, found.lines_trace, found.notes) == ((), "", "", ()) and "result:" in printed
    found, _ = observe("marks", 240, **EAGER)
    assert (found.state, found.source) == (DONE, MARKS)


def test_ranks_without_compilation_time_the_same_steps() -> None:
    ranks = start_ranks(**EAGER)
    assert {(one.rank, one.state, one.source) for one in ranks} == {
        (0, DONE, ranks[0].source),
        (1, DONE, ranks[0].source),
    }
    assert len({(one.settled_after, len(one.step_times_s)) for one in ranks}) == 1
