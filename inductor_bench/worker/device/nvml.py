"""Reads a GPU's processes, memory, utilisation and clock from NVIDIA's driver.

It calls NVML, the C library behind ``nvidia-smi``, which comes with the driver and needs no installation. A figure that
the driver or the device does not have is ``None``.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from typing import Any, NamedTuple

from ..processor import output_of

LIBRARY = "libnvidia-ml.so.1"
SUCCESS, INSUFFICIENT_SIZE = 0, 7
SM_CLOCK = 1
UNKNOWN_BYTES = 2**64 - 1
PREFIXES = ("GPU-", "MIG-")


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint),
        ("bytes", c_ulonglong),
        ("instance", c_uint),
        ("compute_instance", c_uint),
    )


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class GpuProcess(NamedTuple):
    """A process with a context on a GPU."""

    pid: int
    memory_bytes: int | None


class Driver:
    """The driver's view of one GPU.

    Args:
        uuid: the UUID of the GPU, from torch's properties of the device.

    Raises:
        OSError: NVML is missing or does not know the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._library: Any = ctypes.CDLL(LIBRARY)
        self._gpu = c_void_p()
        if self._library.nvmlInit_v2() != SUCCESS:
            raise OSError("NVML does not start")
        names = (f"{prefix}{uuid.removeprefix(prefix)}".encode() for prefix in PREFIXES)
        if not any(self._succeeds("nvmlDeviceGetHandleByUUID", c_char_p(name), byref(self._gpu)) for name in names):
            raise OSError(f"NVML knows no GPU {uuid}")

    def number(self) -> int | None:
        """The number by which ``nvidia-smi`` lists the GPU."""
        found = c_uint()
        return found.value if self._read_figure("nvmlDeviceGetIndex", byref(found)) else None

    def compute_processes(self) -> list[GpuProcess]:
        """The processes that compute. In a container, these are the container's own, or none."""
        drawing = {each.pid for each in self._processes("nvmlDeviceGetGraphicsRunningProcesses_v3")}
        found = self._processes("nvmlDeviceGetComputeRunningProcesses_v3")
        return [each for each in found if each.pid not in drawing]

    def drawing_bytes(self) -> int:
        """The memory in bytes of the processes that draw on a display."""
        return sum(each.memory_bytes or 0 for each in self._processes("nvmlDeviceGetGraphicsRunningProcesses_v3"))

    def used_bytes(self) -> int | None:
        """The used memory in bytes, without the driver's own."""
        memory = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
        return memory.used if self._read_figure("nvmlDeviceGetMemoryInfo_v2", byref(memory)) else None

    def busy(self) -> float | None:
        """The share of the last sampling period, of 1/6 s to 1 s, in which any kernel ran."""
        found = _Utilisation()
        return found.gpu / 100 if self._read_figure("nvmlDeviceGetUtilizationRates", byref(found)) else None

    def clock_mhz(self) -> int | None:
        """The clock of the multiprocessors in MHz."""
        found = c_uint()
        return found.value if self._read_figure("nvmlDeviceGetClockInfo", c_uint(SM_CLOCK), byref(found)) else None

    def highest_clock_mhz(self) -> int | None:
        """The maximum clock of the multiprocessors in MHz."""
        found = c_uint()
        return found.value if self._read_figure("nvmlDeviceGetMaxClockInfo", c_uint(SM_CLOCK), byref(found)) else None

    def clock_limits(self) -> int:
        """The active limits of the clock, as bits of NVML."""
        found = c_ulonglong()
        return found.value if self._read_figure("nvmlDeviceGetCurrentClocksThrottleReasons", byref(found)) else 0

    def _processes(self, function: str) -> list[GpuProcess]:
        count = c_uint(64)  # of a GPU with more processes the first 64 are enough
        found = (_Process * count.value)()
        status = self._call(function, self._gpu, byref(count), found)
        if status not in (SUCCESS, INSUFFICIENT_SIZE):
            return []
        known = found[: min(count.value, len(found))]
        return [GpuProcess(one.pid, None if one.bytes == UNKNOWN_BYTES else one.bytes) for one in known if one.pid]

    def _read_figure(self, function: str, *arguments: Any) -> bool:
        return self._succeeds(function, self._gpu, *arguments)

    def _succeeds(self, function: str, *arguments: Any) -> bool:
        return self._call(function, *arguments) == SUCCESS

    def _call(self, function: str, *arguments: Any) -> int | None:
        """The status that a function of NVML returns; ``None`` where this driver lacks the function."""
        found = getattr(self._library, function, None)
        return None if found is None else int(found(*arguments))


@functools.cache
def driver_of_current_gpu() -> Driver | None:
    """The driver's view of the GPU that torch uses; ``None`` without a GPU or NVML."""
    import torch

    if not torch.cuda.is_available():
        return None
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    try:
        return Driver(str(uuid)) if uuid is not None else None
    except OSError:
        return None


def driver_version() -> str | None:
    """The NVIDIA driver's version, from NVML where its Python binding is installed, otherwise from ``nvidia-smi``."""
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
    lines = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()
    return lines[0] if lines else None
