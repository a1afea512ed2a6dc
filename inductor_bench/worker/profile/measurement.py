"""One compiled module, run again and again: wall time, memory, and the profile. It knows nothing of where the run
comes from (a file's own harness or a live program)."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from ..device.protocol import DeviceRuntime
from ..device.runtimes import runtime_of
from ..upstream import inductor as upstream
from .machine_load import load_since, read_counters
from .marks import marked_kernels, needs_marks

Run = Callable[[], Any]
Result = dict[str, Any]

WARM_UP_RUNS = 3
WARM_UP_S = 0.3
WALL_BUDGET_S = 2.0
WALL_RUNS = (10, 200)
PROFILE_BUDGET_S = 10.0
PROFILE_RUNS_LEAST = 3
GRAPH_REPLAYS = 20


def measure_run(
    run: Run, *, label: str, device: str, repeat: int, trace: Path, text: Path, module: ModuleType | None = None
) -> Result:
    """Measures a closure that runs a compiled module once.

    Args:
        run: one call of the module; launches may be asynchronous.
        label: what the profile is headed with.
        device: the device type that it runs on.
        repeat: profiled iterations wanted; slow modules get fewer.
        trace: where the Chrome trace goes.
        text: where the text goes that the module's harness prints under ``-p``.
        module: the module that is run; its C++ kernels are marked for the profiler where they need it.

    Returns:
        ``wall_samples_s`` (unprofiled, one synchronised run each, in order), ``peak_memory_bytes``, ``iterations``,
        ``marked`` (whether the C++ kernels were timed from Python), ``wall_load`` and ``profile_load`` (see
        ``MachineLoad``).
    """
    runtime = runtime_of(device)
    _warm_up(run, runtime.synchronize)
    runtime.reset_peak_memory()
    before = read_counters()
    samples = _wall_samples(run, runtime.synchronize)
    result: Result = {"wall_samples_s": samples, "wall_load": load_since(before, len(samples))}
    result["peak_memory_bytes"] = runtime.peak_memory_bytes()
    result["iterations"] = max(PROFILE_RUNS_LEAST, min(repeat, int(PROFILE_BUDGET_S / max(samples))))
    printed = io.StringIO()
    result["marked"] = module is not None and needs_marks(module)
    try:
        with contextlib.redirect_stdout(printed), contextlib.ExitStack() as marks:
            if module is not None and result["marked"]:
                marks.enter_context(marked_kernels(module))
            before = read_counters()
            upstream.print_profile(label, run, result["iterations"], trace)
            result["profile_load"] = load_since(before, result["iterations"])
    finally:
        text.write_text(printed.getvalue(), encoding="utf-8")
    return result


def measure_graph_replay(run: Run, runtime: DeviceRuntime) -> Result:
    """Times the module as one CUDA graph: what is left when the host no longer launches each kernel.

    Returns:
        ``graph_samples_s``, one synchronised replay each, or ``graph_error`` with the reason why it cannot be captured.
    """
    try:
        replay = runtime.capture_graph(run)
        return {"graph_samples_s": _timed_runs(replay, runtime.synchronize, GRAPH_REPLAYS)}
    except (RuntimeError, AssertionError) as error:
        return {"graph_error": (str(error).strip().splitlines() or [type(error).__name__])[0]}


def _warm_up(run: Run, synchronize: Callable[[], None]) -> None:
    # The first calls load kernels, autotune them and start thread pools; clocks rise as well.
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
        del result  # freed outside of the timed window, as the harness of a compiled module does
    return samples
