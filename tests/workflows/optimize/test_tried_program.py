"""What one process is asked to try, and what its files say that it measured."""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import psutil
import pytest
from tried_programs import DrawnProgram, menu_row

from inductor_bench.analysis.optimization.search import OptimizationSearch
from inductor_bench.analysis.optimization.trial_plans import TrialCandidate, TrialPlan
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.process import ProcessResult
from inductor_bench.messages.observed import (
    JOURNAL,
    TRIED,
    CheckedCallable,
    ProgramVariant,
    TriedVariants,
    VariantSample,
    VariantState,
    VariantSwitch,
)
from inductor_bench.records.base import Failure
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.optimization import (
    ATTENTION,
    ENVIRONMENT,
    FAILED,
    INDUCTOR,
    ORIGINAL,
    PLACEBO,
    RANKS,
    ProgramSetting,
    StepDigest,
    Trial,
    TrialVariant,
    parse_value,
)
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.request_fields import COMMAND
from inductor_bench.store import codec
from inductor_bench.store.files import write_json
from inductor_bench.store.folder import OptimizationFolder
from inductor_bench.store.redaction import Redaction
from inductor_bench.workflows.optimizing.tried_program import (
    ProgramTrials,
    TrialRounds,
    VariantWatch,
    describe_disagreement,
    find_culprit,
    find_gpu_error,
    list_variables,
    read_trial,
    request_of,
)
from inductor_bench.workflows.progress import Silent

LEFT = "2 min 10 s left of 5 min"

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
    said = "its process had no more time after 288 s, before all of its steps were timed"
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
    assert (trials.find_finished(replace(PLAN, limit_s=trial.time_s + again_s)) is not None) == is_known


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


# When the ranks of a program did not change their variants together.


SAMPLES = tuple(VariantSample(place % 2, 0.01, place) for place in range(8))


def rank(number: int | None, **fields: object) -> TriedVariants:
    found = TriedVariants(
        100 + (number or 0), "cpu", "done", number, 2, 2, 9, ((0, 50), (40, 130)), "optimizer", SAMPLES
    )
    return replace(found, **fields)  # type: ignore[arg-type]


def test_ranks_that_are_equally_far_agree() -> None:
    assert describe_disagreement([rank(0), rank(1)]) == ""
    assert describe_disagreement([]) == "" and describe_disagreement([rank(None, ranks=1, world=1)]) == ""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (rank(1, begin=11), "began to change variants at different steps, 9 and 11"),
        (rank(1, source="pattern"), "end in different ways: optimizer and pattern"),
        (rank(1, collectives=((0, 52), (40, 132))), "ranks 0 and 1 were 2 collectives apart"),
    ],
)
def test_ranks_that_are_not_equally_far_are_seen(other: TriedVariants, said: str) -> None:
    assert said in describe_disagreement([rank(0), other])


@pytest.mark.parametrize(
    "collectives",
    [((0, 50), (40, 210)), ((0, 50),), ((3, 60), (40, 132)), ()],
    ids=["pipeline", "early", "late", "none"],
)
def test_numbers_of_collectives_that_cannot_be_compared_say_nothing(collectives: tuple[tuple[int, int], ...]) -> None:
    assert describe_disagreement([rank(0), rank(1, collectives=collectives)]) == ""


def test_ranks_that_are_missing_or_elsewhere_are_seen() -> None:
    assert describe_disagreement([rank(0)]).startswith("only 1 of 2 ranks ran steps")
    assert describe_disagreement([rank(0, world=8), rank(1, world=8)]).startswith("6 of 8 ranks run on other machines")
    alone = [replace(rank(None, ranks=1, world=1), pid=pid) for pid in (1, 2)]
    assert describe_disagreement(alone).startswith("2 processes exchange data and have no LOCAL_RANK")
    assert describe_disagreement([replace(one, collectives=()) for one in alone]) == "", (
        "they are programs of their own"
    )


def test_no_result_is_claimed_where_ranks_disagree(tmp_path: Path) -> None:
    plan = TrialPlan("01-screen", "screen", (TrialCandidate(PLACEBO),), True, 1.0, 24)
    for one in (rank(0), rank(1, begin=11)):
        (tmp_path / f"{one.pid}{TRIED}").write_text(json.dumps(codec.encode(one)))
    ended = ProcessResult(0, None, False, 3.0, tmp_path / "log")
    trial = read_trial(plan, tmp_path, ended, 3.0)
    assert not trial.variants and trial.failure is not None and trial.failure.kind == RANKS
    assert trial.failure.message.startswith("the ranks do not agree: ranks 0 and 1 began")
    stalled = read_trial(plan, tmp_path, ended, 3.0, "placebo compiles for more than 9 s")
    assert stalled.failure is None, "what was given up has not come to its end"


