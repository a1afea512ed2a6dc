"""Measurements and retunes of kernel files: the results, the pins that apply them, and the saving in a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from .base import Category, Failure, Inline, Place
from .code import MachineLoad
from .module import LeastWork

Config = dict[str, Any]
"""The configuration of a candidate: block sizes, ``num_warps``, ``num_stages``; threads, flags; an implementation."""

BY_DEFAULT = "max"
"""The method of autotuning if none is named."""


@dataclass(frozen=True)
class Timing:
    """Samples of the time of one call, in seconds, and their statistics."""

    median_s: float  # the median
    low_s: float  # lower end of the 95% confidence interval of the median
    high_s: float  # upper end of the interval
    min_s: float  # the smallest sample
    mad_s: float  # the median absolute deviation
    samples: int  # the number of samples
    samples_s: tuple[float, ...]  # the samples, in the order of measurement


@dataclass(frozen=True)
class Ratio:
    """The ratio of two times that were measured alternately."""

    median: float  # the median of the pairs' ratios
    low: float  # lower end of its confidence interval
    high: float  # upper end of the interval
    pairs: int  # the number of pairs


@dataclass(frozen=True)
class TriedCandidate:
    """One candidate of a retune and its outcome."""

    config: Config  # the configuration of the candidate
    # ``default``, ``best``, ``finalist``, ``slower`` (dropped in the race), ``timed`` (by a method without a winner),
    # ``duplicate`` (equal code to another candidate), ``wrong`` (its outputs differ), ``spills``, ``refused`` (it does
    # not compile or fit here), ``crashed`` or ``hung``; ``compiled`` or ``untried`` if it was not timed
    status: str
    reason: str = ""  # an explanation of the status
    median_s: float | None = None  # the median of ``samples_s``
    samples: int = 0  # the number of all samples taken
    ratio: Ratio | None = None  # the ratio of its times to the default's
    registers: int | None = None  # registers of one thread, if known
    spills: int | None = None  # spilled registers of one thread, if known
    shared_memory_bytes: int | None = None  # shared memory of one block, if known
    instructions: int | None = None  # the number of instructions, if known
    binary_bytes: int | None = None  # the size of the compiled kernel, if known
    samples_s: tuple[float, ...] = ()  # the samples on which the decision rests, in the order of measurement


@dataclass(frozen=True)
class Tuning:
    """The outcome of a retune.

    The best candidate is the finalist that was reliably faster than the default, or the default if there is none.
    """

    method: str  # the way of choosing candidates. ``configs`` times the candidates of Inductor itself, without a winner
    state: str  # the times that were compared: ``cold`` or ``warm``
    candidates: tuple[TriedCandidate, ...]  # all candidates
    tried: int  # the number of candidates that were checked and timed, without the default
    default_s: float  # the default's median in the final rounds
    best_s: float  # the best candidate's median in the same rounds
    speedup: float  # the inverse of the best candidate's ratio; 1 if the default is the best
    verdict: str  # the verdict on the best finalist; empty for ``configs``
    best_config: Config  # the configuration of the best candidate
    ratio: Ratio | None = None  # the best finalist's ratio to the default in the final rounds
    # seconds of checks and timing, including waits for other workers that use the device, but not compilation
    time_s: float = 0.0
    notes: tuple[str, ...] = ()  # remarks for the user
    # why the search ended before its method had: ``gain`` (the step could save too little more) or ``budget``; empty if
    # it ran to its end
    cut_short: str = ""


@dataclass(frozen=True)
class HardwareCounters:
    """Nsight Compute's counters of one call, after the caches were emptied.

    If a call launches several device kernels, bytes and times are sums, and shares (0 to 1) are means weighted by
    time.
    """

    device_kernels: int  # the number of device kernels of the call
    # bytes to and from the memory, without written bytes that are still in the cache at the end
    dram_bytes: float | None = None
    dram_share: float | None = None  # the share of the hardware's maximum bandwidth
    occupancy: float | None = None  # the share of the warps for which the multiprocessors have room
    # the reasons for which warps wait, by NVIDIA's names, as shares of the warps' time, largest first
    stalls: dict[str, float] = field(default_factory=dict)
    time_s: float | None = None  # seconds of the call under Nsight Compute, at its clock


@dataclass(frozen=True)
class CallWork(LeastWork):
    """The least work of one call, whose bytes are a whole number."""

    moved_bytes: int | None = None  # bytes that one call must read and write, each buffer once


@dataclass(frozen=True)
class MeasuredRoof:
    """The rates of a standalone file, and the roof that it reaches."""

    bandwidth: float | None = None  # bytes per second of the cold time
    flop_rate: float | None = None  # FLOPs per second of the cold time
    # the roof that limits the kernel: ``memory``, ``cache``, ``compute``, ``latency`` or ``unknown``
    bound: str | None = None
    # the kernel's rate as a share of this roof, for ``cache`` with its warm time; ``None`` for ``latency``, and if no
    # roof was measured
    peak_share: float | None = None


@dataclass(frozen=True)
class ModelCalls:
    """The calls of a kernel in its model."""

    calls: int | None = None  # the number of calls in one iteration of the model
    in_model_s: float | None = None  # seconds of one call in the model


@dataclass(frozen=True)
class Resources:
    """The resources of a compiled kernel."""

    registers: int | None = None  # registers of one thread
    spills: int | None = None  # spilled registers of one thread, as Triton counts them
    shared_memory_bytes: int | None = None  # shared memory of one block
    occupancy: float | None = None  # the share of a multiprocessor's warps that can be resident, 0 to 1


@dataclass(frozen=True)
class TimingClock:
    """The clock of the multiprocessors during a timing."""

    clock_mhz: float | None = None  # the median clock
    clock_change: float | None = None  # relative change from the first to the last third of the timing
    throttled: tuple[str, ...] = ()  # the reasons why the GPU lowered its clock


@dataclass(frozen=True)
class MeasuredKernel:
    """The measurement of one standalone file on this machine."""

    name: str  # the kernel's name
    kernel_id: str  # a hash of its content
    file: str  # the path of the standalone file
    category: str  # the category
    device: str  # the name of the device
    config: Config  # the configuration that was timed
    cold: Timing  # times of one call with emptied caches
    # times of one call with the data of the previous call in the caches; ``None`` if the kernel was retuned as part of
    # a run, and was not measured separately
    warm: Timing | None
    method: str  # the way of timing
    work: Inline[CallWork] = CallWork()  # the work of one call
    roof: Inline[MeasuredRoof] = MeasuredRoof()  # its rates, and the roof that it reaches
    original: Inline[ModelCalls] = ModelCalls()  # the calls of the model's kernel from which the file was written
    edited: bool = False  # whether the file was changed since it was written
    resources: Inline[Resources] = Resources()  # the resources that it occupies
    checked: bool | None = None  # whether its outputs equal the reference; ``None`` if they were not compared
    check_message: str = ""  # how its outputs differ, or why they were not compared
    # times by state (``cold``, ``warm``) with all indices zero, if the kernel reads indices
    with_zeros: dict[str, Timing] = field(default_factory=dict)
    clock: Inline[TimingClock] = TimingClock()  # the GPU's clock during the timing
    counters: HardwareCounters | None = None  # Nsight Compute's counters, if they were requested
    no_counters: str = ""  # why there are no counters
    shared_device: str = ""  # other users of the GPU
    advice: tuple[str, ...] = ()  # doubts about the measurement, each with a hint
    tuning: Tuning | None = None  # the outcome of a retune


# The retunes of a run's most expensive kernels, and the projected saving of the model.


FASTER, UNDECIDED = "faster", "undecided"
KEPT = ("slower", "same", UNDECIDED)
"""Verdicts with which a kernel keeps its configuration."""
MOST_FACTOR_TO_MODEL = 3.0
"""Maximum factor between a kernel's standalone time and its time in the model for which a saving is projected."""

