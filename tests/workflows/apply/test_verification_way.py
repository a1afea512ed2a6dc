"""How a program's saving is compared: by steps of one process, or by whole processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import step_runs
from documented import documented

from inductor_bench.cli.main import main as entry
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.process import ProcessResult
from inductor_bench.messages.observed import APPLY, COMPARE, PINS, Pins
from inductor_bench.records.base import Category
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.edit import EditPin
from inductor_bench.records.evidence import DONE, ObservedSteps
from inductor_bench.records.retune import LibraryPin, Retune, RetuneRow, TritonPin, Verification
from inductor_bench.store.codec import decode
from inductor_bench.store.files import read_json
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows import apply, proof
from inductor_bench.workflows.pins import PinnedRun, make_pins
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.proof import ProofPlan, VerificationInterrupted

BUSY = MachineLoad(60, 2, 4.1, 0.5, cpu_time_s=0.4, waited_s=0.6, stolen_s=0.0, switches=312)


def test_a_program_that_replays_cuda_graphs_is_compared_by_processes_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []

    def start(pinned: object, plan: object, mode: str, observe: str, name: str, progress: object) -> None:
        ran.append(f"{mode} {name}")
        raise InductorBenchError("that is enough")

    monkeypatch.setattr(proof, "run_to_end", start)
    monkeypatch.setattr(proof, "run_to_end", start)
    decode, blocks = step_runs.decode(), step_runs.transformer()
    for run, first in ((decode, f"{APPLY} compare-1"), (blocks, f"{COMPARE} compare")):
        plan = ProofPlan(RunFolder(tmp_path), ["python"], {}, replays=proof.has_replayed_graphs(run))
        with pytest.raises(InductorBenchError, match="that is enough"):
            proof.verify(make_pins(run, RunFolder(tmp_path)), plan, Silent())
        assert ran.pop() == first


@pytest.mark.parametrize(("ended", "compared"), [(1, ""), (3, "Interrupted: 3 of 4 processes were compared")])
def test_processes_that_ended_before_an_interruption_are_kept(
    ended: int, compared: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    times = iter([10e-3, 9e-3, 9e-3, 10e-3][:ended])

    def start(*_: object) -> tuple[ProcessResult, Path]:
        try:
            work = tmp_path / f"{next(times)}"
        except StopIteration:
            raise KeyboardInterrupt from None
        return ProcessResult(0, None, False, 1.0, tmp_path / "log"), work

    def read_steps(work: Path) -> list[ObservedSteps]:
        return [ObservedSteps(1, "cpu", DONE, step_times_s=(float(work.name),) * 5)]

    monkeypatch.setattr(proof, "run_to_end", start)
    monkeypatch.setattr(proof, "read_steps", read_steps)
    folder, run = RunFolder(tmp_path), step_runs.decode()
    plan = ProofPlan(folder, ["python"], {}, replays=True)
    with pytest.raises(KeyboardInterrupt) as stop:
        proof.verify(make_pins(run, folder), plan, Silent())
    found = stop.value.found if isinstance(stop.value, VerificationInterrupted) else None
    assert (found is not None) == bool(compared)
    if found is not None:
        assert compared in found.notes and found.step is not None
        assert (found.step.pairs, found.step.verdict) == (1, "undecided")
        assert found.step.saving_s == pytest.approx(1e-3)


@pytest.mark.parametrize(
    ("library_s", "triton_s", "way"),
    [(1e-6, None, "processes"), (0.0, None, "processes"), (1e-6, 9e-6, "steps"), (3e-6, 9e-6, "processes")],
)
def test_library_calls_are_compared_by_processes_if_they_make_much_of_the_saving(
    library_s: float, triton_s: float | None, way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    product = LibraryPin("aten_mm_0", "m" * 16, "aten.mm", (), {}, {"backend": "triton"})
    reduction = TritonPin("k" * 64, "", "triton_red_0", "r" * 16, {"XBLOCK": 1})
    pins = Pins(APPLY, "digest", "2.11", "3.6", (reduction,) * (triton_s is not None), (), (product,))
    rows = {"m" * 16: _row("m" * 16, library_s), "r" * 16: _row("r" * 16, triton_s or 0.0)}
    ran: list[str] = []

    def start(pinned: object, plan: object, mode: str, observe: str, name: str, progress: object) -> None:
        ran.append("steps" if mode == COMPARE else "processes")
        raise InductorBenchError("that is enough")

    monkeypatch.setattr(proof, "run_to_end", start)
    monkeypatch.setattr(proof, "run_to_end", start)
    with pytest.raises(InductorBenchError, match="that is enough"):
        proof.verify(PinnedRun(pins, {}, rows), ProofPlan(RunFolder(tmp_path), ["python"], {}), Silent())
    assert ran == [way]


def _row(kernel_id: str, saving_s: float) -> RetuneRow:
    place = (kernel_id, kernel_id, Category.OTHER, ("forward",), 1.0, 1e-3, None, "max")
    return RetuneRow(*place, verdict="faster", saving_s=saving_s)


@pytest.mark.parametrize("known", [True, False])
def test_what_was_compared_until_an_interruption_is_shown(
    known: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = step_runs.decode()
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    retune = Retune("triton_0", "k" * 16, Category.POINTWISE, ("forward",), 1.0, 1e-3, None, "max")
    folder.save(replace(run, retunes=(retune,)))
    found = Verification("processes", 0.0, notes=("Interrupted: 2 of 4 processes were compared",), created="now")

    def stop(*_: object) -> None:
        raise VerificationInterrupted(found)

    monkeypatch.setattr(apply, "verify", stop)
    monkeypatch.setattr(apply, "read_environment", lambda python: run.environment)
    words = ["--known"] if known else [str(folder.path)]
    assert entry(["apply", *words, "--verify", "--", "python", "train.py"]) == 130
    said = capsys.readouterr()
    assert "2 of 4 processes were compared" in said.out
    assert said.err.endswith("Error: interrupted; the result has the processes that were compared until then\n")
    assert known or folder.load().verification == found


EDIT = EditPin("triton_red_0", "r" * 16, "f" * 16, "triton", "", "mine.py")


def test_edits_are_compared_in_steps_with_their_outputs_also_beside_library_calls() -> None:
    call = LibraryPin("aten_mm_0", "m" * 16, "aten.mm", (), {}, {"backend": "aten"})
    pins = Pins(APPLY, "digest", "2.11", "3.6", library_pins=(call,))
    assert proof._needs_processes(PinnedRun(pins, {}, {}))
    assert not proof._needs_processes(PinnedRun(replace(pins, edits=(EDIT,)), {}, {}))


def test_the_time_of_a_proof_reaches_the_program_whose_steps_are_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told: list[float | None] = []

    def run(command: object, *, environment: Mapping[str, str], **_: object) -> ProcessResult:
        told.append(decode(Pins, read_json(Path(environment[PINS]))).proof_s)
        raise InductorBenchError("that is enough")

    monkeypatch.setattr(proof, "run_process", run)
    monkeypatch.setattr(apply, "read_environment", lambda python: step_runs.decode().environment)
    monkeypatch.setattr(apply, "require_same", lambda *_: None)
    pinned = PinnedRun(Pins(APPLY, "digest", "2.11", "3.6", edits=(EDIT,)), {}, {})
    monkeypatch.setattr(apply, "_list_pins", lambda *_: pinned)
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    folder.save(step_runs.transformer())
    words = documented(
        "inductor-bench apply runs/train --verify --proof-time 30 -- python train.py", {"runs/train": folder.path}
    )
    place = words.index("--proof-time")
    for given in (words, [*words[:place], *words[place + 2 :]]):
        assert entry(given) == 1
    assert told == [30.0, None]
    assert entry([word for word in words if word != "--verify"]) == 2, "without a proof"


def test_whole_processes_say_that_they_are_not_compared_for_longer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        proof, "run_to_end", lambda *_: (ProcessResult(0, None, False, 1.0, tmp_path / "log"), tmp_path)
    )
    monkeypatch.setattr(proof, "read_steps", lambda _: [ObservedSteps(1, "cpu", DONE, step_times_s=(1e-3,) * 5)])
    pinned = PinnedRun(Pins(APPLY, "digest", "2.11", "3.6", edits=(EDIT,)), {}, {})
    for proof_s in (None, 60.0):
        plan = ProofPlan(RunFolder(tmp_path / "run"), ["python"], {}, proof_s=proof_s, replays=True)
        notes = proof.verify(pinned, plan, Silent()).notes
        assert (proof.NOT_LONGER in notes) == (proof_s is not None)


def test_every_second_pair_of_processes_runs_no_edit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[int] = []

    def start(pinned: PinnedRun, *_: object) -> tuple[ProcessResult, Path]:
        ran.append(len(pinned.pins.edits))
        return ProcessResult(0, None, False, 1.0, tmp_path / "log"), tmp_path / "work"

    monkeypatch.setattr(proof, "run_to_end", start)
    loads = iter([None, replace(BUSY, waited_s=0.1), BUSY, None])
    monkeypatch.setattr(
        proof, "read_steps", lambda _: [ObservedSteps(1, "cpu", DONE, step_times_s=(1e-3,) * 5, load=next(loads))]
    )
    pinned = PinnedRun(Pins(APPLY, "digest", "2.11", "3.6", edits=(EDIT,)), {}, {})
    found = proof.verify(pinned, ProofPlan(RunFolder(tmp_path), ["python"], {}, replays=True), Silent())
    assert ran == [0, 1, 1, 0]
    assert [(one.name, one.state, one.edit) for one in found.kernels] == [("triton_red_0", "missing", "mine.py")]
    assert "--check" in found.outputs.reason, "whole processes tell nothing of outputs"
    assert found.load == BUSY, "of the process that other work delayed most"
