"""Requests about the kernels that a worker holds: to load, compile, list, check and time them.

One worker runs an edited kernel, another runs the original and judges. The one that judges never loads the edited
kernel. Both exchange the memory of a call as a file: the storages of the launch one after the other, each between two
guard bands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..records.code import Reference
from ..records.retune import Config
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
    """The facts of a kernel that its file records in ``RECORDED``, except those that only the harness needs."""

    name: str = ""
    kernel_id: str = ""
    category: str = ""  # the value of its ``Category``
    calls: int | None = None  # its calls in one iteration of the model
    time_s: float | None = None  # seconds of these calls
    moved_bytes: int | None = None  # bytes of one call
    threads: int | None = None  # the number of CPU threads of the capture
    # how C++ text is compiled and called, in the form of the harness; empty in other languages
    cpp: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TritonConfigs:
    """The configurations of a Triton kernel."""

    now: Config  # the kernel's current configuration
    default: tuple[Config, ...]  # the configurations that Inductor tries by default
    max: tuple[Config, ...]  # the configurations that Inductor tries with max-autotune
    tuned: bool = False  # whether the model was compiled with max-autotune
    # the possible values of each variable field, in order
    ladders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fixed_elements: int = 1  # number of elements of a block in the directions without a field
    limits: str = ""  # the fields that cannot be varied, and the reason


@dataclass(frozen=True)
class VariantFacts:
    """The facts about a kernel that determine its variants."""

    language: str  # ``triton``, ``cpp`` or ``operator``
    device: str  # device type on which the kernel runs
    recorded: RecordedFacts  # the facts that the kernel's file records
    source: str = ""  # the C++ text of the kernel
    processors: int = 1  # number of CPUs that the process may use
    vector_widths: tuple[int, ...] = ()  # vector widths of the processor in bits
    triton: TritonConfigs | None = None  # the configurations of a Triton kernel, if they were requested


@dataclass(frozen=True)
class VariantChange:
    """The recorded facts that a variant changes; a fact that is empty or ``None`` stays as it is."""

    # the configuration of a Triton kernel, or one of Inductor's choices for a library call
    config: Config = field(default_factory=dict)
    source: str = ""  # the C++ text
    # how the C++ text is compiled and called, in the form of the harness
    cpp: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None  # the number of threads of a library call
    cudnn_benchmark: bool | None = None  # whether cuDNN searches for an algorithm

    def list_changed_facts(self) -> dict[str, Any]:
        """Returns the changed entries of the file's ``RECORDED``, by their keys."""
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
    """The resources of a compiled kernel. A value is ``None`` if the compiler does not report it."""

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
    """The size of a compiled Triton kernel, and the resources that it needs."""

    digest: str  # digest of the binary
    shared_memory_bytes: int  # bytes of shared memory per block
    binary_bytes: int  # size of the binary in bytes
    registers: int | None = None  # facts read from the binary; ``None`` if it was not read
    spills: int | None = None  # facts read from the binary; ``None`` if it was not read
    instructions: int | None = None  # facts read from the binary; ``None`` if it was not read
    time_s: float = 0.0  # compile time in seconds


@dataclass(frozen=True)
class CompileTriton(WorkerRequest[Binary]):
    """Compiles a Triton kernel in a configuration without loading it onto a device."""

    number: int  # the kernel
    config: Config | None = None  # the configuration; ``None`` for the kernel's own configuration
    read: bool = True  # whether to read facts from the binary


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
    """The configurations of a library call, one for each algorithm that can execute it."""

    now: Config  # the current configuration
    max: tuple[Config, ...] = ()  # the other configurations that max-autotune chooses from
    wide: tuple[Config, ...] = ()  # the configurations that Inductor's exhaustive search adds
    limits: str = ""  # the configurations that cannot be tried, and the reason


@dataclass(frozen=True)
class ListLibraryConfigs(WorkerRequest[LibraryConfigs]):
    """Requests the configurations of a library call; ``wide`` includes Inductor's exhaustive search."""

    number: int
    wide: bool = False


# Requests to check and to time the kernels that a worker holds.


@dataclass(frozen=True)
class Checked:
    """The result of ``CompareOutputs``. ``difference`` describes the difference in words; empty if the results are
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
    """The outcome of one variant of ``Prepare``."""

    compiled: CompiledResources = field(default_factory=CompiledResources)  # its resources
    difference: str = ""  # the difference of its results, in words; empty if they are equal
    refusal: str = ""  # the reason why it does not compile or run; empty if it does


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
    """The result of ``Verify``. ``passed`` is ``None`` if the file holds no reference."""

    passed: bool | None
    message: str


@dataclass(frozen=True)
class Verify(WorkerRequest[Verified]):
    """Compares the result of a kernel with the reference in its file."""

    number: int


@dataclass(frozen=True)
class MakeReference(WorkerRequest[Reference]):
    """Runs the kernel of a standalone file once, and returns the fingerprint of its outputs."""

    file: str


@dataclass(frozen=True)
class KernelTimes:
    """The times of one kernel, measured alone."""

    cold: tuple[float, ...]  # samples in seconds, with the kernel's data out of the caches
    warm: tuple[float, ...]  # samples in seconds, with the kernel's data in the caches
    method: str = ""  # the method of timing
    # samples by ``cold`` and ``warm`` with zeros for all indices, for kernels that read by indices
    with_zeros: dict[str, tuple[float, ...]] = field(default_factory=dict)
    # median clock of the GPU during the measurement in MHz; ``None`` if the driver does not report it
    clock_mhz: float | None = None
    # relative change of the clock from the first to the last third of the measurement
    clock_change: float | None = None
    throttled: tuple[str, ...] = ()  # the reasons for which the driver lowered the clock


@dataclass(frozen=True)
class Measure(WorkerRequest[KernelTimes]):
    """Times one kernel alone. With ``watch``, the GPU's clock is read during the measurement."""

    number: int
    watch: bool = False


