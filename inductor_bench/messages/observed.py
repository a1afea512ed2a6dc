"""The messages between this tool and the user's program: what to observe, change or try in it, and the results."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field, replace
from typing import Any

from ..records.code import MachineLoad
from ..records.comparison import Agreement
from ..records.edit import CPP, TRITON, EditPin, put_in_words
from ..records.evidence import ObservedGraph
from ..records.optimization import KindSizes, StepDigest
from ..records.request import BreakdownRequest
from ..records.retune import AnyPin, Config, CppPin, LibraryPin, TritonPin
from ..store import codec

# The messages between a capture and the user's program: what to run, and what its processes observed.
#
# They are exchanged in files, because the output streams belong to the user's program.


@dataclass(frozen=True)
class RunProgram:
    """The program to run if the target is not a script."""

    request: BreakdownRequest  # the request, whose target is a factory or a named model
    refusal: str  # the path to which a :class:`Refusal` is written when the program cannot be run


@dataclass(frozen=True)
class Refusal:
    """The reason why a program cannot be run. ``kind`` becomes the kind of the failure in the record."""

    kind: str
    message: str
    hint: str


@dataclass(frozen=True)
class ModuleObservation:
    """The facts that one process observed about one compiled module."""

    path: str  # path of the module
    stem: str  # common path of the files about the module, without their suffixes
    pid: int  # id of the process
    calls: int | None = 0  # number of calls of the module; ``None`` if nobody counted them
    threads: int | None = None  # number of torch's threads in the process
    rank: int | None = None  # rank of the process in a distributed program
    cuda_graphs: bool = False  # whether the program runs the module as a CUDA graph
    max_autotune: bool = False  # whether the program compiles the module with max-autotune
    tf32: bool = False  # whether products of float32 may be computed in TF32 on a GPU
    bf16: bool = False  # whether they may be computed in bfloat16 on a CPU
    switches: dict[str, bool] = field(default_factory=dict)  # torch's switches that select the library kernels
    # the config of each Triton kernel that ran, by its variable in the module
    configs: dict[str, dict[str, int]] = field(default_factory=dict)
    live_reason: str = ""  # the reason to profile the module inside the program; empty if it was not requested
    live_error: str = ""  # the reason why profiling inside the program failed
    # the encoded ``Details`` of the live profile. They are decoded together with the module, so that damaged details
    # affect one module only.
    live: dict[str, Any] | None = None


# What a process without a compiled graph asked of ``torch.compile``.


UNCOMPILED = "uncompiled"
"""Name of the folder in the capture's folder, in which a process observes its steps until it has a compiled graph."""

COMPILE_USE = ".compile.json"
"""The suffix of the file of a :class:`CompileUse` in that folder, after the process's id."""


@dataclass(frozen=True)
class CompileCall:
    """One place that calls ``torch.compile``."""

    place: str  # ``file:line`` in the program; empty if it is unknown
    backend: str  # the name of the backend
    disabled: str = ""  # the argument or the variable that makes the call do nothing; empty if none does


@dataclass(frozen=True)
class CompileUse:
    """What one process asked of ``torch.compile`` until its end, in which it got no compiled graph."""

    pid: int
    calls: tuple[CompileCall, ...] = ()  # in their order, each place once
    disabled_by: str = ""  # the variable that disables Dynamo; empty if it is not disabled
    stance: str = ""  # the stance of ``torch.compiler.set_stance``; empty if Dynamo is not imported
    frames: int | None = None  # the number of functions that reached Dynamo; ``None`` if it does not say


# Which objects of the program a process compiles.


OBJECTS = ".objects.json"
"""The suffix of the file of :class:`CompiledObjects` in the capture's folder, after the process's id."""


@dataclass(frozen=True)
class CompiledObject:
    """The object whose code Dynamo compiled in one compilation."""

    frame: int  # Dynamo's number of the frame
    compilation: int  # Dynamo's number of its compilation
    name: str = ""  # of a module in the program: a variable, or a path in a model; empty for other code
    alike: int = 1  # the number of modules in that model that look the same
    wrapped: int = 0  # the number of times that the program gave this function to ``torch.compile``
    forward_of: str = ""  # the class of the module whose ``forward`` this code is; empty for other code


