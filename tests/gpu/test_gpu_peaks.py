"""Peaks of a real CUDA device: plausible, repeatable, and consistent with plain torch code timed another way."""

from __future__ import annotations

import gc
import time

import pytest
import torch

from inductor_bench.records.run import Peaks
from inductor_bench.worker.device.nvidia_runtime import capture_graph, profile_durations, sustained_time, triton_kernels
from inductor_bench.worker.device.runtimes import describe_environment
from inductor_bench.worker.survey import count_operator_costs, measure_peaks

NAME = torch.cuda.get_device_name() if torch.cuda.is_available() else ""

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


@pytest.fixture(scope="module")
def measured() -> tuple[Peaks, float]:
    torch.cuda.init()
    start = time.perf_counter()
    peaks = measure_peaks("cuda")
    taken = time.perf_counter() - start
    print(f"\n{peaks}\nmeasured in {taken:.1f} s")
    return peaks, taken


def test_peaks_are_plausible_and_quick(measured: tuple[Peaks, float]) -> None:
    peaks, taken = measured
    assert taken < 20
    assert peaks.device == torch.cuda.get_device_name()
    assert peaks.cache_bytes == torch.cuda.get_device_properties(0).L2_cache_size
    assert peaks.cache_bandwidth is not None and peaks.cache_bandwidth > peaks.memory_bandwidth
    assert peaks.launch_floor_s is not None and 0.3e-6 < peaks.launch_floor_s < 5e-6
    assert peaks.threads is None
    rates = peaks.matmul_flops
    assert rates["float16"] > rates["float32"] > 0
    if torch.cuda.get_device_capability() >= (8, 0):
        assert rates["float16"] > rates["tf32"] > rates["float32"]


@pytest.mark.skipif("H200" not in NAME, reason="not an H200")
def test_an_h200_reaches_what_an_h200_reaches(measured: tuple[Peaks, float]) -> None:
    peaks, _ = measured
    assert 4.0e12 < peaks.memory_bandwidth < 4.8e12  # the vendor's figure is 4.8 TB/s
    assert peaks.cache_bandwidth is not None and 4.8e12 < peaks.cache_bandwidth < 15e12
    assert 600e12 < peaks.matmul_flops["bfloat16"] < 990e12  # dense; the vendor's is 989
    assert 600e12 < peaks.matmul_flops["float16"] < 990e12
    assert 30e12 < peaks.matmul_flops["float32"] < 68e12
    assert 250e12 < peaks.matmul_flops["tf32"] < 495e12
    assert 800e12 < peaks.matmul_flops["float8"] < 1980e12
    assert peaks.launch_floor_s is not None and 0.7e-6 < peaks.launch_floor_s < 1.6e-6


def test_the_triton_kernels_are_used_where_triton_is() -> None:
    pytest.importorskip("triton")
    with torch.inference_mode():
        kernels = triton_kernels()
        assert kernels is not None
        source, target = torch.randn(2, 100_003, device="cuda").clone()
        kernels.launch_copy(source, target)
        assert torch.equal(source, target)


def test_a_second_measurement_agrees(measured: tuple[Peaks, float]) -> None:
    first, second = measured[0], measure_peaks("cuda:0")
    assert second.memory_bandwidth == pytest.approx(first.memory_bandwidth, rel=0.03)
    assert second.cache_bandwidth == pytest.approx(first.cache_bandwidth, rel=0.10)
    for name, rate in first.matmul_flops.items():
        assert second.matmul_flops[name] == pytest.approx(rate, rel=0.08), name


def test_no_plain_copy_beats_the_memory_roof(measured: tuple[Peaks, float]) -> None:
    source, target = torch.randn(2, 64 << 20, device="cuda")
    durations = profile_durations(lambda: torch.mul(source, 2.0, out=target))
    fastest = 2 * 4 * source.numel() / min(durations)
    assert 0.6 * measured[0].memory_bandwidth < fastest < 1.05 * measured[0].memory_bandwidth


def test_the_slope_of_graphs_and_the_profiler_agree() -> None:
    source, target = torch.randn(2, 32 << 20, device="cuda")

    def launch() -> object:
        return torch.mul(source, 2.0, out=target)

    few, many = (sustained_time(capture_graph(launch, count).replay, 5e-3) for count in (20, 60))
    profiled = sorted(profile_durations(launch))
    assert (many - few) / 40 == pytest.approx(profiled[len(profiled) // 2], rel=0.05)


def test_measuring_leaves_torch_as_it_was(measured: tuple[Peaks, float]) -> None:
    matmul = torch.backends.cuda.matmul
    before = (matmul.fp32_precision, matmul.allow_tf32, torch.cuda.current_device())
    state = torch.cuda.get_rng_state()
    measure_peaks("cuda")
    assert (matmul.fp32_precision, matmul.allow_tf32, torch.cuda.current_device()) == before
    assert torch.equal(state, torch.cuda.get_rng_state())
    assert torch.cuda.memory_reserved() < 256 << 20  # it used some GiB; cuBLAS keeps its workspace


def test_the_environment_names_the_device() -> None:
    found = describe_environment()
    device = found.device
    assert device.accelerator == torch.cuda.get_device_name()
    assert device.accelerator_count >= 1 and device.multiprocessors and device.accelerator_memory_bytes
    assert device.compute_capability == "{}.{}".format(*torch.cuda.get_device_capability())
    assert device.driver and device.driver[0].isdigit()
    assert found.versions.triton


def test_recorded_calls_are_counted_where_a_device_exists() -> None:
    from operator_calls import RECORDED, to_call

    rows = [row for row in RECORDED if row["device"] == "cuda"]
    torch.cuda.synchronize()
    gc.collect()  # tensors of the tests before
    before = torch.cuda.memory_allocated()
    costs = count_operator_costs([to_call(row) for row in rows])
    assert torch.cuda.memory_allocated() == before  # the tensors were fake
    mixnet = [(row, cost) for row, cost in zip(rows, costs, strict=True) if "mixnet" in row["source"]]
    flops = sum(row["count"] * (cost.flops or 0) for row, cost in mixnet)
    assert flops / 1e9 == pytest.approx(141.75 + 0.39, abs=0.01)
