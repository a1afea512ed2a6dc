"""What every room needs to know of a kind of device: facts that decide what is measured, and words for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ..records.run import Environment


@dataclass(frozen=True)
class Words:
    """The names of a device's things in texts.

    ``family`` names such devices (``CUDA``). ``calls`` are a kernel's calls and ``outside`` the wall time in which no
    kernel runs. ``memory`` is the device's memory; ``cache`` is its last-level cache in a column, ``whole_cache`` the
    same in a sentence. ``generated`` are the kernels that Inductor writes, ``generated_at_peaks`` the same beside a
    saving, ``library`` what libraries execute. ``bound`` begins a sentence about a program that keeps the device busy.
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
    """A kind of device. One file of this room has each; ``table`` finds it."""

    type: str
    """Torch's name of the device type, without a number."""

    words: Words

    runs_on_host: bool
    """The host executes the kernels itself: nothing is launched, no device idles, and threads decide the times."""

    generates_triton: bool
    """Inductor writes its kernels for the device in Triton."""

    suggests_tuning: bool
    """Findings may suggest max-autotune and other library algorithms for it."""

    has_launch_floor: bool
    """Its peaks include the time of an empty kernel."""

    has_tf32: bool
    """A switch of the program lets it compute float32 products in TF32."""

    has_library_switches: bool
    """Torch has switches for its libraries (see ``worker.switches``), which decide what a library call executes."""

    has_hardware_counters: bool
    """Nsight Compute can count what a kernel does."""

    alignment_bytes: int
    """The alignment that torch's allocator gives to every buffer."""

    def name_in(self, environment: Environment) -> str | None:
        """The name of the device of this kind in an environment; ``None`` where it has none."""

    def peaks_depend_on(self, environment: Environment) -> list[str]:
        """What measured peaks depend on, beside the version of torch."""

    def theoretical_occupancy(
        self, environment: Environment, warps: int | None, registers: int | None, shared_memory_bytes: int | None
    ) -> float | None:
        """The share (0 to 1) of a multiprocessor's warps that can be resident; ``None`` where no limits are known.

        Args:
            environment: where the kernel runs.
            warps: of one block.
            registers: of one thread.
            shared_memory_bytes: of one block.
        """