INTERRUPTED = "its retune did not finish"
UNREACHED = "the budget was spent before its turn: retune this RUN again, or with a larger --budget"
UNFINISHED = (INTERRUPTED, UNREACHED)
"""Problems of retunes that have not come to an end."""

CUDNN_SEARCH, THREADS = "cudnn_benchmark", "threads"
CUTLASS = "cutlass"
SWITCHES = (CUDNN_SEARCH, THREADS)
"""Names in the configuration of a library call that are settings of the library for all of its calls."""


class Obstacle(NamedTuple):
    """Why ``apply`` does not put a faster configuration into a program: for a row of a table, and as a sentence."""

    short: str
    words: str


SEARCHED = Obstacle(
    "cuDNN's search for an algorithm: apply does not switch it on",
    "cuDNN's search for an algorithm: torch.backends.cudnn.benchmark = True turns it on, for all convolutions, and "
    "`inductor-bench modes PROGRAM --with cudnn-benchmark` measures it on the step",
)
OTHER_THREADS = Obstacle(
    "another number of threads: apply does not set it",
    "another number of threads for one library call: torch.set_num_threads sets it for the whole program",
)
TIMED_ANEW = Obstacle(*["a CUTLASS kernel; Inductor uses such a kernel only after it has timed it"] * 2)

