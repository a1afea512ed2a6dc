"""Measures the roofs of a CUDA device: bandwidths of DRAM and L2, rates of products, and a kernel's minimum time.

Device events time windows of some milliseconds, so that their cost of a few microseconds is negligible. Shorter times
come from the slope of two lengths or from the profiler. Matrices hold random numbers, because a product of zeros draws
less power and is faster than real products. Products run in short bursts with pauses, and the fastest burst counts:
after some milliseconds of products the power limit lowers the clock, while a model runs other kernels in between.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from types import ModuleType
from typing import Any

import torch

from ...source.harness.launch_gap import device_durations
from .runtime import Roofs

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
    """The file ``triton`` with its kernels; ``None`` if Triton is missing or cannot compile."""
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

    def unrolled(passes: int) -> float:
        graph = capture_graph(lambda: torch.add(source, 1.0, out=target), passes)
        return sustained_time(graph.replay, _WINDOW_S)

    bandwidth = _slope_rate(unrolled, 2.0 * 4 * count)
    if kernels is not None:
        data = torch.randn(2 * count, device="cuda")
        sweep = kernels.Sweep(data, multiprocessors)

        def sweep_time(passes: int) -> float:
            return sustained_time(lambda: sweep.launch(16 * passes), _WINDOW_S)

        bandwidth = max(bandwidth, _slope_rate(sweep_time, 16.0 * sweep.bytes))
    return bandwidth


def _slope_rate(time_of: Callable[[int], float], bytes_per_pass: float) -> float:
    few, many = _PASSES
    slope = (time_of(many) - time_of(few)) / (many - few)
    return bytes_per_pass / slope if slope > 0 else 0.0


def capture_graph(launch: Callable[[], object], count: int) -> torch.cuda.CUDAGraph:
    """A CUDA graph of ``count`` consecutive launches, replayed once."""
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
        rates[str(dtype).removeprefix("torch.")] = _best_rate(partial(_product, dtype=dtype))
    capability = (properties.major, properties.minor)
    with tf32_products(False):
        rates["float32"] = _best_rate(partial(_product, dtype=torch.float32))
    if capability >= (8, 0):
        with tf32_products(True):
            rates["tf32"] = _best_rate(partial(_product, dtype=torch.float32))
    if capability >= (8, 9):
        rates["float8"] = _best_rate(_float8_product)
    return {name: rate for name, rate in rates.items() if rate > 0}


def _best_rate(make: Callable[[int], list[Callable[[], object]]]) -> float:
    """The best rate over sizes and layouts, without sizes that take too long; 0 if the device lacks the product."""
    best = 0.0
    for size in _MATRIX_SIZES:
        work = 2.0 * size**3
        if best and work / best > _MATRIX_LIMIT_S:
            break
        try:
            best = max(best, *(work / burst_time(launch) for launch in make(size)))
        except (RuntimeError, AttributeError, TypeError):  # unsupported by the device, or by this version of torch
            break
    return best


def _product(size: int, dtype: torch.dtype) -> list[Callable[[], object]]:
    """Products of random matrices, with the right matrix stored by rows and by columns."""
    left, right = (torch.randn(size, size, device="cuda").to(dtype) for _ in range(2))
    target = torch.empty(size, size, device="cuda", dtype=dtype)
    return [lambda: torch.mm(left, right, out=target), lambda: torch.mm(left, right.t(), out=target)]


def _float8_product(size: int) -> list[Callable[[], object]]:
    """The float8 product; torch has no public name for it. (2.13)"""
    left, right = (torch.randn(size, size, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    return [
        lambda: torch._scaled_mm(
            left, right.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    ]


@contextlib.contextmanager
def tf32_products(allowed: bool) -> Iterator[None]:
    """Allows or forbids TF32 in float32 products on CUDA in the block, and restores every setting. (2.13)

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
    medians = [median(durations) for durations in map(profiled_durations, launches) if durations]
    if medians:
        return min(medians)
    few, many = (sustained_time(capture_graph(launches[0], count).replay, _WINDOW_S) for count in _PASSES)
    slope = (many - few) / (_PASSES[1] - _PASSES[0])
    return slope if slope > 0 else None


def profiled_durations(launch: Callable[[], object]) -> list[float]:
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


def burst_time(launch: Callable[[], object]) -> float:
    """Seconds of device time per launch in the fastest of some short bursts, after the clocks have risen."""
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
