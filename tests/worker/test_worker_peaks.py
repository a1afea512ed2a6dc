"""Peaks of the processor that the tests run on, and the cache that they are kept in. The measurement takes seconds."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from inline import change, make

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.run import Environment, Peaks
from inductor_bench.source.harness.timing_cpu import last_level_cache_bytes
from inductor_bench.store.caches import find_cache_folder, load_peaks, make_peaks_key, save_peaks
from inductor_bench.worker.device import cpu_runtime as processor
from inductor_bench.worker.device import gpu_watch
from inductor_bench.worker.device.gpu_watch import doubt_peaks, measure_cpu_peaks_undisturbed
from inductor_bench.worker.device.nvidia_runtime import set_tf32
from inductor_bench.worker.survey import measure_peaks

PEAKS = Peaks("a device", 1e12, {"float16": 1e14}, 50 << 20, 5e12, 1.2e-6, None, "2.13.0", "2026-01-01T00:00:00+00:00")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def measured() -> Iterator[tuple[Peaks, int]]:
    """The peaks of one thread in its CPU time, and how many kernels were timed for them.

    Several threads wait for each other, and for most of the time if other work has their cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processor, "time", SimpleNamespace(perf_counter=time.thread_time))
        timed = Mock(wraps=processor.sustained_time)
        patch.setattr(processor, "sustained_time", timed)
        yield measure_peaks("cpu"), timed.call_count
    torch.set_num_threads(threads)


def test_cpu_peaks_are_plausible_and_rest_on_few_kernels(measured: tuple[Peaks, int]) -> None:
    peaks, timed = measured
    assert 0.5e9 < peaks.memory_bandwidth < 3e12
    assert 1e8 < peaks.matmul_flops["float32"] < 1e14
    assert all(rate > peaks.matmul_flops["float32"] for name, rate in peaks.matmul_flops.items() if name != "float32")
    assert (peaks.cache_bandwidth is None) == (peaks.cache_bytes is None)
    assert peaks.cache_bandwidth is None or peaks.cache_bandwidth > 0.5e9  # others may use the cache, too
    sizes, rates = [roof.size for roof in peaks.cache_roofs], [roof.bandwidth for roof in peaks.cache_roofs]
    assert sizes == sorted(sizes) and rates == sorted(rates, reverse=True)
    assert not sizes or (sizes[-1] == (peaks.cache_bytes or 0) // 3 and rates[-1] == peaks.cache_bandwidth)
    assert peaks.launch_floor_s is None
    assert peaks.threads == torch.get_num_threads()
    assert peaks.torch == torch.__version__
    assert timed <= 3 * (1 + len(sizes)) + 3 + 3 * 4, "the bandwidths, three pilots, four products of three types"


def test_a_kernel_of_ones_own_does_not_beat_the_memory_roof(measured: tuple[Peaks, int]) -> None:
    source, target = torch.ones(2, 48 << 20)
    target.copy_(source)
    times = []
    for _ in range(3):
        start = time.thread_time()
        target.copy_(source)
        times.append(time.thread_time() - start)
    reached = 2 * source.numel() * 4 / min(times)
    # Other work may have been there for the roof and not for the copy. The roof is then measured again.
    assert reached < 2 * measured[0].memory_bandwidth or any(
        reached < 2 * measure_peaks("cpu").memory_bandwidth for _ in range(4)
    )


def test_measuring_leaves_torch_as_it_was(measured: tuple[Peaks, int]) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    from inductor_bench.worker.device.cpu_runtime import _time_product

    assert _time_product(64, torch.float32)
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def tf32_state() -> tuple[Any, ...]:
    matmul = torch.backends.cuda.matmul
    try:
        legacy: Any = (matmul.allow_tf32, torch.get_float32_matmul_precision())
    except RuntimeError:
        legacy = "disagree"
    return matmul.fp32_precision, torch.backends.mkldnn.matmul.fp32_precision, legacy


@pytest.mark.parametrize("setting", ["highest", "high", "medium", "new-tf32", "new-none"])
def test_the_tf32_switches_come_back(setting: str) -> None:
    matmul = torch.backends.cuda.matmul
    try:
        torch.set_float32_matmul_precision("highest" if setting.startswith("new") else setting)
        if setting.startswith("new"):
            matmul.fp32_precision = setting.partition("-")[2]
        before = tf32_state()
        with set_tf32(True):
            assert matmul.fp32_precision == "tf32" and matmul.allow_tf32 is True
        with set_tf32(False):
            assert matmul.fp32_precision == "ieee" and matmul.allow_tf32 is False
        assert tf32_state() == before
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.mkldnn.matmul.fp32_precision = "none"
        matmul.fp32_precision = "none"


@pytest.mark.parametrize("device", ["cuda:99", "meta", "quantum"])
def test_devices_that_cannot_be_measured_are_named(device: str) -> None:
    with pytest.raises(InductorBenchError, match=device):
        measure_peaks(device)


def write_cache(folder: Path, cpu: int, index: int, level: int, kind: str, size: str, shared: str) -> None:
    path = folder / f"cpu{cpu}" / "cache" / f"index{index}"
    path.mkdir(parents=True)
    for name, text in (("level", str(level)), ("type", kind), ("size", size), ("shared_cpu_list", shared)):
        (path / name).write_text(text + "\n")


def test_each_last_level_cache_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 8})
    for cpu, shared in ((0, "0-7"), (1, "0-7"), (8, "8-15"), (16, "16-23")):
        write_cache(tmp_path, cpu, 0, 1, "Instruction", "64K", str(cpu))
        write_cache(tmp_path, cpu, 1, 2, "Unified", "1024K", str(cpu))
        write_cache(tmp_path, cpu, 2, 3, "Unified", "32M", shared)
    assert last_level_cache_bytes(str(tmp_path)) == 64 << 20
    assert last_level_cache_bytes(str(tmp_path / "nowhere")) is None


