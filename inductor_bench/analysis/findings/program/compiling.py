"""Rules about what compilation took, and whether it has paid off."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .... import units
from ....records.code.compile_phases import total_s
from ....records.program import PATTERN
from ...costs.step import eager_ratio, median_steps, step_of, step_spread
from ..evidence import RunEvidence
from ..finding import CAUTION, FINE, NOTE, Finding
from ..phrases import join_words

LEAST_COMPILATION_S = 1.0
"""Seconds of compilation from which they are reported."""

LEAST_PHASE = 0.05
"""Share of the compilation's time from which a phase is named."""


def compile_time(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the time of compilation by phase."""
    phases = evidence.run.capture.compile_phases
    whole = total_s(phases)
    if whole < LEAST_COMPILATION_S:
        return
    named = [phase for phase in phases if phase.time_s >= LEAST_PHASE * whole]
    words = join_words([f"{phase.name} {units.whole_percent(phase.time_s / whole)}" for phase in named])
    text = f"compilation with empty caches took {units.seconds(whole)}: {words}"
    program = step_of(evidence.run)
    if program is not None and program.step_source != PATTERN and not evidence.run.request.eager:
        text += ". --eager also times the steps without compilation, and says when it has paid off"
    yield Finding("compile-time", text, level=NOTE)


def against_eager(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports how compiled steps compare with eager ones, and after how many of them compilation has paid off."""
    program = step_of(evidence.run)
    ratio = eager_ratio(program) if program else None
    if program is None or program.eager_step_time_s is None or ratio is None:
        return
    eager, compiled = units.seconds(program.eager_step_time_s), units.seconds(program.step_time_s)
    whole = total_s(evidence.run.capture.compile_phases)
    cost = f"the {units.seconds(whole)} of compilation, with empty caches," if whole else "compilation"
    if ratio > 1:
        text = (
            f"in one run of each a compiled step is {ratio:.2f}x faster than an eager one ({compiled}, eager {eager})"
        )
        steps = whole / (program.eager_step_time_s - program.step_time_s)
        text += f": {cost} pays off after about {units.count(_rounded(steps))} steps" if whole else ""
        yield Finding("against-eager", text, level=FINE)
    elif ratio == 1:
        varies = f"steps vary by {units.percent(step_spread(program))}"
        if medians := median_steps(program):
            compiled, eager = (f"{units.seconds(median_s)} in the median" for median_s in medians)
        text = f"compiled and eager steps show no difference ({compiled}, eager {eager}; {varies})"
        yield Finding("against-eager", f"{text}: {cost} has not paid off", level=CAUTION)
    else:
        text = f"in one run of each a compiled step takes longer than an eager one ({compiled}, eager {eager}): "
        text += f"at these times {cost} does not pay off"
        yield Finding("against-eager", text, level=CAUTION)


def _rounded(steps: float) -> int:
    """The number of steps, rounded up to two significant digits: its error is that of a difference of two times."""
    unit = 10 ** max(0, math.floor(math.log10(steps)) - 1) if steps >= 1 else 1
    return math.ceil(steps / unit) * unit
