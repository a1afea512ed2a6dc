"""Times one standalone file, and judges its times against the device's peaks."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ...analysis.roofline import TimedWork, judge_kernel
from ...analysis.statistics import summarize
from ...autotune.compile_pool import LOAD_S
from ...autotune.variants.find import find_variants
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...messages.kernels import Facts, Load
from ...messages.times import Describe, Measure, Measured, Verified, Verify
from ...records.run import Environment, Peaks
from ...records.tuning import CallWork, Config, MeasuredKernel, MeasuredRoof, ModelCalls, Resources, Timing, TimingClock
from ...source.standalone.recognition import require_standalone
from ...store.peaks import load_peaks, peaks_key
from ..modules.survey import take_survey
from .advice import advise
from .session import KernelSession

MEASURE_S = 600.0
COOLING_S = 1.0


def measure_file(file: Path, session: KernelSession) -> MeasuredKernel:
    """Times the kernel of one file in its own configuration, after a check of its outputs.

    Raises:
        InductorBenchError: the kernel cannot be measured.
        WorkerLostError: the worker crashed or exceeded its limit.
    """
    require_standalone(file)
    session.progress.stage(f"measuring {file.stem}")
    facts = session.ask(Load(0, str(file.resolve())), LOAD_S)
    device = facts.device
    others = session.find_other_jobs(device)
    verified = session.ask(Verify(0), MEASURE_S) if session.options.check else Verified(None, "not checked")
    times = _take_times(session, device)
    described = session.ask(Describe(0), MEASURE_S)
    if device not in session.peaks:
        session.peaks[device] = _find_peaks(device, session)
    config = described.config or find_variants(facts, lambda request: session.ask(request(0), LOAD_S)).now
    resources = Resources(described.registers, described.spills, described.shared_memory_bytes)
    timings = KernelTimings(summarize(times.cold), summarize(times.warm), times.method)
    kernel = replace(
        describe_kernel(file, facts, session, config, resources, timings),
        work=CallWork(facts.recorded.moved_bytes or described.moved_bytes, described.flops, described.dtype),
        checked=verified.passed,
        check_message=verified.message,
        with_zeros={state: summarize(samples) for state, samples in times.with_zeros.items()},
        clock=TimingClock(times.clock_mhz, times.clock_change, times.throttled),
        shared_device=others,
    )
    return judge_times(
        session.nsight.with_counters(kernel, device) if session.nsight else kernel, session.peaks[device]
    )


class KernelTimings(NamedTuple):
    """The times of one call: ``cold``, ``warm`` where it was taken, and the method of timing."""

    cold: Timing
    warm: Timing | None
    method: str


def describe_kernel(
    file: Path,
    facts: Facts,
    session: KernelSession,
    config: Config,
    resources: Resources,
    timings: KernelTimings,
) -> MeasuredKernel:
    """The record of a standalone file's kernel with its times; ``resources`` get their occupancy here."""
    recorded, device = facts.recorded, facts.device
    occupancy = device_of(device).theoretical_occupancy(
        session.environment, config.get("num_warps"), resources.registers, resources.shared_memory_bytes
    )
    return MeasuredKernel(
        name=recorded.name,
        kernel_id=recorded.kernel_id,
        file=str(file),
        category=recorded.category,
        device=device_name(device, session.environment),
        config=config,
        cold=timings.cold,
        warm=timings.warm,
        method=timings.method,
        work=CallWork(recorded.moved_bytes),
        original=ModelCalls(
            recorded.calls, recorded.time_s / recorded.calls if recorded.time_s and recorded.calls else None
        ),
        edited=session.is_edited(file),
        resources=replace(resources, occupancy=occupancy),
    )


def _take_times(session: KernelSession, device: str) -> Measured:
    """The times of the loaded kernel; taken again after a pause where the GPU throttled its clock."""
    times = session.ask(Measure(0, watch=not device_of(device).runs_on_host), MEASURE_S)
    if times.throttled:
        time.sleep(COOLING_S)
        with contextlib.suppress(InductorBenchError):
            again = session.ask(Measure(0, watch=True), MEASURE_S)
            if (again.clock_mhz or 0.0) > (times.clock_mhz or 0.0):
                return again
    return times


def judge_times(kernel: MeasuredKernel, peaks: Peaks | None) -> MeasuredKernel:
    """The kernel with its rates, its bound, its share of the peak, and advice.

    The share of a cache-bound kernel comes from its warm time, because its data are not in the cache in the cold time.

    Args:
        kernel: the measured kernel.
        peaks: the measured peaks of its device; ``None`` where they are unknown.
    """
    cold, warm = (
        judge_kernel(TimedWork(timing.median_s, 1, kernel.work), peaks)
        for timing in (kernel.cold, kernel.warm or kernel.cold)
    )
    return replace(
        kernel,
        roof=MeasuredRoof(
            bandwidth=cold.bandwidth,
            flop_rate=cold.flop_rate,
            bound=cold.bound,
            peak_share=warm.peak_share if cold.bound == "cache" else cold.peak_share,
        ),
        advice=tuple(advise(kernel)),
    )


def device_name(device: str, environment: Environment) -> str:
    """The name of a device in an environment; its type where the environment does not name it."""
    return device_of(device).name_in(environment) or device


def _find_peaks(device: str, session: KernelSession) -> Peaks | None:
    """The peaks of the device: from the cache, or measured where no other job uses the device; otherwise ``None``."""
    cached = load_peaks(peaks_key(session.environment, device))
    if cached is not None or session.find_other_jobs(device):
        return cached
    session.progress.stage(f"measuring what the {device} device can do")
    return take_survey(session.pool, (), device=device, peaks="cached", log=session.pool.folder / "survey.log").peaks