def test_a_search_of_ranks_that_disagree_ends_soon() -> None:
    program = DrawnProgram(0)
    rows = [menu_row(f"row-{number}") for number in range(8)]
    search = OptimizationSearch(rows, program.step_s, 3600.0)
    plans = search.plans()
    (plan,) = next(plans)
    failure = Failure("optimize", RANKS, "the ranks do not agree: x")
    with pytest.raises(StopIteration):
        plans.send([Trial(plan.name, plan.purpose, True, plan.slugs, failure=failure)])
    assert {(row.state, row.reason) for row in search.rows} == {(FAILED, failure.message)} and search.winner is None


# Rounds of trials on several devices: what runs at once, what is repeated elsewhere, and what an interruption ends.


ECC = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"


def plan(number: int, lane: int) -> TrialPlan:
    candidates = (TrialCandidate(PLACEBO), TrialCandidate(f"row-{number}"))
    return TrialPlan(f"{number:02}-screen", "screen", candidates, True, 1.0, 24, lane=lane)


@dataclass
class FakeProcess:
    """A process that ends after some looks."""

    plan: TrialPlan
    gpu: str
    looks: int
    ended: int = 0

    def has_ended(self, wait_s: float = 0.0) -> bool:
        self.looks -= 1
        return self.looks <= 0

    def end(self) -> None:
        self.ended += 1


@dataclass
class FakeTrials:
    """Starts fake processes. ``lost`` are GPUs that fail, ``broken`` trials whose program fails as a lost GPU does."""

    looks: dict[str, int] = field(default_factory=dict)
    lost: Sequence[str] = ()
    broken: Sequence[str] = ()
    takes_turns: bool = True
    have: dict[str, Trial] = field(default_factory=dict)
    started: list[FakeProcess] = field(default_factory=list)
    order: list[str] = field(default_factory=list)
    at_once: int = 0
    told: list[list[str]] = field(default_factory=list)
    stops_at: int = 0

    def find_finished(self, plan: TrialPlan) -> Trial | None:
        return self.have.get(plan.name)

    def start(self, plan: TrialPlan, gpu: str) -> FakeProcess:
        if self.stops_at and len(self.started) + 1 == self.stops_at:
            raise KeyboardInterrupt
        self.started.append(FakeProcess(plan, gpu, self.looks.get(plan.name, 1)))
        running = [one for one in self.started if one.looks > 0 and one.plan.name not in self.order]
        assert len({one.gpu for one in running}) == len(running), "one process for each GPU"
        self.at_once = max(self.at_once, len(running))
        return self.started[-1]

    def read(self, started: FakeProcess) -> Trial:
        started.end()
        trial = Trial(started.plan.name, "screen", True, started.plan.slugs, time_s=1.0, gpu=started.gpu)
        if started.gpu in self.lost or trial.name in self.broken:
            return replace(trial, failure=Failure("optimize", "exit", "the program exited", log_tail=f"x\n{ECC}"))
        self.order.append(trial.name)
        return trial

    def report_begin(self, plans: Sequence[TrialPlan], left: str) -> None:
        assert left == LEFT
        self.told.append([one.name for one in plans])


def rounds(trials: FakeTrials, *gpus: str) -> TrialRounds:
    return TrialRounds(cast(ProgramTrials, trials), gpus, Silent())


def test_a_round_runs_at_once_and_is_answered_in_its_order() -> None:
    trials = FakeTrials({"01-screen": 9, "02-screen": 2, "03-screen": 5})
    found = rounds(trials, "4", "5", "6").run([plan(1, 0), plan(2, 1), plan(3, 2)], LEFT)
    assert [one.name for one in found] == ["01-screen", "02-screen", "03-screen"]
    assert [one.gpu for one in found] == ["4", "5", "6"]
    assert trials.order == ["02-screen", "03-screen", "01-screen"] and trials.at_once == 3
    assert all(one.ended == 1 for one in trials.started)


def test_a_program_that_has_all_devices_runs_once_at_a_time() -> None:
    trials = FakeTrials()
    found = rounds(trials, "").run([plan(1, 0), plan(2, 0)], LEFT)
    assert [one.gpu for one in found] == ["", ""] and trials.at_once == 1


def test_what_an_earlier_command_ran_is_not_run_again() -> None:
    trials = FakeTrials(have={"01-screen": Trial("01-screen", "screen", True, ())})
    found = rounds(trials, "0", "1").run([plan(1, 0), plan(2, 1)], LEFT)
    assert [one.name for one in found] == ["01-screen", "02-screen"] and len(trials.started) == 1
    assert trials.told == [["02-screen"]]


def test_a_lost_device_costs_no_trial() -> None:
    trials = FakeTrials({"01-screen": 3}, lost=["1"])
    runs = rounds(trials, "0", "1")
    found = runs.run([plan(1, 0), plan(2, 1)], LEFT)
    assert [one.gpu for one in found] == ["0", "0"] and not any(one.failure for one in found)
    assert [one.gpu for one in runs.run([plan(3, 0), plan(4, 1)], LEFT)] == ["0", "0"], "it is not used any more"
    assert len(trials.started) == 5


