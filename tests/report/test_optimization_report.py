"""What a search for faster settings says."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from printed import printed
from tried_programs import ROWS, DrawnProgram, menu_row, optimization, searched, two_winners

from inductor_bench import units
from inductor_bench.analysis.optimization.row_verdicts import LATE, NO_TIME
from inductor_bench.analysis.optimization.search_results import format_interval
from inductor_bench.cli.optimize import exit_code
from inductor_bench.records.base import Failure
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.optimization import (
    ENVIRONMENT,
    FAILED,
    GROUPS,
    INDUCTOR,
    LOST,
    OWN,
    SHARED_CACHES,
    SUMS,
    UNDECIDED,
    UNPROVEN,
    UNTRIED,
    MeasuredGain,
    MenuRow,
    Optimization,
    OptimizedProgram,
    ProgramSetting,
    Trial,
)
from inductor_bench.report.formats import View
from inductor_bench.report.optimization_document import FORMATS, list_next_commands, list_notes, write_headline
from inductor_bench.report.optimization_document import list_search_facts as searched_for
from inductor_bench.store.folder import OptimizationFolder
from inductor_bench.workflows.optimize import OptimizeOutcome


def test_the_first_line_begins_with_what_the_user_gets_and_has_the_proof_with_its_own_interval() -> None:
    found = optimization(two_winners())
    text = write_headline(found)
    assert found.winner is not None and found.winner.alone is not None
    gain, alone, expected = found.winner.gain, found.winner.alone, found.winner.expected
    assert expected is not None and expected[0] < alone.share < expected[1]
    begin = f"{units.seconds(alone.before_s)} → {units.seconds(alone.after_s)} a step if you run the program with these"
    got, _, proof = text.partition("; its proof, in turns with the original in one process: ")
    assert got.startswith(f"{begin} settings (\N{MINUS SIGN}")
    assert got.endswith(f"%, expect {expected[0] * 100:.1f} to {expected[1] * 100:.1f}% in a new process)")
    assert proof.startswith(f"{units.seconds(gain.before_s)} → {units.seconds(gain.after_s)} (\N{MINUS SIGN}")
    assert proof.endswith(f"{format_interval(gain)}). 5 settings tried, 2 kept")


def test_a_figure_from_too_few_processes_has_no_interval_and_a_longer_step_is_longer() -> None:
    found = optimization(two_winners())
    assert found.winner is not None and found.winner.alone is not None
    few = replace(found.winner.alone, low=-9.0, high=0.9, share=-0.02, processes=4)
    said = write_headline(replace(found, winner=replace(found.winner, alone=few, expected=None)))
    assert "(+2.0%, 4 processes, too few for an interval); its proof, " in said
    differing = replace(few, share=0.5, placebo=3.26)  # with the settings 14.9 ms once, and 64 ms once
    said = write_headline(replace(found, winner=replace(found.winner, alone=differing, expected=None)))
    assert " proven in turns with the original in one process; in new processes that start with " in said
    assert "4 processes, too few for an interval), and processes with equal settings differ by up to 326.0%" in said


def test_what_to_expect_in_a_new_process_stands_with_the_whole_runs_or_behind_the_proof() -> None:
    found = optimization(two_winners())
    assert found.winner is not None and found.winner.alone is not None
    known = replace(found.winner, expected=(-0.012, 0.4))
    wider = "expect -1.2 to 40.0% in a new process"
    assert f"%, {wider}); its proof, in turns " in write_headline(replace(found, winner=known))
    alone = write_headline(replace(found, winner=replace(known, alone=None)))
    assert f"proven in turns with the original in one process; {wider}. 5 settings tried" in alone


def test_the_smaller_saving_comes_first() -> None:
    found = optimization(two_winners())
    assert found.winner is not None and found.winner.alone is not None
    winner, more = found.winner, replace(found.winner.alone, share=found.winner.gain.share + 0.1)
    got, _, start = write_headline(replace(found, winner=replace(winner, alone=more))).partition(
        "; in new processes that start with these settings: "
    )
    before, after = units.seconds(winner.gain.before_s), units.seconds(winner.gain.after_s)
    assert got.startswith(f"{before} → {after} a step (\N{MINUS SIGN}")
    assert got.endswith(f"{format_interval(winner.gain)}), proven in turns with the original in one process")
    assert start.startswith(f"{units.seconds(more.before_s)} → {units.seconds(more.after_s)} (\N{MINUS SIGN}")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "20.0 ms a step: of 5 settings tried none is faster"),
        ({"is_complete": False}, "20.0 ms a step: not finished, 5 settings tried"),
        ({"rows": tuple(ROWS[5:])}, "20.0 ms a step: nothing was tried"),
    ],
)
def test_a_search_without_a_winner_says_so(fields: dict[str, object], said: str) -> None:
    rows = [row if row.slug not in ("crash", "wrong") else menu_row(row.slug) for row in ROWS]
    assert write_headline(optimization(searched(DrawnProgram(0), rows), measured_step_s=None, **fields)) == said


def test_the_step_is_that_of_the_search_and_another_one_of_the_breakdown_is_named() -> None:
    found = replace(optimization(two_winners()), winner=None, step_time_s=0.63)
    assert found.measured_step_s == pytest.approx(0.02, rel=0.1)
    assert write_headline(found).startswith(f"{units.seconds(found.measured_step_s)} a step: ")
    (note,) = (note for note in list_notes(found) if "breakdown" in note)
    assert note.startswith("in the breakdown a step took 630 ms, 3") and " times longer than here: " in note
    assert not [note for note in list_notes(replace(found, step_time_s=0.029)) if "breakdown" in note]
    assert "times shorter than here" in next(list_notes(replace(found, step_time_s=0.01)))
    untimed = replace(found, measured_step_s=None)
    assert write_headline(untimed).startswith("630 ms a step: ") and "breakdown" not in next(list_notes(untimed), "")


def open_search(state: str, load: MachineLoad | None, **fields: object) -> Optimization:
    """A search of 4 minutes with one row in a state, and another one without time."""
    late = replace(menu_row("row-1"), reason=NO_TIME)
    first, *others = two_winners().trials
    trials = (replace(first, load=load), *others)
    rows = (replace(menu_row("row-0"), state=state, reason="why"), late)
    return optimization(two_winners(), rows=rows, trials=trials, winner=None, budget_s=240.0, **fields)


@pytest.mark.parametrize("state", [UNDECIDED, FAILED])
def test_what_a_longer_search_does_again_is_said(state: str, tmp_path: Path) -> None:
    view = View(tmp_path / "run" / "optimized", columns=300)
    quiet = printed(FORMATS.get("table"), open_search(state, None), view)
    assert "with a longer --budget the tool keeps what was measured" in quiet and "idle machine" not in quiet
    assert quiet.index("--budget 8m") < quiet.index("--budget 4m --force")
    decided = printed(FORMATS.get("table"), open_search(LOST, None), view)
    assert "--budget 8m" in decided and "--force" not in decided


def test_the_next_command_has_what_the_user_asked_for(tmp_path: Path) -> None:
    found = replace(open_search(UNDECIDED, None), allowed=("tf32",), denied=("layout", "padding"))
    own = (
        ProgramSetting(INDUCTOR, "max_autotune", "True"),
        ProgramSetting(INDUCTOR, "least", "inf"),
        ProgramSetting(ENVIRONMENT, "MODE", repr("a b")),
    )
    rows = tuple(replace(menu_row(f"own-{number}"), group=OWN, settings=(one,)) for number, one in enumerate(own))
    found = replace(found, rows=(*found.rows, *rows), max_memory_bytes=70 * 10**9, devices=("1", "2"))
    again = "inductor-bench optimize "
    texts = [text for text, _ in list_next_commands(found, tmp_path / "run" / "optimized") if text.startswith(again)]
    assert len(texts) == 2
    for text in texts:
        assert " --allow tf32 --deny layout,padding --max-memory " in text
        options = "--option inductor.max_autotune=True --option inductor.least=inf"
        assert f" {options} --env 'MODE=a b' --devices 1,2 --budget " in text
    only = replace(found, allowed=("bf16",), denied=tuple(group for group in GROUPS if group != "bf16"))
    (first, *_) = (text for text, _ in list_next_commands(only, tmp_path / "run" / "optimized"))
    assert " --only bf16 " in first and "--deny" not in first
    none = replace(found, allowed=(), denied=GROUPS)
    (first, *_) = (text for text, _ in list_next_commands(none, tmp_path / "run" / "optimized"))
    assert f" --deny {','.join(GROUPS)} " in first and "--only" not in first


def test_a_busy_machine_is_said_first(tmp_path: Path) -> None:
    busy = MachineLoad(60, 2, 4.1, 0.5, cpu_time_s=0.4, waited_s=0.6, stolen_s=0.0, switches=312)
    found = open_search(UNDECIDED, busy)
    assert write_headline(found).startswith(
        "the machine was busy (load 4.1 on 2 cores, waiting for a core 60% of the time, "
    )
    text = printed(FORMATS.get("table"), found, View(tmp_path / "run" / "optimized", columns=300))
    assert "on an idle machine: measures everything again" in text
    assert text.index("--budget 4m --force") < text.index("--budget 8m")
    unproven = printed(FORMATS.get("table"), open_search(UNPROVEN, busy), View(tmp_path / "run" / "optimized"))
    assert "--budget 4m --force" in unproven
    idle = open_search(UNDECIDED, replace(busy, waited_s=0.04))
    assert "busy" not in write_headline(idle)


def test_a_search_that_could_measure_nothing_says_so_and_why(tmp_path: Path) -> None:
    failure = Failure("optimize", "timeout", "over")
    trial = Trial("01-screen", "screen", True, ("row-0",), time_s=288.0, late=True, failure=failure)
    untried = replace(menu_row("row-0"), reason=LATE.format(said="over"))
    fields = {"rows": (untried,), "trials": (trial,), "winner": None, "budget_s": 240.0, "spent_s": 288.0}
    found = optimization(two_winners(), measured_step_s=None, **fields)
    assert write_headline(found) == (
        "20.0 ms a step: nothing could be measured, because the time of the search (4 min 48 s of 4 min) was "
        "over before "
        "enough steps were timed"
    )
    text = printed(FORMATS.get("table"), found, View(tmp_path / "run" / "optimized", columns=200))
    assert "--budget 8m" in text and "Tried, and not kept" not in text
    assert exit_code(OptimizeOutcome(found, tmp_path, measured=True)) == 1
    ranked = replace(untried, state=LOST, screened=MeasuredGain(0.0, 0.0, 0.0, 0.02, 0.02, 1, 60, 0.0, LOST))
    assert exit_code(OptimizeOutcome(replace(found, rows=(ranked,)), tmp_path, measured=True)) == 0
    broken = replace(found, rows=(replace(untried, reason=NO_TIME),), trials=(), before_s=300.0)
    assert write_headline(broken) == "20.0 ms a step: nothing was tried, because the breakdown took 5 min of 4 min"


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ((UNDECIDED, UNDECIDED), "undecided, because the steps scatter too much (2 settings tried)"),
        ((UNDECIDED, LOST), "of 2 settings tried none was measured to be faster; 1 undecided"),
        ((LOST, LOST), "of 2 settings tried none is faster"),
    ],
)
def test_noise_is_no_negative(states: tuple[str, ...], said: str) -> None:
    rows = tuple(replace(menu_row(f"row-{number}"), state=state) for number, state in enumerate(states))
    found = optimization(two_winners(), rows=rows, winner=None, measured_step_s=None)
    assert write_headline(found) == f"20.0 ms a step: {said}"
    summary = json.loads(printed(FORMATS.get("json"), found))["summary"]
    assert summary["headline"] == write_headline(found)


def test_each_row_of_the_menu_stands_in_one_place_with_its_reason(tmp_path: Path) -> None:
    text = printed(FORMATS.get("table"), optimization(two_winners()), View(tmp_path / "optimized", columns=140))
    for said in (
        "What each setting saves",
        "no such kernel",
        "numbers differ",
        "give --allow tf32 to try it",
        "only you can promise it",
        "inductor-bench apply",
    ):
        assert said in text, said
    assert text.index("+ cudagraphs") < text.index("+ fused-optimizer") < text.index("What each setting saves")


def test_a_row_for_which_the_step_has_nothing_is_not_on_the_screen() -> None:
    absent, little = "it can save at most 0% of the step", "it can save at most 0.4% of the step"
    none = replace(menu_row("conv-1x1-as-mm"), bound=0.0, reason=absent)
    some = replace(menu_row("fused-optimizer"), bound=0.004, reason=little)
    found = optimization(two_winners(), rows=(none, some), winner=None)
    screen = printed(FORMATS.get("table"), found, View(columns=200))
    assert f"fused-optimizer: {little}" in screen and "conv-1x1-as-mm" not in screen and absent not in screen
    for form in ("md", "html", "json", "csv"):
        assert "conv" in printed(FORMATS.get(form), found), form
    alone = printed(FORMATS.get("table"), replace(found, rows=(none,)), View(columns=200))
    assert "Not tried" not in alone


def test_a_result_that_was_not_run_from_the_start_says_so_in_the_first_line(tmp_path: Path) -> None:
    rows = [menu_row("cudagraphs"), menu_row("loader", alternates=False)]
    found = optimization(searched(DrawnProgram(0, {"cudagraphs": 0.2}), rows, confirming_s=0.0), spent_s=950.0)
    said = write_headline(found)
    assert "%), proven in turns with the original in one process; expect " in said
    assert "% in a new process. 2 settings tried, 1 kept, not yet confirmed in new processes that start" in said
    assert said.endswith("; give a longer --budget")
    assert write_headline(replace(found, is_complete=False)).endswith("; the same command goes on")
    text = printed(FORMATS.get("table"), found, View(tmp_path / "run" / "optimized", columns=200))
    assert "--budget 21m" in text and "each with the settings" not in text, "longer than the 20 minutes that it had"
    alone = searched(DrawnProgram(0, {"loader": 0.3}, levels=0.002), rows, confirming_s=0.0)
    assert "%), proven in processes of its own; expect " in write_headline(optimization(alone))


def test_a_result_that_ran_with_caches_says_so() -> None:
    found = optimization(two_winners())
    assert found.winner is not None
    warm = replace(found, winner=replace(found.winner, from_start=SHARED_CACHES))
    text = printed(FORMATS.get("table"), warm, View(columns=200))
    assert "or without them, with caches" in text and "\ncompilation" not in text
    text = printed(FORMATS.get("table"), found, View(columns=200))
    assert "with caches" not in text and "\ncompilation " in text


@pytest.mark.parametrize(("kind", "said"), [("inductor", True), ("optimizer", False)])
def test_a_longer_compilation_is_a_cost_only_of_what_changes_it(kind: str, said: bool) -> None:
    found = optimization(two_winners())
    assert found.winner is not None
    winner = replace(found.winner, original_compile_time_s=5.72, compile_time_s=26.2, pays_after=32614.0)
    rows = tuple(replace(row, settings=(ProgramSetting(kind, "fused", "True"),)) for row in found.rows)
    text = printed(FORMATS.get("table"), replace(found, winner=winner, rows=rows), View(columns=200))
    assert ("5.72 s → 26.2 s with empty caches, paid off after 32,614 steps" in text) == said
    assert ("10.0 s" in text) == said, "nor does a row have seconds of its own graphs"


def test_the_command_names_the_interpreter_of_the_record(tmp_path: Path) -> None:
    found = optimization(two_winners())
    found = replace(found, request=replace(found.request, python="/else/where/python"))
    text = printed(FORMATS.get("table"), found, View(tmp_path / "run" / "optimized", columns=200))
    assert "optimized -- /else/where/python train.py" in text


@pytest.mark.parametrize("form", ["json", "csv", *(row.name for row in FORMATS.rows if not row.is_data)])
def test_each_format_names_all_rows(form: str) -> None:
    text = printed(FORMATS.get(form), optimization(two_winners()), View(columns=160))
    for row in ROWS:
        assert row.slug in text, (form, row.slug)


def test_what_had_no_time_is_gone_on_with(tmp_path: Path) -> None:
    rows = [menu_row(f"row-{number}") for number in range(40)]
    found = optimization(searched(DrawnProgram(0), rows, 300.0), budget_s=300.0)
    assert any(row.state == UNTRIED and row.needs_time for row in found.rows)
    text = printed(FORMATS.get("table"), found, View(tmp_path / "run" / "optimized", columns=200))
    assert "run --budget 10m" in text


def test_the_time_is_that_of_all_devices_and_says_what_compiled() -> None:
    found = optimization(two_winners(), budget_s=200.0, spent_s=200.2)
    first, *others = found.trials
    spread = replace(found, trials=(replace(first, gpu="0"), *(replace(one, gpu="3") for one in others)))
    assert searched_for(spread) == "200 s of 200 s, 9 processes on 2 GPUs, 52% of their time compiling"
    assert searched_for(replace(found, trials=(Trial("1", "screen", True, ()),))) == "200 s of 200 s, 1 process"


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    folder = OptimizationFolder(tmp_path / "optimized")
    folder.make()
    found = optimization(two_winners())
    folder.save(found, lambda text: text)
    read = folder.load()
    assert read.rows == found.rows and read.winner == found.winner
    assert all(not one.times_s for trial in read.trials for one in trial.variants)
    folder.processes.mkdir()
    folder.save_process(found.trials[0].name, found.trials[0], lambda text: text)
    assert folder.load_trial(found.trials[0].name) == found.trials[0] and folder.load_trial("02-x") is None


def test_a_record_whose_figures_are_nothing_is_shown() -> None:
    nothing = MeasuredGain(0.0, 0.0, 0.0, 0.0, 0.0, 0, 0, 0.0, "")
    found = optimization(two_winners(), rows=(), winner=OptimizedProgram(("gone",), nothing, (("gone", 0.0),)))
    for form in FORMATS.rows:
        assert printed(form, found)
    assert printed(FORMATS.get("table"), replace(found, winner=OptimizedProgram((), nothing, ())))


def test_secrets_are_kept_out_of_the_record(tmp_path: Path) -> None:
    folder = OptimizationFolder(tmp_path)
    row = MenuRow("a", "hunter2", (), "own", SUMS, True, "")
    folder.save(
        replace(optimization(two_winners()), rows=(row,), winner=None), lambda text: text.replace("hunter2", "***")
    )
    assert "hunter2" not in folder.record.read_text() and folder.load().rows[0].title == "***"


@pytest.mark.parametrize(("budget_s", "said"), [(200.0, "of 200 s"), (300.0, "of 5 min"), (1200.0, "of 20 min")])
def test_the_time_limit_is_said_as_it_was_given(budget_s: float, said: str) -> None:
    found = optimization(two_winners(), budget_s=budget_s)
    assert f" {said}, " in searched_for(found)
