"""Requests to check and to time the kernels that a worker holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..records.tuning import Config
from .request import Request


@dataclass(frozen=True)
class Checked:
    """``difference`` is empty where two kernels compute the same; otherwise it says what differs."""

    difference: str = ""


@dataclass(frozen=True)
class Check(Request[Checked]):
    """Compares what two kernels compute from the same arguments."""

    number: int
    against: int


@dataclass(frozen=True)
class Verified:
    """Whether a kernel computes its reference: ``passed`` is ``None`` where there is nothing to compare with."""

    passed: bool | None
    message: str


@dataclass(frozen=True)
class Verify(Request[Verified]):
    """Compares what a kernel computes with the reference in its file."""

    number: int


@dataclass(frozen=True)
class Measured:
    """The times of one kernel by itself: all samples in seconds, and how they were taken.

    Attributes:
        cold: with its data out of the caches.
        warm: with its data in the caches.
        method: how they were taken.
        with_zeros: ``cold`` and ``warm`` with zeros for all indices, where the kernel reads by indices.
        clock_mhz: the GPU's median clock meanwhile, where the driver tells.
        clock_change: what of it changed from the beginning to the end.
        throttled: what held it back.
    """

    cold: tuple[float, ...]
    warm: tuple[float, ...]
    method: str = ""
    with_zeros: dict[str, tuple[float, ...]] = field(default_factory=dict)
    clock_mhz: float | None = None
    clock_change: float | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measure(Request[Measured]):
    """Times a kernel by itself; ``watch`` says whether the GPU's clock is read meanwhile."""

    number: int
    watch: bool = False


@dataclass(frozen=True)
class Begun:
    """A part of the answer to ``Sample``: the kernel that is timed next, which is to blame where no answer comes."""

    number: int


@dataclass(frozen=True)
class Times:
    """Seconds of one call of each kernel, in the order in which they were asked for."""

    samples_s: tuple[float, ...]


@dataclass(frozen=True)
class Sample(Request[Times]):
    """Times one call of each kernel in turn, ``cold`` or ``warm``. The worker says which it begins with: ``Begun``."""

    order: tuple[int, ...]
    state: str


@dataclass(frozen=True)
class Described:
    """What is known of a kernel after it has run. ``dtype`` is what its products are computed in."""

    config: Config | None = None
    moved_bytes: int | None = None
    flops: int | None = None
    dtype: str | None = None
    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True)
class Describe(Request[Described]):
    """Asks what is known of a kernel after it has run."""

    number: int
