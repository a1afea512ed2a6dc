"""Requests about the kernels that a worker holds: to load, compile, list, check and time them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..records.tuning import Config
from .job_requests import Answer, WorkerRequest

# Requests about the kernels that a worker holds: loading, compiling, and listing their configurations.
#
# ``number`` identifies a kernel. The parent chooses it in ``Load`` and ``Vary``.


Numbered = Callable[[int], WorkerRequest[Answer]]
"""Makes a request about one kernel from the kernel's number."""


class Ask(Protocol):
    """Sends a worker a request about one loaded kernel and returns the answer."""

    def __call__(self, request: Numbered[Answer]) -> Answer: ...


@dataclass(frozen=True)
class RecordedFacts:
    """The facts of a kernel that its file records in ``RECORDED``, without those that only the harness needs.

    Attributes:
        category: the value of its ``Category``.
        calls: its calls in one iteration of the model.
        time_s: seconds of these calls.
        moved_bytes: bytes of one call.
        threads: the number of CPU threads of the capture.
        cpp: how C++ text is compiled and called, in the form of the harness; empty in other languages.
    """

    name: str = ""
    kernel_id: str = ""
    category: str = ""
    calls: int | None = None
    time_s: float | None = None
    moved_bytes: int | None = None
    threads: int | None = None
    cpp: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TritonConfigs:
    """The configurations of a Triton kernel.

    Attributes:
        now: the kernel's current configuration.
        default: the configurations that Inductor tries by default.
        max: the configurations that Inductor tries with max-autotune.
        tuned: whether the model was compiled with max-autotune.
        ladders: the possible values of each variable field, in order.
        fixed_elements: number of elements of a block in the directions without a field.
        limits: the fields that cannot be varied, and the reason.
    """

    now: Config
    default: tuple[Config, ...]
    max: tuple[Config, ...]
    tuned: bool = False
    ladders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fixed_elements: int = 1
    limits: str = ""


@dataclass(frozen=True)
class VariantFacts:
    """The facts about a kernel that determine its variants.

    Attributes:
        language: ``triton``, ``cpp`` or ``operator``.
        device: device type on which the kernel runs.
        recorded: the facts that the kernel's file records.
        source: the C++ text of the kernel.
        processors: number of CPUs that the process may use.
        vector_widths: vector widths of the processor in bits.
        triton: the configurations of a Triton kernel, where they were requested.
    """

    language: str
    device: str
    recorded: RecordedFacts
    source: str = ""
    processors: int = 1
    vector_widths: tuple[int, ...] = ()
    triton: TritonConfigs | None = None


@dataclass(frozen=True)
class VariantChange:
    """The recorded facts that a variant changes; a fact that is empty or ``None`` stays as it is.

    Attributes:
        config: the configuration of a Triton kernel, or one of Inductor's choices for a library call.
        source: the C++ text.
        cpp: how the C++ text is compiled and called, in the form of the harness.
        threads: the number of threads of a library call.
        cudnn_benchmark: whether cuDNN searches for an algorithm.
    """

    config: Config = field(default_factory=dict)
    source: str = ""
    cpp: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None
    cudnn_benchmark: bool | None = None

    def recorded(self) -> dict[str, Any]:
        """The changed entries of the file's ``RECORDED``, by their keys."""
        entries = {
            "config": self.config or None,
            "cpp": self.cpp or None,
            "threads": self.threads,
            "cudnn_benchmark": self.cudnn_benchmark,
        }
        return {key: value for key, value in entries.items() if value is not None}


@dataclass(frozen=True)
class Load(WorkerRequest[VariantFacts]):
    """Imports a standalone file as a kernel."""

    number: int
    file: str


@dataclass(frozen=True)
class TellFacts(WorkerRequest[VariantFacts]):
    """Requests the facts of a loaded kernel again; ``configs`` adds the configurations of a Triton kernel."""

    number: int
    configs: bool = False


@dataclass(frozen=True)
class CompiledResources:
    """The resources of a compiled kernel. A value is ``None`` where the compiler does not report it."""

    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True)
