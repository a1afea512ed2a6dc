"""The runtime of NVIDIA's GPUs, and the measurement of their roofs. It refuses AMD's, which torch calls CUDA, too.

Device events time windows of some milliseconds, so that their cost of a few microseconds is negligible. Shorter times
come from the slope of two lengths or from the profiler. Matrices hold random numbers, because a product of zeros draws
less power and is faster than real products. Products run in short bursts with pauses, and the fastest burst counts:
after some milliseconds of products the power limit lowers the clock, but a model runs other kernels between its
products.
"""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import torch

from ...devices.nvidia import NVIDIA, Architecture, find_refusal
from ...errors import InductorBenchError
from ...messages.job_requests import LAUNCH_GAP
from ...records.run import AcceleratorFacts, Environment
from ...source.harness.common import Arguments
from ...source.harness.timing_cuda import BoundGpuCall, GpuTimer, device_durations, launch_gap, measure_cuda
from ...store.files import read_json, write_json
from .machine import read_driver_version
from .runtime import Bind, Roofs, using_device_alone

_SAMPLES = 7
_WINDOW_S = 5e-3
_BURSTS = 12
_BURST_S = 1e-3
_PAUSE_S = 10e-3
_LARGE_BYTES = 1 << 30
_MATRIX_SIZES = (2048, 4096, 8192)
_MATRIX_LIMIT_S = 25e-3  # maximum seconds of a single product
_PASSES = (64, 192)
_FLOOR_LAUNCHES = 200
_WARM_UP_LAUNCHES = 40


def measure_gpu(device: torch.device) -> Roofs:
    """Measures one device, which should be idle. Takes some seconds."""
    with torch.cuda.device(device), torch.random.fork_rng(devices=[torch.cuda.current_device()]):
        properties: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
        cache = int(getattr(properties, "L2_cache_size", 0)) or None
        kernels = triton_kernels()
        memory = _measure_memory(kernels)
        torch.cuda.empty_cache()  # otherwise the libraries' small workspaces are allocated in the large arrays' memory
        cached = None
        if cache is not None:
            cached = max(_measure_cache(kernels, cache, properties.multi_processor_count), memory)
        matmul = _measure_products(properties)
        floor = _measure_floor(kernels)
        torch.cuda.empty_cache()
    return Roofs(memory, matmul, cache, cached, floor)


def triton_kernels() -> ModuleType | None:
    """Returns the module ``triton`` with its kernels; ``None`` if Triton is missing or cannot compile."""
    try:
        from . import triton_peaks as peaks_triton
    except ImportError:
        return None
    try:
        source, target = torch.ones(2, 1, device="cuda")
        peaks_triton.launch_copy(source, target)
        torch.cuda.synchronize()
    except (
        RuntimeError,
        OSError,
        ValueError,
        subprocess.SubprocessError,
    ):  # no C compiler, or a device that Triton does not support
        return None
    return peaks_triton


