"""The modes of each model of a list: its requests, failures, and what the same command does again."""

from __future__ import annotations

from pathlib import Path

import mode_rows
import pytest

from inductor_bench.errors import InductorBenchError, StoppedInFolder, UsageError
from inductor_bench.records.base import Failure
from inductor_bench.records.comparison import ModeComparison, ModeProcess
from inductor_bench.records.request import BreakdownRequest, ModesRequest
from inductor_bench.workflows import modes
from inductor_bench.workflows.modes import choose_folder, is_list, run_list
from inductor_bench.workflows.modules.module_measurements import Survey
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.single_run import ProcessTurn, ProgramRunner

STEPS = {"eager": 0.1, "default": 0.05}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[BreakdownRequest]:
    """The requests of the processes that ran. A list of two models lies in a separate folder."""
    requests: list[BreakdownRequest] = []

    def run(self: ProgramRunner, place: ProcessTurn, rounds: int, other: ModeProcess | None) -> ModeProcess | Failure:
        requests.append(self._request)
        return mode_rows.process(place.round, STEPS[place.name], compile_time_s=10.0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(modes, "take_survey", lambda *_, **__: Survey(mode_rows.ENVIRONMENT))
    monkeypatch.setattr(ProgramRunner, "run", run)
    Path("models.txt").write_text("timm:mixnet_l 128\ntimm:convnext_tiny 64\n")
    return requests


def compare(**options: object) -> dict[str, ModeComparison | None]:
    program = BreakdownRequest("models.txt", **options)  # type: ignore[arg-type]
    found = run_list(ModesRequest(("eager", "default"), rounds=2, program=program), Silent())
    return {model.name: model.comparison for model in found.models}


def test_each_model_has_a_comparison_in_a_folder_of_its_own(ran: list[BreakdownRequest]) -> None:
    found = compare(training=True)
    assert [comparison is not None and comparison.is_complete for comparison in found.values()] == [True, True]
    sizes = {(one.target, one.batch_size, one.training) for one in ran}
    assert sizes == {("timm:mixnet_l", 128, True), ("timm:convnext_tiny", 64, True)} and len(ran) == 8
    assert Path("modes/models/mixnet_l/modes.json").is_file()
    ran.clear()
    assert compare(training=True) == found and ran == [], "the same command runs nothing again"


def test_options_of_the_command_line_precede_those_of_the_list(ran: list[BreakdownRequest]) -> None:
    compare(batch_size=2, output=Path("mine"))
    assert {one.batch_size for one in ran} == {2} and Path("mine/convnext_tiny").is_dir()


def test_a_model_that_cannot_be_compared_does_not_end_the_others(ran: list[BreakdownRequest]) -> None:
    Path("modes/models/mixnet_l").mkdir(parents=True)
    Path("modes/models/mixnet_l/notes.txt").write_text("mine")
    found = compare()
    assert found["mixnet_l"] is None and found["convnext_tiny"] is not None


def test_a_folder_with_other_files_or_a_link_is_refused(ran: list[BreakdownRequest]) -> None:
    Path("run").mkdir()
    Path("run/record.json").write_text("{}")
    with pytest.raises(UsageError, match="run is not empty and holds no comparison of modes"):
        compare(output=Path("run"))
    Path("link").symlink_to("run")
    with pytest.raises(InductorBenchError, match="symbolic link"):
        compare(output=Path("link"))
    assert not ran and not Path("run/report.html").exists()


def test_an_interrupted_list_has_what_was_measured(
    ran: list[BreakdownRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ProgramRunner.run

    def run(self: ProgramRunner, place: ProcessTurn, rounds: int, other: ModeProcess | None) -> ModeProcess | Failure:
        if len(ran) == 5:
            raise KeyboardInterrupt
        return whole(self, place, rounds, other)

    monkeypatch.setattr(ProgramRunner, "run", run)
    with pytest.raises(StoppedInFolder, match="modes/models; the same command continues") as stop:
        compare()
    first, second = stop.value.found.models
    assert first.comparison is not None and first.comparison.is_complete
    assert second.comparison is not None
    assert {row.name: len(row.processes) for row in second.comparison.rows} == {"eager": 0, "default": 1}


def test_a_list_is_known_by_its_name() -> None:
    assert is_list(BreakdownRequest("a.yaml")) and is_list(BreakdownRequest("a.txt"))
    assert not is_list(BreakdownRequest("a.py")) and not is_list(BreakdownRequest(arguments=("a.txt",)))
    assert choose_folder(BreakdownRequest("lists/a.txt")) == Path("modes/a")


def test_a_list_that_is_missing_is_refused(ran: list[BreakdownRequest]) -> None:
    Path("models.txt").unlink()
    with pytest.raises(UsageError, match="does not exist"):
        compare()
