"""``compare`` on real runs: two compilations recorded on an H200, and a program that is run on this CPU."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import forking_python
import h200
import pytest
from conftest import ROOT

import inductor_bench
from inductor_bench.records.comparison import ADDED, CODE, CONFIG, REMOVED, SPLIT, UNCHANGED
from inductor_bench.records.request import BreakdownRequest, CompareRequest
from inductor_bench.records.run import EAGER
from inductor_bench.workflows.breakdown import run_breakdown
from inductor_bench.workflows.compare import compare_program
from inductor_bench.workflows.progress import Silent

PROGRAM = ROOT / "tests" / "programs" / "compared.py"


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is started forks from a process that has imported torch."""
    monkeypatch.setattr(sys, "executable", forking_python.interpreter())


def recorded(name: str, folder: Path) -> Path:
    """A RUN of the forward graph of mixnet_l training, from its trace."""
    folder.mkdir()
    module, trace = (h200.FOLDER / name / file for file in ("forward.py.gz", "forward.trace.json.gz"))
    (folder / "forward.py").write_bytes(gzip.decompress(module.read_bytes()))
    options = BreakdownRequest(str(folder / "forward.py"), trace=trace, output=folder / "run", plots=False)
    return run_breakdown(options, Silent()).folder


@pytest.mark.corner
def test_two_compilations_of_one_model_differ_in_configs_alone(tmp_path: Path) -> None:
    a, b = (recorded(name, tmp_path / name) for name in ("mixnet_l_train", "mixnet_l_p10"))
    found = inductor_bench.compare(a, b)
    assert found.verdict == "undecided" and abs(found.step.delta_s) < 0.01 * found.step.a_s
    causes = [change.cause for change in found.kernels]
    assert len(causes) == 284 and set(causes) == {CONFIG, UNCHANGED} and causes.count(CONFIG) == 50
    assert not [
        change for change in found.kernels if change.cause == UNCHANGED and change.verdict in ("slower", "faster")
    ]
    config = next(change for change in found.kernels if change.cause == CONFIG)
    assert config.a[0].configs != config.b[0].configs and config.a[0].kernel_id == config.b[0].kernel_id
    assert sum(part.delta_s for part in found.parts) == pytest.approx(found.step.delta_s)


@pytest.mark.slow
def test_a_program_is_run_for_both_sides_and_its_changes_are_told_apart(tmp_path: Path) -> None:
    breakdown = BreakdownRequest(str(PROGRAM), output=tmp_path / "runs", plots=False)
    variables = (("ADD_EAGER", "1"), ("NO_TANH", "1"))
    found = compare_program(CompareRequest(breakdown=breakdown, variables=variables, budget_s=1.0), Silent()).comparison
    proof = found.proof
    assert proof is not None and (len(proof.a_steps_s), len(proof.b_steps_s)) == (1, 1)
    assert (found.step.low_s, found.verdict) == (None, "undecided"), "a process of each side decides nothing"
    assert [(row.name, row.b) for row in found.environment_differences] == list(variables)
    causes = {change.cause for change in found.kernels}
    assert causes & {CODE, SPLIT, ADDED, REMOVED}, "the forward graph has other code"
    assert all(change.a[0].name == change.b[0].name for change in found.kernels if change.cause == UNCHANGED)
    part = next(part for part in found.parts if part.cause == EAGER and part.label == "aten::erfinv")
    assert (part.a_s, part.verdict) == (0.0, "slower") and "0 → 1 calls, in B at programs/compared.py:24" in part.detail
    assert sum(part.delta_s for part in found.parts) == pytest.approx(found.step.delta_s)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["a-1", "b-1", "pair.json", "steps"]
