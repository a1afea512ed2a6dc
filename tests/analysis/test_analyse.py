"""A RUN is analysed from its evidence: the same evidence gives the same record, and what is lost costs no figure."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
import run_builder
import step_runs
from conftest import ROOT
from h200 import FOLDER
from inline import change

from inductor_bench.analysis import analyse as analysis
from inductor_bench.analysis import evidence_files, program_step
from inductor_bench.analysis.analyse import KNOWN, STEP_KEPT, analyse, read_step_ahead
from inductor_bench.analysis.evidence_files import EvidenceFiles
from inductor_bench.analysis.program_step import describe_program, read_profiles
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.code import Details
from inductor_bench.records.evidence import Evidence, GraphCallTouches, ObservedGraph, ObservedSteps, ObservedTouches
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import Capture, Run
from inductor_bench.store.codec import FORMAT, decode
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import load_evidence, save_evidence, save_module_details
from inductor_bench.version import __version__
from inductor_bench.workflows.modules.keep_evidence import add_profile, draw_step, keep_captured
from inductor_bench.workflows.modules.module_measurements import ProfiledModule
from inductor_bench.workflows.modules.program_run import CapturedProgram, FoundModule

FORMAT_2 = ROOT / "tests" / "data" / "cpu_torch2.13" / "run_of_format_2.zip"


def analysed(folder: RunFolder) -> Run:
    run = folder.load()
    return analyse(run, load_evidence(folder, run), EvidenceFiles(folder))


@pytest.fixture
def earlier(tmp_path: Path) -> RunFolder:
    """A RUN of format 2, of a training on a CPU: two graphs, eager operators and an optimizer."""
    with ZipFile(FORMAT_2) as archive:
        archive.extractall(tmp_path)
    return RunFolder(tmp_path)


@pytest.mark.parametrize("number", [1, 2])
def test_a_run_of_an_earlier_format_is_analysed_again_and_keeps_its_step(number: int, earlier: RunFolder) -> None:
    data = json.loads(earlier.record.read_text())
    assert data["format"] == 2 and data["program"]["parts"]
    if number == 1:
        data = {**data, "format": 1, "program": None}
        for module in data["modules"]:
            for kernel in module["kernels"]:
                del kernel["step_calls"], kernel["step_time_s"], kernel["step_share"]
    earlier.record.write_text(json.dumps({**data, "tool_version": __version__}))
    run, again = earlier.load(), analysed(earlier)
    assert run.format == FORMAT and again.failures == () and again.program == run.program
    if number == 2:
        kernels = [kernel for module in run.modules for kernel in module.kernels]
        later = [kernel for module in again.modules for kernel in module.kernels]
        assert [replace(one, roof=None) for one in later] == [replace(one, roof=None) for one in kernels]
        roofs = [(old.roof, new.roof) for old, new in zip(kernels, later, strict=True)]
        assert all(new == old for old, new in roofs if old.bound != "compute"), "bytes of DRAM and costs, too"
        # Its peaks were measured on a busy machine: 3.55 GFLOP/s, of which a product of its own reaches 7.67.
        assert [new.gain_limit_s for old, new in roofs if old.bound == "compute"] == [None, None]
    else:
        assert [len(module.kernels) for module in again.modules] == [len(module.kernels) for module in run.modules]


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[RunFolder, Evidence]:
    """The evidence of a training on an H200 whose two graphs are replayed as CUDA graphs, with their own runs."""
    folder, data = RunFolder(tmp_path / "run"), FOLDER / "programs" / "graphs"
    paths = [tmp_path / f"{number}.py" for number in (0, 1)]
    modules = []
    for path in paths:
        path.write_bytes(gzip.decompress((data / f"{path.name}.gz").read_bytes()))
        modules.append(FoundModule(path, path.read_text()))
    seen = decode(ObservedSteps, json.loads(gzip.decompress((data / "steps.json.gz").read_bytes())))
    graphs = tuple(ObservedGraph(str(path)) for path in paths)
    seen = replace(seen, graphs=graphs, trace=str(data / "steps.trace.json.gz"), profiled_steps=2)
    touches = ObservedTouches((GraphCallTouches(0, (), ()), GraphCallTouches(1, (), ())))
    captured = CapturedProgram(tuple(modules), Capture(), steps=(seen,), touches={seen.pid: touches})
    evidence = keep_captured(captured, BreakdownRequest("train.py", "script"), folder)
    for number, module in enumerate(evidence.modules):
        trace = folder.traces / f"{module.slug}.trace.json.gz"
        trace.write_bytes((data / f"{number}.trace.json.gz").read_bytes())
        save_module_details(folder, module.slug, Details((2e-3,), iterations=1))
        profiled = add_profile(module, ProfiledModule("-p", "", trace, None), folder)
        evidence = evidence.with_module(profiled)
    save_evidence(folder, evidence)
    return folder, evidence


def test_the_same_evidence_gives_the_same_record(recorded: tuple[RunFolder, Evidence]) -> None:
    folder, evidence = recorded
    empty = replace(run_builder.mixnet(), modules=(), program=None, retunes=())
    files = EvidenceFiles(folder)
    modules_alone = analyse(empty, evidence.without_steps(), files)
    run = analyse(modules_alone, evidence, files)
    assert modules_alone.program is None and all(one.step_calls is None for one in modules_alone.modules[0].kernels)
    kernels = [kernel for module in run.modules for kernel in module.kernels]
    assert len(run.modules) == 2 and run.program is not None and run.program.parts and run.failures == ()
    assert {"memory", "latency"} < {kernel.roof.bound for kernel in kernels}
    assert all(kernel.step_time_s and kernel.roof.gain_limit_s is not None for kernel in kernels if kernel.line)
    assert any(kernel.dram_bytes for kernel in kernels)
    step = describe_program(evidence, files)
    assert step is not None
    draw_step(step, folder)
    folder.save(run)
    assert folder.load() == run
    for before in (empty, modules_alone, run):
        assert analyse(before, load_evidence(folder, before), EvidenceFiles(folder)) == run


def test_a_profile_that_is_kept_in_memory_is_read_ahead_and_once(
    recorded: tuple[RunFolder, Evidence], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, evidence = recorded
    files, larger = EvidenceFiles(folder), EvidenceFiles(folder)
    read_profiles(evidence, files)
    with monkeypatch.context() as patched:
        patched.setattr(program_step, "KEPT_BYTES", 0)
        read_profiles(evidence, larger)  # reads nothing, because nothing of a larger profile would be kept
    monkeypatch.delattr(evidence_files, "read_program_trace")
    found = describe_program(evidence, files, in_brief=True)
    assert found is not None and found.program.parts
    with pytest.raises(NameError):
        describe_program(evidence, larger, in_brief=True)


def test_a_step_is_described_once_whatever_is_measured_of_its_modules(recorded: tuple[RunFolder, Evidence]) -> None:
    folder, evidence = recorded
    files = EvidenceFiles(folder)
    unmeasured = replace(evidence, modules=tuple(replace(one, measurement=None) for one in evidence.modules))
    read_step_ahead(unmeasured, files)
    first = describe_program(unmeasured, files)
    assert first is not None and describe_program(evidence.without_steps(), files) is None
    assert describe_program(evidence, files) is first
    brief = describe_program(evidence, files, in_brief=True)
    assert brief is not None and brief.leading.steps == first.leading.steps, "the first screen shows the same step"
    assert brief.leading.queue is brief.leading.timeline is None and first.leading.queue and first.leading.timeline
    replayed = replace(evidence, modules=tuple(replace(one, cuda_graphs=True) for one in evidence.modules))
    assert describe_program(replayed, files) is not first, "the graphs' own runs tell what a replay launches"


@pytest.mark.parametrize(("version", "noted"), [("0.0.7", True), (__version__, False)])
def test_another_version_notes_whose_figures_the_step_has(version: str, noted: bool, tmp_path: Path) -> None:
    folder, run = RunFolder(tmp_path), replace(step_runs.transformer(), tool_version=version)
    folder.save(run)
    for _ in range(2):
        again = analysed(folder)
        assert run.program is not None and again.program is not None
        notes = (STEP_KEPT.format(version="0.0.7"),) if noted else ()
        assert again.program.notes == (*run.program.notes, *notes)
        assert replace(again.program, notes=()) == replace(run.program, notes=())
        folder.save(again)


def test_a_row_that_would_lose_its_costs_in_the_step_is_kept() -> None:
    module = step_runs.transformer().modules[0]
    bare = [replace(one, step_calls=None, step_time_s=None, step_share=None) for one in module.kernels]
    with pytest.raises(InductorBenchError, match=r"would lose what its record knows: costs in the step$"):
        analysis._refuse_loss(module, replace(module, kernels=tuple(bare)))


@pytest.mark.parametrize(("name", "lost"), [("direct_copy_kernel_cuda", []), ("sgemm", ["FLOPs", "moved bytes"])])
def test_a_helper_may_lose_its_part_of_the_work(name: str, lost: list[str]) -> None:
    """Earlier versions gave the copy of an addend a part of the product's work."""
    module = step_runs.transformer().modules[0]
    kernel = change(module.kernels[0], name=name, flops=2e9, moved_bytes=3e6)
    old = replace(module, kernels=(kernel,))
    new = replace(module, kernels=(change(kernel, flops=None, moved_bytes=None),))
    assert [what for what, known in KNOWN.items() if known(new) < known(old)] == lost


def test_rows_that_the_evidence_does_not_name_stay(tmp_path: Path) -> None:
    run = step_runs.transformer()
    assert analyse(run, Evidence(), EvidenceFiles(RunFolder(tmp_path))).modules == run.modules
