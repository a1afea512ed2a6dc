"""Timing one standalone file, and saying what its times come to."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...analysis.roofline import Work, judge_kernel
from ...analysis.statistics import summarize
from ...autotune.compile_pool import LOAD_S
from ...autotune.variants import find_variants
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...records.run import Environment, Peaks
from ...records.tuning import MeasuredKernel
from ...source.standalone.recognition import require_standalone
from ...store.peaks import load_peaks, peaks_key
from ..modules.survey import take_survey
from .advice import advise
from .session import Workbench

MEASURE_S = 600.0
COOLING_S = 1.0


def measure_file(file: Path, work: Workbench) -> MeasuredKernel:
    """Times one file as it stands, after a check of its outputs.

    Raises:
        InductorBenchError: it cannot be measured.
        WorkerLostError: it took its worker down, or gave no answer in time.
    """
    require_standalone(file)
    work.progress.stage(f"measuring {file.stem}")
    facts = work.ask(LOAD_S, do="load", number=0, file=str(file.resolve()))
    device = facts["device"]
    others = work.others_on(device)
    checked: dict[str, Any] = {"passed": None, "message": "not checked"}
    if work.options.check:
        checked = work.ask(MEASURE_S, do="verify", number=0)
    times = _take_times(work, device)
    described = work.ask(MEASURE_S, do="describe", number=0)
    if device not in work.peaks:
        work.peaks[device] = _peaks(device, work)
    recorded = facts["recorded"]
    config = described.get("config") or find_variants(facts, lambda: work.ask(LOAD_S, do="candidates", number=0)).now
    calls, in_model = recorded.get("calls"), recorded.get("time_s")
    kernel = MeasuredKernel(
        name=recorded["name"],
        kernel_id=recorded["kernel_id"],
        file=str(file),
        category=recorded["category"],
        device=_device_name(device, work.environment),
        config=config,
        cold=summarize(times["cold"]),
        warm=summarize(times["warm"]),
        method=times.get("method", ""),
        moved_bytes=recorded.get("moved_bytes") or described.get("moved_bytes"),
        flops=described.get("flops"),
        dtype=described.get("dtype"),
        calls=calls,
        in_model_s=in_model / calls if in_model and calls else None,
        edited=work.is_edited(file),
        registers=described.get("registers"),
        spills=described.get("spills"),
        shared_memory_bytes=described.get("shared_memory_bytes"),
        occupancy=device_of(device).theoretical_occupancy(
            work.environment,
            *(config.get("num_warps"), described.get("registers"), described.get("shared_memory_bytes")),
        ),
        checked=checked["passed"],
        check_message=checked["message"],
        with_zeros={state: summarize(samples) for state, samples in times.get("with_zeros", {}).items()},
        **{name: times[name] for name in ("clock_mhz", "clock_change") if name in times},
        throttled=tuple(times.get("throttled", ())),
        shared_device=others,
    )
    return judged(work.nsight.counted(kernel, device) if work.nsight else kernel, work.peaks[device])


def _take_times(work: Workbench, device: str) -> dict[str, Any]:
    """The times of the loaded kernel; taken again after a pause where the GPU's clock was held back meanwhile."""
    times: dict[str, Any] = work.ask(MEASURE_S, do="measure", number=0, watch=not device_of(device).runs_on_host)
    if times.get("throttled"):
        time.sleep(COOLING_S)
        with contextlib.suppress(InductorBenchError):
            again: dict[str, Any] = work.ask(MEASURE_S, do="measure", number=0, watch=True)
            if again.get("clock_mhz", 0.0) > times["clock_mhz"]:
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


def _peaks(device: str, work: Workbench) -> Peaks | None:
    """The roofs of the device, measured where they are not cached and it is free; a kernel's times do not need them."""
    cached = load_peaks(peaks_key(work.environment, device))
    if cached is not None or work.others_on(device):
        return cached
    work.progress.stage(f"measuring what the {device} device can do")
    return take_survey(work.pool, (), device=device, peaks="cached", log=work.pool.folder / "survey.log").peaks
