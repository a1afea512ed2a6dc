"""The runtime of the CPU. It needs no synchronisation, and its memory is that of the whole process."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ...devices.protocol import CPU
from ...records.run import CacheRoof, Environment, Host
from ...source.harness.common import Arguments
from ...source.harness.timing_cpu import CpuTimer, describe_method, last_level_cache_bytes, measure_cpu
from . import machine
from .runtime import Bind, Roofs

# Measures the roofs of a processor with torch's kernels: bandwidths of memory and cache, rates of products.
#
# Bytes are the program's reads and writes: a store counts once, although most processors read the line first. The bytes
# of kernels that are compared with these roofs are counted in the same way. Other work on the machine lowers the
# figures, so the best of several rounds counts; the figure of a round is the median of its samples.


_ROUNDS = 3
_SAMPLES = 3
_SAMPLE_S = 4e-3
_LARGE_BYTES = (64 << 20, 512 << 20)  # minimum and maximum size of a buffer for memory bandwidth
_MATRIX_SIZES = (512, 1024, 2048, 4096)
_MATRIX_LIMIT_S = 0.3  # maximum seconds of a single product
_MATRIX_BUDGET_S = 0.4  # seconds after which no larger size is started
_PILOT_SIZE = 256
_DEFAULT_CACHE_BYTES = 32 << 20
_LEAST_CACHED_BYTES = 1 << 20


def measure_cpu_peaks() -> Roofs:
    """Measures the processors that this process may use, with torch's number of threads."""
    cache = last_level_cache_bytes()
    memory = _measure_bandwidth(3 * _choose_buffer_bytes(cache or _DEFAULT_CACHE_BYTES))
    roofs = _measure_caches(_list_cached_sizes(cache), memory) if cache is not None else ()
    return Roofs(memory, _measure_products(), cache, roofs[-1].bandwidth if roofs else None, cache_roofs=roofs)


