"""A compiled module that is run again gets its inputs as they were at its first call."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import breakdown_runs as runs
import pytest
import torch

from inductor_bench.records.code import Details
from inductor_bench.trace.iterations import split_iterations
from inductor_bench.trace.rows import read_trace
from inductor_bench.worker.profile import module_run
from inductor_bench.worker.profile.module_profile import measure_graph_replay, measure_run
from inductor_bench.worker.profile.module_run import FirstCall, ModuleRun, differs, run_of_harness
from inductor_bench.worker.upstream.inductor import PROFILE_PASSES, make_harness_inputs

ROWS = 16


def fill(inputs: list[Any]) -> int:
    """Writes a row of a table at the place that a counter says, as a static cache does; it empties its inputs."""
    table, place, values = inputs
    inputs.clear()
    number = int(place)
    assert number < ROWS, "the counter ran off the end of the table"
    table[number] = values
    place += 1
    return number


def inputs_at(place: int) -> list[Any]:
    return [torch.zeros(ROWS, 4), torch.tensor([place]), torch.ones(4)]


def test_a_harness_tells_the_inputs_that_a_module_changes() -> None:
    run = run_of_harness(fill, inputs_at(3))
    assert run.changed == (0, 1) and run.kept_bytes == ROWS * 4 * 4 + 8
    assert [run(), run()] == [3, 4]
    run.restore()
    assert run() == 3


def test_a_module_that_changes_nothing_keeps_nothing() -> None:
    run = run_of_harness(lambda inputs: inputs[0] + 1, [torch.tensor([float("nan"), 1.0]), 7])
    assert (run.changed, run.kept_bytes) == ((), 0)


def test_without_memory_for_copies_the_module_runs_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(module_run, "clone_input", refuse)
    run = run_of_harness(fill, inputs_at(0))
    assert (run(), run()) == (0, 1)


def test_inputs_are_made_in_advance_for_the_runs_of_a_profile() -> None:
    run = run_of_harness(fill, inputs_at(ROWS - 1))
    run.rotate(5)
    assert [run() for _ in range(5)] == [ROWS - 1] * 5
    run.stop_rotating()
    assert run() == ROWS - 1


def test_large_inputs_are_not_made_in_advance_and_counters_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_run, "ROTATED_BYTES", 64)
    run = run_of_harness(fill, inputs_at(2))
    run.rotate(4)
    assert [run() for _ in range(4)] == [2] * 4


def test_a_measurement_runs_a_counter_from_its_first_value_each_time(tmp_path: Path) -> None:
    seen: list[int] = []
    run = run_of_harness(lambda inputs: seen.append(fill(inputs)) or seen, inputs_at(ROWS - 1))
    found = measure_run(run, label="x", device="cpu", repeat=3, trace=tmp_path / "trace.json", text=tmp_path / "p.txt")
    assert set(seen) == {ROWS - 1} and len(seen) > len(found.wall_samples_s) + PROFILE_PASSES * 3


def test_a_program_that_waits_gets_the_trace_without_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of_harness(fill, inputs_at(2))
    found = measure_run(run, label="live", device="cpu", repeat=3, trace=tmp_path / "trace.json", text=None)
    trace = read_trace(tmp_path / "trace.json")
    assert len(split_iterations(trace, expected=found.iterations)) == found.iterations == 3
    assert found.profile_load is not None and found.profile_load.runs == 3
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"] and not capsys.readouterr().out


def test_a_replay_begins_where_the_first_call_began() -> None:
    seen: list[int] = []

    class Runtime:
        """A device that captures a module by keeping its function."""

        def capture_graph(self, run: Any) -> Any:
            return run

        def synchronize(self) -> None: ...

    run = run_of_harness(lambda inputs: seen.append(fill(inputs)), inputs_at(1))
    details = measure_graph_replay(run, Runtime(), Details())  # type: ignore[arg-type]
    assert set(seen) == {1} and details.graph_error is None


def test_the_first_call_of_a_program_tells_what_it_changed() -> None:
    inputs = inputs_at(5)
    first = FirstCall(inputs)
    fill(list(inputs))
    assert list(first.changed()) == [0, 1]
    run = ModuleRun(fill, first.copies, first.changed())
    assert (run(), run()) == (5, 6)
    run.restore()
    assert run() == 5 and int(inputs[1]) == 6, "the program's own counter is left alone"


def test_small_inputs_that_the_program_freed_are_restored_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_run, "SMALL_BYTES", 32)
    inputs = inputs_at(5)
    first = FirstCall([*inputs, 3])
    fill(inputs)
    del inputs[:]
    assert list(first.changed()) == [1, 2]


@pytest.mark.parametrize(
    ("value", "other", "differ"),
    [
        (torch.tensor([float("nan")]), torch.tensor([float("nan")]), False),
        (torch.tensor([0.0]), torch.tensor([-0.0]), True),
        (torch.tensor([True]), torch.tensor([False]), True),
        (torch.tensor([1j, float("nan") * 1j]), torch.tensor([1j, 2j]), True),
        (torch.ones(4, 3).t(), torch.ones(4, 3).t().clone(), False),
        (torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16), True),
        (torch.ones(3).to_sparse(), torch.ones(3).to_sparse(), False),
        (3, 4, False),
    ],
)
def test_tensors_are_compared_bit_by_bit(value: Any, other: Any, differ: bool) -> None:
    assert differs(value, other) is differ


@pytest.mark.parametrize("makes_inputs_inside", [False, True])
def test_the_inputs_of_a_harness_are_taken_from_every_torch(makes_inputs_inside: bool) -> None:
    module = ModuleType("compiled")
    text = "from torch._inductor import utils\n\n\ndef call(args):\n    raise AssertionError\n\n\n" + (
        "def benchmark_compiled_module(times=10, repeat=10):\n    a, b = 3, 4\n    fn = lambda: call([a, b])\n"
        "    return utils.print_performance(fn, times=times, repeat=repeat)\n"
        if makes_inputs_inside
        else "def get_args():\n    return [3, 4]\n\n\ndef benchmark_compiled_module(args, times=10, repeat=10):\n"
        "    fn = lambda: call(list(args))\n    return utils.print_performance(fn, times=times, repeat=repeat)\n"
    )
    exec(text, vars(module))
    call = module.call
    assert make_harness_inputs(module) == [3, 4] and module.call is call


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--live"]])
def test_a_module_that_advances_a_counter_is_profiled(options: list[str], tmp_path: Path) -> None:
    done = runs.breakdown(tmp_path / "run", runs.PROGRAMS / "counter.py", *options)
    (module,) = done.record["modules"]
    assert done.code == 0 and done.record["failures"] == [], done.printed
    assert module["method"] == ("live" if options else "-p") and len(module["kernels"]) >= 3


@pytest.mark.slow
def test_a_module_that_cannot_run_by_itself_is_a_note_below_the_answer(tmp_path: Path) -> None:
    done = runs.breakdown(tmp_path / "run", runs.PROGRAMS / "counter.py", "--", "mirror")
    (failure,) = done.record["failures"]
    assert (done.code, failure["stage"]) == (0, "profile")
    ends = ("index out of bounds", "the worker was killed by SIG")  # a kernel of C++ may read there, and crash
    assert any(end in failure["message"] for end in ends), failure["message"]
    assert "Failed" not in done.stdout and " a step (marked by the program; " in done.stdout
    assert done.stdout.index("Where the step goes") < done.stdout.index("Not run by itself")
    assert "breakdown" in done.stdout.partition("Next")[2] and "--live" in done.stdout.partition("Next")[2]
