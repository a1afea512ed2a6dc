"""What other rooms ask of a kind of device, of those that are in the table and of those that are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import run_builder as build
from inline import change, make
from printed import run_markdown

from inductor_bench.devices import nvidia
from inductor_bench.devices.hardware_counters import HOPPER_STALL, list_metrics
from inductor_bench.devices.nvidia import (
    ARCHITECTURES,
    LIMITS,
    NVIDIA,
    compute_capability,
    compute_theoretical_occupancy,
    is_gpu_lost,
    list_gpu_models,
    list_visible_gpus,
)
from inductor_bench.devices.protocol import CPU, Device
from inductor_bench.devices.table import (
    DEVICES,
    find_best_device,
    find_common_device,
    find_device,
    find_device_of_peaks,
)
from inductor_bench.records.run import Environment
from inductor_bench.store.caches import make_peaks_key

MI300X = change(
    build.GPU, torch="2.13.0+rocm6.4", accelerator="AMD Instinct MI300X", compute_capability="9.0", cuda="6.4.43482"
)
"""As an environment could be that was described by torch's numbers alone."""


@pytest.mark.parametrize(("name", "device"), [("cpu", CPU), ("cpu:0", CPU), ("cuda", NVIDIA), ("cuda:1", NVIDIA)])
def test_a_device_is_found_by_its_type_and_by_its_name(name: str, device: Device) -> None:
    assert find_device(name) is device and DEVICES[device.type] is device


@pytest.mark.parametrize("name", ["xpu", "xpu:2", "", None])
def test_an_unknown_device_is_an_accelerator_without_limits(name: str | None) -> None:
    device = find_device(name)
    assert device.type == (name or "").partition(":")[0] and not device.runs_on_host
    assert replace(device.words, family="CUDA") == NVIDIA.words
    assert not (device.has_tf32 or device.library_switches or device.has_hardware_counters)
    assert device.theoretical_occupancy(build.GPU, 4, 32, 0) is None


def test_words_about_several_modules_are_those_of_the_cpu_only_if_all_run_there() -> None:
    assert find_common_device(["cpu", "cpu"]) is CPU
    assert find_common_device(["cpu", "cuda", "cpu"]) is find_common_device(["cuda"]) is NVIDIA
    assert find_common_device(["cpu", "xpu"]).type == "xpu"
    assert not find_common_device([]).runs_on_host


def test_a_device_is_named_by_its_environment() -> None:
    assert (CPU.name_in(build.GPU), NVIDIA.name_in(build.GPU)) == (build.GPU.host.cpu, "NVIDIA H200")
    assert NVIDIA.name_in(Environment()) is None
    assert find_best_device(build.GPU) is NVIDIA and find_best_device(Environment()) is CPU
    assert find_device_of_peaks(build.H200) is NVIDIA
    assert find_device_of_peaks(replace(build.H200, launch_floor_s=None)) is CPU


def test_peaks_depend_on_the_threads_of_a_cpu_and_on_the_driver_of_a_gpu() -> None:
    seen = change(build.GPU, threads=8, vector_isa="avx512", driver="580.82.07", torch="2.13.0+cu130")
    assert make_peaks_key(seen, "cpu") == "intel-xeon-platinum-8480c-avx512-8-threads-torch-2.13"
    assert make_peaks_key(seen, "cuda:1") == "nvidia-h200-132-units-driver-580-torch-2.13"
    assert make_peaks_key(make(Environment, torch="2.13.0"), "xpu") == "xpu-driver-unknown-torch-2.13"


def test_no_table_of_nvidias_is_applied_to_an_amd_gpu() -> None:
    assert compute_capability(build.GPU) == "9.0" and NVIDIA.theoretical_occupancy(build.GPU, 4, 32, 0) == 1
    named = make(Environment, accelerator="AMD Instinct MI300X", compute_capability="9.0")  # as a trace tells
    for environment in (MI300X, named, change(MI300X, accelerator="a GPU")):
        assert compute_capability(environment) is None
        assert NVIDIA.theoretical_occupancy(environment, 4, 32, 0) is None
        assert not any(HOPPER_STALL in metric for metric in list_metrics(compute_capability(environment)))


