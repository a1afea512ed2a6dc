"""Timing one standalone file, and saying what its times come to."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path

from ...analysis.roofline import Work, judge_kernel
from ...analysis.statistics import summarize
from ...autotune.compile_pool import LOAD_S
from ...autotune.variants.find import find_variants
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...messages.kernels import Load
from ...messages.times import Describe, Measure, Measured, Verified, Verify
from ...records.run import Environment, Peaks
from ...records.tuning import MeasuredKernel
from ...source.standalone.recognition import require_standalone
from ...store.peaks import load_peaks, peaks_key
from ..modules.survey import take_survey
from .advice import advise
from .session import KernelSession

MEASURE_S = 600.0
COOLING_S = 1.0


def measure_file(file: Path, work: KernelSession) -> MeasuredKernel:
    """Times one file as it stands, after a check of its outputs.

    Raises:
        InductorBenchError: it cannot be measured.
        WorkerLostError: it took its worker down, or gave no answer in time.
    """
    require_standalone(file)
    work.progress.stage(f"measuring {file.stem}")
    facts = work.ask(Load(0, str(file.resolve())), LOAD_S)
    device = facts.device
    others = work.others_on(device)
    verified = work.ask(Verify(0), MEASURE_S) if work.options.check else Verified(None, "not checked")
    times = _take_times(work, device)
    described = work.ask(Describe(0), MEASURE_S)
    if device not in work.peaks:
        work.peaks[device] = _peaks(device, work)
    recorded = facts.recorded
    config = described.config or find_variants(facts, lambda request: work.ask(request(0), LOAD_S)).now
    calls, in_model = recorded.get("calls"), recorded.get("time_s")
    kernel = MeasuredKernel(
        name=recorded["name"],
        kernel_id=recorded["kernel_id"],
        file=str(file),
        category=recorded["category"],
        device=_device_name(device, work.environment),
        config=config,
        cold=summarize(times.cold),
        warm=summarize(times.warm),
        method=times.method,
        moved_bytes=recorded.get("moved_bytes") or described.moved_bytes,
        flops=described.flops,
        dtype=described.dtype,
        calls=calls,
        in_model_s=in_model / calls if in_model and calls else None,
        edited=work.is_edited(file),
        registers=described.registers,
        spills=described.spills,
        shared_memory_bytes=described.shared_memory_bytes,
        occupancy=device_of(device).theoretical_occupancy(
            work.environment,
            *(config.get("num_warps"), described.registers, described.shared_memory_bytes),
        ),
        checked=verified.passed,
        check_message=verified.message,
        with_zeros={state: summarize(samples) for state, samples in times.with_zeros.items()},
        clock_mhz=times.clock_mhz,
        clock_change=times.clock_change,
        throttled=times.throttled,
        shared_device=others,
    )
    return judged(work.nsight.counted(kernel, device) if work.nsight else kernel, work.peaks[device])


def _take_times(work: KernelSession, device: str) -> Measured:
    """The times of the loaded kernel; taken again after a pause where the GPU's clock was held back meanwhile."""
    times = work.ask(Measure(0, watch=not device_of(device).runs_on_host), MEASURE_S)
    if times.throttled:
        time.sleep(COOLING_S)
        with contextlib.suppress(InductorBenchError):
            again = work.ask(Measure(0, watch=True), MEASURE_S)
            if (again.clock_mhz or 0.0) > (times.clock_mhz or 0.0):
                return again
    return times


def judged(kernel: MeasuredKernel, peaks: Peaks | None) -> MeasuredKernel:
    """The kernel with what its times come to: its rates and its roof, and what is wrong with them.

    What fits into the cache is held against the cache's roof by its warm time: cold, its data were not there.
    """
    cold, warm = (
        judge_kernel(Work(timing.median_s, 1, kernel.moved_bytes, kernel.flops, kernel.dtype), peaks)
        for timing in (kernel.cold, kernel.warm)
    )
    return replace(
        kernel,
        bandwidth=cold.bandwidth,
        flop_rate=cold.flop_rate,
        bound=cold.bound,
        peak_share=warm.peak_share if cold.bound == "cache" else cold.peak_share,
        advice=tuple(advise(kernel)),
    )


def _device_name(device: str, environment: Environment) -> str:
    return device_of(device).name_in(environment) or device


def _peaks(device: str, work: KernelSession) -> Peaks | None:
    """The roofs of the device, measured where they are not cached and it is free; a kernel's times do not need them."""
    cached = load_peaks(peaks_key(work.environment, device))
    if cached is not None or work.others_on(device):
        return cached
    work.progress.stage(f"measuring what the {device} device can do")
    return take_survey(work.pool, (), device=device, peaks="cached", log=work.pool.folder / "survey.log").peaks
