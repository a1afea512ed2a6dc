"""Requests about the kernels that a worker holds: loading, compiling, and listing their configurations.

``number`` identifies a kernel. The parent chooses it in ``Load`` and ``Vary``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..records.tuning import Config
from .request import Answer, Request

Numbered = Callable[[int], Request[Answer]]
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
class Facts:
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
class Change:
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
class Load(Request[Facts]):
    """Imports a standalone file as a kernel."""

    number: int
    file: str


@dataclass(frozen=True)
class TellFacts(Request[Facts]):
    """Requests the facts of a loaded kernel again; ``configs`` adds the configurations of a Triton kernel."""

    number: int
    configs: bool = False


@dataclass(frozen=True)
class Compiled:
    """The resources of a compiled kernel. A value is ``None`` where the compiler does not report it."""

    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True)
class Vary(Request[Compiled]):
    """Makes kernel ``number`` from kernel ``of`` by changing some recorded facts, and compiles it."""

    number: int
    of: int
    change: Change


@dataclass(frozen=True)
class Build(Request[None]):
    """Compiles a kernel with some recorded facts changed, so that the binary is in the compiler's cache."""

    number: int
    change: Change


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
class CompileTriton(Request[Binary]):
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
class Drop(Request[None]):
    """Frees kernels that are no longer needed."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Forget(Request[None]):
    """Frees all kernels and their shared arguments."""


# The configurations in which a kernel can run


@dataclass(frozen=True)
class ListTritonConfigs(Request[TritonConfigs]):
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
class ListLibraryConfigs(Request[LibraryConfigs]):
    """Requests the configurations of a library call; ``wide`` includes Inductor's exhaustive search."""

    number: int
    wide: bool = False