def test_a_record_of_an_unknown_device_is_shown_like_that_of_a_gpu() -> None:
    known = build.mixnet()
    unknown = replace(known, modules=tuple(replace(module, device="xpu") for module in known.modules))
    assert "DRAM" in run_markdown(unknown) and "GPU-bound" in run_markdown(unknown)
    assert run_markdown(unknown) == run_markdown(known)


def test_gpus_and_their_models_are_those_that_the_driver_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "nvidia-smi"
    rows = "0, GPU-12ab, NVIDIA H100\n1, GPU-34cd, NVIDIA H100\n2, GPU-56ef, NVIDIA A100"
    script.write_text(f"#!/bin/sh\ncase $1 in *name) echo '{rows}';; *) printf '0\\n1\\n2\\n';; esac\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert list_visible_gpus() == ("0", "1", "2")
    assert list_gpu_models(("0", "1")) == ("NVIDIA H100",)
    assert list_gpu_models(("GPU-34", "2")) == ("NVIDIA H100", "NVIDIA A100")
    assert list_gpu_models(("MIG-1",)) == ()
    script.write_text("#!/bin/sh\nexit 9\n")
    assert list_visible_gpus() == () == list_gpu_models(("0",))
    script.unlink()
    monkeypatch.setattr(nvidia.os, "environ", {"PATH": str(tmp_path)})
    assert list_visible_gpus() == ()


@pytest.mark.parametrize(
    ("said", "is_lost"),
    [
        ("CUDA error: uncorrectable ECC error encountered", True),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", True),
        ("RuntimeError: No CUDA GPUs are available", True),
        ("Unable to determine the device handle for GPU0000:05:00.0: Unknown Error", True),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", False),
        ("CUDA error: an illegal memory access was encountered", False),
    ],
)
def test_a_lost_gpu_is_told_from_what_a_program_does(said: str, is_lost: bool) -> None:
    assert is_gpu_lost(said) is is_lost


# Theoretical occupancy against NVIDIA's calculator: the warps are what ``cuda_occupancy.h`` of CUDA 13.0 returns.


RESIDENT = {
    # (warps, registers, shared memory): the resident warps for each compute capability
    (1, 16, 16): {"7.5": 16, "8.6": 16, "8.9": 24, "9.0": 32, "12.0": 24},  # blocks run out
    (4, 32, 0): {"7.5": 32, "8.6": 48, "8.9": 48, "9.0": 64, "12.0": 48},  # warps
    (8, 64, 0): {"7.5": 32, "8.6": 32, "8.9": 32, "9.0": 32, "12.0": 32},  # registers
    (16, 33, 0): {"7.5": 32, "8.6": 48, "8.9": 48, "9.0": 48, "12.0": 48},
    (8, 40, 2048): {"7.5": 32, "8.6": 48, "8.9": 48, "9.0": 48, "12.0": 48},
    (4, 168, 49152): {"7.5": 4, "8.6": 8, "8.9": 8, "9.0": 12, "12.0": 8},  # registers, or shared memory
    (4, 255, 98304): {"8.6": 4, "8.9": 4, "9.0": 8, "12.0": 4},  # shared memory
    (32, 72, 0): {"7.5": 0, "8.6": 0, "8.9": 0, "9.0": 0, "12.0": 0},  # not one block fits
}


@pytest.mark.parametrize(("block", "resident"), RESIDENT.items(), ids=str)
def test_the_occupancy_is_that_of_the_calculator(block: tuple[int, int, int], resident: dict[str, int]) -> None:
    for capability, warps in resident.items():
        assert compute_theoretical_occupancy(capability, *block) == warps / LIMITS[capability].warps, capability


def test_what_is_not_known_gives_nothing() -> None:
    assert compute_theoretical_occupancy("9.0", 4, 0, 0) == 1
    for unknown in (
        (None, 4, 32, 0),
        ("99.0", 4, 32, 0),
        ("9.0", None, 32, 0),
        ("9.0", 4, None, 0),
        ("9.0", 4, 32, None),
    ):
        assert compute_theoretical_occupancy(*unknown) is None


def test_the_limits_agree_with_what_compilers_are_told() -> None:
    for known in ARCHITECTURES.values():
        limits = LIMITS[f"{known.capability // 10}.{known.capability % 10}"]
        assert limits.warps * 32 == known.threads
        assert limits.shared_bytes - limits.reserved_bytes == known.shared_memory_bytes or known.name == "sm_75"
