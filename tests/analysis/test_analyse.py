"""A RUN is analysed from its evidence: the same evidence gives the same record, and what is lost costs no figure."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest
import step_runs
from conftest import ROOT
from inline import change

from inductor_bench.analysis import analyse as analysis
from inductor_bench.analysis.analyse import KNOWN, STEP_KEPT, analyse
from inductor_bench.analysis.evidence_files import EvidenceFiles
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.evidence import Evidence
from inductor_bench.records.run import Run
from inductor_bench.store.codec import FORMAT
from inductor_bench.store.folder import RunFolder
from inductor_bench.store.run_files import load_evidence
from inductor_bench.version import __version__

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
        assert again == run, "roofs, bytes of DRAM and costs in the step, too"
    else:
        assert [len(module.kernels) for module in again.modules] == [len(module.kernels) for module in run.modules]


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