def test_peaks_come_back_from_the_cache(cache: Path) -> None:
    assert load_peaks("a-device") is None
    assert save_peaks("a-device", PEAKS)
    assert load_peaks("a-device") == PEAKS
    assert load_peaks("another-device") is None
    assert [path.name for path in (cache / "peaks").iterdir()] == ["a-device.json"]


def test_a_damaged_or_foreign_cache_is_an_empty_one(cache: Path) -> None:
    save_peaks("key", PEAKS)
    file = cache / "peaks" / "key.json"
    whole = json.loads(file.read_text())
    damaged = [b"", b"{", b"[]", b"\xff\xfe\x00", json.dumps({**whole, "format": whole["format"] + 1}).encode()]
    damaged.append(json.dumps({**whole, "format": 1}).encode())  # matrix roofs under the power limit
    del whole["peaks"]["memory_bandwidth"]
    for content in [*damaged, json.dumps(whole).encode(), json.dumps({"format": whole["format"]}).encode()]:
        file.write_bytes(content)
        assert load_peaks("key") is None, content
    assert save_peaks("key", PEAKS)
    assert load_peaks("key") == PEAKS


def test_a_cache_that_cannot_be_written_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "file"))
    assert save_peaks("key", PEAKS) is False
    assert load_peaks("key") is None


def test_the_cache_lies_where_the_user_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("INDUCTOR_BENCH_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert find_cache_folder() == tmp_path / "inductor-bench"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert find_cache_folder() == tmp_path / "home" / ".cache" / "inductor-bench"
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "mine"))
    assert find_cache_folder() == tmp_path / "mine"


