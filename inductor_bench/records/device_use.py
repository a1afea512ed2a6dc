"""The use of a GPU by processes of other jobs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OtherProcess:
    """A process of another job that has a context on the GPU. ``name`` is empty where it cannot be read."""

    pid: int
    name: str = ""
    memory_bytes: int | None = None


@dataclass(frozen=True)
class DeviceUse:
    """The use of a GPU, sampled while this tool runs nothing on it.

    In a container other processes may be hidden; ``busy`` and ``held_bytes`` still show their use.

    Attributes:
        gpu: the number of the GPU in ``nvidia-smi``.
        processes: other jobs' processes on the GPU.
        busy: the share of the time in which kernels ran, 0 to 1.
        held_bytes: device memory that other processes hold.
    """

    gpu: int | None = None
    processes: tuple[OtherProcess, ...] = ()
    busy: float | None = None
    held_bytes: int | None = None
