"""The table of device runtimes, which refuses unsupported devices, and the description of a measurement's machine."""

from __future__ import annotations

import importlib
import os
import platform
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from ...devices.protocol import CPU
from ...devices.table import find_device
from ...errors import InductorBenchError
from ...records.run import Environment, Versions
from .cpu_runtime import CpuRuntime
from .nvidia_runtime import NvidiaRuntime
from .runtime import AcceleratorRuntime, DeviceRuntime

# The table of device runtimes. Every measurement gets its runtime here; an unsupported device is refused.


NVIDIA_RUNTIME = NvidiaRuntime()
RUNTIMES: Mapping[str, DeviceRuntime] = {runtime.device.type: runtime for runtime in (CpuRuntime(), NVIDIA_RUNTIME)}
"""The runtimes, by torch's name of the device type."""


def find_runtime(kind: str) -> DeviceRuntime:
    """The runtime of a device type, with or without such a device on this machine.

    Raises:
        InductorBenchError: this torch uses the name for an unsupported device.
    """
    runtime = RUNTIMES.get(kind) or AcceleratorRuntime(find_device(kind))
    runtime.check_support()
    return runtime


def open_device(name: str) -> tuple[DeviceRuntime, torch.device]:
    """The runtime of a device, and the device, by its type or its name, such as ``cuda:1``.

    Raises:
        InductorBenchError: the device is missing or unsupported.
    """
    try:
        place = torch.device(name)
    except RuntimeError as error:
        raise InductorBenchError(f"{name} is no device", "give cpu, cuda or cuda:N", "no-such-device") from error
    runtime = find_runtime(place.type)
    runtime.check_presence(place)
    return runtime, place


def find_best_device_type() -> str:
    """The type of the device that a program runs on by default: an accelerator that is present, otherwise the CPU."""
    present = (runtime.device for runtime in RUNTIMES.values() if runtime.is_present())
    return next((device.type for device in present if not device.runs_on_host), CPU.type)


# Describes the environment of a measurement: versions, processor, accelerator, and variables that change results.
#
# It only reads facts. Variables come from an explicit list, because users share reports.


VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUBLAS_WORKSPACE_CONFIG",
    "NVIDIA_TF32_OVERRIDE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "ATEN_CPU_CAPABILITY",
    "ONEDNN_MAX_CPU_ISA",
    "DNNL_MAX_CPU_ISA",
    "OMP_NUM_THREADS",
    "OMP_PROC_BIND",
    "OMP_PLACES",
    "OMP_WAIT_POLICY",
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "KMP_BLOCKTIME",
    "MKL_NUM_THREADS",
    "INDUCTOR_PROVENANCE",
    "TORCHINDUCTOR_AUTOGRAD_CACHE",
    "TORCHINDUCTOR_AUTOTUNE_IN_SUBPROC",
    "TORCHINDUCTOR_BENCHMARK_FUSION",
    "TORCHINDUCTOR_BENCHMARK_KERNEL",
    "TORCHINDUCTOR_COMBO_KERNELS",
    "TORCHINDUCTOR_COMPILE_THREADS",
    "TORCHINDUCTOR_COMPREHENSIVE_PADDING",
    "TORCHINDUCTOR_COORDINATE_DESCENT_CHECK_ALL_DIRECTIONS",
    "TORCHINDUCTOR_COORDINATE_DESCENT_RADIUS",
    "TORCHINDUCTOR_COORDINATE_DESCENT_TUNING",
    "TORCHINDUCTOR_CPP_ENABLE_FLOATING_POINT_CONTRACT_FLAG",
    "TORCHINDUCTOR_CPP_ENABLE_KERNEL_PROFILE",
    "TORCHINDUCTOR_CPP_ENABLE_TILING_HEURISTIC",
    "TORCHINDUCTOR_CPP_ENABLE_UNSAFE_MATH_OPT_FLAG",
    "TORCHINDUCTOR_CPP_MIN_CHUNK_SIZE",
    "TORCHINDUCTOR_CPP_WRAPPER",
    "TORCHINDUCTOR_EMULATE_PRECISION_CASTS",
    "TORCHINDUCTOR_EPILOGUE_FUSION",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES",
    "TORCHINDUCTOR_FORCE_LAYOUT_OPT",
    "TORCHINDUCTOR_FREEZING",
    "TORCHINDUCTOR_FX_GRAPH_CACHE",
    "TORCHINDUCTOR_LAYOUT_OPTIMIZATION",
    "TORCHINDUCTOR_LOOP_ORDERING_AFTER_FUSION",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCHINDUCTOR_MAX_AUTOTUNE_CONV_BACKENDS",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS",
    "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_SEARCH_SPACE",
    "TORCHINDUCTOR_MAX_AUTOTUNE_POINTWISE",
    "TORCHINDUCTOR_MULTI_KERNEL",
    "TORCHINDUCTOR_PERSISTENT_REDUCTIONS",
    "TORCHINDUCTOR_PROLOGUE_FUSION",
    "TORCHINDUCTOR_SHAPE_PADDING",
    "TORCHINDUCTOR_UNIQUE_KERNEL_NAMES",
    "TORCHINDUCTOR_USE_FAST_MATH",
    "TRITON_DEFAULT_FP_FUSION",
)
"""The environment variables that a record may hold. Their values are no paths, names or secrets."""


def describe_environment() -> Environment:
    """The environment of this process. Unknown facts are ``None`` or empty; no exception is raised."""
    environment = Environment(
        versions=Versions(platform.python_version(), str(torch.__version__), _read_triton_version()),
        platform=platform.platform(),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )
    for runtime in RUNTIMES.values():
        environment = runtime.describe(environment)
    return environment if environment.device.accelerator else _add_xpu(environment)


def _read_triton_version() -> str | None:
    try:
        triton: Any = importlib.import_module("triton")
    except ImportError:
        return None
    return str(getattr(triton, "__version__", "")) or None


def _add_xpu(environment: Environment) -> Environment:
    """Adds the facts of an Intel GPU, which has no runtime of its own."""
    if not torch.xpu.is_available():
        return environment
    xpu: Any = torch.xpu.get_device_properties(torch.xpu.current_device())
    device = replace(
        environment.device,
        accelerator=xpu.name,
        accelerator_count=torch.xpu.device_count(),
        accelerator_memory_bytes=xpu.total_memory,
        multiprocessors=getattr(xpu, "gpu_subslice_count", None),
        driver=getattr(xpu, "driver_version", None),
    )
    return replace(environment, device=device)