@dataclass(frozen=True)
class CompiledObjects:
    """The objects that one process compiled."""

    pid: int
    objects: tuple[CompiledObject, ...] = ()


# The messages of a comparison of modes: what a process of the program changes, and what it reports.
#
# They are exchanged in an environment variable and in files, because the output streams belong to the user's program.


@dataclass(frozen=True)
class ModeChange:
    """The settings with which a process replaces the program's own."""

    mode: str  # one of ``records.comparison.MODES``
    options: dict[str, str] = field(default_factory=dict)  # options of ``torch.compile`` by name, as text
    switches: tuple[str, ...] = ()  # names of ``records.comparison.SWITCHES`` that the process sets itself
    # whether the outputs of a factory or a named model are compared with those without compilation
    compares: bool = False


@dataclass(frozen=True)
class ModeReport:
    """The report of one process, written as ``<pid>.mode.json`` beside ``<pid>.steps.json``."""

    calls: int = 0  # the number of calls of ``torch.compile`` whose settings were replaced
    kept: tuple[str, ...] = ()  # the reasons why other calls were left as they are
    notes: tuple[str, ...] = ()  # settings that had no effect, in words
    graph_breaks: tuple[str, ...] = ()  # torch's reasons, one for each break
    # the most memory that torch allocated on the device; on a CPU the most of the process
    peak_memory_bytes: int | None = None
    threads: int | None = None  # the number of torch's threads
    agreement: Agreement | None = None  # of the outputs; ``None`` if they are not compared
    compiled_graphs: int = 0  # the number of graphs that the process compiled, those left out that came from a cache
    configs: str = ""  # a hash of the configs of all its Triton kernels that ran; empty without any


# The configurations and edits that a program's processes put into their kernels, and the report of each process.
#
# The parent writes :class:`Pins` into one file. Each process writes :class:`PinnedProcess` as ``<pid>.pins.json`` into
# the folder of the capture.


APPLY, COMPARE = "apply", "compare"
"""What a process does: run the pinned kernels; or run steps with Inductor's and with the pinned ones in turn."""

PINNED, REPLACED, REFUSED, UNUSED = "pinned", "replaced", "refused", "unused"
"""States of a pin in a process: its kernel runs it; its kernel runs another configuration; it did not compile; its
kernel was loaded and has not run."""


@dataclass(frozen=True)
class Pins:
    """The configurations and the edited kernels that a program is to run."""

    mode: str  # :data:`APPLY` or :data:`COMPARE`
    digest: str  # a hash of all pins, by which Inductor's caches tell a program with them from one without
    torch: str  # the versions for which the configurations were found; a process with others refuses all
    triton: str | None  # the versions for which the configurations were found; a process with others refuses all
    triton_pins: tuple[TritonPin, ...] = ()
    cpp_pins: tuple[CppPin, ...] = ()
    library_pins: tuple[LibraryPin, ...] = ()
    edits: tuple[EditPin, ...] = ()
    proof_s: float | None = None  # seconds of the timed steps of a comparison; ``None`` for the usual ones

    @property
    def configs(self) -> tuple[AnyPin, ...]:
        """The pins of configurations."""
        return (*self.triton_pins, *self.cpp_pins, *self.library_pins)

    @property
    def all(self) -> tuple[AnyPin | EditPin, ...]:
        """The pins of all kinds, and the edits."""
        return (*self.edits, *self.configs)

    @property
    def words(self) -> str:
        """Returns what the pins are, in words; see ``put_in_words``."""
        return put_in_words(len(self.configs), len(self.edits))

    @property
    def need_gpu(self) -> bool:
        """Whether some of the pins are for a GPU, and therefore for one version of Triton."""
        on_gpu = not all(pin.on_host for pin in self.library_pins)
        return bool(self.triton_pins) or on_gpu or any(edit.language == TRITON for edit in self.edits)

    @property
    def need_processor(self) -> bool:
        """Whether some of the pins are for the processor."""
        on_host = any(pin.on_host for pin in self.library_pins)
        return bool(self.cpp_pins) or on_host or any(edit.language == CPP for edit in self.edits)