def _measure_memory(kernels: ModuleType | None) -> float:
    """The best sustained bytes per second of simple kernels over arrays far larger than the L2."""
    free, _ = torch.cuda.mem_get_info()
    count = min(_LARGE_BYTES, free // 8) // 4 // 4096 * 4096
    first, second, target = (torch.randn(count, device="cuda") for _ in range(3))
    size = 4 * count
    candidates: list[tuple[int, Callable[[], object]]] = [
        (2 * size, lambda: target.copy_(first)),
        (3 * size, lambda: torch.add(first, second, alpha=1.5, out=target)),
        (2 * size, lambda: torch.mul(first, 1.5, out=target)),
        (size, lambda: first.sum()),
    ]
    if kernels is not None:
        candidates.append((2 * size, lambda: kernels.launch_copy(first, target)))
    for _ in range(_WARM_UP_LAUNCHES):  # raises the clocks of an idle device
        target.copy_(first)
    return max(moved / sustained_time(launch, _WINDOW_S) for moved, launch in candidates)


def _measure_cache(kernels: ModuleType | None, cache: int, multiprocessors: int) -> float:
    """Bytes per second over a working set of a third of the L2."""
    count = cache // 3 // 2 // 4 // 1024 * 1024
    source, target = torch.randn(2, count, device="cuda")

    def unroll_copies(passes: int) -> float:
        graph = capture_graph(lambda: torch.add(source, 1.0, out=target), passes)
        return sustained_time(graph.replay, _WINDOW_S)

    bandwidth = _compute_slope_rate(unroll_copies, 2.0 * 4 * count)
    if kernels is not None:
        data = torch.randn(2 * count, device="cuda")
        sweep = kernels.Sweep(data, multiprocessors)

        def sweep_time(passes: int) -> float:
            return sustained_time(lambda: sweep.launch(16 * passes), _WINDOW_S)

        bandwidth = max(bandwidth, _compute_slope_rate(sweep_time, 16.0 * sweep.bytes))
    return bandwidth


def _compute_slope_rate(time_of: Callable[[int], float], bytes_per_pass: float) -> float:
    few, many = _PASSES
    slope = (time_of(many) - time_of(few)) / (many - few)
    return bytes_per_pass / slope if slope > 0 else 0.0


def capture_graph(launch: Callable[[], object], count: int) -> torch.cuda.CUDAGraph:
    """Returns a CUDA graph of ``count`` consecutive launches, which was replayed once."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        launch()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            launch()
    graph.replay()
    torch.cuda.synchronize()
    return graph


def _measure_products(properties: Any) -> dict[str, float]:
    """Dense FLOPs per second by element type; ``tf32`` is float32 data with TF32 products, ``float32`` without."""
    rates = {}
    for dtype in (torch.float16, torch.bfloat16):
        rates[str(dtype).removeprefix("torch.")] = _find_best_rate(partial(_make_product, dtype=dtype))
    capability = (properties.major, properties.minor)
    with set_tf32(False):
        rates["float32"] = _find_best_rate(partial(_make_product, dtype=torch.float32))
    if capability >= (8, 0):
        with set_tf32(True):
            rates["tf32"] = _find_best_rate(partial(_make_product, dtype=torch.float32))
    if capability >= (8, 9):
        rates["float8"] = _find_best_rate(_make_float8_product)
    return {name: rate for name, rate in rates.items() if rate > 0}


def _find_best_rate(make: Callable[[int], list[Callable[[], object]]]) -> float:
    """Returns the best rate over sizes and layouts.

    Sizes that take too long are left out; 0 if the device has no such product.
    """
    best = 0.0
    for size in _MATRIX_SIZES:
        work = 2.0 * size**3
        if best and work / best > _MATRIX_LIMIT_S:
            break
        try:
            best = max(best, *(work / measure_burst_time(launch) for launch in make(size)))
        except (RuntimeError, AttributeError, TypeError):  # unsupported by the device, or by this version of torch
            break
    return best


def _make_product(size: int, dtype: torch.dtype) -> list[Callable[[], object]]:
    """Makes products of random matrices; the right matrix is stored once by rows and once by columns."""
    left, right = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
    target = torch.empty(size, size, device="cuda", dtype=dtype)
    return [lambda: torch.mm(left, right, out=target), lambda: torch.mm(left, right.t(), out=target)]


def _make_float8_product(size: int) -> list[Callable[[], object]]:
    """The float8 product; torch has no public name for it. (torch 2.13)"""
    left, right = (torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    return [
        lambda: torch._scaled_mm(
            left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    ]


@contextlib.contextmanager
def set_tf32(allowed: bool) -> Iterator[None]:
    """Allows or forbids TF32 in float32 matrix products on CUDA in the block, and restores every setting. (torch 2.13)

    The setting has an older and a newer name, and torch raises an error if the two disagree. The older name sets
    both, but cannot express all values of the newer, which is therefore restored separately.
    """
    matmul: Any = torch.backends.cuda.matmul
    mkldnn: Any = torch.backends.mkldnn
    former, former_mkldnn = matmul.fp32_precision, mkldnn.matmul.fp32_precision
    try:
        legacy = torch.get_float32_matmul_precision()
    except RuntimeError:  # the two disagree, so that the older is the opposite of the newer
        legacy = "highest" if former == "tf32" else "high"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older name is deprecated
        matmul.allow_tf32 = allowed
        try:
            yield
        finally:
            matmul.allow_tf32 = legacy != "highest"
            if legacy == "medium":
                torch.set_float32_matmul_precision(legacy)
                mkldnn.matmul.fp32_precision = former_mkldnn
            matmul.fp32_precision = former


def _measure_floor(kernels: ModuleType | None) -> float | None:
    """The profiler's device time, in seconds, of a kernel that reads and writes one element."""
    source, target = torch.ones(2, 1, device="cuda")
    launches: list[Callable[[], object]] = [lambda: torch.add(source, 1.0, out=target)]
    if kernels is not None:
        launches.append(lambda: kernels.launch_copy(source, target))
    medians = [median(durations) for durations in map(profile_durations, launches) if durations]
    if medians:
        return min(medians)
    few, many = (sustained_time(capture_graph(launches[0], count).replay, _WINDOW_S) for count in _PASSES)
    slope = (many - few) / (_PASSES[1] - _PASSES[0])
    return slope if slope > 0 else None


def profile_durations(launch: Callable[[], object]) -> list[float]:
    """The profiler's device seconds of some launches, without the first half, which is cold."""

    def launch_often() -> None:
        for _ in range(_FLOOR_LAUNCHES):
            launch()

    launch()
    durations = device_durations(launch_often, "kernel")
    return durations[len(durations) // 2 :]


def sustained_time(launch: Callable[[], object], window_s: float) -> float:
    """Seconds of device time per launch: the median over windows of about ``window_s``, after a warm-up."""
    for _ in range(2):
        launch()
    torch.cuda.synchronize()
    estimate = max(time_launches(launch, 1), 1e-6)
    count = min(max(1, round(window_s / estimate)), 500)
    time_launches(launch, count)
    return median(time_launches(launch, count) for _ in range(_SAMPLES)) / count


def measure_burst_time(launch: Callable[[], object]) -> float:
    """Returns the device seconds per launch in the fastest of several short bursts, after the clocks have risen."""
    count = max(1, round(_BURST_S / sustained_time(launch, _WINDOW_S)))
    times = []
    for _ in range(_BURSTS):
        time.sleep(_PAUSE_S)
        launch()  # keeps the device busy at the first event: on an idle device events are microseconds late
        times.append(time_launches(launch, count))
    return min(times) / count


def time_launches(launch: Callable[[], object], count: int) -> float:
    """Seconds between device events around ``count`` launches."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


# The harness's GPU timer for races. The time of its windows does not depend on when the host launches.
#
# Several workers may share the device. A timer uses the device alone for each sample, and while it launches anything
# else. Graphs are captured during other workers' samples, because a capture runs nothing.
#
# While other processes compile, the host may lose its core between two launches. The device would then wait, and the
# wait would be part of a window's time. So both windows of a sample wait in the device's queue: each launch is made
# while the one before it still runs, and the first one while the device is held without work. Windows in which a launch
# came later are timed again. Between two samples the queue is empty, so that what other processes do on the device, the
# loading of their kernels above all, is done in this time: a change from one process to another takes the device 0.4 ms
# (H200), which would otherwise be part of a window.


HOLD_CYCLES = 400_000
"""The clock cycles for which the device waits without work before the first window: 0.2 ms. They double each time the
host is late."""

MOST_RETAKEN = 3

SLOW, SLOW_S = 8, 1e-4
"""A call that takes longer than this multiple of the default's time, and longer than these seconds, is timed by single
launches. A template that suits a call badly takes a thousand times as long as the library, and its graphs would hold
the device for minutes."""


@dataclass(frozen=True)
class _Window:
    """A window in the device's queue."""

    start: torch.cuda.Event  # recorded before its first launch
    end: torch.cuda.Event  # recorded after its last one
    is_late: bool  # whether the queue was empty at one of its launches

    def read(self) -> float:
        """Waits for its end, and returns its seconds on the device."""
        self.end.synchronize()
        return float(self.start.elapsed_time(self.end)) * 1e-3


class GpuRaceTimer(GpuTimer):
    """The timer of a kernel and its variants.

    Attributes:
        retaken: number of repeated attempts; an attempt is repeated if the host was late with a launch.
    """

    def __init__(self, *arguments: Any, **how: Any) -> None:
        self.retaken = 0
        self._is_watched = False
        self._restore_all: Callable[[], object] | None = None
        with using_device_alone():
            super().__init__(*arguments, **how)
            if self._uses_graphs and self.originals:
                self._restore_all = self._capture([partial(self._restore_written, each) for each in self.copies], False)
        self._is_watched = True

    @property
    def _uses_graphs(self) -> bool:
        return self.method.startswith("graphs")

    def run_first(self, call: BoundGpuCall, state: str) -> None:
        """Launches the call once, unless that was done before.

        A launch that takes far longer than the default's is a sample.
        """
        if state in call.samplers or state in call.runs:
            return
        with using_device_alone():
            if self.reset:  # a launch cannot be repeated without a reset
                super().run_first(call, state)
                return
            runs = self._bind_runs(call, state)
            (first_s,), is_late = self._time(runs[:1], 1)
        if is_late or first_s <= max(SLOW * self.estimate, SLOW_S):
            call.runs[state] = runs
        else:
            call.samplers[state] = self._by_single_launches(runs[0], state, first_s)

    def _by_single_launches(self, run: Callable[[], object], state: str, first_s: float) -> Callable[[], float]:
        known = [first_s]

        def sample() -> float:
            if known:
                return known.pop()
            if state == "cold":
                self._run(self.flush)
            return self._window(run, 1)

        return sample

    def restore(self) -> None:
        with using_device_alone():
            super().restore() if self._restore_all is None else self._restore_all()

    def _run(self, launch: Callable[[], object]) -> None:
        with using_device_alone():
            super()._run(launch)

    def _window(self, replay: Callable[[], object], count: int) -> float:
        return self._windows((replay,), count)[0]

    def _windows(self, replays: Sequence[Callable[[], object]], count: int) -> list[float]:
        return self._time(replays, count)[0]

    def _time(self, replays: Sequence[Callable[[], object]], count: int) -> tuple[list[float], bool]:
        """Returns the seconds of ``count`` replays of each in the last attempt, and whether the host was late in all
        attempts."""
        attempts = MOST_RETAKEN if self._is_watched else 0
        for attempt in range(1 + attempts):
            with using_device_alone():
                torch.cuda.synchronize()
                torch.cuda._sleep(HOLD_CYCLES << attempt)
                windows = [self._launch(replay, count) for replay in replays]
                times = [window.read() for window in windows]
            is_late = self._is_watched and any(window.is_late for window in windows)
            if not is_late:
                break
            self.retaken += attempt < attempts
        if is_late and not self._uses_graphs:
            self._is_watched = False
        return times, is_late

    def _launch(self, replay: Callable[[], object], count: int) -> _Window:
        """Puts a window into the device's queue."""
        start = last = _record()
        is_late = False
        for place in range(count):
            before = last
            replay()
            if place == count - 1 or self._uses_graphs:
                last = _record()
            if place == 0 or self._uses_graphs:
                is_late |= before.query()
        return _Window(start, last, is_late)


def _record() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


RACE_WINDOW_S = 7e-4
"""Length in seconds of each of the two windows of a GPU sample in a race."""

RACE_WARM_UP_S = 5e-3
"""Warm-up in seconds before the first window; it is short because the candidates' checks have raised the clocks."""


class NvidiaRuntime:
    """The GPUs of this process."""

    device = NVIDIA
    captures_graphs = True

    def is_present(self) -> bool:
        return torch.cuda.is_available()

    def check_support(self) -> None:
        if torch.version.hip is not None:
            raise find_refusal(torch.version.hip)

    def check_presence(self, place: torch.device) -> None:
        count = torch.cuda.device_count() if self.is_present() else 0
        hint = "run `inductor-bench doctor`"
        if not count and not place.index:
            raise InductorBenchError("no CUDA device is available to this torch", hint, "no-such-device")
        if (place.index or 0) >= count:
            raise InductorBenchError(f"there is no {place} among the {count} CUDA devices", hint, "no-such-device")

    def name(self, place: torch.device) -> str:
        return torch.cuda.get_device_name(place)

    def describe(self, environment: Environment) -> Environment:
        """Adds the current GPU's facts. An AMD GPU gets no compute capability: its version only looks like one."""
        device = replace(environment.device, cuda=torch.version.cuda or torch.version.hip)
        if self.is_present():
            with suppress(RuntimeError):  # a GPU that serves only another process, or is full: its first use tells it
                device = self._describe(device)
        return replace(environment, device=device)

    def _describe(self, device: AcceleratorFacts) -> AcceleratorFacts:
        here = torch.cuda.get_device_properties(torch.cuda.current_device())
        described = replace(
            device,
            accelerator=here.name,
            accelerator_count=torch.cuda.device_count(),
            accelerator_memory_bytes=here.total_memory,
            multiprocessors=here.multi_processor_count,
        )
        if torch.version.hip is not None:
            return described
        return replace(described, compute_capability=f"{here.major}.{here.minor}", driver=read_driver_version())

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def reset_peak_memory(self) -> None:
        torch.cuda.reset_peak_memory_stats()

    def peak_memory_bytes(self) -> int | None:
        """The most bytes that torch allocated on the GPU."""
        return int(torch.cuda.max_memory_allocated())

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            run()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        return graph.replay

    def preserve_random_state(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=range(torch.cuda.device_count()))

    def measure_roofs(self, place: torch.device) -> Roofs:
        return measure_gpu(place)

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        return measure_cuda(launch, arguments, bind, **how)

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> GpuRaceTimer:
        how |= {"window_s": RACE_WINDOW_S, "warm_up_s": RACE_WARM_UP_S, "gap": _read_shared_launch_gap()}
        return GpuRaceTimer(launch, arguments, bind, **how)

    def get_ready(self) -> None:
        """Makes the GPU's context, and finds the gap between two launches, which one worker measures for all."""
        torch.empty(1, device=NVIDIA.type)
        with using_device_alone():
            _read_shared_launch_gap()

    def architecture(self) -> Architecture:
        """The architecture of the current GPU, for workers that compile for it without using it. (torch 2.11, 2.13)"""
        self.check_support()
        seen: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
        capability = 10 * seen.major + seen.minor
        return Architecture(
            name=f"sm_{capability}",
            capability=capability,
            device=seen.name,
            multiprocessors=seen.multi_processor_count,
            threads=seen.max_threads_per_multi_processor,
            shared_memory_bytes=seen.shared_memory_per_block_optin,
            registers=seen.regs_per_multiprocessor,
        )


@functools.cache
def _read_shared_launch_gap() -> dict[str, float]:
    """Returns the gap between two launches, from another worker of this device if one has measured it."""
    shared = Path(os.environ.get(LAUNCH_GAP, ""))
    known = read_json(shared) if shared.is_file() else None
    gap = launch_gap(known)
    if gap and shared.name and known is None:
        write_json(shared, gap)
    return gap


def is_memory_short() -> bool:
    """Whether less than half of the GPU's memory is free.

    Memory that torch keeps for reuse is not free for other processes.
    """
    if not torch.cuda.is_initialized():
        return False
    free, total = torch.cuda.mem_get_info()
    return bool(2 * free < total)


def give_memory_back() -> None:
    """Returns the memory that torch keeps for reuse to the device, which other workers may share."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def leaves_memory() -> bool:
    """Whether enough GPU memory is left for another process, after this one has returned what it keeps for reuse."""
    give_memory_back()
    return not is_memory_short()
