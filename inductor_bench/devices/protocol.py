"""The protocol of a kind of device: facts that determine what is measured, and names for texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..records.run import Environment


@dataclass(frozen=True)
class Words:
    """The names that texts use for the parts and quantities of a device.

    Attributes:
        family: the devices of this kind, such as ``CUDA``.
        calls: the calls of a kernel.
        outside: the wall time in which no kernel runs.
        memory: the memory of the device.
        cache: the last-level cache, in a table column.
        whole_cache: the last-level cache, in a sentence.
        generated: the kernels that Inductor writes.
        generated_at_peaks: the kernels that Inductor writes, beside a possible saving.
        library: the kernels that libraries execute.
        bound: the beginning of a sentence about a program that keeps the device busy.
    """

    family: str
    calls: str
    outside: str
    memory: str
    cache: str
    whole_cache: str
    generated: str
    generated_at_peaks: str
    library: str
    bound: str


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
    """Whether a program can let the device compute float32 products in TF32."""

    has_library_switches: bool
    """Whether torch has switches that select the kernels of library calls (see ``worker.switches``)."""

    has_hardware_counters: bool
    """Whether Nsight Compute can read hardware counters of a kernel."""

    alignment_bytes: int
    """Alignment in bytes of the buffers from torch's allocator."""

    def name_in(self, environment: Environment) -> str | None:
        """Returns the name of the device of this kind in an environment; ``None`` where there is none."""

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
            The share, or ``None`` where the limits of the device are unknown.
        """