def _list_cached_sizes(cache: int) -> list[int]:
    """Returns sizes in bytes: from 1 MiB in steps of 50%, up to a third of the last-level cache."""
    sizes, size = [], _LEAST_CACHED_BYTES
    while size < cache // 3:
        sizes.append(size)
        size += size // 2
    return [*sizes, cache // 3]  # the cache holds other data, too


def _measure_caches(sizes: Sequence[int], memory: float) -> tuple[CacheRoof, ...]:
    """Measures the roof for each of these sizes, in ascending order.

    Inner caches hold small data and are several times as fast.

    For small data, a call is mostly the start of its threads. So the roof of a size is the highest of this size and all
    larger sizes, and at least that of the memory: other programs may use the last-level cache, too.
    """
    rates = [max(_measure_bandwidth(size), memory) for size in sizes]
    return tuple(CacheRoof(size, max(rates[place:])) for place, size in enumerate(sizes))


def _choose_buffer_bytes(cache: int) -> int:
    """The bytes of each of three arrays: four times the cache, but at most a sixteenth of the memory."""
    smallest, largest = _LARGE_BYTES
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 16 << 30
    return min(max(4 * cache, smallest), largest, memory // 16)


def _measure_bandwidth(size: int) -> float:
    """Returns the best sustained bytes per second of copy, triad and sum.

    Each uses ``size`` bytes of float32 in all.
    """
    data = torch.ones(max(size // 4, 6) // 6 * 6)
    source, copied = data.chunk(2)
    first, second, target = data.chunk(3)
    moved = data.numel() * 4
    kernels: list[Callable[[], object]] = [
        lambda: copied.copy_(source),
        lambda: torch.add(first, second, alpha=0.5, out=target),
        lambda: data.sum(),
    ]
    return max(moved / sustained_time(kernel) for kernel in kernels)


def _measure_products() -> dict[str, float]:
    """FLOPs per second of square products of random matrices, by element type that the processor multiplies natively.

    A 16-bit type that is no faster than float32 is emulated. It is left out, because a kernel may beat the emulation.
    """
    rates = {"float32": _measure_best_product(torch.float32)}
    pilot = _time_product(_PILOT_SIZE, torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        small = _time_product(_PILOT_SIZE, dtype)
        if small is not None and pilot is not None and small < 5 * pilot:
            rate = _measure_best_product(dtype)
            if rate > 1.1 * rates["float32"]:
                rates[str(dtype).removeprefix("torch.")] = rate
    return rates


def _measure_best_product(dtype: torch.dtype) -> float:
    best = 0.0
    start = time.perf_counter()
    for size in _MATRIX_SIZES:
        work = 2.0 * size**3
        if best and (work / best > _MATRIX_LIMIT_S or time.perf_counter() - start > _MATRIX_BUDGET_S):
            break
        taken = _time_product(size, dtype)
        best = max(best, work / taken) if taken else best
    return best


def _time_product(size: int, dtype: torch.dtype) -> float | None:
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.randn(size, size, generator=generator).to(dtype) for _ in range(2))
    target = torch.empty(size, size, dtype=dtype)
    try:
        return sustained_time(lambda: torch.mm(left, right, out=target))
    except RuntimeError:  # this build of torch has no product of that type
        return None


def sustained_time(run: Callable[[], object]) -> float:
    """Returns the seconds of one call: the best round's median, over samples that are long enough for the clock."""
    run()
    return min(_round(run) for _ in range(_ROUNDS))


def _round(run: Callable[[], object]) -> float:
    estimate = max(_time_calls(run, 1), 1e-7)
    calls = max(1, round(_SAMPLE_S / estimate))
    return median(_time_calls(run, calls) for _ in range(_SAMPLES)) / calls


def _time_calls(run: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return time.perf_counter() - start


# Compares calls in float32 with the same calls whose products are computed in bfloat16.


_COPIES_BYTES, _MOST_COPIES = 32 << 20, 16  # of the arguments, in turn: the weights of a step have left the inner cache
_LEAST_PAIRS, _MOST_PAIRS = 3, 9
_LONGEST_CALL_S = 0.5
_PRECISIONS = ("highest", "medium")


def compare_with_bfloat16(bind: Callable[[], tuple[Callable[[], object], int]], limit_s: float) -> float | None:
    """Returns the time of a call with ``torch.set_float32_matmul_precision('medium')``, divided by that with
    ``'highest'``: the median of pairs of times; ``None`` if no time is left, or the call takes very long.

    Args:
        bind: makes the call with arguments of its own, and returns it with their bytes.
        limit_s: the seconds after which no further pair is timed.
    """
    begin_s, before = time.perf_counter(), torch.get_float32_matmul_precision()
    if limit_s <= 0:
        return None
    first, size = bind()
    try:
        torch.set_float32_matmul_precision(_PRECISIONS[0])
        if _time_calls(first, 1) > _LONGEST_CALL_S:
            return None
        count = min(_MOST_COPIES, max(2, _COPIES_BYTES // max(size, 1)))
        runs = [first, *(bind()[0] for _ in range(count - 1))]
        for precision in _PRECISIONS:
            _time_in_turn(runs, precision)
        ratios: list[float] = []
        while len(ratios) < _LEAST_PAIRS or (len(ratios) < _MOST_PAIRS and time.perf_counter() - begin_s < limit_s):
            slow_s, fast_s = (_time_in_turn(runs, precision) for precision in _PRECISIONS)
            ratios.append(fast_s / slow_s)
    finally:
        torch.set_float32_matmul_precision(before)
    return median(ratios)


def _time_in_turn(runs: Sequence[Callable[[], object]], precision: str) -> float:
    torch.set_float32_matmul_precision(precision)
    start = time.perf_counter()
    for run in runs:
        run()
    return time.perf_counter() - start


_PROCESS = Path("/proc/self")


class CpuRaceTimer(CpuTimer):
    """The harness's timer, with the name of its method. The host itself does the work, so no launch is ever late."""

    retaken = 0

    @property
    def method(self) -> str:
        return describe_method(len(self.copies), 0.0)

    def run_first(self, call: Any, state: str) -> None:
        return

    def get_ready(self, call: Any, state: str) -> None:
        return


class CpuRuntime:
    """The CPUs that this process may use."""

    device = CPU
    captures_graphs = False

    def is_present(self) -> bool:
        return True

    def check_support(self) -> None:
        return

    def check_presence(self, place: torch.device) -> None:
        return

    def name(self, place: torch.device) -> str:
        return machine.read_cpu_name()

    def describe(self, environment: Environment) -> Environment:
        host = Host(
            cpu=machine.read_cpu_name(),
            cpu_count=len(machine.count_usable_cpus()),
            threads=torch.get_num_threads(),
            vector_isa=machine.find_vector_isa(),
            memory_bytes=machine.read_memory_bytes(),
        )
        return replace(environment, host=host)

    def synchronize(self) -> None:
        return

    def reset_peak_memory(self) -> None:
        with contextlib.suppress(OSError):
            (_PROCESS / "clear_refs").write_text("5")

    def peak_memory_bytes(self) -> int | None:
        """The peak resident size of the whole process in bytes; ``None`` on other systems than Linux."""
        with contextlib.suppress(OSError):
            for line in (_PROCESS / "status").read_text().splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        return None

    def capture_graph(self, run: Callable[[], Any]) -> Callable[[], None]:
        raise RuntimeError("a CPU has no graphs")

    def preserve_random_state(self) -> AbstractContextManager[None]:
        return torch.random.fork_rng(devices=[])

    def measure_roofs(self, place: torch.device) -> Roofs:
        return measure_cpu_peaks()

    def measure_call(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> dict[str, Any]:
        return measure_cpu(launch, arguments, bind)

    def make_timer(self, launch: dict[str, Any], arguments: Arguments, bind: Bind, **how: Any) -> CpuRaceTimer:
        return CpuRaceTimer(launch, arguments, bind)
