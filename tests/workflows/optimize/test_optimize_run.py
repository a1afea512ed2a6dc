"""The search over a RUN: where it lies, what goes on after an interruption, and what is refused."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from zipfile import ZipFile

import pytest
import step_runs
from conftest import ROOT
from documented import documented
from tried_programs import DrawnProgram

from inductor_bench.analysis.optimization import search_rounds
from inductor_bench.analysis.optimization.row_verdicts import NOT_RUN
from inductor_bench.analysis.optimization.trial_plans import TrialPlan
from inductor_bench.cli.main import main
from inductor_bench.errors import InductorBenchError, StoppedInFolder, UsageError
from inductor_bench.messages.observed import TRIED, TriedVariants, VariantState
from inductor_bench.records.base import Failure
from inductor_bench.records.optimization import CONFIRM, DENIED, KEPT, Trial
from inductor_bench.records.request import BreakdownRequest, OptimizeRequest
from inductor_bench.records.run import Environment, Interval, Timeline
from inductor_bench.store import codec
from inductor_bench.store.folder import OptimizationFolder, RunFolder
from inductor_bench.store.run_files import write_timeline
from inductor_bench.workflows import optimize
from inductor_bench.workflows.apply import read_environment
from inductor_bench.workflows.modules import program_run
from inductor_bench.workflows.modules.program_run import name_python
from inductor_bench.workflows.modules.targets import resolve_target
from inductor_bench.workflows.optimize import find_limit, read_machine, run_optimize
from inductor_bench.workflows.optimizing.tried_program import ProgramTrials
from inductor_bench.workflows.progress import Silent


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A RUN whose program is here."""
    with ZipFile(ROOT / "tests" / "data" / "documented" / "blocks.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    (record,) = (tmp_path / "unpacked").rglob("record.json")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(optimize, "read_machine", lambda *_: (Environment(), None))
    folder = RunFolder(record.parent)
    found = folder.load()
    Path("blocks.py").write_text("import torch\noptimizer = torch.optim.AdamW(p)\n")
    folder.save(
        replace(
            found, target="blocks.py", request=replace(found.request, target="blocks.py", kind="script", arguments=())
        )
    )
    return record.parent


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> DrawnProgram:
    """Stands for the program in all trials."""
    drawn = DrawnProgram(0, {"fused-optimizer": 0.1, "cudagraphs": 0.2}, step_s=0.023, most=40)
    monkeypatch.setattr(ProgramTrials, "start", lambda self, plan, gpu: DrawnTrial(plan, gpu))

    def read(self: ProgramTrials, started: DrawnTrial) -> Trial:
        trial = replace(drawn.run(started.plan), gpu=started.gpu)
        self.folder.save_process(trial.name, trial, self.redaction.text)
        return trial

    monkeypatch.setattr(ProgramTrials, "read", read)
    return drawn


@dataclass
class DrawnTrial:
    """A process that ends at once."""

    plan: TrialPlan
    gpu: str

    def has_ended(self, wait_s: float = 0.0) -> bool:
        return True

    def end(self) -> None:
        pass


def request(target: Path | str, **fields: object) -> OptimizeRequest:
    return OptimizeRequest(program=BreakdownRequest(str(target)), **fields)  # type: ignore[arg-type]


def test_a_run_is_searched_and_its_folder_has_what_a_user_needs(run: Path, program: DrawnProgram) -> None:
    outcome = run_optimize(request(run), Silent())
    found = outcome.found
    assert outcome.measured and outcome.folder == run / "optimized" and found.is_complete
    assert found.winner is not None and found.winner.slugs == ("cudagraphs", "fused-optimizer")
    assert found.files == ("apply.py", "README.md", "settings.diff")
    assert "+optimizer = torch.optim.AdamW(p, fused=True)" in (outcome.folder / "settings.diff").read_text()
    compile((outcome.folder / "apply.py").read_text(), "apply.py", "exec")
    assert "fused=True" in (outcome.folder / "README.md").read_text()
    assert not (outcome.folder / ".work").exists()


def test_each_process_is_announced_with_the_time_that_is_left(
    run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(Silent, "stage", lambda self, text: said.append(text))
    found = run_optimize(request(run, budget_s=300.0), Silent()).found
    announced = [text for text in said if text.startswith("running")]
    assert len(announced) == len(found.trials) > 2 and announced[0].startswith("running 01, ranking ")
    assert "(5 min left of 5 min): " in announced[0] and "(4 min left of 5 min): " in announced[1]


def test_the_same_command_runs_nothing_again(run: Path, program: DrawnProgram) -> None:
    first = run_optimize(request(run), Silent())
    program.asked.clear()
    again = run_optimize(request(run), Silent())
    assert not again.measured and not program.asked and again.found == first.found


def test_an_interrupted_search_goes_on(run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = program.run

    def interrupted(plan: TrialPlan) -> Trial:
        if len(program.asked) == 4:
            raise KeyboardInterrupt
        return drawn(plan)

    monkeypatch.setattr(program, "run", interrupted)
    with pytest.raises(StoppedInFolder) as stop:
        run_optimize(request(run), Silent())
    shown = stop.value.found.found
    assert not shown.is_complete and len(shown.trials) == 4 and shown.tried and not shown.files
    assert shown.winner is None and shown.row("cudagraphs").reason == NOT_RUN
    monkeypatch.setattr(program, "run", drawn)
    found = run_optimize(request(run), Silent()).found
    assert found.is_complete and found.trials[:4] == shown.trials
    assert [row.slug for row in found.rows if row.state == KEPT] == ["cudagraphs", "fused-optimizer"]
    assert len({plan.name for plan in program.asked}) == len(program.asked), "no trial ran twice"


def test_more_time_goes_on_with_what_had_none(run: Path, program: DrawnProgram) -> None:
    short = run_optimize(request(run, budget_s=65.0), Silent()).found
    assert short.is_complete and short.winner is None
    longer = run_optimize(request(run, budget_s=3000.0), Silent()).found
    assert longer.winner is not None and longer.budget_s == 3000.0


def test_a_result_that_was_not_run_from_the_start_says_so_and_a_longer_command_runs_it(
    run: Path, program: DrawnProgram, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_rounds, "FROM_START", ())
    program.start_s, program.compile_s, program.cached, program.check_s = 14.0, 40.0, 0.04, 4.0
    place, caveat = run / "optimized", "not yet confirmed in new processes that start with the settings"
    assert main(["optimize", str(run), "--budget", "180s"]) == 5
    shown = capsys.readouterr().out
    assert caveat in shown.partition("\n\n")[2].partition("\n\n")[0].replace("\n", " ")
    assert "checks the result in new processes that start with the settings" in shown
    assert all(caveat in (place / name).read_text() for name in ("README.md", "apply.py"))
    first = [plan.name for plan in program.asked]
    assert main(["optimize", str(run), "--budget", "180s", "--format", "json", "-q"]) == 5
    found = json.loads(capsys.readouterr().out)
    assert (found["winner"]["from_start"], len(program.asked)) == ("not yet", len(first))
    assert main(["optimize", str(run), "--budget", "10m", "-q"]) == 0
    assert caveat not in capsys.readouterr().out + (place / "README.md").read_text()
    assert {plan.purpose for plan in program.asked[len(first) :]} == {CONFIRM}
    found = OptimizationFolder(place).load()
    assert (found.searched_s, found.budget_s, find_limit(found)) == (180.0, 600.0, None)
    run_optimize(request(run, budget_s=3000.0), Silent())
    found = OptimizationFolder(place).load()
    assert found.searched_s is None and len(found.tried) > 1, "then it goes on with the other rows"


def test_force_begins_anew(run: Path, program: DrawnProgram) -> None:
    run_optimize(request(run), Silent())
    program.asked.clear()
    anew = OptimizeRequest(program=BreakdownRequest(str(run), force=True))
    assert run_optimize(anew, Silent()).measured
    assert program.asked[0].name == "01-screen"


def test_groups_are_denied_and_unknown_ones_are_refused(run: Path, program: DrawnProgram) -> None:
    found = run_optimize(request(run, denied=("cudagraphs",)), Silent()).found
    assert found.winner is not None and found.winner.slugs == ("fused-optimizer",)
    assert found.row("cudagraphs").reason == DENIED
    with pytest.raises(UsageError, match="no group has this name"):
        run_optimize(request(run, allowed=("tf33",)), Silent())
    with pytest.raises(UsageError, match="with other options"):
        run_optimize(request(run, denied=("loader",)), Silent())
    assert run_optimize(request(run), Silent()).found.row("cudagraphs").reason == DENIED, "the search goes on as it was"


def test_only_some_groups_are_tried(run: Path, program: DrawnProgram) -> None:
    found = run_optimize(request(run, only=("optimizer", "tf32")), Silent()).found
    assert found.tried and {row.group for row in found.tried} <= {"optimizer", "tf32"}
    assert {row.reason for row in found.rows if row.group == "cudagraphs"} == {DENIED}
    assert not any("--allow tf32" in row.reason for row in found.rows), "what is asked for is allowed"
    for more in ({"only": ("tf33",)}, {"only": ("tf32",), "denied": ("loader",)}):
        with pytest.raises(UsageError, match=r"no group has this name|already says which groups"):
            run_optimize(request(run, **more), Silent())  # type: ignore[arg-type]


def test_a_search_in_a_run_takes_no_other_folder(run: Path, program: DrawnProgram, tmp_path: Path) -> None:
    asked = OptimizeRequest(program=BreakdownRequest(str(run), output=tmp_path / "elsewhere"))
    with pytest.raises(UsageError, match=r"-o .*elsewhere has no use: the results of a search in a RUN go to"):
        run_optimize(asked, Silent())
    assert not program.asked


def test_options_of_the_user_are_tried(run: Path, program: DrawnProgram) -> None:
    found = run_optimize(
        request(run, inductor=("inductor.epilogue_fusion=false",), variables=(("A_B", "1"),)), Silent()
    ).found
    own = [(row.title, row.alternates) for row in found.rows if row.group == "own"]
    assert own == [("inductor epilogue_fusion=False", True), ("environment A_B='1'", False)]
    assert any("own-1" in plan.slugs for plan in program.asked)


def test_another_command_may_stand_for_that_of_the_run(run: Path, program: DrawnProgram) -> None:
    asked = OptimizeRequest(program=BreakdownRequest(str(run), arguments=("python", "blocks.py", "--more")))
    assert run_optimize(asked, Silent()).found.request.arguments == ("python", "blocks.py", "--more")


def test_a_run_whose_program_is_gone_is_refused(run: Path, program: DrawnProgram) -> None:
    Path("blocks.py").unlink()
    with pytest.raises(UsageError, match="is not here"):
        run_optimize(request(run), Silent())


def test_a_run_with_a_hidden_secret_is_refused(run: Path) -> None:
    folder = RunFolder(run)
    found = folder.load()
    folder.save(replace(found, request=replace(found.request, arguments=("--token", "***"))))
    with pytest.raises(UsageError, match="secrets were left out"):
        run_optimize(request(run), Silent())


def test_a_run_without_steps_is_refused(run: Path) -> None:
    folder = RunFolder(run)
    folder.save(replace(folder.load(), program=None))
    with pytest.raises(InductorBenchError, match="has no step of the program"):
        run_optimize(request(run), Silent())


def test_a_run_whose_figures_do_not_count_is_said_to_be_one(
    run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(Silent, "note", lambda self, text: notes.append(text))
    run_optimize(request(run), Silent())
    assert not any("others disturbed" in note for note in notes)
    monkeypatch.setattr(optimize, "find_disturbed_step", lambda run: "other processes used 48% of the time of 2 cores")
    run_optimize(OptimizeRequest(program=BreakdownRequest(str(run), force=True)), Silent())
    assert any("from a step that other processes disturbed: other processes used 48%" in note for note in notes)


# The commands of docs/optimize.md


def test_a_command_is_broken_down_first(run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def break_down(asked: BreakdownRequest, progress: object) -> None:
        assert asked.output is not None and asked.stop
        made.append(asked)
        folder = RunFolder(asked.output)
        folder.path.mkdir(parents=True)
        resolved = resolve_target(asked).resolved(asked)
        folder.save(replace(RunFolder(run).load(), target=resolved.target, request=replace(resolved, output=None)))

    monkeypatch.setattr(optimize, "run_breakdown", break_down)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    Path("train.py").write_text("import torch\n")
    assert main(documented("inductor-bench optimize -- python train.py")) == 0
    (asked,) = made
    assert (asked.kind, asked.target, asked.arguments) == ("", "", ("python", "train.py"))  # as the breakdown is typed
    assert Path("runs/train-optimize/optimized/report.html").is_file()


def test_a_command_has_limits_and_groups(run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(optimize, "run_optimize", lambda request, console: seen.append(request) or stop())
    words = documented(
        "inductor-bench optimize --budget 5m --allow tf32 --deny cudagraphs --max-memory 70GB -- python train.py"
    )
    assert main(words) == 1
    (asked,) = seen
    assert (asked.budget_s, asked.allowed, asked.denied) == (300.0, ("tf32",), ("cudagraphs",))
    assert asked.max_memory_bytes == 70 * 10**9 and asked.program.arguments == ("python", "train.py")


def test_a_command_names_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[OptimizeRequest] = []
    monkeypatch.setattr(optimize, "run_optimize", lambda request, console: seen.append(request) or stop())
    assert main(documented("inductor-bench optimize --devices 0,1 -- python train.py")) == 1
    assert seen[0].devices == ("0", "1")


def stop() -> None:
    raise InductorBenchError("seen")


def test_the_result_is_shown_and_a_program_runs_with_it(
    run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(documented("inductor-bench optimize runs/train", {"runs/train": run})) == 0
    assert "tried, 2 kept" in " ".join(capfd.readouterr().out.split())
    told = Path("told.txt")
    monkeypatch.setenv("PATH", f"{Path.cwd()}:/usr/bin:/bin")
    Path("python").write_text(f'#!/bin/sh\ncat "$INDUCTOR_BENCH_VARIANTS" > {told.absolute()}\nexit 7\n')
    Path("python").chmod(0o755)
    places = {f"runs/{name}/optimized": run / "optimized" for name in ("train-optimize", "train")}
    assert main(documented("inductor-bench apply runs/train-optimize/optimized -- python train.py", places)) == 7
    assert main(documented("inductor-bench apply runs/train/optimized -- python train.py", places)) == 7
    asked = json.loads(told.read_text())
    assert asked["alternates"] is False and asked["most"] == 0
    assert [one["setting"] for one in asked["variants"][0]["switches"]] == ["triton.cudagraphs", "fused"]


@pytest.mark.parametrize("applied", [(), ("triton.cudagraphs=True", "fused=True")])
def test_a_failed_program_is_said_to_have_failed(
    applied: tuple[str, ...],
    run: Path,
    program: DrawnProgram,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    folder = run_optimize(request(run), Silent()).folder
    tried = TriedVariants(1, "cpu", "timing", variants=(VariantState(0), VariantState(1, applied=applied)))
    Path("tried.json").write_text(json.dumps(codec.encode(tried)))
    writes = f'cp tried.json "$(dirname "$INDUCTOR_BENCH_VARIANTS")/1{TRIED}"\n' if applied else ""
    Path("python").write_text(f"#!/bin/sh\n{writes}exit 3\n")
    Path("python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path.cwd()}:/usr/bin:/bin")
    capfd.readouterr()
    assert main(["apply", str(folder), "--", "python", "blocks.py"]) == 3
    said = " ".join(capfd.readouterr().err.split())
    seen = "steps ran with inductor triton.cudagraphs=True, optimizer fused=True"
    assert f"the program failed with exit code 3; {seen if applied else 'no step with the settings was seen'}" in said
    assert ("ran with" in said) == bool(applied)


def test_the_commands_name_the_interpreter_that_ran_the_program_if_another_one_is_first(
    run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bin").mkdir()
    Path("bin/python").symlink_to(sys.executable)  # the file is the same, the virtual environment is another
    monkeypatch.setenv("PATH", f"{Path('bin').resolve()}:/usr/bin:/bin")
    assert main(["optimize", str(run)]) == 0
    assert f"optimized -- {sys.executable} blocks.py" in capsys.readouterr().out.replace("\n          ", " ")
    assert f"optimized -- {sys.executable} blocks.py  " in (run / "optimized" / "README.md").read_text()


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        (BreakdownRequest("train.py", "script"), None),
        (BreakdownRequest("train.py", "script", python="/else/python"), "/else/python"),
        (BreakdownRequest("", "command", arguments=("python", "train.py")), None),
    ],
)
def test_the_first_python_on_the_path_needs_no_name(
    asked: BreakdownRequest, named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("own", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python").symlink_to(sys.executable)
    own = str(tmp_path / "own" / "python")
    monkeypatch.setattr(program_run, "default_python", lambda: own)
    monkeypatch.setenv("PATH", f"{tmp_path / 'own'}:{tmp_path / 'other'}")
    assert name_python(asked) == named
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:{tmp_path / 'own'}")
    by_default = asked.kind == "script" and not asked.python
    assert name_python(asked) == (own if by_default else named)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert name_python(asked) == (own if by_default else named)


def test_settings_need_no_proof_and_the_hint_has_the_programs_command(
    run: Path, program: DrawnProgram, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_optimize(request(run), Silent()).folder
    capsys.readouterr()
    assert main(["apply", str(folder), "--verify", "--", "python", "blocks.py"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "optimize has proven the settings" in said and f"apply {folder} -- python blocks.py" in said


def test_a_search_without_a_result_runs_no_program(run: Path, program: DrawnProgram) -> None:
    program.savings = {}
    run_optimize(request(run), Silent())
    assert main(["apply", str(run / "optimized"), "--", "true"]) == 1
    assert main(["apply", str(run / "optimized")]) == 2


def test_a_program_that_failed_says_why(run: Path) -> None:
    folder = RunFolder(run)
    failure = Failure("capture", "exit", "the program exited with code 1: KeyError: 1")
    folder.save(replace(folder.load(), program=None, failures=(failure,)))
    with pytest.raises(InductorBenchError, match="KeyError: 1"):
        run_optimize(request(run), Silent())


def test_a_module_is_no_program(tmp_path: Path) -> None:
    module = tmp_path / "c.py"
    module.write_text("# AOT ID: ['0_forward']\n")
    with pytest.raises(UsageError, match="optimize runs a program"):
        run_optimize(request(module), Silent())


# Several GPUs


ON_ONE = Timeline(1.0, (Interval("stream 7", 0.0, 1.0, "eager", ""), Interval("host", 0.0, 1.0, "eager", "")))
ON_TWO = Timeline(1.0, (*ON_ONE.intervals, Interval("device 1 stream 7", 0.0, 1.0, "eager", "")))


def test_trials_are_spread_over_all_gpus(run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,3")
    write_timeline(RunFolder(run), ON_ONE)
    found = run_optimize(request(run), Silent()).found
    assert found.winner is not None and found.winner.slugs == ("cudagraphs", "fused-optimizer")
    assert {trial.gpu for trial in found.trials} == {"0", "3"}
    both = [trial.gpu for trial in found.trials if trial.purpose == "prove"]
    assert both == ["0", "3"] * (len(both) // 2)


def test_named_gpus_are_used(run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    found = run_optimize(request(run, devices=("1", "2")), Silent()).found
    assert {trial.gpu for trial in found.trials} == {"1", "2"} and found.devices == ("1", "2")
    with pytest.raises(UsageError, match="names a device twice"):
        run_optimize(request(run, devices=("1", "1")), Silent())
    with pytest.raises(UsageError, match="there is no GPU 7"):
        run_optimize(request(run, devices=("1", "7")), Silent())
    monkeypatch.setattr(optimize, "list_gpu_models", lambda gpus: ("H100", "A100"))
    with pytest.raises(UsageError, match="different models"):
        run_optimize(request(run, devices=("0", "1")), Silent())


def test_the_program_sees_no_other_gpu(run: Path) -> None:
    asked = optimize.choose_devices(request(run, devices=()))
    assert asked.program.variables == ()
    with pytest.raises(UsageError, match="there is no GPU 0"):
        optimize.choose_devices(request(run, devices=("0",)))


@pytest.mark.parametrize("device", [None, "cuda:1"])
def test_a_cpu_and_a_named_device_have_one_trial_at_a_time(
    run: Path, monkeypatch: pytest.MonkeyPatch, device: str | None
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    write_timeline(RunFolder(run), ON_ONE)
    found = RunFolder(run).load() if device else step_runs.cpu()
    asked = OptimizeRequest(program=BreakdownRequest(str(run), device=device))
    assert optimize.spread_over(asked, found, RunFolder(run), Silent()) == ("",)


@pytest.mark.parametrize("kind", ["ranks", "one process", "models", "unknown"])
def test_a_program_with_all_gpus_runs_one_trial_at_a_time(
    run: Path, program: DrawnProgram, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    folder = RunFolder(run)
    found = folder.load()
    assert found.program is not None
    if kind != "unknown":
        write_timeline(folder, ON_TWO if kind == "one process" else ON_ONE)
    if kind == "ranks":
        ranks = tuple(replace(found.program.ranks[0], rank=rank) for rank in range(2))
        folder.save(replace(found, program=replace(found.program, ranks=ranks)))
    elif kind == "models":
        monkeypatch.setattr(optimize, "list_gpu_models", lambda gpus: ("H100", "A100"))
    assert {trial.gpu for trial in run_optimize(request(run), Silent()).found.trials} == {""}


@pytest.mark.parametrize(
    ("program", "said", "name"),
    [
        (f'exec "{sys.executable}" -S "$@"', "No module named 'torch'", "no-torch"),
        ("exit 0", "is no Python interpreter", "no-python"),
    ],
)
def test_an_interpreter_of_no_use_is_named_with_the_cause(
    program: str, said: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    python = tmp_path / "bare"
    python.write_text(f"#!/bin/sh\n{program}\n")
    python.chmod(0o755)
    for ask in (lambda: read_machine(str(python), tmp_path, dict(os.environ)), lambda: read_environment(str(python))):
        with pytest.raises(InductorBenchError, match=said) as refused:
            ask()
        assert refused.value.id == name and "--python" in refused.value.hint
