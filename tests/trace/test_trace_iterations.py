"""Splitting traces into runs, outermost operators, own times, and pairing calls."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from program_traces import MARKERS, ProgramTraceBuilder

from inductor_bench.records.traced import DeviceEvent, HostOp, Iteration, Trace
from inductor_bench.trace.attribution import align_calls
from inductor_bench.trace.iterations import find_top_operators, list_children, split_iterations
from inductor_bench.trace.program_trace import measure_work, read_program_trace
from inductor_bench.trace.rows import read_trace

DATA = Path(__file__).parent.parent / "data"
H200 = DATA / "h200_torch2.11"
CPU = DATA / "cpu_torch2.13/compiled_module_profile.json.gz"
TAIL = [f"aten::{name}" for name in ("empty", "to", "lift_fresh", "detach_", "median", "div", "item", "item")]


def make_trace(
    parts: Sequence[Sequence[str]], *, gpu: bool = False, pause: float = 5e-6, truncated: bool = False
) -> Trace:
    """Calls of 1 us, 1 us apart; a pause (on a GPU a synchronisation) after each part. GPU calls launch one kernel."""
    ops, events, synchronizations, now = [], [], [], 0.0
    for part in parts:
        for name in part:
            if gpu and name not in TAIL:
                events.append(DeviceEvent(name, "kernel", now + 1.5e-6, 1e-6, 0, 7, len(ops), len(ops), now + 0.5e-6))
            ops.append(HostOp(name, now, 1e-6, "1/1", len(ops), -1))
            now += 2e-6
        if gpu:
            synchronizations.append(now)
        now += pause
    return Trace(tuple(ops), tuple(events), tuple(synchronizations), (), truncated)


@pytest.mark.parametrize("runs", [0, -1])
def test_a_damaged_number_of_runs_is_no_error(runs: int) -> None:
    assert split_iterations(make_trace([["aten::add", "aten::mul"]] * 4), runs)


def names(trace: Trace, iterations: Sequence[Iteration]) -> list[list[str]]:
    return [[trace.host_ops[index].name for index in run.top_ops] for run in iterations]


@pytest.mark.parametrize(
    ("path", "runs", "calls", "launches"),
    [
        (H200 / "mixnet_l_train/forward.trace.json.gz", 3, 786, 795),
        (H200 / "tem/trace_0.json.gz", 2, 3, 3),
        (H200 / "flex/trace_0.json.gz", 2, 3, 3),
        (H200 / "scan_combo/trace_0.json.gz", 2, 3, 3),
        (CPU, 5, 5, 0),
    ],
)
@pytest.mark.parametrize("hinted", [False, True])
def test_recorded_traces(path: Path, runs: int, calls: int, launches: int, hinted: bool) -> None:
    trace = read_trace(path)
    found = split_iterations(trace, runs if hinted else None)
    assert [(len(run.top_ops), len(run.device_events)) for run in found] == [(calls, launches)] * runs
    assert len({tuple(trace.host_ops[index].name for index in run.top_ops) for run in found}) == 1
    assert all(before.end_s <= after.start_s for before, after in itertools.pairwise(found))
    tops = find_top_operators(trace)
    for run in found:
        inside = set(run.top_ops)
        launched = [
            i for i, event in enumerate(trace.device_events) if event.host_op >= 0 and tops[event.host_op] in inside
        ]
        assert launched == list(run.device_events)


UNIT = ["cpp_fused_a_0", "aten::mm", "cpp_fused_a_0", "cpp_fused_b_1", "aten::mm", "cpp_fused_a_0"]


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("expected", [None, 4])
def test_first_call_occurs_again_within_a_run(gpu: bool, expected: int | None) -> None:
    trace = make_trace([UNIT] * 4 + [TAIL], gpu=gpu)
    assert names(trace, split_iterations(trace, expected)) == [UNIT] * 4


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("expected", [None, 3])
def test_making_inputs_is_no_part_of_a_run(gpu: bool, expected: int | None) -> None:
    setup = ["aten::randn", "aten::as_strided", "aten::zeros", "aten::as_strided", "aten::mm"]
    trace = make_trace([setup, UNIT, UNIT, UNIT, TAIL], gpu=gpu)
    assert names(trace, split_iterations(trace, expected)) == [UNIT] * 3
    joined = make_trace([[*setup, *UNIT], UNIT, UNIT, TAIL], gpu=gpu)
    assert names(joined, split_iterations(joined, expected)) == [UNIT] * 3


def test_modules_of_library_calls_only() -> None:
    unit = ["aten::mm", "aten::add", "aten::mm"]
    inputs = ["aten::randn", "aten::as_strided"] * 20
    trace = make_trace([inputs, *[unit] * 5, TAIL])
    assert names(trace, split_iterations(trace)) == [unit] * 5
    assert names(trace, split_iterations(trace, 5)) == [unit] * 5


def test_setup_that_resembles_the_end_of_a_run_is_told_apart_by_the_pause() -> None:
    unit = ["aten::empty", "cpp_fused_a_0", "aten::copy_"]
    trace = make_trace([["aten::mm", "aten::copy_"], *[unit] * 4])
    assert names(trace, split_iterations(trace)) == [unit] * 4


@pytest.mark.parametrize("gpu", [False, True])
def test_one_run_with_repeated_layers_is_one_run(gpu: bool) -> None:
    layer = ["aten::mm", "triton_poi_fused_gelu_1", "aten::mm", "triton_red_fused_norm_2"]
    run = ["triton_poi_fused_embedding_0", *layer * 12, "triton_poi_fused_loss_9"]
    trace = make_trace([run, TAIL], gpu=gpu)
    assert names(trace, split_iterations(trace)) == [run]
    assert names(trace, split_iterations(trace, 1)) == [run]
    repeated = make_trace([run, run, TAIL], gpu=gpu)
    assert names(repeated, split_iterations(repeated)) == [run, run]


def test_synchronisations_decide_if_names_cannot() -> None:
    trace = make_trace([[], ["triton_poi_a_0"] * 3, [], *[["triton_poi_a_0"] * 3] * 3, TAIL], gpu=True)
    assert [len(run) for run in names(trace, split_iterations(trace))] == [3, 3, 3, 3]


def test_the_hint_decides_if_nothing_else_can() -> None:
    trace = make_trace([["cpp_fused_a_0"] * 12 + TAIL], pause=0)
    assert [len(split_iterations(trace, expected)) for expected in (None, 2, 3, 4, 12)] == [12, 2, 3, 4, 12]


def test_a_synchronisation_within_the_run() -> None:
    trace = make_trace([["triton_a_0", "triton_b_1"], ["triton_c_2"]] * 5, gpu=True)
    assert [len(run) for run in names(trace, split_iterations(trace))] == [3] * 5


def test_runs_without_synchronisation_between_need_the_hint() -> None:
    unit = ["triton_a_0", "aten::mm"]
    trace = make_trace([unit * 6, TAIL], gpu=True)
    assert len(split_iterations(trace)) == 1
    assert names(trace, split_iterations(trace, 6)) == [unit] * 6


@pytest.mark.parametrize("gpu", [False, True])
def test_runs_that_differ_need_the_hint_and_get_it(gpu: bool) -> None:
    odd = [*UNIT[:4], "aten::clone", *UNIT[4:]]
    trace = make_trace([UNIT, odd, UNIT, TAIL], gpu=gpu)
    assert names(trace, split_iterations(trace, 3)) == [UNIT, odd, UNIT]


def test_a_wrong_hint_is_no_worse_than_none() -> None:
    trace = make_trace([UNIT] * 3)
    assert names(trace, split_iterations(trace, 100)) == [UNIT] * 3


@pytest.mark.parametrize("gpu", [False, True])
def test_a_cut_trace_loses_its_last_run_only(gpu: bool) -> None:
    trace = make_trace([UNIT, UNIT, UNIT[:4]], gpu=gpu, truncated=True)
    assert names(trace, split_iterations(trace)) == [UNIT, UNIT]


def test_nothing_periodic_is_one_run_without_inputs_and_summary() -> None:
    trace = make_trace([["aten::randn", "aten::as_strided", "aten::mm", "cpp_fused_a_0", "aten::addmm"], TAIL])
    assert names(trace, split_iterations(trace)) == [["aten::mm", "cpp_fused_a_0", "aten::addmm"]]


def test_device_activity_without_operators() -> None:
    events = [
        DeviceEvent(name, "kernel", run * 1e-4 + at * 1e-6, 1e-6, 0, 7, run, -1, run * 1e-4 - 1e-6)
        for run in range(1, 4)
        for at, name in enumerate("abc")
    ]
    trace = Trace((), tuple(events), tuple(run * 1e-4 + 50e-6 for run in range(4)), ())
    assert [run.device_events for run in split_iterations(trace)] == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]


def test_an_empty_trace_has_no_runs() -> None:
    assert split_iterations(Trace((), (), (), ())) == ()


def test_random_modules_are_split_right() -> None:
    source = random.Random(11)
    for _ in range(200):
        body = [source.choice(["aten::mm", "cpp_fused_x_1", "cpp_fused_y_2"]) for _ in range(source.randint(1, 30))]
        unit = ["cpp_fused_first_0", *body]
        count = source.randint(2, 7)
        setup = ["aten::randn", "aten::as_strided"] * source.randint(0, 3)
        trace = make_trace([setup, *[unit] * count, TAIL], gpu=source.random() < 0.5)
        assert names(trace, split_iterations(trace)) == [unit] * count
        assert names(trace, split_iterations(trace, count)) == [unit] * count


def nested_trace() -> Trace:
    def host(name: str, start: int, duration: int, parent: int) -> HostOp:
        return HostOp(name, start * 1e-6, duration * 1e-6, "1/1", start, parent)

    ops = (
        host("## Call CompiledFxGraph fabc ##", 0, 100, -1),
        host("aten::convolution", 1, 50, 0),
        host("aten::_convolution", 2, 40, 1),
        host("aten::cudnn_convolution", 3, 30, 2),
        host("triton_poi_fused_0", 60, 10, 0),
        host("aten::mm", 200, 5, -1),
    )
    events = tuple(
        DeviceEvent("k", "kernel", 1e-3 + number * 1e-6, 1e-6, 0, 7, number, op)
        for number, op in enumerate((3, 3, 4, 5, -1))
    )
    return Trace(ops, events, (), ())


def test_outermost_operators() -> None:
    trace = nested_trace()
    assert find_top_operators(trace) == (-1, 1, 1, 1, 4, 5)
    assert list_children(trace)[0] == (1, 4)


def longest_common(left: Sequence[str], right: Sequence[str]) -> int:
    row = [0] * (len(right) + 1)
    for one in left:
        row = _next_row(row, one, right)
    return row[-1]


def _next_row(row: list[int], one: str, right: Sequence[str]) -> list[int]:
    following = [0]
    for index, other in enumerate(right):
        following.append(row[index] + 1 if one == other else max(following[-1], row[index + 1]))
    return following


def test_pairing_is_exact_if_the_sequences_agree() -> None:
    assert align_calls(["a", "b", "a"], ["a", "b", "a"]) == [0, 1, 2]
    assert align_calls([], []) == []


def test_pairing_skips_extra_and_missing_calls() -> None:
    expected = ["aten::convolution", "cpp_fused_1", "aten::addmm", "cpp_fused_2"]
    seen = ["aten::empty", "aten::convolution", "aten::as_strided", "cpp_fused_1", "cpp_fused_2", "aten::empty"]
    assert align_calls(expected, seen) == [None, 0, None, 1, 3, None]


def test_pairing_is_a_longest_common_subsequence() -> None:
    source = random.Random(5)
    for _ in range(300):
        left = [source.choice("abcd") for _ in range(source.randint(0, 14))]
        right = [source.choice("abcde") for _ in range(source.randint(0, 14))]
        pairs = align_calls(left, right)
        kept = [index for index in pairs if index is not None]
        assert kept == sorted(set(kept))
        assert all(index is None or left[index] == name for index, name in zip(pairs, right, strict=True))
        assert len(kept) == longest_common(left, right)


def test_pairing_of_quite_different_long_sequences_ends() -> None:
    source = random.Random(6)
    left = [str(source.randint(0, 90)) for _ in range(2500)]
    right = [str(source.randint(0, 90)) for _ in range(2500)]
    pairs = align_calls(left, right)
    kept = [index for index in pairs if index is not None]
    assert kept == sorted(set(kept))
    assert all(index is None or left[index] == name for index, name in zip(pairs, right, strict=True))


# The device's work in the profiled steps of a program.


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
