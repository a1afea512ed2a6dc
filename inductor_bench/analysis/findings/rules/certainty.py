"""Rules about the certainty of the measured figures.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from .... import units
from ....records.module import ModuleRecord
from ....records.run import Peaks, Run
from ...roofline import matrix_roof
from ..evidence import Row, RunEvidence
from ..finding import CAUTION, NOTE, Finding
from ..phrases import join_words, plural, slugs

PROFILER_SLOWDOWN = 1.25  # ratio of profiled to unprofiled time from which the profiler's overhead is reported
FEW_SAMPLES = 5  # number of wall samples below which they are too few
NOISE = 0.1  # spread of the middle half of the wall samples, as a share of their median
BEYOND = 1.1  # ratio of a kernel's rate to its peak above which the peak is too low
BEYOND_TIME = 0.1  # share of the whole time of such kernels from which they are reported
OUTLIERS = 0.1  # share of the iterations from which disturbed iterations are reported
MANY_OUTLIERS = 0.5  # share of the iterations above which disturbed iterations are a caution


def no_peaks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports that there are no measured peaks to compare the kernels with."""
    run = evidence.run
    if run.peaks is None and any(module.kernels for module in run.modules):
        text = "the device's peaks are not measured, so there is no percent of peak and no gain limit"
        yield Finding("no-peaks", text, level=CAUTION)


def beyond_peaks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels that run faster than the measured peaks, which are then too low for all kernels."""
    factors = [(row, _beyond(row, evidence.run.peaks)) for row in evidence.rows]
    faster = [(row, factor) for row, factor in factors if factor > BEYOND]
    time_s = sum(row.cost.time_s for row, _ in faster)
    if not faster or evidence.whole.part(time_s) < BEYOND_TIME:
        return
    most = max(factor for _, factor in faster)
    takes, runs = ("takes", "runs") if len(faster) == 1 else ("take", "run")
    text = (
        f"{plural(len(faster), 'kernel')}, which {takes} {evidence.whole.format(time_s)}, {runs} faster than the "
        f"measured peaks, by up to {units.whole_percent(most - 1)}: the peaks were measured at a lower clock or on a "
        "busy machine, and gain limits are too small. Measure them again (inductor-bench doctor --remeasure), and "
        "break the program down again"
    )
    yield Finding("beyond-peaks", text, kernels=tuple(row.place for row, _ in faster), level=CAUTION)


def _beyond(row: Row, peaks: Peaks | None) -> float:
    """The ratio of a kernel's rate to the measured peak that bounds it; 0 where one of them is unknown.

    No kernel is faster than DRAM: one that seems to be counts as served by the cache.
    """
    roof, kernel = row.kernel.roof, row.kernel
    if peaks is None:
        return 0.0
    rates = {
        "compute": (roof.flop_rate, matrix_roof(kernel.work.dtype, peaks, tf32=row.module.tf32)),
        "cache": (roof.bandwidth, peaks.cache_bandwidth),
    }
    rate, peak = rates.get(roof.bound, (None, None))
    return rate / peak if rate and peak else 0.0


def noise(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports wall times that vary. They matter less to a program whose step was timed in the program itself."""
    text = "wall times vary (middle half: {}): measure again on an idle machine"
    yield from _combine(evidence.run, "noise", _noisy, text, NOTE if evidence.in_step else CAUTION)


def busy_over_wall(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports kernels that took longer under the profiler than their graph took without it."""
    if evidence.in_step:
        return
    text = "kernels took longer under the profiler than their graph without it ({}): shares are of the longer time"
    yield from _combine(evidence.run, "busy-over-wall", _busy_over_wall, text, CAUTION)


def outliers(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports disturbed iterations of the profiled run, which do not count."""
    profiles = [module.profiled for module in evidence.run.modules]
    many = any(one.outlier_iterations > MANY_OUTLIERS * one.iterations for one in profiles)
    text = "some profiled iterations were disturbed ({}); they are recorded, but do not count"
    yield from _combine(evidence.run, "outliers", _outliers, text, CAUTION if many else NOTE)


def few_samples(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs with few samples of the wall time."""
    text = "few wall times were taken ({}); a larger --repeat makes the median firmer"
    yield from _combine(evidence.run, "few-samples", _few, text, NOTE)


def profiler_overhead(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs in which the profiler slowed the host."""
    text = "the profiler slowed the host ({}): gaps in the trace are longer than in a real run; wall time is unprofiled"
    yield from _combine(evidence.run, "profiler-overhead", _slowed, text, NOTE)


def _combine(run: Run, kind: str, rule: Callable[[ModuleRecord], str], sentence: str, level: str) -> Iterator[Finding]:
    """Makes one finding about all graphs for which ``rule`` returns a text. ``{}`` in ``sentence`` takes the texts."""
    texts = [(module, rule(module)) for module in run.modules]
    hits = [(module, text) for module, text in texts if text]
    if hits:
        words = join_words([f"{module.label} {text}" for module, text in hits], 3)
        yield Finding(kind, sentence.replace("{}", words), slugs(module for module, _ in hits), level=level)


def _busy_over_wall(module: ModuleRecord) -> str:
    times = module.times
    if not times.wall_time_s or not times.busy_time_s or times.busy_time_s <= times.wall_time_s * 1.0005:
        return ""
    return f"{units.seconds(times.busy_time_s)} instead of {units.seconds(times.wall_time_s)}"


def _slowed(module: ModuleRecord) -> str:
    wall_s, profiled_s = module.times.wall_time_s, module.times.profiled_time_s
    if not wall_s or not profiled_s or profiled_s < PROFILER_SLOWDOWN * wall_s:
        return ""
    return f"from {units.seconds(wall_s)} to {units.seconds(profiled_s)}"


def _noisy(module: ModuleRecord) -> str:
    samples = module.times.wall_samples_s
    if len(samples) < FEW_SAMPLES:
        return ""
    low, middle, high = statistics.quantiles(samples, n=4)
    if not middle or (high - low) / middle <= NOISE:
        return ""
    return f"{units.seconds(low)} to {units.seconds(high)}"


def _few(module: ModuleRecord) -> str:
    number = len(module.times.wall_samples_s)
    return f"{number}" if 0 < number < FEW_SAMPLES else ""


def _outliers(module: ModuleRecord) -> str:
    profiled = module.profiled
    if not profiled.iterations or profiled.outlier_iterations < max(1, OUTLIERS * profiled.iterations):
        return ""
    return f"{profiled.outlier_iterations} of {profiled.iterations}"
