"""A comparison of modes from its request to its folder: the order of processes, failures, and going on after a stop.

The program itself is a fake here; ``test_modes_real.py`` runs real ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import mode_rows
import pytest

from inductor_bench.errors import InductorBenchError, StoppedInFolder, UsageError
from inductor_bench.records.base import Failure
from inductor_bench.records.comparison import MODES, NOT_TIMED, ModeProcess, ModeSet
from inductor_bench.records.request import BreakdownRequest, ModesRequest
from inductor_bench.records.run import PATTERN
from inductor_bench.store.folder import ModesFolder
from inductor_bench.store.redaction import Redaction
from inductor_bench.workflows import modes
from inductor_bench.workflows.modes import LATER, ModeTurns, run_modes
from inductor_bench.workflows.modules.module_measurements import Survey
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.single_run import UNCOMPILED, ProcessTurn, ProgramRunner, read_set, read_sets

STEPS = {"eager": 0.1, "default": 0.05, "max-autotune": 0.04}
Answer = Callable[[ProcessTurn], ModeProcess | Failure]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[str, int]]:
    """The processes that ran, in order. The program's file and the folder lie in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("print(1)\n")
    monkeypatch.setattr(modes, "take_survey", lambda *_, **__: Survey(mode_rows.ENVIRONMENT))
    return []


def answer_with(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]], answer: Answer | None = None) -> None:
    def run(self: ProgramRunner, place: ProcessTurn, rounds: int, other: ModeProcess | None) -> ModeProcess | Failure:
        ran.append((place.name, place.round))
        if answer is not None:
            return answer(place)
        return mode_rows.process(place.round, STEPS[place.settings.mode], compile_time_s=10.0)

    monkeypatch.setattr(ProgramRunner, "run", run)


def compare(rounds: int = 2, target: str = "train.py", **options: object) -> modes.ModesOutcome:
    program = BreakdownRequest(target, **options)  # type: ignore[arg-type]
    request = ModesRequest(("eager", "default", "max-autotune"), rounds=rounds, program=program)
    return run_modes(request, Silent())


def test_rows_take_turns_and_each_is_as_often_early_as_late() -> None:
    rows = [ModeSet("eager"), ModeSet("default"), ModeSet("max-autotune")]
    names = [place.name for place in ModeTurns(rows, 3, lambda: True).turns()]
    there = ["default", "eager", "max-autotune"]
    assert names == [*there, *reversed(there), *there]


def test_eager_waits_for_the_first_row_that_is_measured() -> None:
    rows = [ModeSet("eager"), ModeSet("default"), ModeSet("max-autotune"), ModeSet("reduce-overhead")]
    known = iter([False, True, True])
    there = ["default", "max-autotune", "eager", "reduce-overhead"]
    assert [place.name for place in ModeTurns(rows, 2, lambda: next(known)).turns()] == [*there, *reversed(there)]
    never = [place.name for place in ModeTurns(rows, 1, lambda: False).turns()]
    assert never == ["default", "max-autotune", "reduce-overhead", "eager"]


def test_a_comparison_is_measured_saved_and_concluded(
    monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]
) -> None:
    answer_with(monkeypatch, ran)
    outcome = compare()
    assert len(ran) == 6 and outcome.measured and outcome.comparison.is_complete
    assert outcome.comparison.winner is not None and outcome.comparison.winner.name == "max-autotune"
    folder = ModesFolder(outcome.folder)
    assert folder.load() == outcome.comparison and not folder.work.exists()
    assert outcome.folder == Path("modes/train")


def test_the_same_command_runs_nothing_again_and_others_are_refused(
    monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]
) -> None:
    answer_with(monkeypatch, ran)
    first = compare()
    ran.clear()
    again = compare()
    assert (ran, again.measured, again.comparison) == ([], False, first.comparison)
    assert compare(rounds=3).measured and [round for _, round in ran] == [2, 2, 2], "more rounds go on"
    with pytest.raises(UsageError, match="other options"):
        compare(steps=7)
    Path("train.py").write_text("print(2)\n")
    with pytest.raises(UsageError, match="earlier version"):
        compare()
    ran.clear()
    assert compare(force=True).measured and len(ran) == 6


def test_an_interpreter_that_is_no_python_is_named(ran: list[tuple[str, int]]) -> None:
    eager, *compiled = compare(rounds=1, python="true").comparison.rows
    assert eager.failure is not None and eager.failure.kind == NOT_TIMED
    assert {row.failure.message for row in compiled if row.failure} == {
        "true did not load this tool's hook, so the program was not observed"
    }


