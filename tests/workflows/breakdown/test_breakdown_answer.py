"""The answer of a breakdown: the program's step is printed and saved while the program still runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import breakdown_runs as runs
import forking_python
import pytest
from batch_runs import Listener
from documented import documented, with_options
from printed import recorded

from inductor_bench.messages.observed import PYTHON_ENDED
from inductor_bench.records.evidence import DONE, PROFILING, SAMPLING, TIMING, WAITING, ObservedSteps
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.report.markdown import render_markdown
from inductor_bench.report.run.run_document import make_answer_document
from inductor_bench.store.codec import encode
from inductor_bench.workflows.breakdown import run_breakdown
from inductor_bench.workflows.modules import observed_files, program_run
from inductor_bench.workflows.modules.observed_files import ProgressReporter, StepWatch, describe_news

PROGRAM = """
import json, os, sys, time, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
compiled, optimizer = torch.compile(model), torch.optim.SGD(model.parameters())
def step():
    compiled(torch.ones(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
def is_answered():
    program = json.load(open(sys.argv[1]))["program"]
    return program is not None and program["parts"] != []
deadline = time.monotonic() + 300
while not is_answered():
    step()
    time.sleep(0.005)  # leaves the processor to the answer
    assert time.monotonic() < deadline, "no answer came while the program ran"
other = torch.compile(lambda x: torch.sin(x) + 1)  # a graph that the answer could not know
other(torch.ones(32, 64))
"""


BRIEF_PROGRAM = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
compiled, optimizer = torch.compile(model), torch.optim.SGD(model.parameters())
for _ in range(60):
    compiled(torch.ones(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.slow
def test_the_step_is_told_while_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    words = (tmp_path / "train.py", "-v", "--format", "json", "--", tmp_path / "run" / "record.json")
    done = runs.breakdown(tmp_path / "run", *words)
    assert done.code == 0, done.printed
    assert recorded(done.stdout) == done.record, "stdout is one document"
    answer, measured = done.stderr.split("profiling ")[0], done.stderr.partition("profiling ")[2]
    assert "a step (optimizer steps" in answer and "Where the step goes" in answer
    assert answer.index("Where the step goes") < answer.index("the steps are measured; the program goes on")
    assert "Where the step goes" not in measured
    labels = {module["label"] for module in done.record["modules"]}
    assert len(labels) == 3 and len(list((done.folder / "modules").glob("*.py"))) == 3, "no text of an earlier name"
    graphs = {part["label"] for part in done.record["program"]["parts"] if part["kind"] == "graph"}
    assert len(graphs) == 2 and graphs < labels


@pytest.mark.slow
def test_the_step_of_a_program_that_ends_at_once_is_told_before_its_graphs_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(BRIEF_PROGRAM)
    monkeypatch.setattr(StepWatch, "_look_for_answer", lambda self, steps: None)
    told = []
    progress = Listener()
    run_breakdown(
        BreakdownRequest(str(tmp_path / "train.py"), output=tmp_path / "run", python=forking_python.interpreter()),
        progress,
        lambda run, has_ended: told.append((run, has_ended, list(progress.stages))),
    )
    ((run, has_ended, stages),) = told
    assert run.program is not None and run.program.parts and not run.modules
    assert not any("profiling" in stage for stage in stages)
    page = render_markdown(make_answer_document(run, has_ended=has_ended))
    assert "Its steps are measured. Its graphs and kernels are next; Ctrl-C leaves them out." in page


@pytest.mark.slow
def test_a_breakdown_in_a_pipe_ends_with_its_brief_form_and_says_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BRIEF_PROGRAM)
    places = {"python": forking_python.interpreter(), "train.py": tmp_path / "train.py"}
    words = documented("inductor-bench breakdown --brief -- python train.py", places)
    command = runs.command(*with_options(words, "-o", tmp_path / "run"))
    done = runs.run(command, tmp_path / "run", **runs.forks())
    assert done.code == 0 and len(done.stdout) < 8000
    assert "a step (optimizer steps" in done.stdout and "## Kernels" in done.stdout and "## Next" in done.stdout
    assert f" {tmp_path / 'run'} " in done.stdout, "what to type next"
    assert done.stderr == ""


def test_it_is_told_how_far_a_program_is_when_something_new_is_known_and_not_too_often() -> None:
    now_s, known, said = 0.0, "", []
    reads = 0

    def read() -> str:
        nonlocal reads
        reads += 1
        return known

    news = ProgressReporter(read, said.append, lambda: now_s)

    def look(time_s: float, words: str) -> list[str]:
        nonlocal now_s, known
        now_s, known = time_s, words
        news.look()
        return said

    early = observed_files.NEWS_S - 1
    assert look(early, "1 graph compiled") == [] and reads == 0, "nothing is read before it may be told"
    assert look(early + 1, "") == [], "nothing is known yet"
    assert look(2 * early + 2, "1 graph compiled") == ["1 graph compiled"]
    assert look(2 * early + 3, "2 graphs compiled") == ["1 graph compiled"] and reads == 2
    assert look(4 * early, "1 graph compiled") == ["1 graph compiled"], "that is not new"
    assert look(6 * early, "2 graphs compiled")[1:] == ["2 graphs compiled"]


def test_how_far_a_program_is_comes_from_what_its_processes_wrote() -> None:
    assert describe_news((), 0) == "" and describe_news((), 1) == "1 graph compiled"
    waiting = ObservedSteps(pid=1, device="cpu", state=WAITING, steps=3, first_step_time_s=31.2)
    ahead = replace(waiting, pid=2, state=TIMING, steps=8)
    said = "2 graphs compiled, at least 3 steps, the first step took 31.2 s with its compilation"
    assert describe_news((waiting,), 2) == said
    assert describe_news((waiting, ahead), 2) == said.replace("3 steps", "8 steps") + ", now timed"


def test_a_running_program_is_told_of_until_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_files, "NEWS_S", 0.0)
    (tmp_path / "train.py").write_text("import time\nprint('started', flush=True)\ntime.sleep(1)\n")
    progress = Listener()
    monkeypatch.setattr(program_run, "describe_news", lambda steps, compiled: f"{len(steps)} processes")
    run_breakdown(BreakdownRequest(str(tmp_path / "train.py"), output=tmp_path / "run"), progress)
    assert progress.notes.count("0 processes") == 1


class Observed:
    """The files of two ranks, and a watch of them."""

    def __init__(self, folder: Path, *, stops: bool = False) -> None:
        self._folder, self.answers, self.ends, self.preparations = folder, 0, 0, 0
        self.watch = StepWatch(folder, stops, lambda: None, self._prepare, self._answer, self._end)

    def _prepare(self) -> None:
        self.preparations += 1

    def _answer(self) -> None:
        self.answers += 1

    def _end(self) -> None:
        assert self.answers, "the answer comes first"
        self.ends += 1

    def say(
        self,
        *states: str,
        trace: str = "",
        traces: tuple[str, ...] = (),
        lines: tuple[str, ...] = (),
        device: str = "cpu",
    ) -> int:
        for rank, state in enumerate(states):
            own, by_line = traces[rank] if traces else trace, lines[rank] if lines else ""
            steps = ObservedSteps(pid=rank + 1, device=device, state=state, rank=rank, trace=own, lines_trace=by_line)
            (self._folder / f"{rank + 1}.steps.json").write_text(json.dumps(encode(steps)))
        self.watch.is_finished()
        return self.answers


def test_the_answer_comes_once_and_not_before_all_ranks_are_measured(tmp_path: Path) -> None:
    seen = Observed(tmp_path)
    assert seen.say(WAITING, WAITING) == seen.say(TIMING, TIMING) == seen.say(DONE, PROFILING) == 0
    assert seen.say(DONE, DONE) == seen.say(DONE, DONE) == 1


def test_a_rank_without_steps_is_not_waited_for_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Observed(tmp_path)
    assert seen.say(DONE, WAITING) == 0
    monkeypatch.setattr(observed_files, "SETTLE_S", 0.0)
    monkeypatch.setattr(observed_files, "WINDOW_S", 0.0)
    assert seen.say(DONE, WAITING) == 1


@pytest.mark.parametrize(("cores", "answers"), [(8, 1), (2, 0)])
def test_a_long_window_is_not_waited_for_if_there_are_cores(
    cores: int, answers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_files, "SETTLE_S", 0.0)
    monkeypatch.setattr(observed_files, "WINDOW_S", 0.0)
    monkeypatch.setattr(observed_files, "count_cores_of_this_process", lambda: cores)
    seen = Observed(tmp_path)
    assert seen.say(PROFILING, PROFILING, trace="a") == 0
    assert seen.say(TIMING, TIMING, trace="a") == answers
    assert seen.say(DONE, DONE, trace="a") == 1


def test_samples_are_waited_for_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program may make no more steps while its host is sampled."""
    monkeypatch.setattr(observed_files, "count_cores_of_this_process", lambda: 2)
    monkeypatch.setattr(observed_files, "SETTLE_S", 0.0)
    monkeypatch.setattr(observed_files, "WINDOW_S", 0.0)
    seen = Observed(tmp_path, stops=True)
    assert seen.say(SAMPLING, SAMPLING, trace="a") == 0 and not seen.watch.is_finished()
    monkeypatch.setattr(observed_files, "SAMPLED_S", 0.0)
    assert seen.say(SAMPLING, SAMPLING, trace="a") == 1 and not seen.watch.is_finished()
    monkeypatch.setattr(observed_files, "SAMPLED_TO_STOP_S", 0.0)
    assert seen.watch.is_finished()


def test_a_program_that_is_stopped_is_answered_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_files, "SETTLE_S", 0.0)
    monkeypatch.setattr(observed_files, "WINDOW_S", 0.0)
    seen = Observed(tmp_path, stops=True)
    seen.say(DONE, DONE)
    assert seen.answers == 1 and seen.watch.is_finished()


@pytest.mark.parametrize(("device", "cores", "preparations"), [("cuda", 8, 4), ("cuda", 2, 0), ("cpu", 8, 0)])
def test_what_was_compiled_and_each_trace_are_read_before_the_answer_if_that_disturbs_nothing(
    device: str, cores: int, preparations: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_files, "count_cores_of_this_process", lambda: cores)
    seen = Observed(tmp_path)
    for state, trace in ((WAITING, ""), (PROFILING, ""), (PROFILING, "a"), (PROFILING, "a"), (TIMING, "ab")):
        assert seen.say(state, trace=trace, device=device) == 0
    assert seen.preparations == preparations


def test_the_traces_of_several_ranks_are_read_once_all_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_files, "count_cores_of_this_process", lambda: 8)
    seen = Observed(tmp_path)
    said = []
    for states, traces in (
        ((PROFILING, WAITING), ("", "")),
        ((PROFILING, PROFILING), ("", "")),
        ((PROFILING, PROFILING), ("a", "")),
        ((PROFILING, TIMING), ("a", "b")),
        ((PROFILING, TIMING), ("a", "b")),
    ):
        seen.say(*states, traces=traces, device="cuda")
        said.append(seen.preparations)
    assert said == [0, 1, 1, 2, 2]
    seen.say(TIMING, TIMING, traces=("a", "b"), lines=("c", ""), device="cuda")
    assert seen.preparations == 2
    seen.say(TIMING, TIMING, traces=("a", "b"), lines=("c", "d"), device="cuda")
    assert seen.preparations == 3


