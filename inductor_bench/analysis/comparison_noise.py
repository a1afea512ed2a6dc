"""The uncertainty of differences, and the verdicts on them.

Two runs of one program differ. A record of one run cannot say by how much, so that a difference between single runs is
held against an assumed noise, and against what the same runs show: kernels with the same code, config and calls ought
to take as long, so that their common change is noise (or the clock) in both runs. If each side has several runs, the
noise is measured. Half-widths are those of 95% intervals; independent ones add in quadrature.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median, stdev

from .. import units
from ..records.comparison import FASTER, SAME, SLOWER, UNDECIDED
from ..records.program import IDLE
from .comparison_pairing import Match
from .comparison_sides import Side, SideKernel, has_other_precision, has_same_configs, is_library, same_calls
from .statistics import EFFECT, median_interval, smallest_effect
from .step_costs import idle_share

DEVICE_NOISE, HOST_NOISE = 0.04, 0.10
"""Relative difference between two runs of one program that is assumed for work on an accelerator, and for work of the
host: docs/measuring.md has runs of the same models at 0.98 to 1.04x, and processes on a CPU that differ by 8%."""
PACED_NOISE, PACED_FROM, PACED = 0.5, 0.1, 0.3
"""The same for steps whose pace the host sets on both sides. It grows from the first share of idle time to the second.
A program whose device waits took 18.8, 23.3 and 37.6 ms a step in three runs on machines of one kind."""
DEVICE_PART_NOISE, HOST_PART_NOISE = 0.02, 0.25
"""The least noise of one part of the step that is no kernel: on a CPU the same operator took 24 and 76 µs, 166 and
132 µs in two runs of one program."""
IDLE_NOISE = 0.25
"""The same for one label of idle time: the labels are taken from the few profiled steps, and flow into each other."""
IDLE_SOURCE = "the change of idle time included, which on a CPU is the unprofiled step minus the profiled work"
LEAST_MEASURED = 0.5
"""The measured noise is at least this share of the assumed one: a few runs may be alike by chance."""
UNEXPLAINED = "as large as the difference, because the parts do not explain it"
NO_CAUSE = "as large as the difference, because nothing else that the records hold differs between the programs"
DISTURBED = "as large as the difference, because a busy machine disturbed figures of one of the runs"
INTERRUPTION = 0.1
"""Share of the step's noise that may fall on a single part: an interrupted process stretches what it did just then."""
DRIFT_FACTOR = 2.0
"""The half-width of the noise divided by the change of the unchanged kernels, which is a single draw of it."""
HOST_DRIFT = 0.4
"""The largest change of unchanged kernels that counts as noise between single runs on a CPU even if something
differs around the program: two runs of one training program took 109 and 173 ms a step on two shared cores."""
ENOUGH = 0.2
"""Share of the step of the unchanged kernels from which their change says what the whole step's noise is."""
SMALLEST_SHARE = 0.002
"""Share of the step below which a part's difference gets no verdict."""

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
    return has_same_configs(a, b) and not has_other_precision(a, b) and same_calls(a.calls, b.calls)


def noise_between(
    a: Side,
    b: Side,
    matches: Sequence[Match],
    *,
    of_step: bool,
    same_machine: bool,
    same_libraries: bool,
    waited: float,
) -> Noise:
    """The noise between the runs of both sides, as a share of the time.

    Args:
        a, b: the sides.
        matches: their kernels.
        of_step: whether it is that of the step and its idle time, and not that of the device's work: the step is
            longer if the host is slower, and work that is done sooner does not make it longer.
        same_machine: whether nothing around the program differs that changes the time of equal kernels. Otherwise
            their change may be real, and is no measure of noise.
        same_libraries: the same of the kernels of libraries.
        waited: the largest share of its time for which a process of the runs waited for a core.
    """
    alike = [match for match in matches if is_unchanged(match)]
    measures = [match for match in alike if same_machine and (same_libraries or not is_library(match.a[0]))]
    drift, weight = _drift(a, measures)
    drifted = Noise(
        DRIFT_FACTOR * abs(drift) * weight, f"from the {units.percent(abs(drift))} by which unchanged kernels differ"
    )
    if of_step and drift * (b.step_s - a.step_s) < 0:  # it hides a part of the difference, and explains none of it
        drifted = Noise(0.0, "")
    if len(a.steps_s) > 1 and len(b.steps_s) > 1:
        return max(_measured_noise(a, b), drifted, key=lambda noise: noise.relative)
    assumed = Noise(_assumed(a, b) + (_host_paced(a, b) if of_step else 0.0), "assumed for two runs of one program")
    if waited > assumed.relative:
        assumed = Noise(waited, "the share of its time for which a process waited for a core")
    left = abs(_idle_s(b) - _idle_s(a)) / (max(a.step_s, b.step_s) or 1.0) if a.on_host else 0.0
    if left > assumed.relative:
        assumed = Noise(assumed.relative + left, IDLE_SOURCE)
    drift, weight = _drift(a, alike)
    unexplained = min(HOST_DRIFT, abs(drift) * weight) if a.on_host else 0.0
    if unexplained > assumed.relative:
        change = units.percent(unexplained)
        assumed = Noise(unexplained, f"from the {change} by which kernels with the same code differ in these two runs")
    return max(assumed, drifted, key=lambda noise: noise.relative)


