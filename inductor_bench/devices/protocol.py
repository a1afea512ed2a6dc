"""The protocol of a kind of device: facts that determine what is measured, and names for texts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from ..records.run import Environment


@dataclass(frozen=True)
class Words:
    """The names that texts use for the parts and quantities of a device."""

    family: str  # the devices of this kind, such as ``CUDA``
    calls: str  # the calls of a kernel
    outside: str  # the wall time in which no kernel runs
    memory: str  # the memory of the device
    cache: str  # the last-level cache, in a table column
    whole_cache: str  # the last-level cache, in a sentence
    generated: str  # the kernels that Inductor writes
    generated_at_peaks: str  # the kernels that Inductor writes, beside a possible saving
    library: str  # the kernels that libraries execute
    bound: str  # the beginning of a sentence about a program that keeps the device busy


class Device(Protocol):
    """A kind of device. Each kind is described in a file of this folder; ``table`` finds it."""

    type: str
    """Torch's name of the device type, without an index."""

    words: Words

    runs_on_host: bool
    """Whether the host executes the kernels. There are then no launches and no idle device, and the number of threads
    affects the times."""

    generates_triton: bool
    """Whether Inductor writes the kernels for the device in Triton."""

    suggests_tuning: bool
    """Whether findings may suggest max-autotune and other library algorithms."""

    has_launch_floor: bool
    """Whether the measured peaks include the time of an empty kernel."""

    has_tf32: bool
    """Whether a program can let the device compute float32 matrix products in TF32."""

    library_switches: tuple[str, ...]
    """The names of torch's switches that select kernels of library calls (see ``worker.profile.module_profile``)."""

    has_hardware_counters: bool
    """Whether Nsight Compute can read hardware counters of a kernel."""

    alignment_bytes: int
    """Alignment in bytes of the buffers from torch's allocator."""

    def name_in(self, environment: Environment) -> str | None:
        """Returns the name of the device of this kind in an environment; ``None`` if there is none."""

    def peaks_depend_on(self, environment: Environment) -> list[str]:
        """Returns the facts of an environment that determine its peaks, beside the version of torch."""

    def theoretical_occupancy(
        self, environment: Environment, warps: int | None, registers: int | None, shared_memory_bytes: int | None
    ) -> float | None:
        """Returns the share (0 to 1) of a multiprocessor's warps that can be resident.

        Args:
            environment: the environment in which the kernel runs.
            warps: number of warps per block.
            registers: number of registers per thread.
            shared_memory_bytes: bytes of shared memory per block.

        Returns:
            The share, or ``None`` if the limits of the device are unknown.
        """


# The default description of an accelerator: the host launches its kernels, and it may idle between them.
#
# A record of a device type without a file in this folder, such as ``xpu``, uses this description.


class Accelerator:
    """An accelerator with default properties.

    Args:
        type: torch's name of the device type.
        family: the name of such devices in texts; ``type`` if empty.
    """

    runs_on_host = False
    generates_triton = True
    suggests_tuning = True
    has_launch_floor = True
    has_tf32 = False
    library_switches: tuple[str, ...] = ()
    has_hardware_counters = False
    alignment_bytes = 256

    def __init__(self, type: str, family: str = "") -> None:
        self.type = type
        self.words = Words(
            family=family or type,
            calls="launches",
            outside="idle",
            memory="DRAM",
            cache="L2",
            whole_cache="L2",
            generated="generated kernels",
            generated_at_peaks="generated kernels at their peaks",
            library="library kernels",
            bound="GPU-bound: ",
        )

    def name_in(self, environment: Environment) -> str | None:
        return environment.device.accelerator

    def peaks_depend_on(self, environment: Environment) -> list[str]:
        units = f"{environment.device.multiprocessors} units" if environment.device.multiprocessors else ""
        driver = re.split(r"[.+]", environment.device.driver or "unknown")[0]
        return [environment.device.accelerator or self.type, units, f"driver {driver}"]

    def theoretical_occupancy(
        self, environment: Environment, warps: int | None, registers: int | None, shared_memory_bytes: int | None
    ) -> float | None:
        return None


# Describes the CPU. The host executes the kernels, which Inductor writes in C++.


class _Cpu:
    type = "cpu"
    words = Words(
        family="CPU",
        calls="calls",
        outside="host",
        memory="memory",
        cache="cache",
        whole_cache="the last-level cache",
        generated="generated C++",
        generated_at_peaks="generated C++ at its peaks",
        library="library calls",
        bound="",
    )
    runs_on_host = True
    generates_triton = False
    suggests_tuning = False
    has_launch_floor = False
    has_tf32 = False
    library_switches: tuple[str, ...] = ("mkldnn_bf16",)
    has_hardware_counters = False
    alignment_bytes = 64

    def name_in(self, environment: Environment) -> str | None:
        return environment.host.cpu

    def peaks_depend_on(self, environment: Environment) -> list[str]:
        threads = f"{environment.host.threads or environment.host.cpu_count} threads"
        return [environment.host.cpu, environment.host.vector_isa or "", threads]

    def theoretical_occupancy(
        self, environment: Environment, warps: int | None, registers: int | None, shared_memory_bytes: int | None
    ) -> float | None:
        return None


CPU: Device = _Cpu()
