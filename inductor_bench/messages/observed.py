"""The messages between a capture and the user's program: what to observe or change in it, and what was found."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..records.evidence import ObservedGraph
from ..records.mode_comparison import Agreement
from ..records.request import BreakdownRequest
from ..records.retune import AnyPin, CppPin, LibraryPin, TritonPin
from ..records.tuning import Config

# The messages between a capture and the user's program: what to run, and what its processes observed.
#
# They are exchanged in files, because the output streams belong to the user's program.


@dataclass(frozen=True)
class RunProgram:
    """The program to run where the target is not a script.

    Attributes:
        request: the request, whose target is a factory or a named model.
        refusal: the path to which a :class:`Refusal` is written when the program cannot be run.
    """

    request: BreakdownRequest
    refusal: str


@dataclass(frozen=True)
class Refusal:
    """The reason why a program cannot be run. ``kind`` becomes the kind of the failure in the record."""

    kind: str
    message: str
    hint: str


@dataclass(frozen=True)
class Observation:
    """The facts that one process observed about one compiled module.

    Attributes:
        path: path of the module.
        stem: common path of the files about the module, without their suffixes.
        pid: id of the process.
        calls: number of calls of the module.
        threads: number of torch's threads in the process.
        rank: rank of the process in a distributed program.
        cuda_graphs: whether the program runs the module as a CUDA graph.
        max_autotune: whether the program compiles the module with max-autotune.
        tf32: whether products of float32 may be computed in TF32.
        switches: torch's switches that select the library kernels.
        configs: the config of each Triton kernel that ran, by its variable in the module.
        live_reason: the reason to profile the module inside the program; empty where it was not requested.
        live_error: the reason why profiling inside the program failed.
        live: the encoded ``Details`` of the live profile. They are decoded together with the module, so that damaged
            details affect one module only.
    """

    path: str
    stem: str
    pid: int
    calls: int = 0
    threads: int | None = None
    rank: int | None = None
    cuda_graphs: bool = False
    max_autotune: bool = False
    tf32: bool = False
    switches: dict[str, bool] = field(default_factory=dict)
    configs: dict[str, dict[str, int]] = field(default_factory=dict)
    live_reason: str = ""
    live_error: str = ""
    live: dict[str, Any] | None = None


# The messages of a comparison of modes: what a process of the program changes, and what it reports.
#
# They are exchanged in an environment variable and in files, because the output streams belong to the user's program.


@dataclass(frozen=True)
class ModeChange:
    """The settings that a process puts in place of the program's own.

    Attributes:
        mode: one of ``records.modes.MODES``.
        options: options of ``torch.compile`` by name, as text.
        switches: names of ``records.modes.SWITCHES`` that the process sets itself.
        compares: whether the outputs of a factory or a named model are compared with those without compilation.
    """

    mode: str
    options: dict[str, str] = field(default_factory=dict)
    switches: tuple[str, ...] = ()
    compares: bool = False


@dataclass(frozen=True)
class ModeReport:
    """The report of one process, written as ``<pid>.mode.json`` beside ``<pid>.steps.json``.

    Attributes:
        calls: the number of calls of ``torch.compile`` whose settings were replaced.
        kept: the reasons why other calls were left as they are.
        notes: settings that had no effect, in words.
        graph_breaks: torch's reasons, one for each break.
        peak_memory_bytes: the most memory that torch allocated on the device; on a CPU the most of the process.
        threads: the number of torch's threads.
        agreement: of the outputs; ``None`` where they are not compared.
        compiled_graphs: the number of graphs that the process compiled, those left out that came from a cache.
        configs: a hash of the configs of all its Triton kernels that ran; empty without any.
    """

    calls: int = 0
    kept: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    graph_breaks: tuple[str, ...] = ()
    peak_memory_bytes: int | None = None
    threads: int | None = None
    agreement: Agreement | None = None
    compiled_graphs: int = 0
    configs: str = ""


# The configurations that a program's processes put into their kernels, and what each process says of them.
#
# The parent writes :class:`Pins` into one file. Each process writes :class:`PinnedProcess` as ``<pid>.pins.json`` into
# the folder of the capture.


APPLY, COMPARE = "apply", "compare"
"""What a process does: run the pinned kernels; or run steps with Inductor's own and with the pinned ones in turn."""

PINNED, REPLACED, REFUSED, UNUSED = "pinned", "replaced", "refused", "unused"
"""States of a pin in a process: its kernel runs it; its kernel runs another configuration; it did not compile; its
kernel was loaded and has not run."""


@dataclass(frozen=True)
class Pins:
    """The pins of a program.

    Attributes:
        mode: :data:`APPLY` or :data:`COMPARE`.
        digest: a hash of all pins, by which Inductor's caches tell a program with them from one without.
        torch, triton: the versions for which the configurations were found; a process with others refuses all.
    """

    mode: str
    digest: str
    torch: str
    triton: str | None
    triton_pins: tuple[TritonPin, ...] = ()
    cpp_pins: tuple[CppPin, ...] = ()
    library_pins: tuple[LibraryPin, ...] = ()

    @property
    def all(self) -> tuple[AnyPin, ...]:
        """The pins of all kinds."""
        return (*self.triton_pins, *self.cpp_pins, *self.library_pins)

    @property
    def need_gpu(self) -> bool:
        """Whether some of the pins are for a GPU, and so for one version of Triton."""
        return bool(self.triton_pins) or not all(pin.on_host for pin in self.library_pins)

    @property
    def need_processor(self) -> bool:
        """Whether some of the pins are for the processor."""
        return bool(self.cpp_pins) or any(pin.on_host for pin in self.library_pins)


