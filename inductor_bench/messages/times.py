"""Requests to check and to time the kernels that a worker holds."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..records.tuning import Config
from .kernels import Change, Compiled
from .request import Request


@dataclass(frozen=True)
class Checked:
    """The result of ``Check``. ``difference`` describes the difference in words; empty where the results are equal."""

    difference: str = ""


@dataclass(frozen=True)
class Check(Request[Checked]):
    """Compares the results of two kernels for the same arguments."""

    number: int
    against: int


@dataclass(frozen=True)
class Variant:
    """A change to a kernel, and the number of the kernel that it makes."""

    number: int
    change: Change


@dataclass(frozen=True)
class Prepared:
    """The outcome of one variant of ``Prepare``.

    Attributes:
        compiled: its resources.
        difference: the difference of its results, in words; empty where they are equal.
        refusal: the reason why it does not compile or run; empty where it does.
    """

    compiled: Compiled = field(default_factory=Compiled)
    difference: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Preparation:
    """The outcomes of the variants of ``Prepare``, in their order."""

    variants: tuple[Prepared, ...]


@dataclass(frozen=True)
class Prepare(Request[Preparation]):
    """Makes and compiles variants of kernel ``of``, and compares the results of each with those of ``of``.

    The worker sends ``Begun`` before it makes each variant, and before it compares each.
    """

    of: int
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class Verified:
    """The result of ``Verify``. ``passed`` is ``None`` where the file holds no reference."""

    passed: bool | None
    message: str


@dataclass(frozen=True)
class Verify(Request[Verified]):
    """Compares the result of a kernel with the reference in its file."""

    number: int


@dataclass(frozen=True)
class Measured:
    """The times of one kernel by itself.

    Attributes:
        cold: samples in seconds, with the kernel's data out of the caches.
        warm: samples in seconds, with the kernel's data in the caches.
        method: the method of timing.
        with_zeros: samples by ``cold`` and ``warm`` with zeros for all indices, for kernels that read by indices.
        clock_mhz: median clock of the GPU during the measurement in MHz; ``None`` where the driver does not report it.
        clock_change: relative change of the clock from the first to the last third of the measurement.
        throttled: the reasons for which the driver lowered the clock.
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
    """Times a kernel by itself. With ``watch``, the GPU's clock is read during the measurement."""

    number: int
    watch: bool = False


@dataclass(frozen=True)
class Begun:
    """A part of an answer that tells of a beginning.

    Attributes:
        number: the number of the kernel that begins in ``Prepare`` and ``Sample``, which names the one that crashed or
            hung; ``None`` before the first one.
        waits: whether the worker begins to wait for others that use its device. The request's time limit pauses until
            the next part.
    """

    number: int | None
    waits: bool = False


@dataclass(frozen=True)
class Times:
    """The seconds of one call of each kernel, in the requested order.

    Attributes:
        samples_s: the samples.
        method: the method of timing; empty where no kernel was timed.
        retaken: number of attempts that were repeated, because the host was late with a launch.
    """

    samples_s: tuple[float, ...]
    method: str = ""
    retaken: int = 0


@dataclass(frozen=True)
class Sample(Request[Times]):
    """Times one call of each kernel in turn.

    The worker sends ``Begun`` before a step with another kernel: its first launch, its capture or a sample.

    Attributes:
        order: the kernels in the order of timing.
        state: ``cold`` (data out of the caches) or ``warm``.
    """

    order: tuple[int, ...]
    state: str


@dataclass(frozen=True)
class Described:
    """The facts about a kernel that are known after it has run.

    Attributes:
        config: the configuration of the kernel.
        moved_bytes: bytes read and written per call.
        flops: FLOPs of matrix products per call.
        dtype: the element type of the matrix products.
        registers: registers per thread.
        spills: spilled registers per thread.
        shared_memory_bytes: bytes of shared memory per block.
    """

    config: Config | None = None
    moved_bytes: int | None = None
    flops: int | None = None
    dtype: str | None = None
    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True)
class Describe(Request[Described]):
    """Requests the facts about a kernel that are known after it has run."""

    number: int
