"""Measures the gap between two launches in a CUDA graph, and subtracts it from times on a GPU.

The profiler times a kernel from its first to its last instruction. The slope of graphs includes the gap between two
kernels, in which the GPU fetches the next launch and completes the writes of the last kernel. The gap is some tenths of
a microsecond, longer if the caches do not hold the launch, and a large part of the time of a short kernel.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .arguments import Arguments, build_arguments
from .timing import summarize
from .timing_cuda import Bind, BoundGpuCall, GpuTimer

SAMPLES = 15
GAP_CALLS = 64  # under the profiler
GAPS, MOST_GAPS = 3, 9
GAP_TOLERANCE_S = 1e-7


def measure_cuda(
    launch: dict[str, Any],
    arguments: Arguments,
    bind: Bind,
    moved: int | None = None,
    reset: Sequence[int] = (),
    kept: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Times a recorded launch: ``{cold, warm, method}``; a timing as :func:`summarize` has it, ``method`` as
    :class:`GpuTimer`, whose arguments these are."""
    timer = GpuTimer(launch, arguments, bind, moved, reset, kept, gap=launch_gap())
    call = timer.bind(bind)
    cold, warm = ([take(call) for _ in range(SAMPLES)] for take in (timer.cold, timer.warm))
    timer.restore()
    return {"cold": summarize(cold), "warm": summarize(warm), "method": timer.method}


def launch_gap(known: Mapping[str, float] | None = None) -> dict[str, float]:
    """Seconds that a launch in a graph takes beside what the profiler says of its kernel, ``cold`` and ``warm``.

    It is measured once in a process, with a kernel that does next to nothing, and is the median over some graphs of it.
    Empty if the profiler sees no kernels. ``known`` is what another process measured on the same device.
    """
    device = torch.cuda.current_device()
    if device not in _GAPS:
        _GAPS[device] = _find_gap(device, known)
    return _GAPS[device]


_GAPS: dict[int, dict[str, float]] = {}
"""The gaps by the index of the device."""

_FIRST_GRAPHS: list[BoundGpuCall] = []
"""The first graphs of a process, which are kept: their launches take less than those of any later graph. (H200)"""


def _find_gap(device: int, known: Mapping[str, float] | None = None) -> dict[str, float]:
    """Captures the first graphs of the process, and measures the gap unless it is known."""
    launch = _addition()
    timer = GpuTimer(launch, build_arguments(launch, f"cuda:{device}"), _bind_addition)
    if not timer.method.startswith("graphs"):
        return {}
    _FIRST_GRAPHS.append(first := timer.bind(_bind_addition))
    for take in (timer.cold, timer.warm):
        take(first)
    gaps = _measure_gaps(timer) if known is None else [dict(known)]
    timer.flushed = timer.sink = None  # the graphs that are kept hold the timer
    return {state: statistics.median(gap[state] for gap in gaps) for state in gaps[0]} if all(gaps) else {}


def _measure_gaps(timer: GpuTimer) -> list[dict[str, float]]:
    """Gaps of ``GAPS`` graphs, and of more if they differ: another process may have used the device meanwhile."""
    gaps = [_measure_gap(timer) for _ in range(GAPS)]
    while all(gaps) and len(gaps) < MOST_GAPS and not all(_agree([gap[state] for gap in gaps]) for state in gaps[0]):
        gaps.append(_measure_gap(timer))
    return gaps


def _agree(gaps_s: Sequence[float]) -> bool:
    """Whether more than half of the gaps are near their median."""
    middle = statistics.median(gaps_s)
    return 2 * sum(abs(gap - middle) <= GAP_TOLERANCE_S for gap in gaps_s) > len(gaps_s)


def _measure_gap(timer: GpuTimer) -> dict[str, float]:
    calls = [_bind_addition(arguments) for arguments in timer.copies[:GAP_CALLS]]
    call, gap = timer.bind(_bind_addition), {}
    for state, take, each in (("cold", timer.cold, calls), ("warm", timer.warm, calls[:1] * GAP_CALLS)):
        profiled = _profile_calls(timer, each, state == "cold")
        if len(profiled) < len(each):
            return {}
        slope_s = statistics.median(take(call) for _ in range(SAMPLES))
        gap[state] = max(slope_s - statistics.median(profiled), 0.0)
    return gap


def _addition() -> dict[str, Any]:
    """The launch of a kernel that does next to nothing: it adds to one number and writes it elsewhere."""
    view = {"dtype": "float32", "itemsize": 4, "shape": [1], "stride": [1], "offset": 0}
    number = {"size_bytes": 4, "alignment": 256, "dtype": "float32", "device": "cuda", "values": {"kind": "zeros"}}
    arguments = [{"kind": "tensor", "tensor": {**view, "storage": storage}} for storage in (0, 1)]
    return {"storages": [number, number], "arguments": arguments, "mutated": [1]}


def _bind_addition(arguments: Arguments) -> Callable[[], Any]:
    source, target = arguments.args
    return lambda: torch.add(source, 1.0, out=target)


def _profile_calls(timer: GpuTimer, calls: Sequence[Callable[[], Any]], flush: bool) -> list[float]:
    """The profiler's time of each call; of fewer if it does not see them."""

    def run() -> None:
        if flush:
            timer.flush()
        for call in calls:
            call()

    try:
        return device_durations(run, "kernel")[-len(calls) :]
    except RuntimeError:  # another profiler is at work
        return []


def device_durations(run: Callable[[], object], *kinds: str) -> list[float]:
    """Seconds of all work on the device that ``run`` launches, in its order, by the profiler.

    ``kinds`` are the profiler's categories: ``kernel``, ``gpu_memcpy``, ``gpu_memset``.
    """
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it keeps the events of one cycle only
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            run()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8", errors="replace") as stream:
            events = json.load(stream)["traceEvents"]
    work = sorted((event for event in events if event.get("cat") in kinds), key=lambda event: event["ts"])
    return [event["dur"] * 1e-6 for event in work]