def test_an_interrupted_comparison_goes_on(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]) -> None:
    def interrupted(place: ProcessTurn) -> ModeProcess:
        if len(ran) == 3:
            raise KeyboardInterrupt
        return mode_rows.process(place.round, 0.1)

    answer_with(monkeypatch, ran, interrupted)
    with pytest.raises(StoppedInFolder, match="the same command continues") as stop:
        compare()
    kept = ModesFolder(Path("modes/train")).load()
    assert [len(row.processes) for row in kept.rows] == [1, 1, 0]
    assert stop.value.found.comparison == kept and stop.value.found.folder == Path("modes/train")
    assert ModesFolder(Path("modes/train")).work.is_dir(), "caches stay, so that compiled code is the same"
    answer_with(monkeypatch, ran)
    whole = compare().comparison
    turn_back = [("max-autotune", 1), ("eager", 1), ("default", 1)]
    assert whole.is_complete and ran[3:] == [("max-autotune", 0), *turn_back]
    later = [(row.name, one.round) for row in whole.rows for one in row.processes if LATER in one.notes]
    assert later == [("max-autotune", 0)], "the others of that round ran before the interruption"


def test_a_row_that_fails_keeps_its_reason_and_the_other_rounds_go_on_without_it(
    monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]
) -> None:
    def failing(place: ProcessTurn) -> ModeProcess | Failure:
        if place.name == "max-autotune":
            return Failure("mode", "timeout", "the program was stopped by the time limit after 9 s")
        return mode_rows.process(place.round, STEPS[place.name], compile_time_s=10.0)

    answer_with(monkeypatch, ran, failing)
    comparison = compare().comparison
    assert ran.count(("max-autotune", 0)) == 1 and ("max-autotune", 1) not in ran
    assert comparison.is_complete and comparison.winner is not None and comparison.winner.name == "default"
    failure = mode_rows.found(comparison, "max-autotune").failure
    assert failure is not None and failure.kind == "timeout"


def test_a_program_that_never_compiles_is_run_once(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]) -> None:
    answer_with(monkeypatch, ran, lambda place: Failure("mode", UNCOMPILED, "the program never calls torch.compile"))
    failures = [row.failure for row in compare().comparison.rows]
    assert len(ran) <= 2 and all(failure is not None and failure.kind == UNCOMPILED for failure in failures[1:])


@pytest.mark.parametrize(
    ("other", "said"),
    [(None, "no compiled row was measured"), (replace(mode_rows.process(0, 0.1), source=PATTERN), "step()")],
)
def test_eager_is_not_run_if_its_end_would_not_be_known(tmp_path: Path, other: ModeProcess | None, said: str) -> None:
    folder, request = ModesFolder(tmp_path), BreakdownRequest("train.py", "script")
    runner = ProgramRunner(request, folder, {}, "python", Redaction(), Silent(), profiles=False)
    found = runner.run(ProcessTurn(0, "eager", ModeSet("eager"), 0), 4, other)
    assert isinstance(found, Failure) and found.kind == NOT_TIMED and said in found.message


def test_the_same_command_tries_a_row_that_failed_again(
    monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]
) -> None:
    failed = {"default": Failure("mode", "memory", "no memory"), "eager": Failure("mode", NOT_TIMED, "no marks")}
    answer_with(monkeypatch, ran, lambda place: failed.get(place.name) or mode_rows.process(place.round, 0.1))
    assert not compare().comparison.rows[1].processes
    del failed["default"]
    ran.clear()
    assert compare(timeout_s=20.0).comparison.is_complete
    assert ran == [("default", 0), ("eager", 0), ("default", 1)]
    ran.clear()
    assert not compare().measured and ran == [], "a row that cannot be timed is no failure"


def test_eager_gets_the_first_process_that_compiled(
    monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]
) -> None:
    others: list[ModeProcess | None] = []

    def run(self: ProgramRunner, place: ProcessTurn, rounds: int, other: ModeProcess | None) -> ModeProcess | Failure:
        others.append(other)
        if place.name == "default":
            return Failure("mode", "exit", "no")
        return mode_rows.process(place.round, STEPS[place.name])

    monkeypatch.setattr(ProgramRunner, "run", run)
    tuned = mode_rows.found(compare(rounds=1).comparison, "max-autotune").processes[0]
    assert others == [None, None, tuned]


def test_secrets_stay_out_of_the_folder(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]) -> None:
    answer_with(monkeypatch, ran)
    variables = (("API_KEY", "wonderland-17"),)
    program = BreakdownRequest("train.py", arguments=("--token", "swordfish-42"))
    for _ in range(2):
        run_modes(ModesRequest(("default",), variables=variables, rounds=1, program=program), Silent())
    text = Path("modes/train/modes.json").read_text()
    assert "wonderland" not in text and "swordfish" not in text and "API_KEY=***" in text


