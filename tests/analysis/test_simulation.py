"""The step as a queue: recorded steps, laws that hold for every queue, and queues with a known answer."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inductor_bench.analysis.simulation.fitting import (
    FittedQueue,
    TimedCalls,
    compute_saving,
    compute_saving_of_durations,
    fit,
    solve_increasing,
)
from inductor_bench.analysis.simulation.profiled_queue import (
    KERNEL_RANGES,
    WORK_RANGES,
    ProfiledQueue,
    build_profiled_queue,
)
from inductor_bench.analysis.simulation.queue import (
    AT_ONCE,
    BOUNDARY,
    LAUNCH,
    WAIT,
    HostAction,
    HostModel,
    HostPiece,
    QueuedWork,
    Replay,
    StepQueue,
    compute_host_time_s,
    remove_host_time,
    remove_tasks,
    remove_waits,
    replay_as_graphs,
    scale_durations,
    simulate,
)
from inductor_bench.records.run import ALLOCATING
from inductor_bench.trace.program_trace import read_program_trace
from inductor_bench.trace.program_works import find_works
from scripts.benchmark_simulation import move_to_another_stream
from tests.support.program_traces import MARKERS, ProgramTraceBuilder

DATA = Path(__file__).resolve().parent.parent / "data"
H200, H100 = DATA / "h200_torch2.11" / "programs", DATA / "h100_torch2.11" / "programs"
RECORDED = {
    "breaks": (H200 / "breaks" / "steps.trace.json.gz", H200 / "breaks" / "steps.json.gz"),
    "decode": (H200 / "decode" / "steps.trace.json.gz", H200 / "decode" / "steps.json.gz"),
    "graphs": (H200 / "graphs" / "steps.trace.json.gz", H200 / "graphs" / "steps.json.gz"),
    "fsdp": (H200 / "fsdp" / "steps-0.trace.json.gz", H200 / "fsdp" / "0.steps.json.gz"),
    "ddp": (H100 / "ddp" / "steps-0.trace.json.gz", H100 / "ddp" / "0.steps.json.gz"),
}


@cache
def profiled(name: str) -> tuple[ProfiledQueue, float]:
    """The queue of a recorded program, and the mean of its profiled steps."""
    program = read_program_trace(RECORDED[name][0], MARKERS)
    found = find_works(program, MARKERS, {}, on_host=False)
    assert found is not None
    bounds = found.window.bounds
    return build_profiled_queue(program, found, MARKERS), (bounds[-1] - bounds[0]) / found.window.step_count


@cache
def fitted(name: str) -> FittedQueue:
    """The same with the host of the unprofiled steps."""
    queue, _ = profiled(name)
    seen = json.loads(gzip.decompress(RECORDED[name][1].read_bytes()))
    collectives = [place for place, work in enumerate(queue.works) if work.kind == "collective"]
    host = seen.get("host_step_times_s")
    return fit(queue.queue, median(seen["step_times_s"]), collectives, median(host) if host else None)


def step(*actions: HostAction) -> tuple[HostAction, ...]:
    return (*actions, HostAction(BOUNDARY, ()))


def launch(*works: int, before: float = 0.0, own: float = 1.0) -> HostAction:
    return HostAction(LAUNCH, (HostPiece(before),), own, works)


def one_stream(durations: list[float], before: float, own: float = 1.0, gap: float = 0.0) -> StepQueue:
    """A step that launches works one by one."""
    actions = [launch(place, before=before, own=own) for place in range(len(durations))]
    return StepQueue(step(*actions), tuple(QueuedWork(0, one, own, gap) for one in durations))


def test_each_step_counts_with_its_weight_and_one_without_weight_not_at_all() -> None:
    queue = StepQueue((*step(launch(0)), *step(launch(1))), (QueuedWork(0, 10.0, 0, 0), QueuedWork(0, 30.0, 0, 0)))
    short, long = simulate(queue).steps_s
    assert simulate(replace(queue, weights=(1.5, 0.5))).mean_s == pytest.approx((1.5 * short + 0.5 * long) / 2)
    assert simulate(replace(queue, weights=(0.0, 1.0))).steps_s == (long,) and long > short


# Recorded steps.


@pytest.mark.parametrize("name", RECORDED)
def test_the_profiled_steps_are_reproduced_from_their_works_and_the_hosts_time(name: str) -> None:
    queue, measured_s = profiled(name)
    # The profiler synchronised twice in the recordings with replays, which is no part of the steps.
    within = 0.15 if name == "decode" else 0.02
    assert simulate(queue.queue).mean_s == pytest.approx(measured_s, rel=within)


@pytest.mark.parametrize("name", RECORDED)
def test_the_unprofiled_step_is_reproduced_by_another_host(name: str) -> None:
    found = fitted(name)
    assert abs(found.residual_s) <= 0.03 * found.step_time_s
    assert all(steps.mean_s == pytest.approx(found.step_time_s, rel=0.035) for steps in found.unchanged[:-1])


@pytest.mark.parametrize(("name", "wins"), [("decode", 0.5), ("breaks", 0.0), ("ddp", 0.0)])
def test_kernels_at_half_win_half_of_a_step_of_the_device_and_nothing_of_one_of_the_host(
    name: str, wins: float
) -> None:
    found = fitted(name)
    half = compute_saving_of_durations(found, dict.fromkeys(range(len(found.queue.works)), 0.5))
    assert half.time_s / found.step_time_s == pytest.approx(wins, abs=0.02)
    device_s = sum(work.duration_s for work in found.queue.works) / found.queue.steps
    assert half.device_s == pytest.approx(device_s / 2, rel=0.12)


def test_the_copies_of_a_step_with_graph_breaks_are_waited_for() -> None:
    queue, _ = profiled("breaks")
    waits = [action for action in queue.queue.actions if action.kind == WAIT and action.work_indices]
    assert len(waits) >= 2 * queue.queue.steps, "loss.item() and a branch on a value"


def test_collectives_run_on_streams_that_wait_for_the_computation() -> None:
    queue, _ = profiled("ddp")
    lanes = {queue.queue.works[place].lane for place, work in enumerate(queue.works) if work.kind == "collective"}
    others = {queue.queue.works[place].lane for place, work in enumerate(queue.works) if work.kind == "graph"}
    assert not lanes & others
    waiting = [one for place, one in enumerate(queue.queue.works) if queue.works[place].kind == "collective"]
    assert all(one.after for one in waiting)


def test_a_step_of_five_thousand_works_is_simulated_in_one_pass_over_them_a_repetition() -> None:
    queue = one_stream([3.0] * 5000, before=2.0)
    assert simulate(queue).mean_s == pytest.approx(5000 * 3.0, rel=1e-3)


# Queues with a known answer.


def test_a_step_of_the_host_takes_the_hosts_time_whatever_its_kernels_take() -> None:
    queue = one_stream([2.0] * 20, before=9.0)
    assert simulate(queue).mean_s == pytest.approx(20 * 10.0)
    found = fit(queue, 200.0)
    saved = compute_saving_of_durations(found, dict.fromkeys(range(20), 0.5))
    assert saved.time_s == pytest.approx(0.0, abs=1e-9)
    assert saved.device_s == pytest.approx(20.0)


def test_a_step_of_the_device_wins_all_that_its_kernels_win_until_the_host_is_the_limit() -> None:
    queue = one_stream([10.0] * 20, before=3.0)
    found = fit(queue, 200.0, host_step_s=80.0)
    assert compute_saving_of_durations(found, {4: 0.5, 5: 0.5}).time_s == pytest.approx(10.0)
    assert compute_saving_of_durations(found, dict.fromkeys(range(20), 0.1)).time_s == pytest.approx(200 - 80, rel=0.01)


def test_a_host_that_waits_for_each_work_adds_its_time_to_the_devices() -> None:
    actions = step(launch(0, before=4.0), HostAction(WAIT, (), 0.0, (0,), 1.0))
    queue = StepQueue(actions, (QueuedWork(0, 10.0, 1.0, 0.0),))
    assert simulate(queue).mean_s == pytest.approx(4 + 1 + 10 + 1)
    assert simulate(remove_waits(queue, {1})).mean_s == pytest.approx(10.0)


def test_a_wait_for_a_work_of_the_step_before_waits_for_its_image() -> None:
    actions = step(HostAction(WAIT, (), 0.0, (0,), 0.0), launch(0, before=4.0))
    queue = StepQueue(actions, (QueuedWork(0, 10.0, 1.0, 0.0),))
    assert simulate(queue).mean_s == pytest.approx(4 + 1 + 10)


def test_works_as_one_graph_cost_the_host_one_launch() -> None:
    queue = one_stream([2.0] * 20, before=9.0)
    graph = replay_as_graphs(queue, [Replay(range(20), 12.0, 1.0, 5.0)])
    # One stretch of the host before the replay remains, and the device works meanwhile.
    assert compute_host_time_s(graph, HostModel()) == pytest.approx(9 + 12)
    assert simulate(graph).mean_s == pytest.approx(max(9 + 12, 20 * 2.0))


def test_a_work_on_another_stream_runs_beside_the_others() -> None:
    queue = one_stream([10.0] * 4, before=0.0, own=1.0)
    assert simulate(queue).mean_s == pytest.approx(40.0)
    assert simulate(move_to_another_stream(queue, {1})).mean_s == pytest.approx(30.0)


def test_a_stream_waits_for_the_work_of_another_one() -> None:
    works = (QueuedWork(0, 10.0, 0.0, 0.0), QueuedWork(1, 5.0, 0.0, 0.0, (0,)), QueuedWork(0, 1.0, 0.0, 0.0, (1,)))
    queue = StepQueue(step(launch(0), launch(1), launch(2)), works)
    assert simulate(queue).mean_s == pytest.approx(16.0)
    assert simulate(scale_durations(queue, {1: 0.2})).mean_s == pytest.approx(12.0)


def test_host_time_that_goes_is_won_where_the_host_sets_the_pace() -> None:
    asleep = HostAction(LAUNCH, (HostPiece(50.0, label="data loading"), HostPiece(9.0)), 1.0, (0,))
    queue = StepQueue(step(asleep), (QueuedWork(0, 20.0, 1.0, 0.0),))
    found = fit(queue, 60.0)
    assert compute_saving(found, remove_host_time(queue, {0: {0: 1.0}})).time_s == pytest.approx(40.0)


def test_the_profilers_cost_is_taken_from_short_ranges_and_not_from_a_sleep() -> None:
    asleep = HostAction(LAUNCH, (HostPiece(10e-3, 0, "sleep"),), 10e-6, (0,))
    busy = HostAction(LAUNCH, (HostPiece(2e-3, 200, "launching"),), 10e-6, (1,))
    queue = StepQueue(step(asleep, busy), (QueuedWork(0, 1e-4, 1e-5, 0.0),) * 2)
    found = fit(queue, 11.2e-3)
    saved = compute_saving(found, remove_host_time(queue, {0: {0: 1.0}}))
    assert saved.time_s == pytest.approx(10e-3, rel=0.05)
    assert saved.uncertainty_s > 0.3e-3, "a host that is faster everywhere would have slept for less"


def test_the_profilers_cost_of_a_replay_is_taken_from_its_launch_and_not_from_python() -> None:
    """As in a recorded step on an H200: 300 works in one launch, which takes 370 µs with the profiler."""
    works = tuple(QueuedWork(0, 0.1e-6, 1e-6, 0.0) for _ in range(300))
    replay = HostAction(LAUNCH, (HostPiece(500e-6, 1, "Python"),), 370e-6, tuple(range(300)), own_events=90)
    queue = StepQueue(step(replay), works)
    found = fit(queue, 560e-6)
    assert compute_saving(found, remove_host_time(queue, {0: {0: 1.0}})).time_s == pytest.approx(500e-6, rel=0.05)
    assert compute_saving(found, remove_tasks(queue, range(290))).time_s >= 0.0, "fewer works cost the host no more"


def test_a_replay_takes_what_it_is_said_to_take_without_the_profiler() -> None:
    queue = one_stream([1e-6] * 400, before=4e-6, own=4e-6)
    host = HostModel(event_cost_s=4e-6)
    graph = replay_as_graphs(queue, [Replay(range(400), 150e-6, 0.0, 150e-6)])
    assert compute_host_time_s(graph, host) == pytest.approx(154e-6, rel=0.05)


def test_the_launch_of_a_recorded_replay_has_a_range_for_some_of_its_works() -> None:
    launches = [action for action in profiled("decode")[0].queue.actions if len(action.work_indices) > 100]
    assert launches and all(
        action.own_events == pytest.approx(WORK_RANGES * len(action.work_indices)) for action in launches
    )


@pytest.mark.parametrize("wanted", [3.6, 10.0, 17.5, 34.0])
def test_a_value_is_found_where_the_function_is_flat_for_most_of_its_arguments(wanted: float) -> None:
    def time_of(cost: float) -> float:
        return 4.0 * max(0.88, 8.8 + cost)

    assert time_of(solve_increasing(time_of, wanted, -200.0, 0.0, 0.035)) == pytest.approx(wanted, abs=0.035)


def test_a_step_that_no_host_explains_leaves_a_residual_that_makes_savings_uncertain() -> None:
    queue = one_stream([10.0] * 20, before=3.0)
    found = fit(queue, 150.0)
    assert found.residual_s == pytest.approx(-50.0)
    saved = compute_saving_of_durations(found, {0: 0.0})
    assert saved.uncertainty_s >= saved.time_s * 50 / 150


def test_collectives_that_waited_for_a_slow_rank_are_shortened() -> None:
    queue = one_stream([10.0] * 19 + [110.0], before=3.0)
    found = fit(queue, 200.0, [19])
    assert found.queue.works[19].duration_s == pytest.approx(10.0, abs=1.0)
    assert found.residual_s == pytest.approx(0.0, abs=1.0)


def test_works_that_are_gone_take_their_launches_with_them() -> None:
    queue = one_stream([2.0] * 4, before=9.0)
    left = remove_tasks(queue, {1, 2})
    assert len(left.works) == 2
    assert simulate(left).mean_s == pytest.approx(4 * 9 + 2 * 1)


# Laws.


times = st.floats(0.0, 50.0)


@st.composite
def queues(draw: st.DrawFn, lanes: int = 1) -> StepQueue:
    count = draw(st.integers(1, 12))
    actions: list[HostAction] = []
    works = []
    for place in range(count):
        own = draw(times)
        actions.append(launch(place, before=draw(times), own=own))
        works.append(QueuedWork(draw(st.integers(0, lanes - 1)), draw(times), draw(times), draw(st.floats(0.0, 3.0))))
        if draw(st.booleans()) and draw(st.booleans()):
            actions.append(HostAction(WAIT, (), draw(times), (draw(st.integers(0, place)),), draw(times)))
        if draw(st.integers(0, 5)) == 0:
            actions.append(HostAction(BOUNDARY, ()))
    return StepQueue(step(*actions), tuple(works))


@given(queues(), st.data())
def test_shorter_works_never_make_the_steps_of_one_stream_longer(queue: StepQueue, data: st.DataObject) -> None:
    place, factor = data.draw(st.integers(0, len(queue.works) - 1)), data.draw(st.floats(0.0, 1.0))
    before, after = simulate(queue), simulate(scale_durations(queue, {place: factor}))
    assert math.fsum(after.steps_s) <= math.fsum(before.steps_s) * (1 + 1e-3) + 1e-9


@given(queues(), st.data())
def test_a_change_never_saves_more_than_the_works_that_it_shortens(queue: StepQueue, data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, len(queue.works) - 1)))
    removed_s = math.fsum(queue.works[place].duration_s for place in places)
    before, after = simulate(queue), simulate(scale_durations(queue, dict.fromkeys(places, 0.0)))
    whole_s = math.fsum(before.steps_s)
    assert whole_s - math.fsum(after.steps_s) <= removed_s + 1e-3 * whole_s + 1e-9


@given(queues(lanes=3))
def test_no_step_is_shorter_than_its_host_or_its_longest_stream(queue: StepQueue) -> None:
    whole_s = math.fsum(simulate(queue).steps_s)
    own_s = compute_host_time_s(queue, HostModel()) * queue.steps
    streams = [math.fsum(work.duration_s for work in queue.works if work.lane == lane) for lane in range(3)]
    assert whole_s >= max(own_s, *streams) * (1 - 1e-3) - 1e-9
    assert math.fsum(simulate(queue, AT_ONCE).steps_s) <= whole_s * (1 + 1e-3) + 1e-9


# Queues of built traces.


def built_queue(built: ProgramTraceBuilder, folder: Path) -> ProfiledQueue:
    program = read_program_trace(built.write(folder / "trace.json"), MARKERS)
    found = find_works(program, MARKERS, {}, on_host=False)
    assert found is not None
    return build_profiled_queue(program, found, MARKERS)


def test_a_trace_without_launches_has_a_queue_without_works(tmp_path: Path) -> None:
    built = ProgramTraceBuilder()
    for number in range(4):
        built.boundary(number, 100.0 * number)
        built.op("aten::add", 100.0 * number + 10, 30)
    queue = built_queue(built, tmp_path)
    assert not queue.works
    assert simulate(queue.queue).mean_s == pytest.approx(100e-6)


def test_a_copy_of_pageable_memory_holds_the_host_and_one_of_pinned_memory_does_not(tmp_path: Path) -> None:
    for memory, waits in (("Pageable", True), ("Pinned", False)):
        built = ProgramTraceBuilder()
        for number in range(3):
            built.boundary(number, 100.0 * number)
            correlation = built.runtime("cudaMemcpyAsync", 100.0 * number + 10, 50)
            name = f"Memcpy HtoD ({memory} -> Device)"
            built.device(name, 100.0 * number + 15, 43, correlation, category="gpu_memcpy")
        queue = built_queue(built, tmp_path)
        assert any(action.kind == WAIT and action.work_indices for action in queue.queue.actions) is waits


def test_a_copy_that_returns_when_it_is_done_holds_the_host(tmp_path: Path) -> None:
    for call, waits in (("cudaMemcpy", True), ("cudaMemcpyAsync", False)):
        built = ProgramTraceBuilder()
        for number in range(3):
            built.boundary(number, 100.0 * number)
            correlation = built.runtime(call, 100.0 * number + 10, 50)
            built.device("Memcpy DtoH (Device -> Pinned)", 100.0 * number + 15, 43, correlation, category="gpu_memcpy")
        queue = built_queue(built, tmp_path)
        assert any(action.kind == WAIT and action.work_indices for action in queue.queue.actions) is waits


@pytest.mark.parametrize(
    ("call", "begin", "waits"),
    [
        ("cudaFree", 20, True),
        ("cudaFreeHost", 20, True),
        ("cudaHostUnregister", 20, True),
        ("cudaFreeAsync", 20, False),
        ("cudaMalloc", 20, False),
        ("cudaHostAlloc", 20, False),
        ("cudaFree", 70, False),  # the device has nothing to do: the time is its own
    ],
)
def test_memory_is_given_back_when_the_device_is_done(tmp_path: Path, call: str, begin: int, waits: bool) -> None:
    built = ProgramTraceBuilder()
    for number in range(4):
        built.boundary(number, 100.0 * number)
        built.launch("kernel", 100.0 * number + 10, 100.0 * number + 15, 53)
        built.runtime(call, 100.0 * number + begin, 49 if begin < 70 else 20)
    queue = built_queue(built, tmp_path).queue
    found = [action for action in queue.actions if action.kind == WAIT]
    assert [action.label for action in found] == ([ALLOCATING] * queue.steps if waits else [])
    half = simulate(scale_durations(queue, dict.fromkeys(range(len(queue.works)), 0.5))).mean_s
    assert half == pytest.approx((75 if waits else 100) * 1e-6, abs=2e-6), "a faster kernel ends the wait earlier"


def test_the_range_of_a_generated_kernel_costs_as_much_as_many_others(tmp_path: Path) -> None:
    counts = []
    for name in ("aten::add", "triton_poi_fused_add_0"):
        built = ProgramTraceBuilder()
        for number in range(3):
            built.boundary(number, 100.0 * number)
            op = built.op(name, 100.0 * number + 10, 20)
            built.launch("kernel", 100.0 * number + 15, 100.0 * number + 20, 30, external=op)
        queue = built_queue(built, tmp_path).queue
        counts.append(sum(queue.times[0].events) / queue.steps)
    assert counts[1] - counts[0] == KERNEL_RANGES - 1


def queue_of_calls(folder: Path, *, waits: bool = False) -> ProfiledQueue:
    """Three steps of 200 µs: 60 µs of Python, and then a graph call of 120 µs, which launches ten kernels of 1 µs."""
    built = ProgramTraceBuilder()
    for number in range(4):
        begin = 200.0 * number
        built.boundary(number, begin)
        built.graph(0, begin + 60, 120)
        for place in range(10 if number < 3 else 0):
            called = begin + 70 + 10 * place
            built.op("aten::add", called - 5, 10)
            built.launch("kernel", called, called + 4, 1)
        if waits:
            built.runtime("cudaDeviceSynchronize", begin + 170, 8)
    return built_queue(built, folder)


def test_what_the_host_does_in_a_graph_call_is_told_apart_from_what_it_does_around_it(tmp_path: Path) -> None:
    found = queue_of_calls(tmp_path)
    queue = found.queue
    pieces = [piece for action in queue.actions for piece in action.pieces]
    within_s = math.fsum(piece.time_s for piece in pieces if piece.call >= 0)
    launching_s = math.fsum(action.own_s for action in queue.actions if action.call >= 0)
    assert (within_s + launching_s) / queue.steps == pytest.approx(120e-6)
    assert {piece.call for piece in pieces} == {-1, *found.calls}


@pytest.mark.parametrize(("unprofiled_s", "step_s"), [(40e-6, 100e-6), (100e-6, 150e-6), (160e-6, 235e-6)])
def test_a_graph_call_takes_what_it_takes_without_the_profiler(
    tmp_path: Path, unprofiled_s: float, step_s: float
) -> None:
    found = queue_of_calls(tmp_path)
    fitted = fit(found.queue, step_s, (), None, [TimedCalls(found.calls.keys(), unprofiled_s)])
    assert fitted.unchanged[0].mean_s == pytest.approx(step_s, rel=0.01)
    assert called_s(fitted.queue, fitted.hosts[0]) == pytest.approx(unprofiled_s, rel=0.01)
    without = fit(found.queue, step_s)
    assert called_s(without.queue, without.hosts[0]) != pytest.approx(unprofiled_s, rel=0.05)


def called_s(queue: StepQueue, host: HostModel) -> float:
    """What the host takes in the graph calls of a step."""
    pieces = [piece for action in queue.actions for piece in action.pieces if piece.call >= 0]
    launches = [action for action in queue.actions if action.call >= 0]
    times = [*(piece.times for piece in pieces), *(action.own for action in launches)]
    return math.fsum(map(host.time_of, times)) / queue.steps


def test_a_graph_call_that_waits_for_the_device_is_not_taken_for_the_hosts_time(tmp_path: Path) -> None:
    found = queue_of_calls(tmp_path, waits=True)
    told = fit(found.queue, 150e-6, (), None, [TimedCalls(found.calls.keys(), 20e-6)])
    assert told == fit(found.queue, 150e-6)


def test_the_time_of_a_graph_call_does_not_count_if_the_device_explains_the_step() -> None:
    actions = [HostAction(LAUNCH, (HostPiece(5e-6, 1, call=0),), 1e-6, (place,), call=0) for place in range(10)]
    queue = StepQueue(step(*actions), tuple(QueuedWork(0, 20e-6, 1e-6, 0.0) for _ in range(10)))
    assert fit(queue, 200e-6, (), None, [TimedCalls({0}, 190e-6)]) == fit(queue, 200e-6)