@dataclass(frozen=True)
class PinState:
    """The state of one pin in a process."""

    kernel_id: str  # of the kernel
    name: str  # of the kernel
    state: str  # one of the states above
    config: Config = field(default_factory=dict)  # the configuration that the kernel runs; empty if it has not run
    reason: str = ""  # why it does not run the pin
    event_name: str = ""  # the name of its launches in a profile; empty for a C++ kernel and a library call
    # the configuration that Inductor chose here, while a comparison replaces it; otherwise empty
    own_config: Config = field(default_factory=dict)


@dataclass(frozen=True)
class PinnedProcess:
    """The pins of one process; ``refusal`` says why it took none."""

    pid: int
    states: tuple[PinState, ...] = ()
    refusal: str = ""


# The results of a process that ran its steps in turn with Inductor's and with the pinned configurations.


SETTLING, CHECKING = "settling", "checking"
"""States of a comparison."""

CUDA_GRAPHS = "cuda-graphs"
"""State of a comparison that cannot be made in one process: a recorded CUDA graph keeps the kernels that it has."""


@dataclass(frozen=True)
class ComparedStep:
    """One step: whether it ran the pins, and its seconds, on the device's clock if there is one."""

    tuned: bool
    time_s: float


@dataclass(frozen=True)
class ComparedOutputs:
    """The difference of the outputs of one compiled graph with and without the pins, for the same inputs."""

    path: str  # the path of the compiled module
    # the largest relative difference of a tensor: the norm of the difference divided by the tensor's
    difference: float = 0.0
    own_difference: float = 0.0  # the same of two calls without the pins: what the graph itself does not repeat
    tolerance: float = 0.0  # the difference up to which the outputs count as equal
    tensors: int = 0  # the number of compared tensors, with inputs that the graph writes
    # the number of further tensors, which two calls without the pins fill differently: seeds of random numbers, or
    # memory that nobody reads
    unrepeatable: int = 0
    # the number of further tensors that differ, and no more than if the graph's inputs are rounded otherwise
    rounding: int = 0
    reason: str = ""  # why the outputs were not compared; empty if they were

    @property
    def is_equal(self) -> bool:
        return self.difference <= self.tolerance

    @property
    def excess(self) -> float:
        """The difference as a multiple of the tolerance; infinite for any difference if none is tolerated."""
        if not self.difference:
            return 0.0
        return self.difference / self.tolerance if self.tolerance else math.inf


@dataclass(frozen=True)
class ComparedSteps:
    """The comparison of one process, written as ``<pid>.compared.json`` into the capture's folder."""

    pid: int  # of the process; ``rank`` is ``None`` if the program is not distributed
    device: str  # the type of the device
    state: str
    rank: int | None = None  # of the process; ``rank`` is ``None`` if the program is not distributed
    source: str = ""  # what delimits the steps, as in ``ObservedSteps``
    steps: tuple[ComparedStep, ...] = ()  # the timed steps in order
    # the compiled graphs in the order of their first call, by whose numbers ``trace`` names their calls
    graphs: tuple[ObservedGraph, ...] = ()
    profiled: tuple[bool, ...] = ()  # for each step in ``trace`` whether it ran the pins
    trace: str = ""  # the path of the profiler's trace; empty if there is none
    outputs: tuple[ComparedOutputs, ...] = ()  # one entry for each compiled graph of one step
    # ids of the kernels whose pins change the outputs; they ran Inductor's configuration
    dropped: tuple[str, ...] = ()
    changes: dict[str, str] = field(default_factory=dict)  # by these ids, how each by itself changes them
    error: str = ""  # the reason of a failure
    notes: tuple[str, ...] = ()  # what limits the figures
    load: MachineLoad | None = None  # the load while steps were timed, which are its runs; ``None`` for a GPU


# The environment variables that configure the observation in the processes of a captured program.