EDITED = (
    "its file was edited, so it is not what the model runs; move it away and retune this RUN again, which writes and "
    "retunes the model's kernel"
)


@dataclass(frozen=True)
class TuningOrigin:
    """The run in which a kernel was tuned."""

    run_id: str  # the name of that run
    title: str  # the title of that run
    tuned_at: str  # the time at which the tuning ended (ISO 8601)


@dataclass(frozen=True)
class Retune:
    """The retune of a kernel, or of a library call with its arguments."""

    name: str  # the name of the kernel
    kernel_id: str  # a hash of the kernel's content
    category: Category  # the category of the kernel
    graphs: tuple[str, ...]  # the labels of the graphs that launch it
    calls: float  # its calls in one step of the program; if no step was profiled, in one run of each graph
    time_s: float  # the time of these calls
    file: Place | None  # its standalone file
    method: str  # the way of choosing candidates
    # the measurement of the file with all candidates. It has no ``tuning`` if the budget was spent before.
    kernel: MeasuredKernel | None = None
    # the reason why there is no measurement, or why the best configuration is wrong in the program. If this and
    # ``kernel`` are both ``None``, the retune is not finished
    failure: Failure | None = None
    # the run from which the tuning was taken over; ``None`` if the kernel was tuned for this run
    known_from: TuningOrigin | None = None

    @property
    def tuning(self) -> Tuning | None:
        return self.kernel.tuning if self.kernel is not None else None

    @property
    def switch(self) -> str:
        """The setting of a library, for all of its calls, that was faster; empty if a configuration of the kernel
        was."""
        return _switch_in(self.category, self.tuning.best_config) if self.tuning is not None else ""

    @property
    def obstacle(self) -> Obstacle | None:
        """Why ``apply`` does not put the winner into a program; ``None`` if nothing in the record is in its way."""
        if self.tuning is None or self.tuning.verdict != FASTER:
            return None
        unlike = time_mismatch(self.tuning.default_s, self.calls, self.time_s)
        return find_obstacle(self.category, self.tuning.best_config, unlike)

    @property
    def row(self) -> RetuneRow:
        """The result of the retune as a flat row."""
        place = (self.name, self.kernel_id, self.category, self.graphs, self.calls, self.time_s, self.file, self.method)
        tuning = self.tuning
        if tuning is None or self.failure is not None:
            message = self.failure.message if self.failure is not None else None
            return RetuneRow(*place, problem=explain_untuned(message, self.kernel is not None))
        caution = "; ".join(self.kernel.advice) if self.kernel is not None else ""
        row = RetuneRow(*place, caution=caution)
        return row.tuned(tuning.default_s, tuning.best_s, tuning.speedup, tuning.verdict, tuning.best_config)


def time_mismatch(default_s: float, calls: float, time_s: float) -> str:
    """``by itself it takes 54 times what it takes in the model``; empty within a factor of ``MOST_FACTOR_TO_MODEL``.

    Args:
        default_s: seconds of one call of the standalone file.
        calls: the calls in the model.
        time_s: seconds of these calls in the model.
    """
    factor = default_s * calls / time_s if time_s else math.inf
    if 1 / MOST_FACTOR_TO_MODEL <= factor <= MOST_FACTOR_TO_MODEL:
        return ""
    return f"by itself it takes {factor:.2g} times what it takes in the model"


