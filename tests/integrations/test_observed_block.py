"""What may go wrong around a block: nothing of it ends the program, and the RUN or a warning says what it was."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.records.request_fields import PROCESS
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows import observe
from inductor_bench.workflows.observe import ObservedBlock, request_of_block


def nothing() -> None:
    pass


class Observer:
    """An observer that sees nothing."""

    is_measured = False

    def __init__(self, begins: Callable[[], None], ends: Callable[[], None]) -> None:
        self.begin, self._ends = begins, ends

    def __call__(self, observed: Path, trace: Path, *, samples: bool) -> Observer:
        assert observed.is_dir() and trace.is_dir() and samples
        return self

    def end(self) -> str:
        self._ends()
        return ""


def block(
    folder: Path, begins: Callable[[], None] = nothing, ends: Callable[[], None] = nothing, **options: bool
) -> ObservedBlock:
    request = request_of_block(folder, "a test", force=options.pop("force", False), samples=True)
    return ObservedBlock(request, Observer(begins, ends), lambda: "", **options)


def fails() -> None:
    raise AttributeError("torch has no such name")


def test_a_block_without_steps_says_what_it_lacks(tmp_path: Path) -> None:
    with block(tmp_path / "run") as run:
        assert not run.is_measured and run.folder == tmp_path / "run"
        with pytest.raises(InductorBenchError, match="has not come to its end"):
            _ = run.headline
    (failure,) = run.failures
    assert failure.kind == "nothing-compiled" and "the block called no compiled graph" in failure.text
    assert math.isnan(run.step_time_s)
    record = RunFolder(tmp_path / "run").load()
    assert (record.title, record.request.kind, record.command) == ("a test", PROCESS, observe.OBSERVED)
    assert (tmp_path / "run" / "report.html").is_file() and dict(run.kernels) == {} and run.findings == ()


def test_what_torch_lacks_is_a_warning_and_leaves_no_run(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="cannot be observed: AttributeError: torch has no such name"):
        entered = block(tmp_path / "run", begins=fails)
        with entered as run:
            assert not run.is_measured and run.folder is None
    assert not (tmp_path / "run" / "record.json").exists() and observe.active == []
    assert math.isnan(run.step_time_s) and math.isnan(run.kernels["triton_*"].time_s) and run.findings == ()
    assert run.headline.startswith("this process cannot be observed")
    with pytest.raises(InductorBenchError, match="cannot be observed"):
        _ = run.record


def test_what_fails_at_the_end_is_a_failure_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.warns(UserWarning, match="not measured completely: AttributeError"),
        block(tmp_path / "run", ends=fails) as run,
    ):
        pass
    assert "AttributeError: torch has no such name" in run.failures[0].text
    assert "Traceback" in capsys.readouterr().err and observe.active == []


def test_an_exception_of_the_program_is_its_own(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), block(tmp_path / "run") as run:
        _ = 1 / 0
    assert "the block ended with ZeroDivisionError" in run.headline


def test_a_program_that_a_command_observes_is_left_alone(tmp_path: Path) -> None:
    entered = block(tmp_path / "run", begins=fails, is_observed=True)
    with pytest.warns(UserWarning, match="observes this program already"), entered as run:
        assert not run.is_measured and str(run) == observe.BY_COMMAND
    assert not (tmp_path / "run").exists()


def test_a_folder_that_is_in_use_is_named_before_anything_is_observed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("")
    with pytest.raises(UsageError, match="is not empty") as caught, block(tmp_path / "mine", begins=fails):
        pass
    assert caught.value.hint == "choose another folder" and observe.active == []
    with block(tmp_path / "run"):
        pass
    with block(tmp_path / "run", force=True) as again:
        pass
    assert again.failures


def test_a_full_disk_costs_the_report_and_not_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise InductorBenchError("cannot write record.json: No space left on device")

    with pytest.warns(UserWarning) as told, block(tmp_path / "run") as run:
        monkeypatch.setattr(RunFolder, "save", full)
    assert any("the RUN is not complete: cannot write record.json" in str(one.message) for one in told)
    assert run.failures
