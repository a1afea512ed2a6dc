"""A search on a real program: a planted bad setting, a variant that fails, and one with wrong numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import step_runs
from conftest import ROOT
from forking_python import interpreter

from inductor_bench.analysis.optimization import menu, search
from inductor_bench.records.optimization import CONFIRM, DIFFERS, FAILED, KEPT, Optimization
from inductor_bench.records.request import BreakdownRequest, OptimizeRequest
from inductor_bench.records.run import Environment
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows import optimize
from inductor_bench.workflows.optimize import run_optimize
from inductor_bench.workflows.optimizing import tried_program
from inductor_bench.workflows.progress import Silent

PROGRAM = ROOT / "tests" / "programs" / "slow_optimizer.py"
BUG = "inductor.cpp.inject_relu_bug_TESTING_ONLY"
DENIED = (
    "max-autotune",
    "cpp-wrapper",
    "convolutions",
    "layout",
    "threads",
    "loader",
    "dynamic",
    "freezing",
    "functions",
)


def has_time(self: search.OptimizationSearch, purpose: str, *_: object) -> bool:
    return purpose != CONFIRM or [trial.purpose for trial in self.trials].count(CONFIRM) < 2


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Optimization:
    """A search over a RUN that says that the optimizer takes a part of the step."""
    monkeypatch.setattr(optimize, "read_machine", lambda *_: (Environment(), None))
    # The pace of the machine decides nothing, and there is one whole run of the result.
    monkeypatch.setattr(search.OptimizationSearch, "_has_time", has_time)
    monkeypatch.setattr(search.OptimizationSearch, "_timed_s", lambda self, usual_s: usual_s / 20)
    monkeypatch.setattr(tried_program, "SETTLE_S", 0.0)  # the program takes a processor until it is ended
    quick = tuple(entry for entry in menu.MENU if entry.slug != "compiled-optimizer")  # it compiles 60 parameters
    monkeypatch.setattr(menu, "MENU", quick)
    run = step_runs.cpu()
    asked = BreakdownRequest(str(PROGRAM), "script")
    RunFolder(tmp_path).save(replace(run, target=str(PROGRAM), request=asked))
    program = BreakdownRequest(str(tmp_path), python=interpreter())
    request = OptimizeRequest(
        3600.0, denied=DENIED, inductor=(f"{BUG}=accuracy", f"{BUG}=compile_error"), program=program
    )
    return run_optimize(request, Silent()).found


def test_a_planted_setting_is_found_and_no_wrong_one_is_advised(found: Optimization) -> None:
    tried = {row.slug: row for row in found.tried}
    assert list(tried) == ["fused-optimizer", "foreach-optimizer", "own-1", "own-2"]
    assert tried["own-1"].state == DIFFERS and "differs" in tried["own-1"].reason
    assert tried["own-2"].state == FAILED and "CppCompileError" in tried["own-2"].reason
    assert found.winner is not None and found.winner.gain.share > 0.3
    assert [row.state for row in tried.values()].count(KEPT) == 1
    assert tried[found.winner.slugs[0]].group == "optimizer"
    assert (found.winner.losses and "settings.diff" not in found.files) or "README.md" in found.files