def find_obstacle(category: Category, config: Config, unlike: str) -> Obstacle | None:
    """Why ``apply`` does not put a faster configuration into a program; ``None`` if nothing is in its way.

    Args:
        category: the kernel's category.
        config: the configuration.
        unlike: how far the file's time is from the time in the model; see :func:`time_mismatch`.
    """
    if unlike:
        return Obstacle(unlike, f"{unlike}, so its winner says nothing about the model")
    if switch := _switch_in(category, config):
        return SEARCHED if switch == CUDNN_SEARCH else OTHER_THREADS
    return TIMED_ANEW if config.get("backend") == CUTLASS else None


def _switch_in(category: Category, config: Config) -> str:
    return next((name for name in SWITCHES if config.get(name)), "") if category.is_library else ""


def explain_untuned(failure: str | None, measured: bool) -> str:
    """The reason why a retune has no result.

    Args:
        failure: the message of its failure, if it failed.
        measured: whether the kernel's own times were measured.
    """
    return failure if failure is not None else UNREACHED if measured else INTERRUPTED


class RetuneRow(NamedTuple):
    """The figures of a retune; see :class:`Retune` for the first eight."""

    name: str
    kernel_id: str
    category: Category
    graphs: tuple[str, ...]
    calls: float
    time_s: float
    file: str | None
    method: str
    tuned_default_s: float | None = None  # seconds of one cold call of the standalone file
    tuned_best_s: float | None = None  # seconds of one cold call of the standalone file
    speedup: float | None = None  # the speedup of the best candidate
    verdict: str = ""  # the verdict on the best candidate
    # projected saving in seconds per iteration of the model, assuming the speedup of the standalone file. It is 0 if
    # no candidate is reliably faster. If standalone time and time in the model differ by more than a factor of
    # ``MOST_FACTOR_TO_MODEL``, a faster candidate is undecided.
    saving_s: float | None = None
    problem: str = ""  # the reason why there are no figures
    caution: str = ""  # doubts about their measurement
    # whether ``apply`` leaves a faster candidate to the user: a setting of a library, or a kernel that Inductor times
    # anew
    left_to_user: bool = False
    obstacle: str = ""  # why ``apply`` does not put a faster candidate into a program, in short words

    @property
    def over(self) -> bool:
        """Whether the retune has come to an end, with or without a result."""
        return self.problem not in UNFINISHED

    def tuned(self, default_s: float, best_s: float, speedup: float, verdict: str, config: Config) -> RetuneRow:
        """The row with the result of the retune; ``config`` is that of the best candidate."""
        row = self._replace(tuned_default_s=default_s, tuned_best_s=best_s, speedup=speedup, verdict=verdict)
        if verdict != FASTER:
            return row._replace(saving_s=0.0)
        unlike = time_mismatch(default_s, self.calls, self.time_s)
        if (obstacle := find_obstacle(self.category, config, unlike)) is not None:
            row = row._replace(obstacle=obstacle.short, left_to_user=not unlike)
        if unlike:
            why = f"{unlike}, so nothing is projected"
            return row._replace(verdict=UNDECIDED, saving_s=0.0, caution="; ".join(filter(None, [why, self.caution])))
        return row._replace(saving_s=self.time_s * (1 - 1 / speedup))


def keep_best_of_each(rows: Iterable[RetuneRow]) -> tuple[RetuneRow, ...]:
    """One row for each kernel, in order: of several methods the row with the highest speedup."""
    best: dict[str, RetuneRow] = {}
    for row in rows:
        other = best.setdefault(row.kernel_id, row)
        if (row.speedup or 0.0) > (other.speedup or 0.0):
            best[row.kernel_id] = row
    return tuple(best.values())


def group_by_kernel(rows: Iterable[RetuneRow]) -> dict[str, RetuneRow]:
    """The best row of each kernel, by its id and by its file, because a library kernel has the file of its call."""
    return {key: row for row in keep_best_of_each(rows) for key in (row.file, row.kernel_id) if key}


# What puts the winner of a retune into a kernel of a program.


