"""The proof of retunes that are made for an earlier RUN: whose program is run again, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from breakdown_runs import copy_of, factory
from inline import change
from retune_fakes import retuned

from inductor_bench.autotune.kernel_variants import default_config
from inductor_bench.records.base import Failure
from inductor_bench.records.request import BreakdownRequest, RetuneRequest
from inductor_bench.records.retune import Retune, Verification
from inductor_bench.records.run import Run
from inductor_bench.source.standalone_writer import read_recorded_facts, read_source
from inductor_bench.store.folder import RunFolder, read_index
from inductor_bench.store.redaction import Redaction
from inductor_bench.workflows import breakdown
from inductor_bench.workflows.apply import add_verification
from inductor_bench.workflows.kernels import retuning
from inductor_bench.workflows.kernels.retuning import is_without_proof
from inductor_bench.workflows.progress import Silent

pytestmark = pytest.mark.xdist_group("captures")
FOUND = Verification("steps", 1e-3)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A RUN of a factory with a C++ kernel that is said to be faster with another config."""
    made = RunFolder(copy_of(factory(), f"proof-{tmp_path.name}"))
    run = made.load()
    row = next(one for one in read_index(made.kernels) if one.file and one.name.startswith("cpp_"))
    text = (made.kernels / str(row.file)).read_text()
    config = {**default_config(read_source(text), read_recorded_facts(text)["cpp"]), "flags": "unroll"}
    kernel = retuned("triton_red_1.py", "coordesc", "a CPU")
    assert kernel.tuning is not None
    kernel = replace(kernel, tuning=replace(kernel.tuning, best_config=config))
    won = Retune(
        row.name, row.kernel_id, row.category, ("forward",), 1.0, 1e-3, f"kernels/{row.file}", "coordesc", kernel
    )
    made.save(replace(run, retunes=(won,), verification=None))
    return made


def test_what_lacks_a_proof(folder: RunFolder) -> None:
    run = folder.load()
    assert is_without_proof(run, folder)
    assert is_without_proof(replace(run, failures=(Failure("verify", "interrupted", "stopped"),)), folder)
    for other in (
        replace(run, request=replace(run.request, kind="script")),
        replace(run, program=None),
        replace(run, retunes=()),
        replace(run, verification=FOUND),
        replace(run, failures=(Failure("verify", "invalid", "the program ended"),)),
    ):
        assert not is_without_proof(other, folder)


@pytest.mark.parametrize(("verify", "before", "asked"), [(True, None, 1), (False, None, 0), (True, FOUND, 0)])
def test_a_run_that_is_retuned_again_is_proven_once(
    verify: bool, before: Verification | None, asked: int, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def prove(run: Run, request: Any, place: RunFolder, python: str, progress: Any, keep: Any) -> tuple[Failure, ...]:
        calls.append(python)
        keep(add_verification(run, FOUND))
        return (Failure("verify", "exit", "the program ended with exit status 1 afterwards"),)

    stale = Failure("verify", "invalid", "of another time")
    folder.save(replace(folder.load(), verification=before, failures=(stale,)))
    monkeypatch.setattr(retuning, "verify_retunes", prove)
    monkeypatch.setattr(breakdown, "autotune_run", lambda run, *_: run)
    monkeypatch.setattr(retuning, "read_environment", lambda python: folder.load().environment)
    options = BreakdownRequest(str(folder.path), retune=RetuneRequest("coordesc", 1, verify=verify), python="python3")
    breakdown.break_down_again(folder, options, Redaction(), Silent())
    run = folder.load()
    assert calls == ["python3"] * asked
    assert run.verification == (FOUND if asked or before else None)
    kinds = [failure.kind for failure in run.failures if failure.stage == "verify"]
    assert kinds == (["exit"] if asked else ["invalid"])


@pytest.mark.parametrize("moved", [True, False])
def test_on_another_machine_or_without_its_file_a_run_is_not_proven(
    moved: bool, folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = folder.load()
    here = change(run.environment, cpu="another") if moved else run.environment
    if not moved:
        folder.save(replace(run, request=replace(run.request, target="gone.py:net")))
    monkeypatch.setattr(retuning, "verify_retunes", lambda *_: pytest.fail("the program was run"))
    monkeypatch.setattr(breakdown, "autotune_run", lambda run, *_: run)
    monkeypatch.setattr(retuning, "read_environment", lambda python: here)
    options = BreakdownRequest(str(folder.path), retune=RetuneRequest("coordesc", 1), python="python3")
    breakdown.break_down_again(folder, options, Redaction(), Silent())
    assert folder.load().verification is None and not folder.load().failures
