"""The record of one run. ``record.json`` is the JSON of :class:`Run`."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Failure, Inline
from .code import CompilePhase
from .module import ModuleRecord
from .program import Program
from .request import BreakdownRequest
from .retune import Retune, Verification


@dataclass(frozen=True)
class Versions:
    """The versions of the software."""

    python: str = ""  # the version of Python
    torch: str = ""  # the version of torch
    triton: str | None = None  # the version of Triton; ``None`` where it is not installed


@dataclass(frozen=True)
class Host:
    """The processor and the main memory."""

    cpu: str = ""  # the name of the processor
    cpu_count: int = 0  # the number of CPUs that the process may use
    threads: int | None = None  # the number of torch's threads
    vector_isa: str | None = None  # the vector instructions for which Inductor generates C++
    memory_bytes: int | None = None  # the machine's main memory


@dataclass(frozen=True)
class AcceleratorFacts:
    """The accelerator that torch uses."""

    accelerator: str | None = None  # its name; ``None`` where torch sees none
    accelerator_count: int = 0  # the number of accelerators
    accelerator_memory_bytes: int | None = None  # the memory of one
    compute_capability: str | None = None  # the architecture, for example ``9.0``; ``None`` where torch tells none
    multiprocessors: int | None = None  # the number of its multiprocessors
    cuda: str | None = None  # the version of CUDA or HIP for which torch was built
    driver: str | None = None  # the version of the driver


@dataclass(frozen=True)
class Environment:
    """The machine and the versions."""

    versions: Inline[Versions] = Versions()  # the versions of the software
    platform: str = ""  # the operating system and its version
    host: Inline[Host] = Host()  # the processor and the main memory
    device: Inline[AcceleratorFacts] = AcceleratorFacts()  # the accelerator
    # selected environment variables: those that change compilation or speed
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peaks:
    """The measured peaks of a device: the roofs to which shares of peak refer."""

    device: str  # the name of the device
    memory_bandwidth: float  # of large copies in the device's memory
    matmul_flops: dict[str, float]  # dense FLOPs per second by dtype (``float16``, ``bfloat16``, ``float32``, ``tf32``)
    cache_bytes: int | None = None  # size of the L2 cache of a GPU, of the last-level cache of a CPU
    cache_bandwidth: float | None = None  # of data in the cache
    launch_floor_s: float | None = None  # device seconds of an empty kernel; GPU only
    threads: int | None = None  # the number of threads that were used; CPU only
    torch: str = ""  # the version of torch that measured
    measured_at: str = ""  # the time of the measurement (ISO 8601)


@dataclass(frozen=True)
class Capture:
    """The capture of the modules."""

    printed: int = 0  # the number of modules in the printed lines
    structured: int = 0  # the number of modules in the structured trace
    disagreement: str = ""  # the difference between the two; empty where they agree
    exit_code: int | None = None  # the program's exit code
    time_s: float | None = None  # seconds that the capture took
    graph_breaks: tuple[str, ...] = ()  # torch's messages about graph breaks
    recompiles: tuple[str, ...] = ()  # torch's messages about recompilations
    uncompiled: str = ""  # why the program compiled nothing; empty where it did, and where no reason was observed
    # what compilation took, the longest phase first, with empty caches. Of several processes it is that of the one that
    # compiled longest.
    compile_phases: tuple[CompilePhase, ...] = ()


@dataclass(frozen=True)
class Run:
    """A whole run."""

    format: int  # the schema number
    tool_version: str  # the version of inductor-bench that wrote the record
    run_id: str  # a unique name of the run
    created: str  # the time at which the run began (ISO 8601)
    command: str  # the command line, without secrets
    target: str  # what was measured, as it was typed
    title: str  # the name of the run in reports
    request: BreakdownRequest  # the options of the run
    environment: Environment  # the machine and the versions
    peaks: Peaks | None = None  # the measured peaks of the device; ``None`` where they were not measured
    capture: Capture = field(default_factory=Capture)  # what capturing the program told
    modules: tuple[ModuleRecord, ...] = ()  # the compiled modules
    failures: tuple[Failure, ...] = ()  # the steps that failed
    retunes: tuple[Retune, ...] = ()  # the retunes of the most expensive kernels
    # the program's step; ``None`` for a target that is no program, and where no step was found
    program: Program | None = None
    # what the retunes save in the program; ``None`` where that was not measured
    verification: Verification | None = None