@pytest.mark.parametrize(("target", "said"), [("notes.txt", "does not exist"), ("run.log", "modes runs a program")])
def test_a_target_that_is_no_program_is_refused(ran: list[tuple[str, int]], target: str, said: str) -> None:
    Path("run.log").write_text("Compiled module path: /nowhere/c.py\n")
    with pytest.raises(UsageError, match=said):
        compare(target=target)
    assert not Path("modes").exists()


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "TORCH_COMPILE_DISABLE", "INDUCTOR_BENCH_MODE"])
def test_a_variable_that_the_comparison_sets_itself_is_no_row(ran: list[tuple[str, int]], name: str) -> None:
    request = ModesRequest(variables=((name, "1"),), program=BreakdownRequest("train.py"))
    with pytest.raises(UsageError, match=f"{name} cannot be compared"):
        run_modes(request, Silent())
    assert not Path("modes").exists()


def test_a_stop_before_the_first_process_leaves_a_folder_that_serves_again(
    monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]
) -> None:
    answer_with(monkeypatch, ran)
    for name in ("records", "logs", ".work"):
        (Path("modes/train") / name).mkdir(parents=True)
    assert compare().measured


def test_what_measured_nothing_binds_to_no_options(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]) -> None:
    answer_with(monkeypatch, ran, lambda _: Failure("modes", "invalid", "it is no Python"))
    compare()
    answer_with(monkeypatch, ran)
    assert compare(steps=7).measured


def test_other_variables_are_another_comparison(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]) -> None:
    answer_with(monkeypatch, ran)
    compare()
    other = replace(mode_rows.ENVIRONMENT, variables={"OMP_NUM_THREADS": "2"})
    monkeypatch.setattr(modes, "take_survey", lambda *_, **__: Survey(other))
    with pytest.raises(UsageError, match="was started with other values of these variables: OMP_NUM_THREADS"):
        compare(rounds=3)


def test_files_of_the_user_are_never_removed(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]) -> None:
    answer_with(monkeypatch, ran)
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        compare(output=Path("mine"))
    compare()
    Path("modes/train/notes.txt").write_text("mine")
    compare(force=True)
    assert Path("modes/train/notes.txt").read_text() == "mine"


def test_nothing_is_removed_through_a_link(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]) -> None:
    answer_with(monkeypatch, ran)
    outcome = compare()
    Path("mine").mkdir()
    Path("mine/notes.json").write_text("mine")
    (outcome.folder / "records").rmdir()
    (outcome.folder / "records").symlink_to(Path("mine").resolve())
    with pytest.raises(InductorBenchError, match="symbolic link"):
        compare(force=True)
    assert Path("mine/notes.json").exists()


def test_a_record_of_a_newer_version_says_so(monkeypatch: pytest.MonkeyPatch, ran: list[tuple[str, int]]) -> None:
    answer_with(monkeypatch, ran)
    compare()
    record = Path("modes/train/modes.json")
    data = json.loads(record.read_text())
    record.write_text(json.dumps({**data, "format": 99}))
    with pytest.raises(Exception, match="newer than"):
        compare()
    record.write_text(json.dumps({**data, "rows": 5}))
    with pytest.raises(Exception, match="is damaged"):
        compare()


# The settings of rows as a user types them.


@pytest.mark.parametrize(
    ("text", "settings", "name"),
    [
        ("tf32", ModeSet("default", ("tf32",)), "default + tf32"),
        ("max-autotune,tf32,tf32", ModeSet("max-autotune", ("tf32",)), "max-autotune + tf32"),
        ("eager, channels-last", ModeSet("eager", ("channels-last",)), "eager + channels-last"),
        (
            "inductor.triton.cudagraphs=true,OMP_NUM_THREADS=8",
            ModeSet("default", (), {"OMP_NUM_THREADS": "8"}, {"triton.cudagraphs": "true"}),
            "default + inductor.triton.cudagraphs=true + OMP_NUM_THREADS=8",
        ),
    ],
)
def test_a_set_has_one_mode_and_any_switches_options_and_variables(text: str, settings: ModeSet, name: str) -> None:
    assert read_set(text) == settings and settings.name == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("fast", "is no setting"),
        ("", "is no setting"),
        ("default,eager", "two modes"),
        ("eager,freezing", "compiles nothing"),
        ("inductor.=1", "no option of Inductor"),
    ],
)
def test_other_words_are_refused_with_what_there_is(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as found:
        read_set(text)
    assert found.value.hint


def test_rows_are_the_modes_and_then_ones_own_sets_each_once() -> None:
    rows = read_sets([], ["tf32", "tf32"], [("A", "1,2")], ["inductor.x=1"])
    own = ["default + tf32", "default + A=1,2", "default + inductor.x=1"]
    assert [row.name for row in rows] == [*MODES, *own]
    assert [row.name for row in read_sets(["default"], ["default"], [], [])] == ["default"]
