"""What one process is asked to try, and what its files say that it measured."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from inductor_bench.analysis.optimization.trial_plans import TrialCandidate, TrialPlan
from inductor_bench.launch.process import ProcessResult
from inductor_bench.messages.variant_requests import (
    JOURNAL,
    TRIED,
    CheckedCallable,
    ProgramVariant,
    TriedVariants,
    VariantSample,
    VariantState,
    VariantSwitch,
)
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.optimization import (
    ATTENTION,
    ENVIRONMENT,
    INDUCTOR,
    ORIGINAL,
    PLACEBO,
    ProgramSetting,
    StepDigest,
    Trial,
    TrialVariant,
)
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.request_fields import COMMAND
from inductor_bench.store import codec
from inductor_bench.store.files import write_json
from inductor_bench.store.program_folders import OptimizationFolder
from inductor_bench.store.redaction import Redaction
from inductor_bench.workflows.optimizing.tried_program import (
    ProgramTrials,
    VariantWatch,
    find_culprit,
    list_variables,
    parse_value,
    read_trial,
    request_of,
)
from inductor_bench.workflows.progress import Silent

GRAPHS = TrialCandidate("cudagraphs", (ProgramSetting(INDUCTOR, "triton.cudagraphs", "True"),))
ORDER = TrialCandidate("cudnn", (ProgramSetting(ATTENTION, "backends", "'CUDNN_ATTENTION,MATH'"),))
PLAN = TrialPlan("01-screen", "screen", (TrialCandidate(PLACEBO), GRAPHS, ORDER), True, 2.5, 24)


def write(folder: Path, found: TriedVariants) -> None:
    write_json(folder / f"{found.pid}{TRIED}", codec.encode(found))


def tried(pid: int = 7, step_s: float = 0.01, **fields: object) -> TriedVariants:
    samples = tuple(VariantSample(place % 4, step_s * (1 + place % 4), place) for place in range(8))
    states = tuple(VariantState(number, 1.0 + number, 10**9 * number) for number in range(4))
    return TriedVariants(pid, "cuda", "done", **{"samples": samples, "variants": states, **fields})  # type: ignore[arg-type]


def ended(tmp_path: Path, said: str = "", code: int = 0, **fields: object) -> ProcessResult:
    log = tmp_path / "program.log"
    log.write_text(said)
    values = {"exit_code": code, "signal_name": None, "time_s": 3.0, "log": log, "timed_out": False, **fields}
    return ProcessResult(**values)  # type: ignore[arg-type]


def by_slug(trial: Trial) -> dict[str, TrialVariant]:
    return {one.slug: one for one in trial.variants}


def test_a_request_has_the_values_that_python_means() -> None:
    request = request_of(PLAN)
    assert request.variants == (
        ProgramVariant(PLACEBO, (), True),
        ProgramVariant("cudagraphs", (VariantSwitch("inductor", "triton.cudagraphs", True),)),
        ProgramVariant("cudnn", (VariantSwitch("attention", "backends", "CUDNN_ATTENTION,MATH"),)),
    )
    assert request.alternates and request.checks and request.timed_s == 2.5


def test_values_and_variables() -> None:
    assert [parse_value(text) for text in ("True", "1", "'a'", "a b")] == [True, 1, "a", "a b"]
    setting = ProgramSetting(ENVIRONMENT, "OMP_NUM_THREADS", "'8'")
    assert list_variables([TrialCandidate("a", (setting, *GRAPHS.settings))]) == {"OMP_NUM_THREADS": "8"}


def test_steps_belong_to_their_variants(tmp_path: Path) -> None:
    write(tmp_path, tried(checks=(CheckedCallable(2, "graph 0", 1, 2, 5.0, 0.1, "it differs", "output 0"),)))
    found = by_slug(read_trial(PLAN, tmp_path, ended(tmp_path), 3.0))
    assert list(found) == [ORIGINAL, PLACEBO, "cudagraphs", "cudnn"]
    assert found["cudagraphs"].times_s == pytest.approx((0.03, 0.03)) and found["cudagraphs"].places == (2, 6)
    assert found["cudagraphs"].compile_time_s == 3.0 and found["cudagraphs"].peak_memory_bytes == 2 * 10**9
    assert [check.differs for check in found["cudagraphs"].checks] == [True] and not found["cudnn"].checks


def test_the_slowest_rank_times_and_any_rank_may_object(tmp_path: Path) -> None:
    write(tmp_path, tried(7, 0.01, checks=(CheckedCallable(3, "graph 0", 1, 2, 5.0),)))
    load = MachineLoad(8, 2, cpu_time_s=1.0, waited_s=3.0)
    write(tmp_path, tried(8, 0.02, rank=1, load=load))
    trial = read_trial(PLAN, tmp_path, ended(tmp_path), 3.0)
    found = by_slug(trial)
    assert trial.load == load
    assert found[ORIGINAL].times_s == pytest.approx((0.02, 0.02)) and found["cudnn"].checks[0].differs


def test_a_variant_that_ended_its_process_is_named(tmp_path: Path) -> None:
    (tmp_path / f"7{JOURNAL}").write_text("-\ncudnn compiles\n")
    end = ended(tmp_path, "Traceback\nRuntimeError: no backend\n", 1)
    trial = read_trial(PLAN, tmp_path, end, 3.0)
    assert {one.slug: one.failure for one in trial.variants} == {"cudnn": "RuntimeError: no backend"}
    assert trial.failure is not None and "RuntimeError: no backend" in trial.failure.message


def test_no_variant_is_blamed_for_the_time_of_the_search(tmp_path: Path) -> None:
    (tmp_path / f"7{JOURNAL}").write_text("-\ncudnn runs\n")
    end = ended(tmp_path, code=-15, timed_out=True, time_s=288.0)
    said = "the time of the search was over after 288 s of its process, before all of its steps were timed"
    empty = read_trial(PLAN, tmp_path, end, 288.1, late=True)
    assert empty.late and not empty.variants and empty.failure is not None and empty.failure.message == said
    write(tmp_path, tried())
    part = read_trial(PLAN, tmp_path, end, 288.1, late=True)
    assert part.late and [len(one.times_s) for one in part.variants] == [2] * 4, "what was timed is kept"
    assert not any(one.failure for one in part.variants)


@pytest.mark.parametrize(
    ("own_s", "late", "again_s", "is_known"),
    [(None, True, 9.0, False), (None, True, 0.0, True), (0.0, False, 9.0, True)],
)
def test_what_the_time_of_the_search_ended_runs_again_with_more_time(
    tmp_path: Path, own_s: float | None, late: bool, again_s: float, is_known: bool
) -> None:
    """Not so what ``own_s``, the limit that the user set, ended."""
    folder = OptimizationFolder(tmp_path / "optimized")
    folder.make()
    folder.make_inside()
    command = (sys.executable, "-c", "import time; time.sleep(600)")
    program = BreakdownRequest("", COMMAND, arguments=command, timeout_s=own_s)
    trials = ProgramTrials(program, folder, dict(os.environ), sys.executable, Redaction.find((), {}), Silent())
    started = trials.start(replace(PLAN, limit_s=0.05), "")
    while not started.has_ended(0.05):
        pass
    trial = trials.read(started)
    assert trial.late == late and trial.failure is not None
    assert (trials.known(replace(PLAN, limit_s=trial.time_s + again_s)) is not None) == is_known


def test_a_program_that_died_by_itself_accuses_nobody(tmp_path: Path) -> None:
    (tmp_path / f"7{JOURNAL}").write_text("-\n")
    trial = read_trial(PLAN, tmp_path, ended(tmp_path, "ValueError: x\n", 1), 3.0)
    assert not trial.variants and trial.failure is not None


def test_a_program_without_steps_says_so(tmp_path: Path) -> None:
    trial = read_trial(PLAN, tmp_path, ended(tmp_path), 3.0)
    assert trial.failure is not None and trial.failure.message == "the program ended before its steps were timed"


def test_one_variant_for_a_whole_process(tmp_path: Path) -> None:
    plan = TrialPlan("02-confirm", "confirm", (GRAPHS,), False, 2.5, 24, losses=2)
    samples = tuple(VariantSample(1, 0.01, place) for place in range(5))
    digests = (StepDigest(0, 1.0, (0.6, 0.8), 2.0),)
    write(tmp_path, TriedVariants(7, "cuda", "done", samples=samples, digests=digests))
    trial = read_trial(plan, tmp_path, ended(tmp_path), 3.0)
    assert len(by_slug(trial)["cudagraphs"].times_s) == 5
    assert trial.digests[0].loss == 2.0 and trial.digests[0].sums == (0.6, 0.8)


def test_one_variant_that_fails_from_the_start(tmp_path: Path) -> None:
    plan = TrialPlan("02-confirm", "confirm", (GRAPHS,), False, 2.5, 24)
    trial = read_trial(plan, tmp_path, ended(tmp_path, "KeyError: 1\n", 1), 3.0)
    assert by_slug(trial)["cudagraphs"].failure == "KeyError: 1" and trial.failure is not None


def test_a_watch_ends_what_is_measured_and_what_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("inductor_bench.workflows.optimizing.tried_program.time.monotonic", lambda: now[0])
    watch = VariantWatch(tmp_path, 100.0)
    journal = tmp_path / f"7{JOURNAL}"
    journal.write_text("cudnn compiles\n")
    assert not watch.is_finished()
    now[0] = 90.0
    journal.write_text("cudnn runs\n")
    assert not watch.is_finished()
    now[0] = 180.0
    assert not watch.is_finished()
    now[0] = 191.0
    assert watch.is_finished() and watch.stalled == "cudnn runs"
    trial = read_trial(PLAN, tmp_path, ended(tmp_path, stopped=True), 3.0, f"{watch.stalled} for more than 100 s")
    assert by_slug(trial)["cudnn"].failure == "given up: it runs for more than 100 s"


def test_a_watch_waits_for_all_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("inductor_bench.workflows.optimizing.tried_program.time.monotonic", lambda: now[0])
    watch = VariantWatch(tmp_path, 100.0)
    write(tmp_path, tried(7))
    write(tmp_path, TriedVariants(8, "cuda", "timing", rank=1))
    now[0] = 50.0
    assert not watch.is_finished()
    write(tmp_path, TriedVariants(8, "cuda", "done", rank=1))
    assert not watch.is_finished()
    now[0] = 52.0
    assert watch.is_finished() and not watch.stalled


def test_the_original_is_no_culprit() -> None:
    assert [find_culprit(line) for line in ("-", "original runs", "a+b compiles", "")] == ["", "", "a+b", ""]