def noise_of_whole_difference(noise: Noise, a: Side, b: Side, source: str) -> Noise:
    """The noise between runs whose difference may be noise as a whole: nothing else differs, it differs by more than
    what is found to differ, or a busy machine disturbed one of them."""
    difference = abs(b.step_s - a.step_s) / max(a.step_s, b.step_s)
    return replace(noise, relative=math.hypot(noise.relative, difference), source=source)


def _drift(a: Side, alike: Sequence[Match]) -> tuple[float, float]:
    """The relative change of these kernels together, and how much it says of the step, 0 to 1."""
    before = sum(match.a[0].time_s for match in alike)
    change = sum(match.b[0].time_s - match.a[0].time_s for match in alike) / before if before else 0.0
    return change, min(1.0, before / (ENOUGH * a.step_s)) if a.step_s else 1.0


def _assumed(a: Side, b: Side) -> float:
    if a.on_host:
        return HOST_NOISE
    idle = max((idle_share(run) for side in (a, b) for run in side.runs), default=0.0)
    return DEVICE_NOISE * (1 - idle) + HOST_NOISE * idle


def _host_paced(a: Side, b: Side) -> float:
    """The noise of a pace that the host sets on both sides; on a CPU it is the host's in any case."""
    idle = min(max(idle_share(run) for run in side.runs) for side in (a, b))
    return 0.0 if a.on_host else PACED_NOISE * min(1.0, max(0.0, idle - PACED_FROM) / (PACED - PACED_FROM))


def _measured_noise(a: Side, b: Side) -> Noise:
    measured = spread_s(a.steps_s, b.steps_s) / (max(a.step_s, b.step_s) or 1.0)
    runs = f"{len(a.steps_s)} and {len(b.steps_s)} runs"
    least = LEAST_MEASURED * _assumed(a, b) * math.sqrt((1 / len(a.steps_s) + 1 / len(b.steps_s)) / 2)
    if measured >= least:
        return Noise(measured, f"measured, by {runs}", measured=True)
    return Noise(least, f"the least that is assumed for {runs}, which differ by less", measured=True)


def _idle_s(side: Side) -> float:
    return sum(part.time_s for part in side.parts if part.kind == IDLE)


def spread_s(a: Sequence[float], b: Sequence[float]) -> float:
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


def part_error_s(
    kind: str, a_s: Sequence[float], b_s: Sequence[float], noise: Noise, step_s: float, *, on_host: bool
) -> float:
    """The half-width of the difference of a part of the step that is no kernel.

    Idle time is what the device's work leaves of the step, so that it has the noise of the whole step. Work that one
    side does not have at all, and each run of the other has, is no noise: only its time is uncertain.

    Args:
        kind: the kind of the part.
        a_s, b_s: its seconds by run.
        noise: of the step.
        step_s: the longer step.
        on_host: whether the device is the host itself.
    """
    means = abs(fmean(a_s)), abs(fmean(b_s))
    longer, are_several = max(means), len(a_s) > 1 and len(b_s) > 1
    own = spread_s(a_s, b_s) if are_several else 0.0
    if kind == IDLE:
        return math.hypot(IDLE_NOISE * longer, noise.relative * step_s)
    least = DEVICE_PART_NOISE if not on_host else HOST_NOISE if are_several else HOST_PART_NOISE
    relative = max(noise.relative, least)
    if not min(means):
        is_in_each = all(a_s) or all(b_s)
        return math.hypot(0.0 if is_in_each else own, min(relative, 0.5) * longer)
    return math.hypot(own, relative * longer, INTERRUPTION * noise.relative * step_s)


def judge(a_s: float, b_s: float, error_s: float, effect_s: float) -> tuple[float, float, str]:
    """The interval of a difference, and the verdict on B.

    Args:
        a_s, b_s: seconds of both sides.
        error_s: the half-width of their difference.
        effect_s: the smallest difference that counts.

    Returns:
        The lower and the upper end of the interval, and ``slower``, ``faster``, ``same`` or ``undecided``. Times of B
        are positive, so that no time of A shrinks by more than itself.
    """
    delta = b_s - a_s
    low, high = delta - error_s, delta + error_s
    if min(a_s, b_s) >= 0:
        low = max(low, -a_s)
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
