"""The time of one kernel by this tool, by others, and by the profiler under the protocol of each."""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmark_kernels import Outcome as RunFile

from inductor_bench.messages.kernel_requests import VariantChange
from inductor_bench.source.harness.timing_cuda import device_durations
from inductor_bench.worker.bench.bench import import_file, open_kernel
from inductor_bench.worker.bench.loaded_kernel import LoadedKernel, TritonBenchKernel

from .outcomes import Outcome

STATES, SAMPLES = ("cold", "warm"), 15
PROFILED_CALLS = 40
ZEROED_BYTES = 256 << 20  # what Triton's benchmark overwrites before every call
FRESH_TIMERS = 3


def open_file(path: Path) -> LoadedKernel:
    gc.collect()  # the arguments of kernels before
    torch.cuda.empty_cache()
    kernel = open_kernel(import_file(path), str(path))
    if isinstance(kernel, TritonBenchKernel) and kernel.file.reset:
        raise ValueError("its flags are reset before every call, which others cannot time")
    kernel.compile()
    return kernel


def time_kernel(one: RunFile) -> Outcome:
    kernel = open_file(one.path)
    measured = kernel.measure()
    timer = kernel.make_timer(kernel.make_arguments())
    call = kernel.bind(timer.copies[0])
    by_others = time_by_others(call)
    zeroed = torch.empty(ZEROED_BYTES // 4, dtype=torch.int32, device="cuda")
    overwritten = Profile(zeroed.zero_, [call], PROFILED_CALLS)
    return {
        "category": one.category,
        "in_model_s": one.in_model_s,
        "weight_s": one.weight_s,
        "method": measured.method,
        "cold_s": statistics.median(measured.cold),
        "warm_s": statistics.median(measured.warm),
        **{f"race_{state}_s": median_s for state, median_s in sample_medians(kernel, timer).items()},
        **by_others,
        **profile_both(kernel, timer),
        "profiled_zeroed_s": overwritten.median_s,
        "device_kernels": overwritten.launched,
    }


def time_by_others(call: Callable[[], Any]) -> Outcome:
    """Both put an event before and behind each call, after they have overwritten a buffer with zeros. Inductor's takes
    the least of up to 100 calls, Triton's is asked for the median of those that fit into 100 ms."""
    from torch._inductor.runtime.benchmarking import benchmarker
    from triton.testing import do_bench

    return {
        "inductor_s": benchmarker.benchmark_gpu(call) * 1e-3,
        "do_bench_s": do_bench(call, return_mode="median") * 1e-3,
    }


def profile_both(kernel: LoadedKernel, timer: Any) -> Outcome:
    """The profiler's times of what a sample of the timer consists of, launched one by one."""
    timer.restore()
    calls = [kernel.bind(each) for each in timer.copies[:PROFILED_CALLS]]
    cold = Profile(timer.flush, calls, -(-PROFILED_CALLS // len(calls)))
    warm = Profile(calls[0], calls[:1] * PROFILED_CALLS, 1, keep=False)
    timer.restore()
    return {"profiled_cold_s": cold.median_s, "profiled_warm_s": warm.median_s}


class Profile:
    """Rounds of calls under the profiler; in each, something else is launched first.

    Args:
        before: what that is.
        calls: the calls of a round.
        rounds: how many there are.
        keep: whether what the calls of a round return is kept to its end, so that each writes elsewhere.

    Attributes:
        launched: how many kernels, copies and fills a call launches.
        median_s: the median over all calls of the time that these took, added up.
    """

    def __init__(
        self, before: Callable[[], Any], calls: Sequence[Callable[[], Any]], rounds: int, keep: bool = True
    ) -> None:
        for each in (before, *calls):
            each()
        alone = len(profile_events(before))
        times = profile_events(partial(self._run, before, calls, rounds, keep))
        self.launched, uneven = divmod(len(times) - rounds * alone, rounds * len(calls))
        if uneven or self.launched < 1:
            raise ValueError(f"{rounds * len(calls)} calls launched {len(times) - rounds * alone} device kernels")
        self.median_s = statistics.median(self._each_call(times, alone, len(calls)))

    @staticmethod
    def _run(before: Callable[[], Any], calls: Sequence[Callable[[], Any]], rounds: int, keep: bool) -> None:
        for _ in range(rounds):
            before()
            kept = []
            for call in calls:
                result = call()
                if keep:
                    kept.append(result)

    def _each_call(self, times: Sequence[float], alone: int, calls: int) -> Iterator[float]:
        for start in range(0, len(times), alone + calls * self.launched):
            for call in range(calls):
                first = start + alone + call * self.launched
                yield sum(times[first : first + self.launched])


def profile_events(run: Callable[[], Any]) -> list[float]:
    """Seconds of every kernel, copy and fill on the device, in their order."""
    return device_durations(run, "kernel", "gpu_memcpy", "gpu_memset")


def compare_configs(path: Path) -> Outcome:
    """The ratios of the times with other warps to those with the model's, by this tool and by the profiler."""
    kernel = open_file(path)
    assert isinstance(kernel, TritonBenchKernel)
    warps = kernel.now["num_warps"]
    other = kernel.make_variant(VariantChange({**kernel.now, "num_warps": warps * 2 if warps < 8 else warps // 2}))
    other.compile()
    timer = kernel.make_timer(kernel.make_arguments())
    first, second = (sample_and_profile(each, timer) for each in (kernel, other))
    return {name: second[name] / first[name] for name in first}


def sample_and_profile(kernel: LoadedKernel, timer: Any) -> dict[str, float]:
    times = profile_both(kernel, timer)
    return {
        **sample_medians(kernel, timer),
        **{f"profiled_{state}": times[f"profiled_{state}_s"] for state in STATES},
    }


def sample_medians(kernel: LoadedKernel, timer: Any) -> dict[str, float]:
    """The median time in both states, in seconds, of samples as a race takes them."""
    call = timer.bind(kernel.bind)
    return {state: statistics.median(getattr(timer, state)(call) for _ in range(SAMPLES)) for state in STATES}


def repeat_medians(path: Path) -> Outcome:
    kernel = open_file(path)
    measured = [kernel.measure() for _ in range(FRESH_TIMERS)]
    return {state: [statistics.median(getattr(each, state)) for each in measured] for state in STATES}
