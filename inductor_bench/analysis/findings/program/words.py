"""Phrases about a program's step."""

from __future__ import annotations

from .... import units
from ....records.code.source import SourceLine
from ....records.program import (
    COLLECTIVE,
    COPY,
    EAGER,
    GRAPH,
    KINDS,
    MARKS,
    OPTIMIZER,
    OPTIMIZER_STEPS,
    PATTERN,
    Part,
    Program,
)
from ....records.run import Run
from ...costs.step import eager_ratio, idle_labels, idle_share, part_time_s, parts_of

LEAST = 0.005
"""Smallest share of the step that the first line names."""

MOST_PARTS = 4
"""Largest number of working parts that the first line names."""

_SOURCES = {
    MARKS: "marked by the program",
    OPTIMIZER_STEPS: "optimizer steps",
    PATTERN: "found in the pattern of compiled calls",
}


def step_words(program: Program) -> str:
    """Returns ``12.4 ms a step (optimizer steps; 20 timed)``, and how it compares with an eager one where known."""
    source = _SOURCES.get(program.step_source, f"delimited by {program.step_source}")
    timed = f"{len(program.step_times_s)} timed"
    return f"{units.seconds(program.step_time_s)} a step ({'; '.join([source, timed, *_eager_words(program)])})"


def _eager_words(program: Program) -> list[str]:
    ratio = eager_ratio(program)
    if ratio is None:
        return []
    if ratio > 1:
        return [f"{ratio:.2f}x faster than eager"]
    return ["no difference to eager shows" if ratio == 1 else f"eager: {units.seconds(program.eager_step_time_s)}"]


def share_words(run: Run, seconds: float) -> str:
    """Returns a time with its share of the step: ``1.20 ms (3.4%)``."""
    whole = run.program.step_time_s if run.program else 0.0
    return f"{units.seconds(seconds)} ({units.percent(seconds / whole)})" if whole else units.seconds(seconds)


def line_words(source: SourceLine | None) -> str:
    """Returns the folder, file and line of a place: ``app/train.py:57``; empty where it is unknown."""
    return f"{'/'.join(source.file.split('/')[-2:])}:{source.line}" if source else ""


def place_words(part: Part) -> str:
    """Returns where a part comes from: its line, else its module; empty where both are unknown."""
    return line_words(part.source) or part.module


def work_words(run: Run) -> str:
    """Returns the working parts with their shares: ``Block.forward 38%, AdamW 21%, eager operators 12%``."""
    whole = run.program.step_time_s if run.program else 0.0
    named: dict[str, float] = {}
    for part in parts_of(run, GRAPH, OPTIMIZER):
        named[part.label] = named.get(part.label, 0.0) + part.time_s
    named["eager operators"] = part_time_s(run, EAGER)
    named["exposed collectives"] = part_time_s(run, COLLECTIVE)
    named["copies"] = part_time_s(run, COPY)
    for part in run.program.parts if run.program else ():
        if part.kind not in KINDS:  # of a newer version
            named[part.kind] = named.get(part.kind, 0.0) + part.time_s
    shown = sorted(named.items(), key=lambda item: -item[1])
    shown = [(label, seconds) for label, seconds in shown if seconds >= LEAST * whole > 0]
    most = MOST_PARTS if len(shown) > MOST_PARTS + 1 else len(shown)
    words = [f"{label} {units.whole_percent(seconds / whole)}" for label, seconds in shown[:most]]
    rest = sum(seconds for _, seconds in shown[most:])
    return ", ".join([*words, f"{len(shown) - most} more {units.whole_percent(rest / whole)}"] if rest else words)


def idle_words(run: Run) -> str:
    """Returns the idle time with what the host did, the longest first: ``37% (Python 20%, launching 12%)``."""
    whole = run.program.step_time_s if run.program else 0.0
    labels = [(label, seconds / whole) for label, seconds in idle_labels(run).items() if whole]
    shown = [(label, share) for label, share in labels if share >= LEAST][:2]
    idle = units.whole_percent(idle_share(run))
    if len(labels) == 1:
        return f"{idle} ({labels[0][0]})"
    return f"{idle} ({', '.join(f'{label} {units.whole_percent(share)}' for label, share in shown)})" if shown else idle