def test_the_answer_comes_once_the_steps_are_timed_if_there_are_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_files, "count_cores_of_this_process", lambda: 8)
    seen = Observed(tmp_path)
    assert seen.say(SAMPLING, TIMING, trace="a") == 0
    assert seen.say(SAMPLING, SAMPLING, trace="a") == 1


def test_the_end_of_all_ranks_is_told_once(tmp_path: Path) -> None:
    seen = Observed(tmp_path)
    (tmp_path / f"1{PYTHON_ENDED}").touch()
    seen.say(DONE, DONE)
    assert seen.ends == 0, "the other rank goes on"
    (tmp_path / f"2{PYTHON_ENDED}").touch()
    assert not seen.watch.is_finished() and not seen.watch.is_finished() and seen.ends == 1


def test_the_end_is_also_told_of_a_program_that_went_on_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_files, "PATIENCE_S", 0.0)
    seen = Observed(tmp_path)
    assert seen.say(DONE, DONE) and seen.watch._told
    for rank in (1, 2):
        (tmp_path / f"{rank}{PYTHON_ENDED}").touch()
    seen.watch.is_finished()
    assert seen.ends == 1


def test_a_program_that_ends_by_itself_is_not_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_files, "SETTLE_S", 0.0)
    monkeypatch.setattr(observed_files, "WINDOW_S", 0.0)
    seen = Observed(tmp_path, stops=True)
    for rank in (1, 2):
        (tmp_path / f"{rank}{PYTHON_ENDED}").touch()
    seen.say(DONE, DONE)
    assert not seen.watch.is_finished()


def test_a_program_that_ends_while_its_profile_is_read_is_answered_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observed_files, "count_cores_of_this_process", lambda: 8)
    seen = Observed(tmp_path)

    def end() -> None:
        steps = ObservedSteps(pid=1, device="cuda", state=DONE, rank=0, trace="a")
        (tmp_path / "1.steps.json").write_text(json.dumps(encode(steps)))
        (tmp_path / f"1{PYTHON_ENDED}").touch()

    monkeypatch.setattr(seen.watch, "_prepare", end)
    assert seen.say(PROFILING, trace="a", device="cuda") == 0 and seen.ends == 0
    assert not seen.watch.is_finished() and (seen.answers, seen.ends) == (1, 1)
