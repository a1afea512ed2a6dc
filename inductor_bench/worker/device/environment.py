"""Says where a measurement is made: versions, processor, accelerator, and the named variables that change results.

It measures and compiles nothing. Only variables on an explicit list are read, because reports get shared.
"""

from __future__ import annotations

import importlib
import os
import platform
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...records.run import Environment

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
"""The variables that a record may carry. None of them holds a path, a name or a secret."""

_TOOL_LIMIT_S = 10.0


def describe_environment() -> Environment:
    """What this process runs on. A figure that cannot be had is ``None`` or empty; nothing is raised."""
    common = Environment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        triton=_triton_version(),
        platform=platform.platform(),
        cpu=cpu_name(),
        cpu_count=len(usable_cpus()),
        threads=torch.get_num_threads(),
        vector_isa=vector_isa(),
        memory_bytes=_memory_bytes(),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )
    return _add_accelerator(common)


def cpu_name() -> str:
    """The processor's model name, or its architecture where the system does not tell."""
    for text in (_read("/proc/cpuinfo"), _output_of("lscpu"), _output_of("sysctl", "machdep.cpu.brand_string")):
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "machdep.cpu.brand_string") and value.strip(" -\t"):
                return value.strip()
    return platform.processor() or platform.machine()


def usable_cpus() -> tuple[int, ...]:
    """The processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def vector_isa() -> str:
    """The vector instructions that torch's own kernels use here, for example ``avx512``; ``default`` for none.

    This is what ``ATEN_CPU_CAPABILITY`` and the processor say. Inductor's own choice (``pick_vec_isa``) follows the
    same two, but it compiles and loads test programs first, which takes seconds; it is not asked.
    """
    return torch.backends.cpu.get_cpu_capability().lower()


def _triton_version() -> str | None:
    try:
        triton: Any = importlib.import_module("triton")
    except ImportError:
        return None
    return str(getattr(triton, "__version__", "")) or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def _add_accelerator(common: Environment) -> Environment:
    if torch.cuda.is_available():
        device = torch.cuda.get_device_properties(torch.cuda.current_device())
        return replace(
            common,
            accelerator=device.name,
            accelerator_count=torch.cuda.device_count(),
            accelerator_memory_bytes=device.total_memory,
            compute_capability=f"{device.major}.{device.minor}",
            multiprocessors=device.multi_processor_count,
            cuda=torch.version.cuda or torch.version.hip,
            driver=driver_version(),
        )
    if torch.xpu.is_available():
        xpu: Any = torch.xpu.get_device_properties(torch.xpu.current_device())
        return replace(
            common,
            accelerator=xpu.name,
            accelerator_count=torch.xpu.device_count(),
            accelerator_memory_bytes=xpu.total_memory,
            multiprocessors=getattr(xpu, "gpu_subslice_count", None),
            driver=getattr(xpu, "driver_version", None),
        )
    return replace(common, cuda=torch.version.cuda or torch.version.hip)


def driver_version() -> str | None:
    """The NVIDIA driver's version, from NVML where its Python binding is installed, else from ``nvidia-smi``."""
    return _nvml_driver() or _smi_driver()


def _nvml_driver() -> str | None:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        try:
            version = nvml.nvmlSystemGetDriverVersion()
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def _smi_driver() -> str | None:
    lines = _output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()
    return lines[0] if lines else None


def _output_of(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
