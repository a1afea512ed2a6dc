"""A RUN that is analysed again keeps the figures of its step, and says whose they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import step_runs
from inline import change

from inductor_bench.records.kernel import Kernel
from inductor_bench.store.folder import RunFolder
from inductor_bench.version import __version__
from inductor_bench.workflows.modules import reanalysis
from inductor_bench.workflows.modules.reanalysis import KNOWN, reanalyse_run


@pytest.mark.parametrize(("version", "noted"), [("0.0.7", True), (__version__, False)])
def test_another_version_notes_whose_figures_the_step_has(version: str, noted: bool, tmp_path: Path) -> None:
    folder, run = RunFolder(tmp_path), replace(step_runs.transformer(), tool_version=version)
    folder.save(run)
    for _ in range(2):
        again = reanalyse_run(folder)
        assert run.program is not None and again.program is not None
        notes = ("the figures of the step are those of the first analysis, by inductor-bench 0.0.7",) if noted else ()
        assert again.program.notes == (*run.program.notes, *notes)
        assert replace(again.program, notes=()) == replace(run.program, notes=())
        folder.save(again)


def test_kernels_keep_their_costs_in_the_step() -> None:
    module = step_runs.transformer().modules[0]
    bare = [replace(one, step_calls=None, step_time_s=None, step_share=None) for one in module.kernels]
    assert reanalysis._with_step(bare, module.kernels) == module.kernels


def test_a_row_that_would_lose_its_costs_in_the_step_is_worse() -> None:
    module = step_runs.transformer().modules[0]

    def renamed(kernel: Kernel) -> Kernel:
        return replace(kernel, kernel_id="another", step_calls=None, step_time_s=None, step_share=None)

    kernels = reanalysis._with_step(map(renamed, module.kernels), module.kernels)
    worse = [name for name, known in KNOWN.items() if known(replace(module, kernels=kernels)) < known(module)]
    assert worse == ["costs in the step"]


@pytest.mark.parametrize(("name", "lost"), [("direct_copy_kernel_cuda", []), ("sgemm", ["FLOPs", "moved bytes"])])
def test_a_helper_may_lose_its_part_of_the_work(name: str, lost: list[str]) -> None:
    """Earlier versions gave the copy of an addend a part of the product's work."""
    module = step_runs.transformer().modules[0]
    kernel = change(module.kernels[0], name=name, flops=2e9, moved_bytes=3e6)
    old = replace(module, kernels=(kernel,))
    new = replace(module, kernels=(change(kernel, flops=None, moved_bytes=None),))
    assert [what for what, known in KNOWN.items() if known(new) < known(old)] == lost


def test_a_module_keeps_what_was_seen_in_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = change(step_runs.transformer().modules[0], tf32=True, cuda_graphs=True, program_calls=7, trace="trace.json")
    found = replace(old, tf32=False, cuda_graphs=False, program_calls=None)
    monkeypatch.setattr(reanalysis, "load_profiled", lambda *_: None)
    monkeypatch.setattr(reanalysis, "attribute_again", lambda *_: found)
    monkeypatch.setattr(reanalysis, "describe_module", lambda *_: found)
    again = reanalysis._reanalyse_module(RunFolder(tmp_path), old, {})
    assert (again.tf32, again.cuda_graphs, again.program_calls) == (True, True, 7)
