"""Runs batches whose jobs are fakes from tests/support/batch_child.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import forking_python
import pytest
from conftest import RARE_COLLECTION, ROOT

from inductor_bench.launch import batch_executors
from inductor_bench.records.batch_record import Batch, BatchModel
from inductor_bench.records.request import BatchRequest, BreakdownRequest
from inductor_bench.workflows import batch as batch_devices
from inductor_bench.workflows.batch import run_batch
from inductor_bench.workflows.progress import Silent


class Listener(Silent):
    """Records notes and stages, and interrupts the batch at the first one that contains ``stop_at``."""

    def __init__(self, stop_at: str = "") -> None:
        self.notes: list[str] = []
        self.stages: list[str] = []
        self._stop_at = stop_at

    def note(self, text: str) -> None:
        self.notes.append(text)
        if self._stop_at and self._stop_at in text:
            raise KeyboardInterrupt

    def stage(self, text: str) -> None:
        self.stages.append(text)
        if self._stop_at and self._stop_at in text:
            raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", forking_python.interpreter())
    monkeypatch.setattr(batch_executors, "ENTRY", (str(ROOT / "tests" / "support" / "batch_child.py"),))
    monkeypatch.setattr("inductor_bench.workflows.batch_state.LOOK_S", 0.01)
    monkeypatch.setattr(batch_devices, "list_visible_gpus", lambda: ())
    monkeypatch.setattr("inductor_bench.workflows.batch.count_usable_cores", lambda: 2)  # with more, models overlap
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, [ROOT, ROOT / "tests" / "support", RARE_COLLECTION])))


def run(tmp_path: Path, lines: str, listener: Silent | None = None, **options: object) -> dict[str, BatchModel]:
    (tmp_path / "list.txt").write_text("\n".join(lines.split("|")))
    names = [name for name in ("retune", "redact", "python", "plots") if name in options]
    models = BreakdownRequest(**{name: options.pop(name) for name in names})  # type: ignore[arg-type]
    request = BatchRequest(tmp_path / "list.txt", tmp_path / "b", models=models, **options)  # type: ignore[arg-type]
    return rows(run_batch(request, listener or Silent()).batch)


def rows(batch: Batch) -> dict[str, BatchModel]:
    return {model.request.name: model for model in batch.models}


def statuses(found: dict[str, BatchModel]) -> dict[str, str]:
    return {name: row.status for name, row in found.items()}


def begun(tmp_path: Path) -> list[str]:
    lines = (tmp_path / "b" / "events").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith("begin")]