def test_the_key_holds_what_peaks_depend_on() -> None:
    base = make(
        Environment,
        torch="2.11.0+cu130", cpu="AMD EPYC", cpu_count=4, threads=4, vector_isa="avx512",
        accelerator="NVIDIA H200", multiprocessors=132, driver="580.82.07",
    )  # fmt: skip
    assert (
        make_peaks_key(base, "cuda") == make_peaks_key(base, "cuda:0") == "nvidia-h200-132-units-driver-580-torch-2.11"
    )
    assert make_peaks_key(base, "cpu") == "amd-epyc-avx512-4-threads-torch-2.11"
    assert make_peaks_key(change(base, torch="2.11.1", driver="580.99"), "cuda") == make_peaks_key(base, "cuda")
    assert make_peaks_key(change(base, threads=2), "cpu") != make_peaks_key(base, "cpu")
    assert make_peaks_key(change(base, driver="590.1"), "cuda") != make_peaks_key(base, "cuda")
    long = [make_peaks_key(change(base, cpu="x" * 300 + end), "cpu") for end in "ab"]
    assert long[0] != long[1] and max(map(len, long)) <= 100
    assert os.sep not in make_peaks_key(change(base, cpu="../../etc/passwd"), "cpu")


GOOD = Peaks("CPU", 13e9, {"float32": 93e9}, 32 << 20, 63e9, threads=2)
IDLE = MachineLoad(1, 2, 7.8, 0.5, cpu_time_s=1.0, waited_s=0.02)
BUSY = MachineLoad(1, 2, 4.1, 0.5, cpu_time_s=0.4, waited_s=0.6)
CLOCK_HZ, LANES = 2.6e9, 16


def measured_under(monkeypatch: pytest.MonkeyPatch, peaks: list[Peaks], loads: list[MachineLoad]) -> tuple[Any, str]:
    """What is kept of these measurements; the first load is that of the look before them."""
    monkeypatch.setattr(gpu_watch, "_measure_load", lambda: loads[0])
    later, left = iter(loads[1:]), iter(peaks)
    monkeypatch.setattr(gpu_watch, "load_since", lambda before, runs: next(later))
    return measure_cpu_peaks_undisturbed(lambda: next(left), CLOCK_HZ, LANES)


def test_peaks_of_an_idle_machine_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    assert measured_under(monkeypatch, [GOOD], [IDLE, IDLE]) == (GOOD, "")


def test_a_busy_machine_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    peaks, doubt = measured_under(monkeypatch, [], [BUSY])
    assert peaks is None and doubt == "the machine was busy: it waited for a core 60% of the time"


def test_peaks_are_measured_again_if_somebody_disturbed_them(monkeypatch: pytest.MonkeyPatch) -> None:
    low = replace(GOOD, memory_bandwidth=3e9)
    assert measured_under(monkeypatch, [low, GOOD], [IDLE, BUSY, IDLE]) == (GOOD, "")
    assert measured_under(monkeypatch, [low, low], [IDLE, BUSY, BUSY])[0] is None


def test_a_rate_that_no_processor_of_this_clock_has_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(GOOD, matmul_flops={"float32": 8.4e9})
    peaks, doubt = measured_under(monkeypatch, [slow, slow], [IDLE] * 3)
    assert peaks is None
    assert doubt == "8.4 GFLOP/s is too little for 2 threads with vectors of 16 floats at 2.6 GHz"
    assert doubt_peaks(slow, None, None) == "", "the clock is unknown"


def test_a_cache_that_is_no_faster_than_memory_has_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    flat = replace(GOOD, cache_bandwidth=13e9)
    assert measured_under(monkeypatch, [flat, GOOD], [IDLE] * 3) == (GOOD, "")
    assert measured_under(monkeypatch, [flat, flat], [IDLE] * 3) == (replace(flat, cache_bandwidth=None), "")


def test_no_cache_has_a_lower_roof_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {1 << 20: 40e9, 2 << 20: 80e9, 64 << 20: 15e9}
    monkeypatch.setattr(processor, "_measure_bandwidth", rates.__getitem__)
    found = processor._measure_caches(list(rates), 20e9)
    assert [roof.bandwidth for roof in found] == [80e9, 80e9, 20e9]
    assert processor._list_cached_sizes(6 << 20) == [1 << 20, 3 << 19, 2 << 20]
