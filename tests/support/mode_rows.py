"""Builds comparisons of modes from the steps of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from inline import make

from inductor_bench.analysis.mode_conclusion import conclude
from inductor_bench.records.comparison import ModeComparison, ModeProcess, ModeRow, ModeSet
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import Environment

ENVIRONMENT = make(Environment, torch="2.13.0", cpu="A CPU", threads=2)


def process(round: int, step_s: float, **facts: Any) -> ModeProcess:
    return replace(ModeProcess(round, step_s, (step_s,) * 5, "optimizer", "cpu", calls=1), **facts)


def row(settings: ModeSet | str, steps_s: Sequence[float], compile_s: float | None = None, **facts: Any) -> ModeRow:
    settings = ModeSet(settings) if isinstance(settings, str) else settings
    times = [compile_s, *[1.0 if compile_s else None] * len(steps_s)]
    processes = [process(n, step, compile_time_s=times[n], **facts) for n, step in enumerate(steps_s)]
    return ModeRow(settings.name, settings, tuple(processes))


def comparison(*rows: ModeRow, kind: str = "factory", rounds: int = 4) -> ModeComparison:
    """The concluded comparison of these rows."""
    return conclude(
        ModeComparison(
            format=1,
            tool_version="0",
            created="2026-11-23T12:00:00+00:00",
            command="inductor-bench modes train.py",
            target="train.py",
            title="train.py",
            request=BreakdownRequest("train.py", kind),
            environment=ENVIRONMENT,
            rounds=rounds,
            rows=rows,
        )
    )


def found(compared: ModeComparison, name: str) -> ModeRow:
    (one,) = [row for row in compared.rows if row.name == name]
    return one
