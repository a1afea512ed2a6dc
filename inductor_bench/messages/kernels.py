"""Requests about the kernels that a worker holds: loading, compiling, the configurations that they can be run in.

``number`` is what the parent calls a kernel by; it chooses the number with ``Load`` and ``Vary``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ..records.tuning import Config
from .request import Answer, Request

Change = dict[str, Any]
"""The recorded facts that are new in a variant, by their names in the standalone file; ``source`` is the C++ text."""

Numbered = Callable[[int], Request[Answer]]
"""A request about one kernel, which lacks the kernel's number."""


class Ask(Protocol):
    """Asks a worker about one kernel that it has loaded."""

    def __call__(self, request: Numbered[Answer]) -> Answer: ...


@dataclass(frozen=True)
class Facts:
    """What a kernel is, and what its variants need to know.

    Attributes:
        language: ``triton``, ``cpp`` or ``operator``.
        device: the device type that it runs on.
        recorded: what its file records, less the launch.
        source: the C++ text.
        processors: the CPUs that the process may use.
        vector_widths: the widths in bits of the vectors that the processor has.
    """

    language: str
    device: str
    recorded: dict[str, Any]
    source: str = ""
    processors: int = 1
    vector_widths: tuple[int, ...] = ()


@dataclass(frozen=True)
class Load(Request[Facts]):
    """Imports a standalone file as a kernel."""

    number: int
    file: str


@dataclass(frozen=True)
class TellFacts(Request[Facts]):
    """Asks again for what ``Load`` answered."""

    number: int


@dataclass(frozen=True)
class Compiled:
    """What a kernel was compiled to, as far as its compiler tells."""

    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None


@dataclass(frozen=True)
class Vary(Request[Compiled]):
    """Makes kernel ``number`` from kernel ``of`` with some recorded facts changed, and compiles it."""

    number: int
    of: int
    change: Change


@dataclass(frozen=True)
class Build(Request[None]):
    """Compiles a kernel with some recorded facts changed, so that the compiler's cache has it."""

    number: int
    change: Change


@dataclass(frozen=True)
class Binary:
    """A compiled Triton kernel. The ``digest`` is that of its binary; ``time_s`` is how long it took to compile.

    ``registers``, ``spills`` and ``instructions`` are there where the binary was read.
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
    """Compiles a Triton kernel in a configuration, ``None`` for that which it has; it is loaded onto no device.

    ``read`` says whether the binary is read.
    """

    number: int
    config: Config | None = None
    read: bool = True


@dataclass(frozen=True)
class Drop(Request[None]):
    """Frees kernels that are asked about no more."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Forget(Request[None]):
    """Frees every kernel, and the arguments that they share."""


# The configurations that a kernel can be run in


@dataclass(frozen=True)
class TritonConfigs:
    """The configurations of a Triton kernel.

    Attributes:
        now: the one that it has.
        default: those that Inductor tries.
        max: those that it tries with max-autotune.
        tuned: whether the model was compiled with max-autotune.
        ladders: the values of each field that can be varied, in order.
        fixed_elements: of a block, in directions that no field gives.
        limits: what cannot be varied, and why.
    """

    now: Config
    default: tuple[Config, ...]
    max: tuple[Config, ...]
    tuned: bool = False
    ladders: dict[str, tuple[int, ...]] = field(default_factory=dict)
    fixed_elements: int = 1
    limits: str = ""


@dataclass(frozen=True)
class ListTritonConfigs(Request[TritonConfigs]):
    """Asks for the configurations that a Triton kernel can be run in."""

    number: int


@dataclass(frozen=True)
class LibraryConfigs:
    """The ways to make a library call.

    Attributes:
        now: as it is.
        max: the others that max-autotune chooses from.
        wide: those that Inductor's exhaustive search adds.
        limits: what cannot be tried, and why.
    """

    now: Config
    max: tuple[Config, ...] = ()
    wide: tuple[Config, ...] = ()
    limits: str = ""


@dataclass(frozen=True)
class ListLibraryConfigs(Request[LibraryConfigs]):
    """Asks for the ways to make a library call, and whether with those of Inductor's exhaustive search."""

    number: int
    wide: bool = False
