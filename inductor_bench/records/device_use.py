"""Who uses a GPU beside this tool."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class OtherProcess:
    """A process of another job that has a context on the GPU; ``name`` is empty where it cannot be seen from here."""

    pid: int
    name: str = ""
    memory_bytes: int | None = None


@dataclass(frozen=True)
class DeviceUse:
    """A GPU while this tool lets it idle.

    ``gpu`` is the number by which ``nvidia-smi`` lists it. In a container the processes of others may be hidden: then
    ``busy``, the share of the time in which kernels ran, and ``held_bytes``, the memory that is taken, tell of them.
    """

    gpu: int | None = None
    processes: tuple[OtherProcess, ...] = ()
    busy: float | None = None
    held_bytes: int | None = None