def test_what_fails_on_another_device_too_is_a_failure_and_the_device_stays() -> None:
    trials = FakeTrials(broken=["02-screen"])
    runs = rounds(trials, "0", "1")
    _, broken = runs.run([plan(1, 0), plan(2, 1)], LEFT)
    assert broken.failure is not None and broken.gpu == "0" and len(trials.started) == 3
    assert sorted(one.gpu for one in runs.run([plan(3, 0), plan(4, 1)], LEFT)) == ["0", "1"]


def test_the_only_device_is_not_left() -> None:
    trials = FakeTrials(lost=["0"])
    (found,) = rounds(trials, "0").run([plan(1, 0)], LEFT)
    assert found.failure is not None and len(trials.started) == 1


def test_a_variant_that_took_the_blame_for_its_device_is_seen() -> None:
    blamed = Trial("1", "screen", True, ("a",), (TrialVariant("a", failure=ECC),))
    assert find_gpu_error(blamed) == ECC
    other = TrialVariant("a", failure="CUDA error: an illegal memory access was encountered")
    assert find_gpu_error(replace(blamed, variants=(other,))) == ""


@pytest.mark.parametrize("looks", [99, 1])
def test_an_interruption_ends_all_processes(looks: int) -> None:
    trials = FakeTrials({"01-screen": looks, "02-screen": 99}, stops_at=3)
    with pytest.raises(KeyboardInterrupt):
        rounds(trials, "0", "1", "2").run([plan(1, 0), plan(2, 1), plan(3, 2)], LEFT)
    assert [one.ended for one in trials.started] == [1, 1]


def test_a_process_that_cannot_start_ends_the_others() -> None:
    trials = FakeTrials({"01-screen": 99})
    start = trials.start

    def failing(asked: TrialPlan, gpu: str) -> FakeProcess:
        if gpu == "1":
            raise InductorBenchError("cannot start")
        return start(asked, gpu)

    trials.start = failing  # type: ignore[method-assign]
    with pytest.raises(InductorBenchError):
        rounds(trials, "0", "1").run([plan(1, 0), plan(2, 1)], LEFT)
    assert [one.ended for one in trials.started] == [1]


# Real processes


def test_each_process_sees_its_own_device(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, pathlib, time\n"
        f"mine = pathlib.Path({str(tmp_path)!r})\n"
        "gpu = os.environ['CUDA_VISIBLE_DEVICES']\n"
        "(mine / gpu).write_text(os.environ.get('TORCHINDUCTOR_COMPILE_THREADS', ''))\n"
        "while not all((mine / other).exists() for other in ('2', '7')):\n"
        "    time.sleep(0.01)\n"
        "print('on', gpu)\n"
    )
    folder = OptimizationFolder(tmp_path / "optimized")
    folder.make()
    folder.make_inside()
    request = BreakdownRequest(str(script), "script", timeout_s=600.0)
    trials = ProgramTrials(request, folder, dict(os.environ), sys.executable, Redaction(), Silent(), 600.0, 2)
    found = TrialRounds(trials, ("2", "7"), Silent()).run([plan(1, 0), plan(2, 1)], LEFT)
    assert [one.gpu for one in found] == ["2", "7"]
    logs = [(folder.logs / f"{one.name}.log").read_text().strip() for one in found]
    assert logs == ["on 2", "on 7"], "each waits for the other one"
    assert all("ended before" in one.failure.message for one in found if one.failure)
    assert [one.gpu for one in map(folder.load_trial, ("01-screen", "02-screen")) if one] == ["2", "7"]
    assert not any(folder.work.glob("0*"))


def test_ctrl_c_ends_the_processes_of_all_devices(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, os.environ['CUDA_VISIBLE_DEVICES'] + '.pid').write_text(str(os.getpid()))\n"
        "time.sleep(600)\n"
    )
    folder = OptimizationFolder(tmp_path / "optimized")
    folder.make()
    folder.make_inside()
    request = BreakdownRequest(str(script), "script", timeout_s=600.0)
    trials = ProgramTrials(request, folder, dict(os.environ), sys.executable, Redaction(), Silent(), 60.0, 2)
    files = [tmp_path / "0.pid", tmp_path / "1.pid"]

    def interrupt() -> None:
        while not all(file.exists() and file.read_text() for file in files):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        TrialRounds(trials, ("0", "1"), Silent()).run([plan(1, 0), plan(2, 1)], LEFT)
    assert not any(psutil.pid_exists(int(file.read_text())) for file in files)
    assert trials.find_finished(plan(1, 0)) is None, "what was not measured is run again"
