"""The uncertainty of differences, and the verdicts on them.

Two runs of one program differ. A record of one run cannot say by how much, so that a difference between single runs is
held against an assumed noise, and against what the same runs show: kernels with the same code, config and calls ought
to take as long, so that their common change is noise (or the clock) in both runs. Where each side has several runs, the
noise is measured. Half-widths are those of 95% intervals; independent ones add in quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from ... import units
from ...records.comparisons.run import FASTER, SAME, SLOWER, UNDECIDED
from ...records.program import IDLE
from ..costs.step import idle_share
from ..statistics import EFFECT, median_interval, smallest_effect
from .likeness import is_library
from .pairing import Match
from .sides import Side, SideKernel

DEVICE_NOISE, HOST_NOISE = 0.02, 0.10
"""Relative difference between two runs of one program that is assumed for work on an accelerator, and for work of the
host: docs/measuring.md has runs of the same models at 0.98 to 1.04x, and processes on a CPU that differ by 8%."""
IDLE_NOISE = 0.25
"""The same for one label of idle time: the labels are taken from the few profiled steps, and flow into each other."""
INTERRUPTION = 0.1
"""Share of the step's noise that may fall on a single part: an interrupted process stretches what it did just then."""
DRIFT_FACTOR = 2.0
"""The half-width of the noise divided by the change of the unchanged kernels, which is a single draw of it."""
SMALLEST_SHARE = 0.002
"""Share of the step below which a part's difference gets no verdict."""
SAME_CALLS = 0.01
"""Relative difference of two numbers of calls per step up to which they are the same: means over few steps."""

_T = {2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31}
"""The 97.5% quantile of Student's t by degrees of freedom; 2.2 beyond."""


@dataclass(frozen=True)
class Noise:
    """The relative half-width for the difference of two runs, and its source in words.

    ``measured`` says whether it comes from several runs of each side, and holds all that makes runs differ.
    """

    relative: float
    source: str
    measured: bool = False


def is_unchanged(match: Match) -> bool:
    """Whether both sides run the same code in the same config equally often."""
    if not match.equal:
        return False
    (a,), (b,) = match.a, match.b
    return a.configs == b.configs and same_calls(a.calls, b.calls)


def same_calls(a: float, b: float) -> bool:
    return abs(a - b) <= SAME_CALLS * max(a, b)


def step_noise(a: Side, b: Side, matches: Sequence[Match], *, same_machine: bool, same_libraries: bool) -> Noise:
    """The noise between the runs of both sides, as a share of the step.

    Args:
        a, b: the sides.
        matches: their kernels.
        same_machine: whether nothing around the program differs that changes the time of equal kernels. Otherwise
            their change may be real, and is no measure of noise.
        same_libraries: the same of the kernels of libraries.
    """
    unchanged = [match for match in matches if same_machine and is_unchanged(match)]
    if not same_libraries:
        unchanged = [match for match in unchanged if not is_library(match.a[0])]
    before = sum(match.a[0].time_s for match in unchanged)
    drift = abs(sum(match.b[0].time_s - match.a[0].time_s for match in unchanged)) / before if before else 0.0
    drifted = Noise(DRIFT_FACTOR * drift, f"twice the {units.percent(drift)} by which unchanged kernels differ")
    if len(a.steps_s) > 1 and len(b.steps_s) > 1:
        measured = _measured(a.steps_s, b.steps_s) / (max(a.step_s, b.step_s) or 1.0)
        runs = f"measured, by {len(a.steps_s)} and {len(b.steps_s)} runs"
        return max(Noise(measured, runs, measured=True), drifted, key=lambda noise: noise.relative)
    if a.on_host:
        assumed = HOST_NOISE
    else:
        idle = max((idle_share(run) for side in (a, b) for run in side.runs), default=0.0)
        assumed = DEVICE_NOISE * (1 - idle) + HOST_NOISE * idle
    return max(Noise(assumed, "assumed for two runs of one program"), drifted, key=lambda noise: noise.relative)


def _measured(a: Sequence[float], b: Sequence[float]) -> float:
    """The half-width of the difference of two means. The runs share a machine, so that their spread is pooled."""
    freedom = len(a) + len(b) - 2
    pooled = sum((len(times) - 1) * stdev(times) ** 2 for times in (a, b)) / freedom
    return _T.get(freedom, 2.2) * math.sqrt(pooled * (1 / len(a) + 1 / len(b)))


def step_error_s(side: Side) -> float:
    """The half-width of a side's mean step, from the spread of its steps within each run."""
    errors = []
    for run in side.runs:
        times = (
            run.program.step_times_s
            if run.program is not None and side.in_step
            else max((module.times.wall_samples_s for module in run.modules), key=sum, default=())
        )
        if len(times) > 1 and fmean(times):
            share = 2 * stdev(times) / math.sqrt(len(times)) / fmean(times)
            errors.append(share * side.step_s)
    return math.hypot(*errors) / len(errors) if errors else 0.0


def kernel_error_s(kernels: Sequence[SideKernel]) -> float:
    """The half-width of the time of kernels together, from the samples of their modules' own runs."""
    return math.hypot(*(_kernel_error_s(kernel) for kernel in kernels))


def _kernel_error_s(kernel: SideKernel) -> float:
    samples = [sample for row in kernel.runs for sample in row.samples_s if sample > 0]
    if not samples or not median(samples):
        return 0.0
    low, high = median_interval(samples)
    return kernel.time_s * (high - low) / 2 / median(samples)


def part_error_s(kind: str, a_s: float, b_s: float, noise: Noise, step_s: float) -> float:
    """The half-width of the difference of a part of the step that is no kernel.

    Idle time is what the device's work leaves of the step, so that it has the noise of the whole step. Work that one
    side does not have at all is no noise: only its time is uncertain.
    """
    longer = max(a_s, b_s)
    if kind == IDLE:
        return math.hypot(IDLE_NOISE * longer, noise.relative * step_s)
    relative = max(noise.relative, DEVICE_NOISE)
    if not min(a_s, b_s):
        return min(relative, 0.5) * longer
    return math.hypot(relative * longer, INTERRUPTION * noise.relative * step_s)


def judge(a_s: float, b_s: float, error_s: float, effect_s: float) -> tuple[float, float, str]:
    """The interval of a difference, and the verdict on B.

    Args:
        a_s, b_s: seconds of both sides.
        error_s: the half-width of their difference.
        effect_s: the smallest difference that counts.

    Returns:
        The lower and the upper end of the interval, and ``slower``, ``faster``, ``same`` or ``undecided``.
    """
    delta = b_s - a_s
    low, high = delta - error_s, delta + error_s
    if low > 0 and delta >= effect_s:
        return low, high, SLOWER
    if high < 0 and delta <= -effect_s:
        return low, high, FASTER
    return low, high, SAME if max(abs(low), abs(high)) <= effect_s else UNDECIDED


def step_effect_s(a_s: float) -> float:
    """The smallest difference of a step that counts."""
    return EFFECT * a_s


def kernel_effect_s(kernels: Sequence[SideKernel]) -> float:
    """The smallest difference of kernels that counts: of each by the time of one call."""
    return sum(
        kernel.time_s * smallest_effect(kernel.time_s / kernel.calls if kernel.calls else kernel.time_s)
        for kernel in kernels
    )
