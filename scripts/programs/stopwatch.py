"""The stopwatch of the programs in this folder: what each program itself says about its step.

``timed`` runs the steps in three blocks and synchronises after each block, so that a block's time includes its device
work. With ``PROFILE=1`` it also records ten steps with ``torch.profiler``, and prints the profiler's totals. With
``NCU_STEP=1`` it runs one step after the warm-up between the start and the stop of CUDA's profiler, and nothing else.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable

import torch

BLOCKS = 3
PROFILED = 10
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RANK = int(os.environ.get("RANK", "0"))


def timed(step: Callable[[int], object], warm_up: int = 20) -> None:
    """Runs ``warm_up`` and then ``STEPS`` (default 60) steps, and prints the median block's seconds per step."""
    count = int(os.environ.get("STEPS", "60"))
    for number in range(warm_up):
        step(number)
    _wait()
    if os.environ.get("NCU_STEP"):
        _for_counters(step, warm_up)
        return
    times = []
    length = max(1, count // BLOCKS)
    for block in range(BLOCKS):
        begin = time.perf_counter()
        for number in range(length):
            step(warm_up + block * length + number)
        _wait()
        times.append((time.perf_counter() - begin) / length)
    report = {"rank": RANK, "step_s": statistics.median(times), "blocks_s": times}
    if os.environ.get("PROFILE"):
        report |= _profiled(step)
    print("stopwatch", json.dumps(report), flush=True)


def _for_counters(step: Callable[[int], object], number: int) -> None:
    """Runs one step, whose kernels ``ncu --profile-from-start off`` counts."""
    torch.cuda.profiler.start()
    step(number)
    _wait()
    torch.cuda.profiler.stop()


def _profiled(step: Callable[[int], object]) -> dict[str, float]:
    """The profiler's own totals of ten steps: device time and the number of device activities, per step."""
    from torch.profiler import ProfilerActivity, profile

    kinds = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if DEVICE == "cuda" else [])
    step(0)
    _wait()
    with profile(activities=kinds) as profiler:
        for number in range(PROFILED):
            step(number)
        _wait()
    events = [event for event in profiler.events() if event.device_type.name == "CUDA" and not event.is_user_annotation]
    spans = sorted((event.time_range.start, event.time_range.end) for event in events)
    busy, end = 0.0, 0.0
    for start, stop in spans:
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    total = sum(stop - start for start, stop in spans)
    return {"device_s": total / PROFILED / 1e6, "busy_s": busy / PROFILED / 1e6, "activities": len(spans) / PROFILED}


def _wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()
