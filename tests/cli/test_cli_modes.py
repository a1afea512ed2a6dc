"""The verb ``modes`` on the command line: its options, its exit codes, and what it prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import mode_rows
import pytest
from click.testing import CliRunner

import inductor_bench
from inductor_bench.cli.main import main
from inductor_bench.cli.modes import command, exit_code
from inductor_bench.errors import StoppedInFolder
from inductor_bench.records.base import Failure
from inductor_bench.records.comparison import NOT_TIMED, ModeComparison, ModelModes, ModesByModel
from inductor_bench.records.request import ModesRequest
from inductor_bench.workflows import modes
from inductor_bench.workflows import modes as models
from inductor_bench.workflows.modes import ModesOutcome
from inductor_bench.workflows.progress import Progress


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[ModesRequest]:
    monkeypatch.chdir(tmp_path)
    found: list[ModesRequest] = []

    def run_modes(options: ModesRequest, progress: Progress) -> ModesOutcome:
        found.append(options)
        return ModesOutcome(compared(), Path("modes/train"), measured=False)

    monkeypatch.setattr(modes, "run_modes", run_modes)
    return found


def compared() -> ModeComparison:
    return mode_rows.comparison(mode_rows.row("eager", [0.1] * 4), mode_rows.row("default", [0.05] * 4, 10.0))


def test_each_option_reaches_the_request(asked: list[ModesRequest], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["modes", "--mode", "eager", "--with", "tf32", "--env", "A=1", "--option", "inductor.x=2", "--rounds", "6"]
    assert main([*words, "--amp", "bf16", "--timeout", "9", "--", "python", "train.py", "--lr", "1"]) == 0
    (options,) = asked
    assert (options.modes, options.withs, options.variables) == (("eager",), ("tf32",), (("A", "1"),))
    assert options.inductor == ("inductor.x=2",)
    assert options.rounds == 6 and options.program.arguments == ("python", "train.py", "--lr", "1")
    assert (options.program.amp, options.program.timeout_s, options.program.target) == ("bfloat16", 9.0, "")
    printed = capsys.readouterr()
    assert "Take default" in printed.out and "nothing was run; --force measures again" in printed.err


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_each_format_is_printed(asked: list[ModesRequest], capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert main(["modes", "train.py", "--format", form, "-q"]) == 0
    printed = capsys.readouterr()
    assert "default" in printed.out and printed.err == ""
    assert "Take default" in Path("modes/train/report.html").read_text()


@pytest.mark.parametrize("form", ["table", "json"])
def test_an_interrupted_comparison_shows_rows_of_one_round(
    asked: list[ModesRequest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    eager, default = mode_rows.row("eager", []), mode_rows.row("default", [0.0512], 10.0)
    outcome = ModesOutcome(mode_rows.comparison(eager, default), Path("modes/train"), measured=True)

    def interrupted(options: ModesRequest, progress: Progress) -> ModesOutcome:
        raise StoppedInFolder(outcome, outcome.folder) from KeyboardInterrupt()

    monkeypatch.setattr(modes, "run_modes", interrupted)
    assert main(["modes", "train.py", "--format", form]) == 130
    printed = capsys.readouterr()
    assert ("51.2 ms" if form == "table" else '"step_time_s": 0.0512') in printed.out
    assert "interrupted; what was measured until then is in modes/train" in printed.err
    assert "51.2 ms" in Path("modes/train/report.html").read_text()


def test_an_interrupted_list_shows_its_models(
    asked: list[ModesRequest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = ModesByModel("list.txt", (ModelModes("first", compared()),))

    def interrupted(*_: object) -> ModesByModel:
        raise StoppedInFolder(found, Path("modes/list"))

    monkeypatch.setattr(models, "run_list", interrupted)
    assert main(["modes", "list.txt"]) == 130
    printed = capsys.readouterr()
    assert "first" in printed.out and "interrupted; what was measured until then is in modes/list" in printed.err


def test_a_setting_that_is_none_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modes", "train.py", "--with", "warp-speed"]) == 2
    assert "'warp-speed' is no setting" in capsys.readouterr().err


def test_the_exit_code_tells_failures_from_rows_that_cannot_be_timed() -> None:
    whole = compared()
    assert exit_code(whole) == 0
    eager, default = whole.rows
    untimed = replace(eager, failure=Failure("mode", NOT_TIMED, "no marks"))
    assert exit_code(replace(whole, rows=(untimed, default))) == 0
    failed = replace(eager, failure=Failure("mode", "timeout", "it hung"))
    assert exit_code(replace(whole, rows=(failed, default))) == 1


@pytest.mark.parametrize("form", ["table", "json", "csv", "md", "html"])
def test_a_list_is_compared_model_by_model(
    asked: list[ModesRequest], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], form: str
) -> None:
    whole = ModelModes("first", compared())
    broken = ModelModes("second", failure=Failure("mode", "invalid", "no such model"))
    for found, code in (((whole,), 0), ((whole, broken), 1)):
        monkeypatch.setattr(models, "run_list", lambda *_, found=found: ModesByModel("list.txt", found))
        assert main(["modes", "list.txt", "--format", form, "-q"]) == code
        assert "first" in capsys.readouterr().out
    assert asked == []


def test_the_help_lists_the_switches() -> None:
    shown = CliRunner().invoke(command, ["--help"]).output
    assert all(name in shown for name in ("tf32", "cudnn-benchmark", "channels-last", "freezing", "cpp-wrapper"))


def test_the_library_has_the_same(asked: list[ModesRequest]) -> None:
    inductor_bench.modes("train.py", sets=["tf32"], output="x", training=True)
    (options,) = asked
    assert options.withs == ("tf32",) and options.modes == ()
    assert options.program.output == Path("x") and options.program.training