class Vary(WorkerRequest[CompiledResources]):
    """Makes kernel ``number`` from kernel ``of`` by changing some recorded facts, and compiles it."""

    number: int
    of: int
    change: VariantChange


@dataclass(frozen=True)
class Build(WorkerRequest[None]):
    """Compiles a kernel with some recorded facts changed, so that the binary is in the compiler's cache."""

    number: int
    change: VariantChange


@dataclass(frozen=True)
class Binary:
    """A compiled Triton kernel.

    Attributes:
        digest: digest of the binary.
        shared_memory_bytes: bytes of shared memory per block.
        binary_bytes: size of the binary in bytes.
        registers, spills, instructions: facts read from the binary; ``None`` where it was not read.
        time_s: compile time in seconds.
    """

    digest: str
    shared_memory_bytes: int
    binary_bytes: int
    registers: int | None = None
    spills: int | None = None
    instructions: int | None = None
    time_s: float = 0.0


@dataclass(frozen=True)
class CompileTriton(WorkerRequest[Binary]):
    """Compiles a Triton kernel in a configuration without loading it onto a device.

    Attributes:
        number: the kernel.
        config: the configuration; ``None`` for the kernel's own configuration.
        read: whether to read facts from the binary.
    """

    number: int
    config: Config | None = None
    read: bool = True


@dataclass(frozen=True)
class Drop(WorkerRequest[None]):
    """Frees kernels that are no longer needed."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Forget(WorkerRequest[None]):
    """Frees all kernels and their shared arguments."""


# The configurations in which a kernel can run


@dataclass(frozen=True)
class ListTritonConfigs(WorkerRequest[TritonConfigs]):
    """Requests the configurations in which a Triton kernel can run."""

    number: int


@dataclass(frozen=True)
class LibraryConfigs:
    """The configurations of a library call, one for each algorithm that can execute it.

    Attributes:
        now: the current configuration.
        max: the other configurations that max-autotune chooses from.
        wide: the configurations that Inductor's exhaustive search adds.
        limits: the configurations that cannot be tried, and the reason.
    """

    now: Config
    max: tuple[Config, ...] = ()
    wide: tuple[Config, ...] = ()
    limits: str = ""


@dataclass(frozen=True)
class ListLibraryConfigs(WorkerRequest[LibraryConfigs]):
    """Requests the configurations of a library call; ``wide`` includes Inductor's exhaustive search."""

    number: int
    wide: bool = False


# Requests to check and to time the kernels that a worker holds.


@dataclass(frozen=True)
class Checked:
    """The result of ``CompareOutputs``. ``difference`` describes the difference in words; empty where the results are
    equal.
    """

    difference: str = ""


@dataclass(frozen=True)
class CompareOutputs(WorkerRequest[Checked]):
    """Compares the results of two kernels for the same arguments."""

    number: int
    against: int


@dataclass(frozen=True)
class Variant:
    """A change to a kernel, and the number of the kernel that it makes."""

    number: int
    change: VariantChange


@dataclass(frozen=True)
class Prepared:
    """The outcome of one variant of ``Prepare``.

    Attributes:
        compiled: its resources.
        difference: the difference of its results, in words; empty where they are equal.
        refusal: the reason why it does not compile or run; empty where it does.
    """

    compiled: CompiledResources = field(default_factory=CompiledResources)
    difference: str = ""
    refusal: str = ""


@dataclass(frozen=True)
class Preparation:
    """The outcomes of the variants of ``Prepare``, in their order."""

    variants: tuple[Prepared, ...]


@dataclass(frozen=True)
class Prepare(WorkerRequest[Preparation]):
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
class Verify(WorkerRequest[Verified]):
    """Compares the result of a kernel with the reference in its file."""

    number: int


@dataclass(frozen=True)
class KernelTimes:
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
class Measure(WorkerRequest[KernelTimes]):
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
class Sample(WorkerRequest[Times]):
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
class Describe(WorkerRequest[Described]):
    """Requests the facts about a kernel that are known after it has run."""

    number: int
