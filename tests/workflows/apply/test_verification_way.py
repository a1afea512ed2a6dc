"""How a program's saving is compared: by steps of one process, or by whole processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import step_runs

from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.pins import APPLY, COMPARE
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.apply import verification
from inductor_bench.workflows.apply.pins import make_pins
from inductor_bench.workflows.progress import Silent


def test_a_program_that_replays_cuda_graphs_is_compared_by_processes_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ran: list[str] = []

    def start(pinned: object, plan: object, mode: str, observe: str, name: str, progress: object) -> None:
        ran.append(f"{mode} {name}")
        raise InductorBenchError("that is enough")

    monkeypatch.setattr(verification, "_start", start)
    decode, blocks = step_runs.decode(), step_runs.transformer()
    for run, first in ((decode, f"{APPLY} compare-1"), (blocks, f"{COMPARE} compare")):
        plan = verification.Plan(RunFolder(tmp_path), ["python"], {}, replays=verification.replays_graphs(run))
        with pytest.raises(InductorBenchError, match="that is enough"):
            verification.verify(make_pins(run, RunFolder(tmp_path)), plan, Silent())
        assert ran.pop() == first
