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
    """The versions of the software.

    Attributes:
        python: the version of Python.
        torch: the version of torch.
        triton: the version of Triton; ``None`` where it is not installed.
    """

    python: str = ""
    torch: str = ""
    triton: str | None = None


@dataclass(frozen=True)
class Host:
    """The processor and the main memory.

    Attributes:
        cpu: the name of the processor.
        cpu_count: the number of CPUs that the process may use.
        threads: the number of torch's threads.
        vector_isa: the vector instructions for which Inductor generates C++.
        memory_bytes: the machine's main memory.
    """

    cpu: str = ""
    cpu_count: int = 0
    threads: int | None = None
    vector_isa: str | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class AcceleratorFacts:
    """The accelerator that torch uses.

    Attributes:
        accelerator: its name; ``None`` where torch sees none.
        accelerator_count: the number of accelerators.
        accelerator_memory_bytes: the memory of one.
        compute_capability: the architecture, for example ``9.0``; ``None`` where torch tells none.
        multiprocessors: the number of its multiprocessors.
        cuda: the version of CUDA or HIP for which torch was built.
        driver: the version of the driver.
    """

    accelerator: str | None = None
    accelerator_count: int = 0
    accelerator_memory_bytes: int | None = None
    compute_capability: str | None = None
    multiprocessors: int | None = None
    cuda: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class Environment:
    """The machine and the versions.

    Attributes:
        versions: the versions of the software.
        platform: the operating system and its version.
        host: the processor and the main memory.
        device: the accelerator.
        variables: selected environment variables: those that change compilation or speed.
    """

    versions: Inline[Versions] = Versions()
    platform: str = ""
    host: Inline[Host] = Host()
    device: Inline[AcceleratorFacts] = AcceleratorFacts()
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peaks:
    """The measured peaks of a device: the roofs to which shares of peak refer.

    Attributes:
        device: the name of the device.
        memory_bandwidth: of large copies in the device's memory.
        matmul_flops: dense FLOPs per second by dtype (``float16``, ``bfloat16``, ``float32``, ``tf32``).
        cache_bytes: size of the L2 cache of a GPU, of the last-level cache of a CPU.
        cache_bandwidth: of data in the cache.
        launch_floor_s: device seconds of an empty kernel; GPU only.
        threads: the number of threads that were used; CPU only.
        torch: the version of torch that measured.
        measured_at: the time of the measurement (ISO 8601).
    """

    device: str
    memory_bandwidth: float
    matmul_flops: dict[str, float]
    cache_bytes: int | None = None
    cache_bandwidth: float | None = None
    launch_floor_s: float | None = None
    threads: int | None = None
    torch: str = ""
    measured_at: str = ""


@dataclass(frozen=True)
class Capture:
    """The capture of the modules.

    Attributes:
        printed: the number of modules in the printed lines.
        structured: the number of modules in the structured trace.
        disagreement: the difference between the two; empty where they agree.
        exit_code: the program's exit code.
        time_s: seconds that the capture took.
        graph_breaks: torch's messages about graph breaks.
        recompiles: torch's messages about recompilations.
        compile_phases: what compilation took, the longest phase first, with empty caches. Of several processes it is
            that of the one that compiled longest.
    """

    printed: int = 0
    structured: int = 0
    disagreement: str = ""
    exit_code: int | None = None
    time_s: float | None = None
    graph_breaks: tuple[str, ...] = ()
    recompiles: tuple[str, ...] = ()
    compile_phases: tuple[CompilePhase, ...] = ()


@dataclass(frozen=True)
class Run:
    """A whole run.

    Attributes:
        format: the schema number.
        tool_version: the version of inductor-bench that wrote the record.
        run_id: a unique name of the run.
        created: the time at which the run began (ISO 8601).
        command: the command line, without secrets.
        target: what was measured, as it was typed.
        title: the name of the run in reports.
        request: the options of the run.
        environment: the machine and the versions.
        peaks: the measured peaks of the device; ``None`` where they were not measured.
        capture: what capturing the program told.
        modules: the compiled modules.
        failures: the steps that failed.
        retunes: the retunes of the most expensive kernels.
        program: the program's step; ``None`` for a target that is no program, and where no step was found.
        verification: what the retunes save in the program; ``None`` where that was not measured.
    """

    format: int
    tool_version: str
    run_id: str
    created: str
    command: str
    target: str
    title: str
    request: BreakdownRequest
    environment: Environment
    peaks: Peaks | None = None
    capture: Capture = field(default_factory=Capture)
    modules: tuple[ModuleRecord, ...] = ()
    failures: tuple[Failure, ...] = ()
    retunes: tuple[Retune, ...] = ()
    program: Program | None = None
    verification: Verification | None = None
