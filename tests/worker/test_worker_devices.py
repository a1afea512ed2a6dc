"""What a worker does with devices that are not here or not measured, such as AMD's GPUs, which torch calls ``cuda``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from inductor_bench.devices.nvidia import ARCHITECTURES
from inductor_bench.devices.protocol import CPU
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.job_requests import LAUNCH_GAP, ListLaunches, TellArchitecture, encode_request
from inductor_bench.messages.observed import RunProgram
from inductor_bench.records.code import Details
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.store import codec
from inductor_bench.worker import survey as worker_survey
from inductor_bench.worker.bench.bench import Bench
from inductor_bench.worker.bench.loaded_kernel import TritonBenchKernel
from inductor_bench.worker.capture import programs
from inductor_bench.worker.device import nvidia_runtime
from inductor_bench.worker.device.runtimes import (
    NVIDIA_RUNTIME,
    describe_environment,
    find_best_device_type,
    find_runtime,
    open_device,
)
from inductor_bench.worker.profile.module_profile import list_launches, measure_graph_replay, measure_run
from inductor_bench.worker.profile.module_run import ModuleRun

ROCM = "built for ROCm 6.4.43482"


def pretend(monkeypatch: pytest.MonkeyPatch, properties: Any) -> None:
    """Lets torch see one GPU with these properties."""
    answers = {"is_available": True, "device_count": 1, "current_device": 0, "get_device_properties": properties}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, answer=answer: answer)


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch for ROCm on a machine with an MI300X, which has the numbers of a compute capability."""
    properties = SimpleNamespace(
        name="AMD Instinct MI300X", total_memory=192 << 30, multi_processor_count=304, major=9, minor=4
    )
    monkeypatch.setattr(torch.version, "hip", "6.4.43482")
    monkeypatch.setattr(torch.version, "cuda", None)
    pretend(monkeypatch, properties)


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch says of an H200."""
    properties = SimpleNamespace(
        name="NVIDIA H200",
        total_memory=140 << 30,
        multi_processor_count=132,
        major=9,
        minor=0,
        max_threads_per_multi_processor=2048,
        shared_memory_per_block_optin=227 << 10,
        regs_per_multiprocessor=65536,
    )
    pretend(monkeypatch, properties)
    monkeypatch.setattr(nvidia_runtime, "read_driver_version", lambda: "580.82")


@pytest.mark.usefixtures("h200")
def test_an_nvidia_gpu_is_described_with_its_limits() -> None:
    device = describe_environment().device
    assert (device.accelerator, device.compute_capability, device.driver) == ("NVIDIA H200", "9.0", "580.82")
    present = NVIDIA_RUNTIME.architecture()
    assert replace(present, device="H100") == ARCHITECTURES["sm_90"]
    assert find_best_device_type() == "cuda" and open_device("cuda")[0] is NVIDIA_RUNTIME
    with pytest.raises(InductorBenchError, match="there is no cuda:1 among the 1 CUDA devices"):
        open_device("cuda:1")


def test_a_race_on_a_gpu_takes_short_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(nvidia_runtime, "GpuRaceTimer", lambda *_, **how: seen.update(how))
    nvidia_runtime._read_shared_launch_gap.cache_clear()
    monkeypatch.setattr(nvidia_runtime, "launch_gap", lambda known: {"cold": 1e-6})
    arguments: Any = None
    NVIDIA_RUNTIME.make_timer({}, arguments, lambda made: print, moved=8, reset=[1])
    windows = {
        "window_s": nvidia_runtime.RACE_WINDOW_S,
        "warm_up_s": nvidia_runtime.RACE_WARM_UP_S,
        "gap": {"cold": 1e-6},
    }
    assert seen == {"moved": 8, "reset": [1], **windows}


def test_workers_that_share_a_gpu_measure_its_launch_gap_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvidia_runtime, "GpuRaceTimer", lambda *_, **how: None)
    shared, measured = tmp_path / "launch-gap.json", dict[str, float]()
    taken_over: list[Any] = []

    def launch_gap(known: Any) -> dict[str, float]:
        taken_over.extend([] if known is None else [known])
        return dict(measured)

    def process(use: Callable[[], Any]) -> None:
        nvidia_runtime._read_shared_launch_gap.cache_clear()
        use()

    monkeypatch.setattr(nvidia_runtime, "launch_gap", launch_gap)
    monkeypatch.setattr(nvidia_runtime.torch, "empty", lambda size, device: None)
    monkeypatch.delenv(LAUNCH_GAP, raising=False)
    process(NVIDIA_RUNTIME.get_ready)
    monkeypatch.setenv(LAUNCH_GAP, str(shared))
    process(NVIDIA_RUNTIME.get_ready)
    assert not shared.exists(), "a gap that could not be measured is measured by the next worker"
    measured |= {"cold": 1e-6, "warm": 0.0}
    process(NVIDIA_RUNTIME.get_ready)
    assert taken_over == []
    process(NVIDIA_RUNTIME.get_ready)
    NVIDIA_RUNTIME.make_timer({}, SimpleNamespace(), lambda made: print)
    assert len(taken_over) == 1, "the file is read once"
    process(lambda: NVIDIA_RUNTIME.make_timer({}, SimpleNamespace(), lambda made: print))
    nvidia_runtime._read_shared_launch_gap.cache_clear()
    assert taken_over == [measured, measured], "also by a worker that takes the place of a lost one"


@pytest.mark.usefixtures("rocm")
def test_an_amd_gpu_is_described_without_a_compute_capability() -> None:
    device = describe_environment().device
    assert (device.accelerator, device.accelerator_count, device.multiprocessors) == ("AMD Instinct MI300X", 1, 304)
    assert device.accelerator_memory_bytes == 192 << 30 and device.cuda == "6.4.43482"
    assert device.compute_capability is None and device.driver is None


@pytest.mark.usefixtures("rocm")
def test_an_amd_gpu_is_refused_in_words_wherever_it_is_opened(tmp_path: Path) -> None:
    def profile() -> Any:
        return measure_run(
            ModuleRun(len, ()), label="x", device="cuda", repeat=1, trace=tmp_path / "trace", text=tmp_path / "text"
        )

    file = SimpleNamespace(launch={}, kernel=SimpleNamespace(configs=[SimpleNamespace(kwargs={}, num_warps=4)]))
    job = ListLaunches("absent.py", "cuda")
    attempts = [
        lambda: find_runtime("cuda"),
        lambda: open_device("cuda:0"),
        lambda: worker_survey.measure_peaks("cuda"),
        lambda: Bench(print).answer(encode_request(TellArchitecture())),
        lambda: TritonBenchKernel(SimpleNamespace(FILE=file)),  # type: ignore[arg-type]
        lambda: list_launches(job, print),
        profile,
    ]
    for attempt in attempts:
        with pytest.raises(InductorBenchError, match=ROCM) as refused:
            attempt()
        assert "--device cpu" in refused.value.hint


@pytest.mark.usefixtures("rocm")
def test_a_program_is_refused_on_an_amd_gpu_and_runs_on_its_cpu(tmp_path: Path) -> None:
    refusal = tmp_path / "refusal"
    job = RunProgram(BreakdownRequest("absent.py:f", "factory"), str(refusal))
    (tmp_path / "job").write_text(json.dumps(codec.encode(job)))
    assert find_best_device_type() == "cuda" and programs.main([str(tmp_path / "job")]) == 1
    said = json.loads(refusal.read_text())
    assert ROCM in said["message"] and "--device cpu" in said["hint"]
    runtime, place = open_device("cpu")
    assert runtime.device is CPU and place == torch.device("cpu")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_here_is_said_to_be_missing() -> None:
    for name, words in (
        ("cuda", "no CUDA device is available to this torch"),
        ("cuda:3", "there is no cuda:3 among the 0 CUDA devices"),
        ("meta", "no meta device is available to this torch"),
        ("pear", "pear is no device"),
    ):
        with pytest.raises(InductorBenchError, match=words) as missing:
            open_device(name)
        assert missing.value.hint
    assert find_best_device_type() == "cpu"


def test_a_measurement_leaves_the_random_state_as_it_was() -> None:
    before = torch.get_rng_state()
    with find_runtime("cpu").preserve_random_state():
        torch.randn(3)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_cpu_has_a_peak_of_memory_and_no_graphs() -> None:
    runtime = find_runtime("cpu")
    runtime.reset_peak_memory()
    assert (runtime.peak_memory_bytes() or 1 << 30) > 1 << 20
    assert not runtime.captures_graphs
    assert measure_graph_replay(ModuleRun(len, ()), runtime, Details()) == Details(graph_error="a CPU has no graphs")


def test_a_device_type_without_a_file_is_run_and_not_measured() -> None:
    runtime = find_runtime("xpu")
    assert runtime.device.type == "xpu" and runtime.peak_memory_bytes() is None
    with pytest.raises(InductorBenchError, match="peaks of a xpu device"):
        runtime.measure_roofs(torch.device("xpu"))
