"""Edited kernels under check: those that are wrong are refused, each with its reason, and honest ones are not."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from edited_kernels import CHEATS, HONEST, LAUNCHES, ROLES, Compiled, Worker, compile_all, edits_of, exact_of

from inductor_bench.autotune.methods import RaceResult, Runner
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.process import ProcessResult
from inductor_bench.launch.worker import WorkerLostError
from inductor_bench.messages.kernel_requests import Sample, Times
from inductor_bench.records.run import Peaks
from inductor_bench.source.edited import KernelEdit
from inductor_bench.workflows.kernels import edit_evidence
from inductor_bench.workflows.kernels.edit_check import HINTS, EditUnderCheck
from inductor_bench.workflows.kernels.edit_evidence import (
    EditRefusedError,
    count_compulsory_bytes,
    find_roof,
    require_below_roof,
    require_true_clock,
)
from inductor_bench.workflows.progress import Progress, Silent


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    return compile_all(tmp_path_factory.mktemp("edits"))


def facts_of(kernel: str) -> dict[str, Any]:
    roles = {role: list(places) for role, places in vars(ROLES[kernel]).items()}
    return {"roles": roles, "launches": LAUNCHES[kernel], "moved_bytes": 13720}


def checked(
    library: ctypes.CDLL,
    kernel: str,
    name: str,
    folder: Path,
    runner: Any = None,
    fails_with: tuple[str, ...] = (),
    has_exact: bool = False,
    progress: Progress | None = None,
) -> tuple[str, str, list[Any]]:
    """Returns the reason for which an edit is refused, in an id and in words, and what was checked."""
    functions, launches = edits_of(library, kernel), LAUNCHES[kernel]
    edit = KernelEdit(folder / "mine.py", kernel, "cpp", "", "", "", "2.13", None, "", facts=facts_of(kernel))
    runner = runner or Worker(dict(enumerate(Compiled(functions[name], launch) for launch in launches)))
    judge = Worker(dict(enumerate(Compiled(functions["the original"], launch) for launch in launches)), fails_with)
    judge.kernels.update(exact_of(library, kernel))
    session: Any = runner
    check = EditUnderCheck(edit, session, folder, progress=progress or Silent())
    check.judge, check.has_originals, check.launches = judge, True, len(launches)  # type: ignore[assignment]
    check.has_exact, check.seed = has_exact, 20261126
    try:
        check.check_all()
    except EditRefusedError as refused:
        return refused.reason, refused.words, check.checks
    return "", "", check.checks


@pytest.mark.parametrize("has_exact", [False, True], ids=["original", "float64"])
@pytest.mark.parametrize(("kernel", "name"), [(kernel, name) for kernel in CHEATS for name in CHEATS[kernel]])
def test_a_wrong_edit_is_refused_with_the_reason(
    library: ctypes.CDLL, kernel: str, name: str, tmp_path: Path, has_exact: bool
) -> None:
    reason, words, checks = checked(library, kernel, f"cheat: {name}", tmp_path, has_exact=has_exact)
    assert reason in CHEATS[kernel][name][0].split(" or "), words
    assert words
    assert checks[-1].outcome == "refused"


@pytest.mark.parametrize("has_exact", [False, True], ids=["original", "float64"])
@pytest.mark.parametrize(("kernel", "name"), [(kernel, name) for kernel in HONEST for name in HONEST[kernel]])
def test_an_honest_edit_is_not_refused(
    library: ctypes.CDLL, kernel: str, name: str, tmp_path: Path, has_exact: bool
) -> None:
    reason, words, checks = checked(library, kernel, name, tmp_path, has_exact=has_exact)
    assert (reason, words) == ("", "")
    assert {check.outcome for check in checks} == {"passed"}
    assert {check.launch for check in checks} == {0, 1}
    known = {check.against for check in checks if check.values in ("recorded", "other", "large")}
    assert known == ({"float64"} if has_exact else {"original"})


@dataclass
class Lost:
    """Stands for a worker that is lost at its first call of the edited kernel."""

    kind: str
    alive: bool = False

    def ask(self, request: Any, limit_s: float) -> Any:
        signal = None if self.kind == "hung" else "SIGSEGV"
        raise WorkerLostError(self.kind, ProcessResult(None, signal, self.kind == "hung", 2.0, Path(os.devnull)))


@pytest.mark.parametrize(("kind", "said"), [("crashed", "SIGSEGV"), ("hung", "it gave no end")])
def test_an_edit_that_crashes_or_hangs_is_refused(library: ctypes.CDLL, kind: str, said: str, tmp_path: Path) -> None:
    reason, words, checks = checked(library, "rows", "the original", tmp_path, runner=Lost(kind))
    assert reason == kind
    assert said in words
    assert checks[-1].outcome == "refused"


@dataclass
class Listener(Silent):
    """Keeps what a stage says of where it is."""

    said: list[str] = field(default_factory=list)

    def update(self, text: str) -> None:
        self.said.append(text)


def test_each_case_is_told_before_it_is_checked(library: ctypes.CDLL, tmp_path: Path) -> None:
    listener = Listener()
    checked(library, "rows", "the original", tmp_path, progress=listener)
    assert listener.said[0] == "with recorded values, launch 1 of 2"
    assert "with values scaled up, launch 1 of 2" in listener.said
    assert listener.said[-1] == "with NaN among the values, launch 2 of 2"


def test_values_with_which_the_original_cannot_be_run_are_left_out(library: ctypes.CDLL, tmp_path: Path) -> None:
    reason, _, checks = checked(library, "rows", "the original", tmp_path, fails_with=("large", "nan"))
    assert reason == ""
    assert {check.values for check in checks if check.outcome == "skipped"} == {"large", "nan"}
    with pytest.raises(InductorBenchError, match="the original does not run here"):
        checked(library, "rows", "the original", tmp_path, fails_with=("recorded",))


def test_a_kernel_that_is_faster_than_its_bytes_is_refused_unless_the_original_is(tmp_path: Path) -> None:
    edit = KernelEdit(tmp_path / "mine.py", "rows", "cpp", "", "", "", "2.13", None, "", facts=facts_of("rows"))
    assert count_compulsory_bytes(edit) == 24 * 70 * 4 * 2 + 70 * 4
    indexed = replace(edit, facts={**facts_of("update"), "moved_bytes": 1 << 20})
    assert count_compulsory_bytes(indexed) == 1000 * 4 + 1000
    peaks = Peaks("cpu", 1e9, {}, cache_bytes=1000, cache_bandwidth=9e9)
    assert find_roof(2000, peaks, "cold") == 1e9
    assert find_roof(500, peaks, "cold") == find_roof(2000, peaks, "warm") == 9e9
    assert find_roof(500, None, "cold") is None
    moved_s = 13720 / 1e9
    require_below_roof(edit, (2 * moved_s, 0.9 * moved_s), peaks, "cold")
    require_below_roof(edit, (0.5 * moved_s, 0.4 * moved_s), peaks, "cold")
    with pytest.raises(EditRefusedError, match=r"13,720 bytes at 2\.0 GB/s") as raised:
        require_below_roof(edit, (2 * moved_s, 0.5 * moved_s), peaks, "cold")
    assert raised.value.reason == "above-roof"


@dataclass
class Clocked:
    """Stands for a worker that runs an original, 0, and an edit, 1, and whose clock an edit may have changed."""

    true_s: tuple[float, float]  # of one call of each
    pace: float = 1.0  # how much the clock of the worker shows in a second while the edit runs
    delay_s: float = 0.0003  # of a message
    now_s: float = 0.0

    def ask(self, request: Any, limit_s: float) -> Any:
        if isinstance(request, Sample):
            (number,) = request.order
            return Times((self.true_s[number] * (self.pace if number else 1.0),), "")
        self.now_s += self.delay_s + request.count * self.true_s[request.number]
        return None


@pytest.mark.parametrize("true_s", [(3e-6, 3e-6), (0.2, 0.1), (1e-4, 5e-5), (2e-6, 1e-3)])
def test_an_edit_that_changes_the_clock_of_its_process_is_refused(true_s: tuple[float, float]) -> None:
    honest: Any = Clocked(true_s)
    require_true_clock(honest, (0, 1), 60.0, lambda: honest.now_s)
    for pace in (0.5, 0.01):
        cheat: Any = Clocked(true_s, pace)
        with pytest.raises(EditRefusedError, match="by the clock of another process a call takes") as refused:
            require_true_clock(cheat, (0, 1), 60.0, lambda: cheat.now_s)  # noqa: B023
        assert refused.value.reason == "clock"


@dataclass
class Interrupted(Clocked):
    """The same beside other programs, which interrupt the first blocks of the edit."""

    blocks: int = 7

    def ask(self, request: Any, limit_s: float) -> Any:
        found = super().ask(request, limit_s)
        if not isinstance(request, Sample) and request.number and request.count > 1 and self.blocks:
            self.blocks -= 1
            self.now_s += 5 * request.count * self.true_s[1]
        return found


def test_other_programs_do_not_change_the_clock() -> None:
    busy: Any = Interrupted((1e-4, 5e-5))
    require_true_clock(busy, (0, 1), 60.0, lambda: busy.now_s)


def test_a_clock_that_differs_on_a_busy_machine_is_no_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    def differ(*_: object) -> None:
        raise EditRefusedError("clock", "a call takes 9 µs, and 3 µs")

    monkeypatch.setattr(edit_evidence, "require_true_clock", differ)
    session: Any = None
    busy = edit_evidence.check_clock(
        session, (0, 1), 60.0, "2 threads; unreliable: the machine is busy, load 9.1 on 2 CPUs"
    )
    assert busy == "a call takes 9 µs, and 3 µs: other programs may be the reason"
    with pytest.raises(EditRefusedError):
        edit_evidence.check_clock(session, (0, 1), 60.0, "2 threads")


@pytest.mark.parametrize(
    ("edited", "doubt"),
    [
        ((0.512e-3, 6.0e-3, 6.1e-3), "but its fastest call took 0.512 ms, and that of the original 0.482 ms"),
        ((0.3e-3, 6.0e-3, 6.1e-3), ""),
    ],
)
def test_an_edit_whose_fastest_call_is_no_faster_is_not_called_faster(edited: tuple[float, ...], doubt: str) -> None:
    original = Runner("final", (0.482e-3, 10.1e-3, 10.2e-3))
    said = edit_evidence.doubt_minimum(RaceResult((original, Runner("final", edited)), 1, 1, "faster"))
    assert said.endswith(doubt) and bool(said) == bool(doubt)


def test_each_reason_of_a_refusal_has_a_hint() -> None:
    reasons = {one for cheats in CHEATS.values() for found, _ in cheats.values() for one in found.split(" or ")}
    assert reasons | {"crashed", "hung", "raised", "no-compile", "above-roof", "clock"} == HINTS.keys()