@dataclass(frozen=True)
class TritonPin:
    """The configuration to which one Triton kernel is pinned."""

    key: str  # identify the kernel; see ``source.calls``
    types: str  # identify the kernel; see ``source.calls``
    name: str  # of the kernel
    kernel_id: str  # of the kernel
    config: Config  # block sizes and other constants, ``num_warps`` and ``num_stages``

    @property
    def target(self) -> tuple[str, str]:
        """What a process knows the kernel by."""
        return self.key, self.types


@dataclass(frozen=True)
class CppPin:
    """The text of one C++ kernel."""

    kernel_id: str  # identifies the kernel; see ``source.generated_text.compute_cpp_kernel_id``
    name: str  # of the kernel
    config: Config  # the configuration, for people
    source: str  # the changed text
    # the settings of ``torch._inductor.config`` with which it is compiled
    options: Config = field(default_factory=dict)

    @property
    def target(self) -> str:
        """What a process knows the kernel by."""
        return self.kernel_id


@dataclass(frozen=True)
class InputLayout:
    """One tensor that a library call reads; strides of dimensions of size 1 are 0, because they mean nothing."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, dtype: str, shape: Sequence[int], stride: Sequence[int]) -> InputLayout:
        """The layout of a tensor of this element type, for example ``bfloat16``, with these sizes and strides."""
        steps = (0 if size == 1 else step for size, step in zip(shape, stride, strict=True))
        return cls(dtype, tuple(shape), tuple(steps))


@dataclass(frozen=True)
class LibraryPin:
    """One of Inductor's choices for a library call."""

    name: str  # of the call
    kernel_id: str  # of the call
    operator: str  # the name of the operator, for example ``aten.mm``
    inputs: tuple[InputLayout, ...]  # the layouts of its :func:`list_factors`
    settings: Config  # its arguments that are no tensors, by their position or their name
    config: Config  # the choice, as ``worker.upstream.pinning`` names it
    exhaustive: bool = False  # whether it is one of Inductor's exhaustive search
    on_host: bool = False  # whether the call runs on a CPU

    @property
    def target(self) -> object:
        """What a process knows the call by."""
        settings = ((name, repr(value)) for name, value in self.settings.items() if value is not None)
        return self.operator, self.inputs, tuple(sorted(settings))


AnyPin = TritonPin | CppPin | LibraryPin
Input = TypeVar("Input")


def group_pins_by_kind(
    pins: Iterable[AnyPin],
) -> tuple[tuple[TritonPin, ...], tuple[CppPin, ...], tuple[LibraryPin, ...]]:
    """Pins of Triton kernels, of C++ kernels and of library calls, each in the order of ``pins``."""
    every = tuple(pins)
    return (
        tuple(pin for pin in every if isinstance(pin, TritonPin)),
        tuple(pin for pin in every if isinstance(pin, CppPin)),
        tuple(pin for pin in every if isinstance(pin, LibraryPin)),
    )


def list_factors(operator: str, inputs: Sequence[Input]) -> Sequence[Input]:
    """The inputs of a product or a convolution that decide which choice is fast: without what is only added."""
    if operator in ("aten.addmm", "aten.baddbmm"):
        return inputs[-2:]
    return inputs[:2]


# The record of a RUN's configurations in its program: what was pinned, and what it saves.


STEPS, PROCESSES = "steps", "processes"
"""How the program was compared with and without pins: in turn in the steps of one process, or in processes in turn."""

MOST_TIMED = 10_000
"""Maximum number of timed steps, if the user asks for a time."""

SAVES, SLOWER, NO_DIFFERENCE = "saves", "slower", "no difference"
"""The verdicts on a saving."""

DROPPED, UNPINNABLE = "dropped", "unpinnable"
"""The states of a kernel whose pin changes the outputs of its graph, and of a winner that cannot be pinned."""


@dataclass(frozen=True)
class Saving:
    """The time of a step with Inductor's configurations, and what the pins save of it, in seconds."""

    own_s: float  # the median with Inductor's configurations
    tuned_s: float  # the median with the pins
    saving_s: float  # the median of the differences of neighbouring samples
    # lower end of its 95% interval; the smallest difference if the pairs are too few for an interval, as those of
    # whole processes are
    low_s: float
    high_s: float  # upper end of the interval, or the largest difference
    pairs: int  # the number of differences
    # ``saves``, ``slower``, ``no difference`` or ``undecided``. It is undecided if there are too few samples, or if a
    # wider interval than ``low_s`` to ``high_s`` does not confirm the verdict
    verdict: str


