"""Roofs, shares and gains on a made-up device with round figures: 1 TB/s, 4 TB/s cache of 10 MB, 100 TFLOP/s half."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import h200
import pytest

from inductor_bench.analysis.roofline import (
    MATRIX_SPREAD,
    SPREAD,
    TimedWork,
    find_matrix_roof,
    judge_groups,
    judge_kernel,
)
from inductor_bench.records.module import LeastWork, RooflineResult
from inductor_bench.records.run import CacheRoof, Peaks

GPU = Peaks(
    device="made-up",
    memory_bandwidth=1e12,
    matmul_flops={"float16": 1e14, "float32": 1e13, "tf32": 5e13, "float8": 2e14},
    cache_bytes=10_000_000,
    cache_bandwidth=4e12,
    launch_floor_s=1e-6,
)
CPU = replace(GPU, launch_floor_s=None, matmul_flops={"float32": 1e11})


def timed(time_s: float, calls: float, **work: Any) -> TimedWork:
    return TimedWork(time_s, calls, LeastWork(**work))


def test_a_large_kernel_is_measured_against_dram() -> None:
    judged = judge_kernel(timed(time_s=4e-3, calls=2, moved_bytes=1e9), GPU)
    assert judged == RooflineResult(pytest.approx(2.5e11), None, pytest.approx(0.25), "memory", pytest.approx(3e-3))


def test_bytes_per_call_and_not_in_all_decide_whether_the_cache_serves_a_kernel() -> None:
    small = judge_kernel(timed(time_s=1e-3, calls=100, moved_bytes=1e9), GPU)
    assert (small.bound, small.peak_share) == ("cache", pytest.approx(0.25))
    assert small.gain_limit_s == pytest.approx(0.75e-3)
    just_over = judge_kernel(timed(time_s=1e-2, calls=100, moved_bytes=1.001e9), GPU)
    assert just_over.bound == "memory"


def test_the_caches_of_a_cpu_are_the_faster_the_fewer_bytes_a_call_moves() -> None:
    roofs = (CacheRoof(1_000_000, 8e12), CacheRoof(4_000_000, 4e12))
    peaks = replace(CPU, cache_roofs=roofs)
    for moved, share in ((4e5, 0.05), (1e6, 0.125), (3.9e6, 0.4875), (4e6, 1.0), (9e6, None)):
        judged = judge_kernel(timed(time_s=1e-6, calls=1, moved_bytes=moved), peaks)
        assert (judged.bound, judged.peak_share) == ("cache", pytest.approx(share)), moved
    many = judge_kernel(timed(time_s=1e-4, calls=100, moved_bytes=1e8), peaks)
    assert many.peak_share == pytest.approx(0.125), "the bytes of one call decide"
    in_step = TimedWork(1e-6, 1, LeastWork(moved_bytes=1e6), dram_bytes=0.0, cache_bytes=1e6)
    assert judge_kernel(in_step, peaks).peak_share == pytest.approx(0.125)


def test_a_rate_beyond_dram_means_the_cache_unless_it_is_within_the_spread() -> None:
    beyond = judge_kernel(timed(time_s=1e-3, calls=1, moved_bytes=2e9), GPU)
    assert (beyond.bound, beyond.peak_share) == ("cache", pytest.approx(0.5))
    at_the_roof = judge_kernel(timed(time_s=1e-3, calls=1, moved_bytes=1.02e9), GPU)
    assert (at_the_roof.bound, at_the_roof.peak_share, at_the_roof.gain_limit_s) == ("memory", 1.0, 0.0)


def test_writes_that_exceed_the_cache_may_be_faster_than_reads_and_writes_together() -> None:
    """A fill of 154 MB ran at 4.5 TB/s on an H200, whose DRAM roof is 4.35 TB/s."""
    fill = judge_kernel(timed(time_s=1e-3, calls=1, moved_bytes=1.05e9), GPU)
    assert (fill.bound, fill.peak_share, fill.gain_limit_s) == ("memory", 1.0, 0.0)
    step = TimedWork(1e-3, 1, LeastWork(1.05e9), dram_bytes=1.05e9, cache_bytes=0.0)
    assert judge_kernel(step, GPU) == fill, "a prediction for the step changes nothing"
    small = TimedWork(9e-6, 1, LeastWork(9.4e6))
    assert judge_kernel(small, GPU).bound == "cache", "the cache holds all of its bytes"
    served = judge_kernel(replace(small, dram_bytes=9.4e6, cache_bytes=0.0), GPU)
    assert (served.bound, served.peak_share, served.gain_limit_s) == ("memory", 1.0, 0.0)


def test_no_share_is_given_beyond_every_roof_and_no_gain_is_negative() -> None:
    judged = judge_kernel(timed(time_s=1e-4, calls=1, moved_bytes=1e9), GPU)
    assert (judged.bound, judged.peak_share, judged.gain_limit_s) == ("cache", None, 0.0)
    product = judge_kernel(timed(time_s=1e-3, calls=1, moved_bytes=2e7, flops=2e11, dtype="float16"), GPU)
    assert (product.bound, product.peak_share, product.gain_limit_s) == ("compute", None, 0.0)


def test_products_of_the_models_own_numbers_may_be_faster_than_those_of_random_ones() -> None:
    faster = timed(time_s=1.92e-3, calls=1, moved_bytes=2e7, flops=2e11, dtype="float16")
    judged = judge_kernel(faster, GPU)
    assert (judged.bound, judged.peak_share, judged.gain_limit_s) == ("compute", 1.0, 0.0)
    both = judge_groups([faster, replace(faster, time_s=4e-3)], GPU)
    assert both.peak_share == pytest.approx((1.92 + 2.0) / 5.92)
    assert judge_kernel(replace(faster, time_s=1.88e-3), GPU).peak_share is None, "6% is too much"


def test_products_of_an_h200_have_a_share_of_their_roof() -> None:
    """The products of ALBERT in bfloat16, one shape of which ran 3.05% above what random numbers reached."""
    run = h200.run_of("albert_bf16")
    products = max(run.modules[0].kernels, key=lambda kernel: kernel.time_s)
    works = [
        TimedWork(one.time_s, one.calls, LeastWork(one.moved_bytes, one.flops, products.work.dtype))
        for one in products.shapes
    ]
    assert run.peaks is not None and products.work.dtype == "bfloat16"
    rates = [each.work.flops / each.time_s / run.peaks.matmul_flops["bfloat16"] for each in works if each.work.flops]
    assert SPREAD < max(rates) < MATRIX_SPREAD
    assert judge_groups(works, run.peaks).peak_share == pytest.approx(0.989, abs=0.002)


def test_an_unmeasured_cache_gives_neither_share_nor_gain() -> None:
    judged = judge_kernel(timed(time_s=1e-3, calls=1, moved_bytes=1e6), replace(GPU, cache_bandwidth=None))
    assert (judged.bound, judged.peak_share, judged.gain_limit_s) == ("cache", None, None)
    assert judged.bandwidth == pytest.approx(1e9)


def test_the_longer_of_bytes_and_flops_decides() -> None:
    compute = judge_kernel(timed(time_s=4e-3, calls=1, moved_bytes=1e9, flops=2e11, dtype="float16"), GPU)
    assert (compute.bound, compute.peak_share) == ("compute", pytest.approx(0.5))
    assert compute.flop_rate == pytest.approx(5e13)
    assert compute.gain_limit_s == pytest.approx(2e-3)
    depthwise = judge_kernel(timed(time_s=4e-3, calls=1, moved_bytes=1e9, flops=1e9, dtype="float16"), GPU)
    assert (depthwise.bound, depthwise.peak_share) == ("memory", pytest.approx(0.25))


def test_the_launch_floor_bounds_small_kernels_on_a_gpu_only() -> None:
    work = timed(time_s=15e-6, calls=10, moved_bytes=1e4)
    judged = judge_kernel(work, GPU)
    assert (judged.bound, judged.peak_share, judged.gain_limit_s) == ("latency", None, pytest.approx(5e-6))
    faster = judge_kernel(replace(work, time_s=8e-6), GPU)
    assert faster.gain_limit_s == 0.0
    assert judge_kernel(work, CPU).bound == "cache"


def test_float32_products_use_tf32_only_if_that_is_known() -> None:
    work = timed(time_s=1.0, calls=1, moved_bytes=1e9, flops=5e12, dtype="float32")
    assert judge_kernel(work, GPU).peak_share == pytest.approx(0.5)
    assert judge_kernel(replace(work, work=replace(work.work, dtype="tf32")), GPU).peak_share == pytest.approx(0.1)
    assert find_matrix_roof("float32", CPU, tf32=True) == 1e11
    assert find_matrix_roof("float8_e4m3fn", GPU) == find_matrix_roof("float8_e5m2", GPU) == 2e14
    assert find_matrix_roof(None, GPU) is None


def test_an_unmeasured_matrix_rate_leaves_the_bound_unknown() -> None:
    judged = judge_kernel(timed(time_s=1e-3, calls=1, moved_bytes=5e8, flops=1e9, dtype="float64"), GPU)
    assert judged == RooflineResult(pytest.approx(5e11), pytest.approx(1e12))


def test_flops_alone_are_enough_for_a_compute_bound() -> None:
    judged = judge_kernel(timed(time_s=1e-3, calls=1, flops=5e10, dtype="float16"), GPU)
    assert (judged.bound, judged.peak_share, judged.bandwidth) == ("compute", pytest.approx(0.5), None)


@pytest.mark.parametrize(
    "work",
    [
        timed(time_s=0.0, calls=1, moved_bytes=1e9),
        timed(time_s=1e-3, calls=0, moved_bytes=1e9),
        timed(time_s=1e-3, calls=1),
        timed(time_s=1e-3, calls=1, moved_bytes=0, flops=0),
    ],
)
def test_nothing_is_claimed_without_time_calls_or_work(work: TimedWork) -> None:
    judged = judge_kernel(work, GPU)
    assert (judged.bound, judged.peak_share, judged.gain_limit_s) == ("unknown", None, None)


def test_without_peaks_only_the_rates_are_given() -> None:
    judged = judge_kernel(timed(time_s=2.0, calls=1, moved_bytes=4e9, flops=6e9), None)
    assert judged == RooflineResult(2e9, 3e9)


def test_groups_are_judged_one_by_one_and_their_gains_add_up() -> None:
    large = timed(time_s=4e-3, calls=1, moved_bytes=1e9, flops=1e9, dtype="float16")  # 1 ms at the memory roof
    dense = timed(time_s=2e-3, calls=1, moved_bytes=2e7, flops=1e11, dtype="float16")  # 1 ms at the matrix roof
    judged = judge_groups([large, dense], GPU)
    assert judged.gain_limit_s == pytest.approx(4e-3)
    assert (judged.bound, judged.peak_share) == ("memory", pytest.approx(0.25))
    assert judged.bandwidth == pytest.approx(1.02e9 / 6e-3)
    # Taken for equal calls, the two would hide each other's need: 1.02 ms in place of 2 ms.
    alike = timed(time_s=6e-3, calls=2, moved_bytes=1.02e9, flops=1.01e11, dtype="float16")
    assert judge_kernel(alike, GPU).gain_limit_s == pytest.approx(4.98e-3)


def test_a_short_group_above_its_roof_counts_as_at_it_and_a_long_one_leaves_the_share_unknown() -> None:
    half = timed(time_s=4e-3, calls=4, moved_bytes=1e6, flops=2e11, dtype="float16")  # 2 ms at the matrix roof
    above = timed(time_s=0.5e-3, calls=1, moved_bytes=1e6, flops=0.6e11, dtype="float16")  # 0.6 ms at it
    assert judge_kernel(above, GPU).peak_share is None
    judged = judge_groups([half, above], GPU)
    assert (judged.bound, judged.peak_share) == ("compute", pytest.approx((0.5 * 4 + 1 * 0.5) / 4.5))
    assert judged.gain_limit_s == pytest.approx(2e-3)
    assert judge_groups([replace(half, time_s=1e-3), above], GPU).peak_share is None


def test_one_unknown_group_makes_the_gain_unknown() -> None:
    known = timed(time_s=4e-3, calls=1, moved_bytes=1e9)
    judged = judge_groups([known, timed(time_s=1e-3, calls=1)], GPU)
    assert (judged.bound, judged.gain_limit_s, judged.bandwidth) == ("memory", None, None)
    assert judge_groups([known], GPU) == judge_kernel(known, GPU)
    assert judge_groups([], GPU) == RooflineResult()


def test_where_the_step_is_known_dram_limits_a_kernel_whose_bytes_fit_into_the_cache() -> None:
    weights = TimedWork(1e-5, 1, LeastWork(8e6))
    assert judge_kernel(weights, GPU).bound == "cache"
    served = judge_kernel(replace(weights, dram_bytes=8e6, cache_bytes=0.0), GPU)
    assert (served.bound, served.peak_share, served.bandwidth) == ("memory", pytest.approx(0.8), pytest.approx(8e11))
    assert served.gain_limit_s == pytest.approx(2e-6)


def test_the_longer_of_drams_time_and_the_caches_time_is_the_limit() -> None:
    work = TimedWork(1e-2, 1, LeastWork(4e9))
    mostly = judge_kernel(replace(work, dram_bytes=2e9, cache_bytes=2e9), GPU)
    assert (mostly.bound, mostly.peak_share) == ("memory", pytest.approx(0.2))
    hardly = judge_kernel(replace(work, dram_bytes=1e8, cache_bytes=3.9e9), GPU)
    assert (hardly.bound, hardly.peak_share) == ("cache", pytest.approx(0.1))
    nothing = judge_kernel(replace(work, dram_bytes=0.0, cache_bytes=4e9), GPU)
    assert (nothing.bound, nothing.peak_share) == ("cache", pytest.approx(0.1))


def test_a_kernel_faster_than_its_predicted_dram_bytes_is_judged_without_them() -> None:
    fast = TimedWork(1e-6, 1, LeastWork(2e6))
    assert judge_kernel(replace(fast, dram_bytes=2e6, cache_bytes=0.0), GPU) == judge_kernel(fast, GPU)


def test_an_unknown_cache_roof_leaves_the_limit_open_only_if_the_cache_serves_more() -> None:
    peaks = replace(GPU, cache_bandwidth=None)
    work = TimedWork(1e-2, 1, LeastWork(4e9))
    more = judge_kernel(replace(work, dram_bytes=1e9, cache_bytes=3e9), peaks)
    assert (more.bound, more.peak_share, more.gain_limit_s) == ("cache", None, None)
    less = judge_kernel(replace(work, dram_bytes=3e9, cache_bytes=1e9), peaks)
    assert (less.bound, less.peak_share) == ("memory", pytest.approx(0.3))
