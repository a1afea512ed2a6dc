"""The request to the process that profiles a module: what the program's own process had is had there, too."""

from __future__ import annotations

import gzip
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import h200
import pytest
from breakdown_runs import H200

from inductor_bench.analysis import evidence_files
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.worker import WorkerAnswer, WorkerPool
from inductor_bench.messages.job_requests import MachineFacts, ProfileModule, SurveyMachine
from inductor_bench.messages.observed import ModuleObservation
from inductor_bench.records.code import Details
from inductor_bench.records.evidence import ObservedGraph, ObservedSteps
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.request_fields import COMMAND
from inductor_bench.records.run import Capture, Environment, Peaks
from inductor_bench.records.traced import OperatorCall, OperatorCost, TensorArguments
from inductor_bench.source import module_reader as source_module
from inductor_bench.source.labels import ModuleLabel
from inductor_bench.source.module_reader import read_header, read_module
from inductor_bench.store.folder import RunFolder, read_index
from inductor_bench.store.lock import DeviceTurn
from inductor_bench.trace.rows import read_trace
from inductor_bench.workflows import breakdown
from inductor_bench.workflows.modules import module_measurements
from inductor_bench.workflows.modules.kernel_files import extract_run
from inductor_bench.workflows.modules.module_measurements import (
    ConcurrentWorks,
    ModuleMeasurements,
    Profiling,
    SideWork,
    Survey,
)
from inductor_bench.workflows.modules.program_run import CapturedProgram, FoundModule, _leave_out_refused_graphs
from inductor_bench.workflows.modules.targets import find_program_file, resolve_target
from inductor_bench.workflows.progress import Silent, StageTimes


class Pool:
    """A pool whose worker measures nothing; it keeps the requests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.jobs: list[ProfileModule] = []

    def call(self, job: ProfileModule, **_: Any) -> WorkerAnswer[Details]:
        self.jobs.append(job)
        return WorkerAnswer(Details(), None)


def test_inductors_refusal_of_cuda_graphs_counts_for_the_module(tmp_path: Path) -> None:
    asked = ModuleObservation(str(tmp_path / "a.py"), "stem", 1, cuda_graphs=True)
    modules = tuple(FoundModule(tmp_path / name, "", observations=(asked,)) for name in ("a.py", "b.py"))
    graphs = (ObservedGraph(str(tmp_path / "a.py"), cuda_graph_refusal="mutated inputs"), ObservedGraph("b.py"))
    refused, replayed = _leave_out_refused_graphs(modules, [ObservedSteps(1, "cuda", "done", graphs=graphs)])
    assert not refused.cuda_graphs and replayed.cuda_graphs


def test_kernels_run_by_themselves_in_the_configs_of_the_program(tmp_path: Path) -> None:
    """The program may have set a config, by a table of its own, that Inductor would not choose again."""
    pool, folder = Pool(tmp_path), RunFolder(tmp_path / "run")
    for place in (folder.modules, folder.traces, folder.logs):
        place.mkdir(parents=True)
    path = tmp_path / "module.py"
    configs = {"triton_poi_fused_0": {"XBLOCK": 64, "num_warps": 1, "num_stages": 1}}
    seen = (
        ModuleObservation(str(path), "stem", 1),  # a process in which no kernel ran
        ModuleObservation(str(path), "stem", 2, calls=5, threads=3, switches={"matmul_tf32": True}, configs=configs),
    )
    module = FoundModule(path, h200.text_of("programs/breaks/6.py"), observations=seen)
    Profiling(cast(WorkerPool, pool), folder, None, None).profile(module, ModuleLabel("forward", "forward")).keep()
    (job,) = pool.jobs
    assert (job.configs, job.threads, job.compiled) == (configs, 3, True)


def test_work_aside_is_done_in_order_and_its_first_error_is_raised_at_the_end() -> None:
    done: list[int] = []

    def fail() -> None:
        raise InductorBenchError("the disk is full")

    with pytest.raises(InductorBenchError, match="the disk is full"), SideWork(is_beside=True) as aside:
        for work in (lambda: done.append(1), fail, lambda: done.append(2)):
            aside.do(work)
    assert done == [1, 2]
    with SideWork(is_beside=False) as aside:
        aside.do(lambda: done.append(3))
        assert done == [1, 2, 3], "it is done at once"


def test_stages_say_how_long_they_took() -> None:
    stages = StageTimes(Silent())
    stages.stage("profiling forward")
    stages.divide({"loading": 1.25})
    stages.divide({})
    stages.stage("writing the report")
    lines = [line.split(" s  ") for line in stages.close().splitlines()]
    assert [text for _, text in lines] == ["starting", "profiling forward (loading 1.25 s)", "writing the report"]
    assert all(0 <= float(time_s) < 10 for time_s, _ in lines)


def test_work_ahead_is_begun_before_it_is_waited_for(tmp_path: Path) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def first() -> int:
        begun.set()
        assert goes_on.wait(300)
        return 1

    def second() -> int:
        assert begun.wait(300)
        goes_on.set()
        return 2

    ahead = ConcurrentWorks([first, second], at_once=2)
    assert begun.wait(300)
    assert [result() for result in ahead.results] == [1, 2]
    ahead.close()


def test_work_is_done_when_it_is_waited_for_if_nothing_is_done_beside_it() -> None:
    done: list[int] = []
    ahead = ConcurrentWorks([lambda: done.append(1), lambda: done.append(2)], at_once=1)
    assert done == []
    for result in ahead.results:
        result()
    assert done == [1, 2]


PEAKS = Peaks("a GPU", 1e12, {})
CALLS = tuple(OperatorCall(f"aten::{name}", TensorArguments((), (), (), ()), "cuda") for name in ("mm", "bmm", "add"))


class SurveyPool:
    """A pool whose worker counts as many FLOPs as a call's name has letters."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.environment = folder, dict[str, str]()
        self.jobs: list[SurveyMachine] = []

    def call(self, job: SurveyMachine, **_: Any) -> WorkerAnswer[MachineFacts]:
        self.jobs.append(job)
        costs = tuple(OperatorCost(len(call.name)) for call in job.calls)
        facts = MachineFacts(Environment(), costs, PEAKS if job.peaks != "none" else None)
        return WorkerAnswer(facts, None)


