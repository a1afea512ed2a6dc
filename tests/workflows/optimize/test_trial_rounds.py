"""Rounds of trials on several devices: what runs at once, what is repeated elsewhere, and what an interruption ends."""

from __future__ import annotations

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

from inductor_bench.analysis.optimization.trial_plans import TrialCandidate, TrialPlan
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.base import Failure
from inductor_bench.records.optimization import PLACEBO, Trial, TrialVariant
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.store.program_folders import OptimizationFolder
from inductor_bench.store.redaction import Redaction
from inductor_bench.workflows.optimizing.trial_rounds import TrialRounds, find_gpu_error
from inductor_bench.workflows.optimizing.tried_program import ProgramTrials
from inductor_bench.workflows.progress import Silent

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

    def known(self, plan: TrialPlan) -> Trial | None:
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

    def tell(self, plans: Sequence[TrialPlan]) -> None:
        self.told.append([one.name for one in plans])


def rounds(trials: FakeTrials, *gpus: str) -> TrialRounds:
    return TrialRounds(cast(ProgramTrials, trials), gpus, Silent())


def test_a_round_runs_at_once_and_is_answered_in_its_order() -> None:
    trials = FakeTrials({"01-screen": 9, "02-screen": 2, "03-screen": 5})
    found = rounds(trials, "4", "5", "6").run([plan(1, 0), plan(2, 1), plan(3, 2)])
    assert [one.name for one in found] == ["01-screen", "02-screen", "03-screen"]
    assert [one.gpu for one in found] == ["4", "5", "6"]
    assert trials.order == ["02-screen", "03-screen", "01-screen"] and trials.at_once == 3
    assert all(one.ended == 1 for one in trials.started)


def test_a_program_that_has_all_devices_runs_once_at_a_time() -> None:
    trials = FakeTrials()
    found = rounds(trials, "").run([plan(1, 0), plan(2, 0)])
    assert [one.gpu for one in found] == ["", ""] and trials.at_once == 1


def test_what_an_earlier_command_ran_is_not_run_again() -> None:
    trials = FakeTrials(have={"01-screen": Trial("01-screen", "screen", True, ())})
    found = rounds(trials, "0", "1").run([plan(1, 0), plan(2, 1)])
    assert [one.name for one in found] == ["01-screen", "02-screen"] and len(trials.started) == 1
    assert trials.told == [["02-screen"]]


def test_a_lost_device_costs_no_trial() -> None:
    trials = FakeTrials({"01-screen": 3}, lost=["1"])
    runs = rounds(trials, "0", "1")
    found = runs.run([plan(1, 0), plan(2, 1)])
    assert [one.gpu for one in found] == ["0", "0"] and not any(one.failure for one in found)
    assert [one.gpu for one in runs.run([plan(3, 0), plan(4, 1)])] == ["0", "0"], "it is not used any more"
    assert len(trials.started) == 5


def test_what_fails_on_another_device_too_is_a_failure_and_the_device_stays() -> None:
    trials = FakeTrials(broken=["02-screen"])
    runs = rounds(trials, "0", "1")
    _, broken = runs.run([plan(1, 0), plan(2, 1)])
    assert broken.failure is not None and broken.gpu == "0" and len(trials.started) == 3
    assert sorted(one.gpu for one in runs.run([plan(3, 0), plan(4, 1)])) == ["0", "1"]


def test_the_only_device_is_not_left() -> None:
    trials = FakeTrials(lost=["0"])
    (found,) = rounds(trials, "0").run([plan(1, 0)])
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
        rounds(trials, "0", "1", "2").run([plan(1, 0), plan(2, 1), plan(3, 2)])
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
        rounds(trials, "0", "1").run([plan(1, 0), plan(2, 1)])
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
    found = TrialRounds(trials, ("2", "7"), Silent()).run([plan(1, 0), plan(2, 1)])
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
        TrialRounds(trials, ("0", "1"), Silent()).run([plan(1, 0), plan(2, 1)])
    assert not any(psutil.pid_exists(int(file.read_text())) for file in files)
    assert trials.known(plan(1, 0)) is None, "what was not measured is run again"