@dataclass(frozen=True)
class Begun:
    """A part of an answer that reports that something begins."""

    # the number of the kernel that begins in ``Prepare`` and ``Sample``, which names the one that crashed or hung;
    # ``None`` before the first one
    number: int | None
    # whether the worker begins to wait for others that use its device. The request's time limit pauses until the next
    # part.
    waits: bool = False


@dataclass(frozen=True)
class Times:
    """The seconds of one call of each kernel, in the requested order."""

    samples_s: tuple[float, ...]  # the samples
    method: str = ""  # the method of timing; empty if no kernel was timed
    retaken: int = 0  # number of attempts that were repeated, because the host was late with a launch


@dataclass(frozen=True)
class Sample(WorkerRequest[Times]):
    """Times one call of each kernel in turn.

    The worker sends ``Begun`` before a step with another kernel: its first launch, its capture or a sample.
    """

    order: tuple[int, ...]  # the kernels in the order of timing
    state: str  # ``cold`` (data out of the caches) or ``warm``


@dataclass(frozen=True)
class Described:
    """The facts about a kernel that are known after it has run."""

    config: Config | None = None  # the configuration of the kernel
    moved_bytes: int | None = None  # bytes read and written per call
    flops: int | None = None  # FLOPs of matrix products per call
    dtype: str | None = None  # the element type of the matrix products
    registers: int | None = None  # registers per thread
    spills: int | None = None  # spilled registers per thread
    shared_memory_bytes: int | None = None  # bytes of shared memory per block


@dataclass(frozen=True)
class Describe(WorkerRequest[Described]):
    """Requests the facts about a kernel that are known after it has run."""

    number: int


RECORDED, OTHER, NUDGED, ROUNDED, LARGE, SMALL, ZERO, INFINITE, NAN = (
    *("recorded", "other", "nudged", "rounded", "large", "small", "zero", "infinite", "nan"),
)
"""The values of a case: the standalone file's values; new random values; the recorded values with a few elements
changed; rounded to eighths; scaled up and down; all zero; with infinities; with NaNs. Whole numbers stay as
recorded."""

FILL_NAN, FILL_PATTERN, FILL_STALE = "nan", "pattern", "stale"
"""What a buffer that is only written holds before the call: NaNs, another pattern, or the results of the last case."""

WRITTEN, OUTSIDE, INPUTS, SPECIAL, WRONG, PRECISION, REPEATED, STALE = (
    *("not-written", "outside", "input-changed", "special-values", "wrong", "precision", "not-repeatable", "stale"),
)
"""The ids of reasons for which a case is refused."""


@dataclass(frozen=True)
class EditCase:
    """How the memory is filled before one checked call of an edited kernel."""

    values: str  # the values of the inputs
    fill: str  # what the buffers that are only written hold
    seed: int  # of what is drawn


@dataclass(frozen=True)
class BufferRoles:
    """What a kernel does with its arguments, by their indices."""

    output_only: tuple[int, ...] = ()  # written and never read
    cleared: tuple[int, ...] = ()  # hold zeros before each call
    scratch: tuple[int, ...] = ()  # written, but no results


@dataclass(frozen=True)
class CompileKernel(WorkerRequest[CompiledResources]):
    """Compiles a loaded kernel."""

    number: int


@dataclass(frozen=True)
class PrepareCase(WorkerRequest[str]):
    """Writes the memory before a call into a file, and runs the original on a copy of it. The answer is the SHA-256 of
    that memory."""

    number: int  # the original
    case: EditCase
    roles: BufferRoles
    before_path: str  # of the file
    reference: str = ""  # the path of a file with a function that computes the same in PyTorch; empty if there is none
    exact: int | None = None  # a kernel that computes the same in float64, from a launch of that type


@dataclass(frozen=True)
class RunCase(WorkerRequest[None]):
    """Runs a kernel on the memory in a file, and writes the memory after the call into another file."""

    number: int
    before_path: str
    after_path: str


@dataclass(frozen=True)
class RepeatCall(WorkerRequest[None]):
    """Runs only a kernel, several times in a row, so that the process that asks can time this with its own clock."""

    number: int
    count: int


@dataclass(frozen=True)
class Judged:
    """The verdict on one call of an edited kernel: the reason why it is refused, if any, and its error."""

    reason: str = ""  # the id of the reason for which it is refused; empty if it is not
    words: str = ""  # that reason in words; ``argument 3`` stands for the name of a parameter
    place: int | None = None  # the argument whose result it is about; ``None`` if that is in the words
    # the largest error of an output's element in comparison with ``against``, as a share of the element and of the root
    # mean square of its tensor; ``None`` without floating-point outputs
    error: float | None = None
    original_error: float | None = None  # that of the original
    limit: float | None = None  # the largest error that is not refused
    against: str = ""  # ``float64``: the same computed in float64; ``original``: the original kernel


@dataclass(frozen=True)
class JudgeCase(WorkerRequest[Judged]):
    """Judges the memory that the edited kernel left behind in the prepared case.

    With ``repeats`` the results have to be bit by bit those of the last judged case, if the original's results are also
    the same in both cases.
    """

    number: int  # the original
    after_path: str
    repeats: bool = False