@dataclass(frozen=True)
class AppliedKernel:
    """A kernel with a retuned config or an edited source, and whether the program used it."""

    name: str  # the name of the kernel
    kernel_id: str  # a hash of the kernel's content
    config: Config  # the configuration to which it is pinned; empty for an edit
    # ``pinned``, or why it is not: ``replaced`` (the program's kernel runs another config, or has another source),
    # ``refused`` (the config or the edit did not compile, or failed here), ``unused`` (the kernel was loaded, but did
    # not run), ``missing`` (the program has no such kernel), ``dropped`` (it changes the outputs) or ``unpinnable``
    # (the config cannot be put into a program)
    state: str
    reason: str = ""  # the state in words; empty for ``pinned``
    predicted_s: float = 0.0  # the projected saving in seconds per step
    # by how much the pin shortens its device time per step; negative if it lengthens it; ``None`` if not measured
    saving_s: float | None = None
    # the configuration that Inductor chose in this program, if it differs from the RUN's; else empty. The kernel's
    # saving then depends on Inductor's choice.
    own_config: Config = field(default_factory=dict)
    edit: str = ""  # the file of the edited source that replaces it; empty for a configuration
    # the device time per step of the kernels with its name, without the pins; ``None`` if it was not measured
    own_s: float | None = None
    tuned_s: float | None = None  # the device time per step of these kernels with the pins
    # lower end of the interval or the range of ``saving_s``; it has as many pairs as the device's time
    low_s: float | None = None
    high_s: float | None = None  # upper end of the interval or of the range
    # the time of the edited kernel divided by the original's, from the edit's last check on this machine; ``None`` for
    # a configuration, and if the edit was not timed
    alone: Ratio | None = None

    @property
    def runs(self) -> bool:
        """Whether the kernel runs what was put in."""
        return self.state == "pinned"


@dataclass(frozen=True)
class PinnedOutputs:
    """The comparison of the outputs of the program's graphs with and without the pins, for the same inputs."""

    graphs: int = 0  # the number of graphs that were compared
    tensors: int = 0  # the number of their outputs, and of inputs that they write
    # the largest relative difference: the norm of the difference divided by the tensor's norm; ``None`` if infinities
    # or NaN are in different elements
    difference: float | None = 0.0
    own_difference: float = 0.0  # the relative difference of this tensor between two calls without the pins
    tolerance: float = 0.0  # the difference up to which this tensor counts as equal
    # the number of further tensors that cannot be compared, because they differ between two calls without the pins:
    # seeds of random numbers, or memory that nothing reads
    unrepeatable: int = 0
    # the number of further tensors that differ by more than the tolerance, but not by more than a different rounding of
    # the graph's inputs changes them, such as the means of a batch norm's centred input
    rounding: int = 0
    reason: str = ""  # why some graph was not compared; empty if all were


@dataclass(frozen=True)
class Verification:
    """The comparison of the program with the winners' configurations and without."""

    way: str  # ``steps`` (steps of one process in turn) or ``processes`` (processes in turn)
    predicted_s: float  # the projected saving of the pinned kernels in seconds per step
    step: Saving | None = None  # the step's time; ``None`` if too few steps were timed
    # the sum of the durations on the device per step; ``None`` without a profile, and on a CPU
    device: Saving | None = None
    outputs: PinnedOutputs = PinnedOutputs()  # the comparison of the outputs
    kernels: tuple[
        AppliedKernel, ...
    ] = ()  # every retune that found a faster config, and every edit, the largest projection first
    notes: tuple[str, ...] = ()  # what limits the figures
    trace: Place | None = None  # the profiled steps
    created: str = ""  # the time of the comparison
    # the machine's load while the steps were timed, as measured by the process that it delayed most; ``None`` for a GPU
    load: MachineLoad | None = None
    ended_early: bool = False  # whether the program ended while its steps were timed, so that a proof has no more steps

    @property
    def pinned(self) -> int:
        """The number of kernels that ran their pins."""
        return sum(kernel.runs for kernel in self.kernels)
