"""Races whose outcome is known, what a candidate costs, and retunes and builds by the library."""

from __future__ import annotations

import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from inductor_bench.autotune.kernel_variants import triton_variants
from inductor_bench.autotune.methods import FINAL, RaceResult, run_race
from inductor_bench.autotune.tuning_workers import CompileJob, CompilePool
from inductor_bench.devices.nvidia import ARCHITECTURES
from inductor_bench.launch.worker import WorkerSession, default_python
from inductor_bench.messages.job_requests import Pretend
from inductor_bench.messages.kernel_requests import VariantChange
from inductor_bench.records.request import KernelRequest
from inductor_bench.worker.bench.bench import describe_difference, import_file, open_kernel
from inductor_bench.worker.bench.loaded_kernel import LoadedKernel, TritonBenchKernel
from inductor_bench.worker.upstream.triton_compiler import pretend_gpu
from inductor_bench.workflows.kernel import run_kernel
from inductor_bench.workflows.progress import Silent

from .outcomes import Outcome
from .times import PROFILED_CALLS, SAMPLES, Profile, open_file

GAP = 0.02
TIMERS_KEPT = 12
RANKED = ("best", "finalist", "slower")
BUILT_FOR = ARCHITECTURES["sm_90"]
BUILD_S = 120.0


@functools.lru_cache(maxsize=TIMERS_KEPT)
def keep_timer(path: Path) -> tuple[LoadedKernel, Any]:
    """A kernel and its timer, which serve many trials."""
    kernel = open_file(path)
    return kernel, kernel.make_timer(kernel.make_arguments())


def time_race(timer: Any, binds: Sequence[Callable[[Any], Any]]) -> RaceResult:
    calls = [timer.bind(bind) for bind in binds]
    conversation = run_race(len(calls), plan=FINAL)
    order = next(conversation)
    while True:
        try:
            order = conversation.send([timer.cold(calls[number]) for number in order])
        except StopIteration as end:
            result: RaceResult = end.value
            return result


def race_itself(path: Path) -> Outcome:
    kernel, timer = keep_timer(path)
    result = time_race(timer, [kernel.bind, kernel.bind])
    ratio = result.runners[1].ratio
    return {"verdict": result.verdict, "ratio": ratio.median if ratio else None}


def race_gap(path: Path, time_s: float) -> Outcome:
    """A spin that is faster by the gap against one that is not; the timer is that of a kernel with such a time."""
    slow, fast, true_ratio = spins_apart(time_s)
    result = time_race(keep_timer(path)[1], [lambda _: spin(slow), lambda _: spin(fast)])
    ratio = result.runners[1].ratio
    return {
        "time_s": time_s,
        "verdict": result.verdict,
        "ratio": ratio.median if ratio else None,
        "profiled_ratio": true_ratio,
    }


@functools.cache
def spins_apart(time_s: float) -> tuple[int, int, float]:
    """The rounds of a spin of this time by the profiler and of one that is faster by the gap, and their true ratio."""
    few, many = 1000, 10000
    short, long = profile_spin(few), profile_spin(many)
    round_s = (long - short) / (many - few)
    slow, fast = (round(few + (wanted - short) / round_s) for wanted in (time_s, time_s / (1 + GAP)))
    return slow, fast, profile_spin(slow) / profile_spin(fast)


def profile_spin(rounds: int) -> float:
    call = spin(rounds)
    return Profile(call, [call] * PROFILED_CALLS, 1).median_s


def spin(rounds: int) -> Callable[[], None]:
    from .spin import launch_spin

    return partial(launch_spin, torch.ones(1, device="cuda"), rounds)


# What it costs


def count_costs(path: Path) -> Outcome:
    """Seconds from the first to the last work on the device: of a candidate's first sample, and of each other."""
    kernel, timer = keep_timer(path)
    call = timer.bind(kernel.bind)
    first_s, *others = (device_span(partial(timer.cold, call)) for _ in range(SAMPLES))
    return {"first_s": first_s, "sample_s": statistics.median(others)}


def device_span(run: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3


def retune(paths: Sequence[Path], budget_s: float) -> Outcome:
    """How many candidates were ranked, how many of them were checked before, and how many compute the same again."""
    keep_timer.cache_clear()
    targets = tuple(map(str, paths))
    options = KernelRequest(targets, autotune="max", budget_s=budget_s, force=True)  # this process uses the GPU too
    outcome = run_kernel(options, Silent())
    tuned = [one for one in outcome.kernels if one.tuning is not None]
    if not tuned:
        raise ValueError("; ".join(failure.message for failure in outcome.failures))
    found = {"kernels": len(tuned), "ranked": 0, "checked": 0, "right": 0}
    for one in tuned:
        assert one.tuning is not None
        kernel = open_file(Path(one.file))
        wanted = kernel.compute(kernel.make_arguments())
        found["checked"] += one.tuning.tried
        for candidate in one.tuning.candidates:
            if candidate.status in RANKED:
                other = kernel.make_variant(VariantChange(candidate.config))
                other.compile()
                found["ranked"] += 1
                found["right"] += not describe_difference(other.compute(other.make_arguments()), wanted)
    return found


def build_all(paths: Sequence[Path], workers: int) -> Outcome:
    """Compiles the candidates of all but the first file, with an empty cache, in workers that have been at work."""
    first, *jobs = list_jobs(tuple(paths))
    with compile_pool(workers) as pool:
        list(
            pool.compile(
                [CompileJob(f"warm-up {number}", first.file, first.request) for number in range(workers)], never
            )
        )
        begin = time.monotonic()
        built = list(pool.compile([job for job in jobs if job.file != first.file], never))
        time_s = time.monotonic() - begin
    failed = [one.reason for one in built if one.status]
    return {"workers": workers, "time_s": time_s, "candidates": len(built), "failed": failed}


def never() -> bool:
    return False


@functools.cache
def list_jobs(paths: tuple[Path, ...]) -> list[CompileJob]:
    """What is asked of a compile pool for each candidate that max-autotune has."""
    if not torch.cuda.is_available():
        pretend_gpu(BUILT_FOR)
    jobs = []
    for path in paths:
        kernel = open_kernel(import_file(path), str(path))
        assert isinstance(kernel, TritonBenchKernel)
        variants = triton_variants(kernel.configs())
        for number, config in enumerate([variants.now, *variants.listed_by_max_autotune()]):
            jobs.append(CompileJob((path.name, number), str(path.resolve()), variants.compile_request(config)))
    return jobs


@contextmanager
def compile_pool(workers: int) -> Iterator[CompilePool]:
    with tempfile.TemporaryDirectory(prefix="inductor-bench-") as name:
        folder = Path(name)
        environment = {**os.environ, "TRITON_CACHE_DIR": str(folder / "triton"), "CUDA_VISIBLE_DEVICES": ""}

        def start(log: str) -> WorkerSession:
            return WorkerSession(default_python(), folder, environment, log=folder / f"{log}.log")

        pool = CompilePool(start, workers, BUILD_S, BUILD_S, Pretend(BUILT_FOR))
        try:
            yield pool
        finally:
            pool.end()