@dataclass(frozen=True)
class PinState:
    """The state of one pin in a process.

    Attributes:
        kernel_id, name: of the kernel.
        state: one of the states above.
        config: the configuration that the kernel runs; empty where it has not run.
        reason: why it does not run the pin.
        event_name: the name of its launches in a profile; empty for a C++ kernel and a library call.
        own_config: the configuration that Inductor chose here, while a comparison replaces it; otherwise empty.
    """

    kernel_id: str
    name: str
    state: str
    config: Config = field(default_factory=dict)
    reason: str = ""
    event_name: str = ""
    own_config: Config = field(default_factory=dict)


@dataclass(frozen=True)
class PinnedProcess:
    """The pins of one process; ``refusal`` says why it took none."""

    pid: int
    states: tuple[PinState, ...] = ()
    refusal: str = ""


# What a process found when it ran its steps with Inductor's own and with the pinned configurations in turn.


SETTLING, CHECKING = "settling", "checking"
"""States of a comparison."""

CUDA_GRAPHS = "cuda-graphs"
"""State of a comparison that cannot be made in one process: a recorded CUDA graph keeps the kernels that it has."""


@dataclass(frozen=True)
class ComparedStep:
    """One step: whether it ran the pins, and its seconds, on the device's clock where there is one."""

    tuned: bool
    time_s: float


@dataclass(frozen=True)
class ComparedOutputs:
    """The outputs of one compiled graph with the pins against those without, for the same inputs.

    Attributes:
        path: the path of the compiled module.
        difference: the largest relative difference of a tensor: the norm of the difference divided by the tensor's.
        own_difference: the same of two calls without the pins: what the graph itself does not repeat.
        tolerance: the difference up to which the outputs count as equal.
        tensors: the number of compared tensors, with inputs that the graph writes.
        unrepeatable: the number of further tensors, which two calls without the pins fill differently: seeds of random
            numbers, or memory that nobody reads.
        rounding: the number of further tensors that differ, and no more than where the graph's inputs are rounded
            otherwise.
        reason: why the outputs were not compared; empty where they were.
    """

    path: str
    difference: float = 0.0
    own_difference: float = 0.0
    tolerance: float = 0.0
    tensors: int = 0
    unrepeatable: int = 0
    rounding: int = 0
    reason: str = ""

    @property
    def is_equal(self) -> bool:
        return self.difference <= self.tolerance

    @property
    def excess(self) -> float:
        """The difference as a multiple of the tolerance; infinite for any difference where none is tolerated."""
        if not self.difference:
            return 0.0
        return self.difference / self.tolerance if self.tolerance else math.inf


@dataclass(frozen=True)
class ComparedSteps:
    """The comparison of one process, written as ``<pid>.compared.json`` into the capture's folder.

    Attributes:
        pid, rank: of the process; ``rank`` is ``None`` where the program is not distributed.
        device: the type of the device.
        source: what delimits the steps, as in ``ObservedSteps``.
        steps: the timed steps in order.
        graphs: the compiled graphs in the order of their first call, by whose numbers ``trace`` names their calls.
        profiled: for each step in ``trace`` whether it ran the pins.
        trace: the path of the profiler's trace; empty where there is none.
        outputs: one entry for each compiled graph of one step.
        dropped: ids of the kernels whose pins change the outputs; they ran Inductor's own configuration.
        error: the reason of a failure.
        notes: what limits the figures.
    """

    pid: int
    device: str
    state: str
    rank: int | None = None
    source: str = ""
    steps: tuple[ComparedStep, ...] = ()
    graphs: tuple[ObservedGraph, ...] = ()
    profiled: tuple[bool, ...] = ()
    trace: str = ""
    outputs: tuple[ComparedOutputs, ...] = ()
    dropped: tuple[str, ...] = ()
    error: str = ""
    notes: tuple[str, ...] = ()


# The environment variables that configure the observation in the processes of a captured program.


CAPTURE_FOLDER = "INDUCTOR_BENCH_CAPTURE"
LIVE = "INDUCTOR_BENCH_LIVE"
REPEAT = "INDUCTOR_BENCH_REPEAT"
PINS = "INDUCTOR_BENCH_PINS"
"""Path of the configurations that this process puts into its kernels; empty for none."""

OBSERVE = "INDUCTOR_BENCH_OBSERVE"
"""What is observed: empty for modules and steps, or one of the next three."""

NOTHING, STEPS, COMPARISON = "nothing", "steps", "comparison"
"""Nothing but pins; steps alone; steps with the pins and without in turn."""

VALUES_LIMIT = "INDUCTOR_BENCH_VALUES_LIMIT"
SKIP_STEPS = "INDUCTOR_BENCH_SKIP_STEPS"
"""Number of steps between the first boundary and the timed window; empty to wait until compilation has settled."""

EAGER = "INDUCTOR_BENCH_EAGER"
"""Type of the device of the steps, where the program runs without compilation and its steps are only timed; else empty.
"""

PYTHON_STARTED = "python.started"
"""Name of the empty file in the folder that says that a Python process of the program looked for its configuration."""

TIMED_STEPS = "INDUCTOR_BENCH_TIMED_STEPS"
"""Number of steps that are timed, and of those that are profiled; empty for the usual number."""

MODE = "INDUCTOR_BENCH_MODE"
"""The encoded ``messages.observed.ModeChange`` of this process; empty to leave the program's own settings."""

PROFILES = "INDUCTOR_BENCH_PROFILES"
"""``0`` to profile no steps, ``1`` to profile them also where nothing is compiled; else empty."""
