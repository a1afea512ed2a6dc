"""Measures repeated runs of one compiled module: wall time, memory, and the profile.

The run may come from the harness of the module's file or from a live program.
"""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from inductor_bench.records.code.details import Details

from ..device.protocol import DeviceRuntime
from ..device.runtimes import runtime_of
from ..upstream import inductor
from .machine_load import load_since, read_counters
from .marks import marked_kernels, needs_marks

Run = Callable[[], Any]

WARM_UP_RUNS = 3
WARM_UP_S = 0.3
WALL_BUDGET_S = 2.0
WALL_RUNS = (10, 200)
PROFILE_BUDGET_S = 10.0
PROFILE_RUNS_LEAST = 3
GRAPH_REPLAYS = 20


def measure_run(
    run: Run, *, label: str, device: str, repeat: int, trace: Path, text: Path, module: ModuleType | None = None
) -> Details:
    """Measures a closure that runs a compiled module once.

    Args:
        run: one call of the module; launches may be asynchronous.
        label: the heading of the profile.
        device: the type of the module's device.
        repeat: the wanted number of profiled iterations; slow modules get fewer.
        trace: the file for the Chrome trace.
        text: the file for the text that the module's harness prints under ``-p``.
        module: the module, whose C++ kernels are marked for the profiler where they need it.

    Returns:
        The details, without those of :func:`module_profile.with_details`.
    """
    runtime = runtime_of(device)
    _warm_up(run, runtime.synchronize)
    runtime.reset_peak_memory()
    before = read_counters()
    samples = _wall_samples(run, runtime.synchronize)
    iterations = max(PROFILE_RUNS_LEAST, min(repeat, int(PROFILE_BUDGET_S / max(samples))))
    found = Details(
        wall_samples_s=tuple(samples),
        wall_load=load_since(before, len(samples)),
        peak_memory_bytes=runtime.peak_memory_bytes(),
        iterations=iterations,
        marked=module is not None and needs_marks(module),
    )
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.ExitStack() as marks:
            if module is not None and found.marked:
                marks.enter_context(marked_kernels(module))
            before = read_counters()
            inductor.print_profile(label, run, iterations, trace)
            return replace(found, profile_load=load_since(before, iterations))
    finally:
        text.write_text(printed.getvalue(), encoding="utf-8")


def measure_graph_replay(run: Run, runtime: DeviceRuntime, found: Details) -> Details:
    """Times the module as one CUDA graph, which shows its time without a launch of each kernel by the host.

    Returns:
        ``found`` with the times of synchronised replays in seconds, or with the reason why the capture failed.
    """
    try:
        replay = runtime.capture_graph(run)
        samples = _timed_runs(replay, runtime.synchronize, GRAPH_REPLAYS)
        return replace(found, graph_samples_s=tuple(samples))
    except (RuntimeError, AssertionError) as error:
        return replace(found, graph_error=(str(error).strip().splitlines() or [type(error).__name__])[0])


def _warm_up(run: Run, synchronize: Callable[[], None]) -> None:
    # The first calls load and autotune kernels and start thread pools, and the clocks rise.
    begin = time.perf_counter()
    runs = 0
    while runs < WARM_UP_RUNS or (time.perf_counter() - begin < WARM_UP_S and runs < WALL_RUNS[1]):
        run()
        synchronize()
        runs += 1


def _wall_samples(run: Run, synchronize: Callable[[], None]) -> list[float]:
    once = _timed_runs(run, synchronize, 1)[0]
    least, most = WALL_RUNS if once < WALL_BUDGET_S / 2 else (3, 3)
    return _timed_runs(run, synchronize, min(most, max(least, int(WALL_BUDGET_S / once))))


def _timed_runs(run: Run, synchronize: Callable[[], None], count: int) -> list[float]:
    samples = []
    synchronize()
    for _ in range(count):
        begin = time.perf_counter()
        result = run()
        synchronize()
        samples.append(time.perf_counter() - begin)
        del result  # freed outside of the timed window, as in the harness of a compiled module
    return samples
