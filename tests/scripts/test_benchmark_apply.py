"""The script that compares a program with itself: which verdicts it takes for a difference."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from inductor_bench.records.retune import Saving
from inductor_bench.store import codec
from scripts import benchmark_apply


@pytest.mark.parametrize(
    ("step", "device", "good"),
    [
        ("no difference", "no difference", True),
        ("undecided", None, True),
        ("saves", "no difference", False),
        ("no difference", "slower", False),
        (None, None, False),
    ],
)
def test_a_sure_verdict_is_a_difference(
    step: str | None,
    device: str | None,
    good: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def saving(verdict: str | None) -> object:
        return codec.encode(Saving(1e-3, 1e-3, 2e-6, -1e-6, 5e-6, 10, verdict)) if verdict else None

    printed = json.dumps({"verification": {"step": saving(step), "device": saving(device)}})
    monkeypatch.setattr(benchmark_apply, "call", lambda *words: printed)
    assert list(benchmark_apply.compare(Path("run"), "program.py", 2)) == [good, good]
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert step is None or f"step 1.00 ms, saves +2.00 µs (-1.00 to +5.00), {step}" in lines[0]