CAPTURE_FOLDER = "INDUCTOR_BENCH_CAPTURE"
PROCESS_MARK = "INDUCTOR_BENCH_PROCESS"
"""The mark of a process that this tool started: its ancestors' marks and its own, each 32 hexadecimal digits."""

REQUEST = "INDUCTOR_BENCH_REQUEST"
"""The text of the request of the run, by :func:`request_text`; empty for the usual one without samples."""

PINS = "INDUCTOR_BENCH_PINS"
"""Path of the configurations that this process puts into its kernels; empty for none."""

OBSERVE = "INDUCTOR_BENCH_OBSERVE"
"""What is observed: empty for modules and steps, or one of the next three."""

NOTHING, STEPS, COMPARISON = "nothing", "steps", "comparison"
"""The modes: only run with the pins; also time steps; also compare steps with and without the pins in turn."""

EAGER = "INDUCTOR_BENCH_EAGER"
"""Type of the device of the steps, if the program runs without compilation and its steps are only timed; else empty.
"""

COMPILE_CACHE = "INDUCTOR_BENCH_COMPILE_CACHE"
"""The folder from which torch may take what earlier runs compiled; empty if it compiles everything."""

PYTHON_ENDED = ".ended"
"""Suffix of the file that a process writes after its id when its Python has ended; its process is torn down then."""

PYTHON_STARTED = "python.started"
"""Name of the empty file in the folder that says that a Python process of the program looked for its configuration."""

MODE = "INDUCTOR_BENCH_MODE"
"""The encoded ``messages.observed.ModeChange`` of this process; empty to leave the program's own settings."""

VARIANTS = "INDUCTOR_BENCH_VARIANTS"
"""The path of the encoded :class:`VariantsRequest`; empty to try no variants."""

PROFILES = "INDUCTOR_BENCH_PROFILES"
"""``0`` to profile no steps, ``1`` to profile them even if nothing is compiled; else empty."""


def request_text(request: BreakdownRequest) -> str:
    """Returns a request in the form in which the program's processes get it in :data:`REQUEST`: without the program's
    words."""
    return json.dumps(codec.encode_sparse(replace(request, target="", arguments=(), others=())))


def read_request() -> BreakdownRequest:
    """Returns the request of the run that observes this process."""
    text = os.environ.get(REQUEST)
    return codec.decode(BreakdownRequest, json.loads(text)) if text else BreakdownRequest(samples=False)


TRIED = ".variants.json"
"""The suffix of the file of :class:`TriedVariants`, after the process's id."""

JOURNAL = ".variants.journal"
"""The suffix, after the process's id, of the file that says what a process is about to do for the first time. Its last
line is ``<slug> <what>``, or ``-`` while the original runs. If a process dies, this line names the culprit.
"""

ORIGINAL = 0
"""The number of the unchanged program. The variants of a request have the numbers from 1 on."""

INCOMPARABLE = 1e9
"""The value of an error that has no number: the shapes differ, or infinities are in different elements."""


@dataclass(frozen=True)
class VariantSwitch:
    """One change that is made from outside the program.

    What ``setting`` names depends on the kind:

    - ``inductor``, ``dynamo``: an option of ``torch._inductor.config`` for one compiled graph, of
      ``torch._dynamo.config``
    - ``torch``: an attribute's path, such as ``torch.backends.cuda.matmul.allow_tf32``
    - ``optimizer``: a key of a parameter group: ``fused``, ``foreach``, ``capturable``; or ``compiled``, for its step
    - ``function``: a function that is compiled: ``FILE:LINE:NAME`` with a line within it, or its dotted path
    - ``attention``: ``backends``; the value has names of ``SDPBackend`` in their order, separated by commas
    - ``layout``: ``channels_last`` of compiled modules
    - ``loader``, ``compile``: an argument of ``torch.utils.data.DataLoader``, of ``torch.compile``
    - ``environment``: a variable, which the parent sets
    - ``pins``: the folder of a retune's pins, which the parent sets
    """

    kind: str  # one of the kinds of ``records.optimization``
    setting: str
    value: Any = None  # a bool, whole number, number, text or None


