"""Processes that compile ahead: the one that is timed finds its variants compiled, whatever became of them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import ROOT
from forking_python import interpreter

from inductor_bench.analysis.optimization.trial_plans import CompileAhead, TrialCandidate, TrialPlan
from inductor_bench.records.optimization import INDUCTOR, PLACEBO, SCREEN, ProgramSetting, Trial
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.store.folder import OptimizationFolder
from inductor_bench.store.redaction import Redaction
from inductor_bench.workflows.optimizing import tried_program
from inductor_bench.workflows.optimizing.tried_program import ProgramTrials, TrialRounds
from inductor_bench.workflows.progress import Silent

pytestmark = pytest.mark.slow

PROGRAM = ROOT / "tests" / "programs" / "two_kernels.py"

DYING = """
import json, os
with open(os.environ["INDUCTOR_BENCH_VARIANTS"]) as file:
    asked = json.load(file)
if asked["only_compiles"] and "at-most-8" in [one["slug"] for one in asked["variants"]]:
    os._exit(9)
"""
"""The first lines of a program that ends where a row is compiled ahead."""

CANDIDATES = (
    TrialCandidate(PLACEBO),
    *(
        TrialCandidate(f"at-most-{most}", (ProgramSetting(INDUCTOR, "max_fusion_size", str(most)),))
        for most in (8, 16, 32)
    ),
)


@pytest.fixture(autouse=True)
def ended_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program takes a processor until it is ended."""
    monkeypatch.setattr(tried_program, "SETTLE_S", 0.0)


@dataclass
class Search:
    """The first rounds of a search: what compiles ahead, and the ranking."""

    folder: OptimizationFolder
    program: Path

    def run(self, *plans: TrialPlan) -> list[Trial]:
        request = BreakdownRequest(str(self.program), "script", timeout_s=120.0, stop=True)
        trials = ProgramTrials(request, self.folder, dict(os.environ), interpreter(), Redaction(), Silent(), 60.0)
        return TrialRounds(trials, ("",), Silent()).run(plans)

    def compile_ahead(self) -> list[Trial]:
        ahead, found = CompileAhead(2), list[Trial]()
        while plans := ahead.plans([CANDIDATES], len(found) + 1, 240.0):
            found += self.run(*plans)
        return found

    def rank(self) -> Trial:
        (trial,) = self.run(TrialPlan("04-screen", SCREEN, CANDIDATES, True, 0.05, 8))
        return trial

    def graphs(self) -> set[str]:
        """The graphs of Inductor in the cache."""
        return {str(file) for file in (self.folder.work / "cache" / "fxgraph").rglob("*") if file.is_file()}


def search_in(folder: Path, program: Path) -> Search:
    found = OptimizationFolder(folder / "optimized")
    found.make()
    found.make_inside()
    return Search(found, program)


def test_what_is_timed_was_compiled_ahead(tmp_path: Path) -> None:
    search = search_in(tmp_path, PROGRAM)
    ahead = search.compile_ahead()
    assert [one.slugs for one in ahead] == [(PLACEBO,), ("at-most-8", "at-most-32"), ("at-most-16",)]
    assert not any(trial.failure for trial in ahead)
    assert not any(one.times_s or one.checks for trial in ahead for one in trial.variants)
    compiled = search.graphs()
    assert len(compiled) >= 5, "the original and four variants"
    timed = search.rank()
    assert search.graphs() == compiled, "nothing was compiled anew"
    assert timed.failure is None and all(one.times_s for one in timed.variants) and len(timed.variants) == 5


def test_a_process_that_dies_leaves_its_variants_to_the_one_that_is_timed(tmp_path: Path) -> None:
    program = tmp_path / "dying.py"
    program.write_text(DYING + PROGRAM.read_text())
    search = search_in(tmp_path, program)
    alone, died, other = search.compile_ahead()
    assert died.failure is not None and "code 9" in died.failure.message
    assert alone.failure is None and other.failure is None
    compiled = search.graphs()
    timed = search.rank()
    assert timed.failure is None and all(one.times_s and not one.failure for one in timed.variants)
    assert compiled < search.graphs(), "the rows of the process that died"