def test_the_survey_is_taken_early_and_completed_by_what_the_modules_runs_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_measurements, "are_measured_beside", lambda modules: True)
    monkeypatch.setattr(module_measurements, "count_modules_at_once", lambda cores: 3)
    pool = SurveyPool(tmp_path)
    captured = CapturedProgram((FoundModule(tmp_path / "no_module.py", "no module"),), Capture())
    begun = ModuleMeasurements(
        captured, cast(WorkerPool, pool), RunFolder(tmp_path / "run"), BreakdownRequest("train.py"), CALLS[:2]
    )
    begun.allow_device_use()
    found = begun.survey([CALLS[2], CALLS[0]], peaks=True)
    assert [cost.flops for cost in found.costs] == [9, 8] and found.peaks == PEAKS
    assert [(job.calls, job.peaks, job.describes) for job in pool.jobs] == [
        (CALLS[:2], "cached", True),
        (CALLS[2:], "none", False),
    ]
    assert begun.survey([CALLS[1]], peaks=False).peaks is None
    assert begun.are_of(captured) and not begun.are_of(replace(captured, modules=()))
    begun.close()


def test_no_module_has_the_device_before_the_program_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module_measurements, "are_measured_beside", lambda modules: True)
    monkeypatch.setattr(module_measurements, "count_modules_at_once", lambda cores: 3)
    captured = CapturedProgram((), Capture())
    pool = cast(WorkerPool, SurveyPool(tmp_path))
    begun = ModuleMeasurements(captured, pool, RunFolder(tmp_path / "run"), BreakdownRequest("train.py"))
    had = threading.Event()

    def use() -> None:
        with DeviceTurn(tmp_path / "device-turn"):
            had.set()

    thread = threading.Thread(target=use)
    thread.start()
    assert not had.wait(0.2)
    begun.allow_device_use()
    thread.join(300)
    assert had.is_set()


# What a breakdown reads: each trace and each module's text once; what comes after works on what is in memory.


def test_a_breakdown_reads_its_trace_and_its_module_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels are written from what is in memory, and are those that the run gives when it is read again."""
    seen: list[str] = []
    monkeypatch.setattr(evidence_files, "read_trace", lambda path: (seen.append("trace"), read_trace(path))[1])
    monkeypatch.setattr(source_module, "read_header", lambda text: (seen.append("module"), read_header(text))[1])
    monkeypatch.setattr(WorkerPool, "get_ready", lambda *_, **__: None)
    monkeypatch.setattr(module_measurements, "take_survey", lambda *_, **__: (read_module.cache_clear(), Survey())[1])
    module = tmp_path / "forward.py"
    module.write_bytes(gzip.decompress((H200 / "gpu_kinds" / "0_forward.py.gz").read_bytes()))
    trace = H200 / "gpu_kinds" / "0_forward.trace.json.gz"
    options = BreakdownRequest(str(module), trace=trace, output=tmp_path / "run", plots=False)
    read_module.cache_clear()
    folder = RunFolder(breakdown.run_breakdown(options, Silent()).folder)
    assert sorted(seen) == ["module", "trace"]
    written = {file.name: file.read_bytes() for file in folder.kernels.iterdir()}
    assert not extract_run(folder).failures and seen.count("trace") == 2
    assert {file.name: file.read_bytes() for file in folder.kernels.iterdir()} == written
    assert any(kernel.time_s for kernel in read_index(folder.kernels))


# Which file is the program's own, whose digest a RUN holds.


@pytest.mark.parametrize(
    ("target", "words", "file"),
    [
        ("train.py", (), "train.py"),
        ("train.py:make", (), "train.py"),
        ("", ("python", "train.py", "--lr", "1"), "train.py"),
        ("", ("python", "-m", "pkg.run"), "pkg/run.py"),
        ("", ("python", "-m", "pkg"), "pkg/__main__.py"),
        ("", ("python", "-m", "json.tool"), None),
        ("", ("ls",), None),
        ("timm:resnet18", (), None),
    ],
)
def test_a_program_has_one_file_or_none(
    target: str, words: tuple[str, ...], file: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    for name in ("train.py", "pkg/run.py", "pkg/__main__.py"):
        (tmp_path / name).write_text("")
    request = BreakdownRequest(target, arguments=words)
    found = resolve_target(request)
    assert words == () or found.kind == COMMAND
    assert find_program_file(found.resolved(request)) == (Path(file) if file else None)
