"""The record of one run. ``record.json`` is the JSON of :class:`Run`."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Failure, Inline
from .code import CompiledFunction, CompilePhase
from .module import ModuleRecord
from .program import Program
from .request import BreakdownRequest
from .retune import Retune, Verification


@dataclass(frozen=True)
class Versions:
    """The versions of the software."""

    python: str = ""  # the version of Python
    torch: str = ""  # the version of torch
    triton: str | None = None  # the version of Triton; ``None`` if it is not installed


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

    accelerator: str | None = None  # its name; ``None`` if torch sees none
    accelerator_count: int = 0  # the number of accelerators
    accelerator_memory_bytes: int | None = None  # the memory of one
    compute_capability: str | None = None  # the architecture, for example ``9.0``; ``None`` if torch tells none
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
    memory_bandwidth: float  # the bandwidth of large copies in the device's memory
    matmul_flops: dict[str, float]  # dense FLOPs per second by dtype (``float16``, ``bfloat16``, ``float32``, ``tf32``)
    cache_bytes: int | None = None  # size of the L2 cache of a GPU, of the last-level cache of a CPU
    cache_bandwidth: float | None = None  # the bandwidth of data in the cache
    launch_floor_s: float | None = None  # device seconds of an empty kernel; GPU only
    threads: int | None = None  # the number of threads that were used; CPU only
    torch: str = ""  # the version of torch that measured
    measured_at: str = ""  # the time of the measurement (ISO 8601)


@dataclass(frozen=True)
class Capture:
    """The capture of the modules."""

    printed: int = 0  # the number of modules in the printed lines
    structured: int = 0  # the number of modules in the structured trace
    disagreement: str = ""  # the difference between the two; empty if they agree
    exit_code: int | None = None  # the program's exit code
    time_s: float | None = None  # seconds that the capture took
    graph_breaks: tuple[str, ...] = ()  # torch's messages about graph breaks
    recompiles: tuple[str, ...] = ()  # torch's messages about recompilations
    functions: tuple[CompiledFunction, ...] = ()  # those that were compiled again, or that have many guards
    uncompiled: str = ""  # why the program compiled nothing; empty if it did, and if no reason was observed
    # what compilation took, the longest phase first, with empty caches. Of several processes it is that of the one that
    # compiled longest. Empty where an earlier run compiled a module and what that took is not known.
    compile_phases: tuple[CompilePhase, ...] = ()
    compiled_earlier: int = 0  # the number of modules that an earlier run compiled, and that this one took from a cache
    compiled_at: str = ""  # when the latest of them was compiled (ISO 8601); empty where none was


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
    peaks: Peaks | None = None  # the measured peaks of the device; ``None`` if they were not measured
    no_peaks: str = ""  # why measured peaks do not count: the machine was busy; empty if they do, or were not measured
    capture: Capture = field(default_factory=Capture)  # what the capture of the program found
    modules: tuple[ModuleRecord, ...] = ()  # the compiled modules
    failures: tuple[Failure, ...] = ()  # the steps that failed
    retunes: tuple[Retune, ...] = ()  # the retunes of the most expensive kernels
    # the program's step; ``None`` for a target that is no program, and if no step was found
    program: Program | None = None
    # what the retunes save in the program; ``None`` if that was not measured
    verification: Verification | None = None