@dataclass(frozen=True)
class ProgramVariant:
    """A variant of the program: the switches that it changes."""

    slug: str  # its name, unique in a request
    switches: tuple[VariantSwitch, ...] = ()  # none for the original
    is_placebo: bool = False  # the original, compiled once more under another cache key


@dataclass(frozen=True)
class VariantsRequest:
    """The variants that a process tries."""

    variants: tuple[ProgramVariant, ...]  # beside the original, which is always number 0
    alternates: bool  # in one process, in turn; else the one variant holds from the process's start
    timed_s: float = 3.0  # seconds of timed steps of each variant
    least: int = 24  # the minimum number of timed steps of each variant
    most: int = 400  # the maximum number of timed steps of each variant
    checks: bool = True  # whether outputs and gradients are compared before anything is timed
    losses: int = 0  # the number of optimizer steps whose gradients and loss are kept
    only_compiles: bool = False  # whether its variants are compiled, and nothing is compared and timed
    times_uncompiled: bool = False  # whether steps are timed even if the process compiles nothing


@dataclass(frozen=True)
class VariantSample:
    """One timed step."""

    variant: int  # its number
    time_s: float  # on the device's clock if there is one
    place: int  # its place among all steps from the first timed one on
    kind: int = 0  # equal for steps that called the same graphs with the same shapes, with or without gradients


@dataclass(frozen=True)
class CheckedCallable:
    """The comparison of the outputs and gradients of one compiled callable in one variant with the original's."""

    variant: int  # its number
    graph: str  # the name of the callable: Dynamo's number of the frame and compilation
    outputs: int = 0  # the number of compared tensors, with inputs that the callable changes
    gradients: int = 0  # the number of compared gradients of inputs and parameters
    worst: float = 0.0  # the largest difference as a multiple of what is tolerated; at most ``INCOMPARABLE``
    own: float = 0.0  # the same of the original against itself
    reason: str = ""  # why it differs, or why it was not compared; empty if it agrees
    where: str = ""  # the tensor that differs most: ``output 3``, ``gradient of input 5``
    is_compared: bool = True  # whether it was compared


@dataclass(frozen=True)
class VariantState:
    """The compile time and memory of one variant, and which of its settings took effect."""

    variant: int  # its number; 0 is the original
    compile_s: float = 0.0  # seconds in which its graphs were compiled, backward graphs included
    peak_memory_bytes: int | None = None  # the most that torch allocated in its steps
    applied: tuple[str, ...] = ()  # the settings that took effect
    refused: tuple[str, ...] = ()  # those that did not, each with its reason: ``fused: …``
    failure: str = ""  # why it was given up; empty if it was not
    graphs: int = 0  # the number of graphs that were compiled for it


@dataclass(frozen=True)
class TriedVariants:
    """The measurements of one process of the variants that it tried."""

    pid: int
    device: str  # the type of the device
    state: str  # as in ``ComparedSteps``
    rank: int | None = None  # of the process; ``None`` if no launcher says it
    ranks: int = 1  # the number of ranks on this machine, as the launcher says
    world: int = 1  # the number of ranks on all machines
    begin: int | None = None  # the number of the boundary from which the variants change; ``None`` before that is known
    # places of the schedule, the first one that it saw and the last one, each with the number of collectives that the
    # process had begun in its default group; empty if it has none
    collectives: tuple[tuple[int, int], ...] = ()
    source: str = ""  # what delimits the steps, as in ``ObservedSteps``
    samples: tuple[VariantSample, ...] = ()  # the timed steps in order
    kind_sizes: tuple[KindSizes, ...] = ()  # of the kinds of steps; of many kinds the first ones
    checks: tuple[CheckedCallable, ...] = ()
    variants: tuple[VariantState, ...] = ()  # by their numbers, with the original first
    digests: tuple[StepDigest, ...] = ()  # at most ``losses`` of the request
    notes: tuple[str, ...] = ()  # what limits the figures
    load: MachineLoad | None = None  # the machine's load from the first timed steps on; ``None`` before them
    error: str = ""  # the reason of a failure of the whole measurement
