"""The records of comparisons: of two runs, A and B, of two kernels, and of two batches."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Category, Failure
from .tuning import Config, MeasuredKernel, Ratio

# The comparison of two runs, A and B: what differs between them, and the parts of the difference of their steps.


FASTER, SLOWER, SAME, UNDECIDED = "faster", "slower", "same", "undecided"
"""The verdicts on B against A, as in ``analysis.statistics``."""
NOT_COMPARABLE = "not comparable"

CODE, CONFIG, SPLIT, MERGED = "changed code", "changed config", "fusion split", "fusion merged"
LIBRARY, PRECISION, CALLS = "library call replaced", "float32 precision", "other calls per step"
ADDED, REMOVED, UNCHANGED = "new kernel", "removed kernel", "same code and config"
"""The causes of a kernel's difference. ``UNCHANGED``: its code, its config and its calls are the same, so that what
differs is the clock, noise, or what lies around the program."""
KERNEL_CAUSES = (CODE, CONFIG, SPLIT, MERGED, LIBRARY, PRECISION, CALLS, ADDED, REMOVED, UNCHANGED)

GRAPH_REST, REST = "graphs, outside of their kernels", "rest"
"""Further kinds of parts, beside the causes of kernels and the kinds of ``records.program``. ``REST`` is what the parts
of the two records do not account for."""

STEP, ITERATION = "step", "iteration"
"""What the seconds of a comparison refer to: the program's step, or one iteration of each graph."""


@dataclass(frozen=True)
class SideSummary:
    """One of the two sides."""

    name: str  # the path that the user gave
    title: str  # the title of its first run
    machine: str  # device and versions of its first run, as one line
    created: str  # the time of its first run (ISO 8601)
    runs: int = 1  # the number of its runs; their figures are averaged


@dataclass(frozen=True)
class EnvironmentDifference:
    """A fact that differs between the runs."""

    name: str  # the fact: a version, the device, a variable or an option
    a: str  # its value in A; empty for a variable or an option that is unset
    b: str  # its value in B; the same


@dataclass(frozen=True)
class Change:
    """The difference of a time between A and B, with its verdict."""

    a_s: float  # seconds of A
    b_s: float  # seconds of B
    delta_s: float  # seconds of B minus those of A
    # lower end of the interval of the difference in seconds; ``None`` if no uncertainty is known
    low_s: float | None
    high_s: float | None  # upper end of that interval
    verdict: str  # the verdict on B: ``faster``, ``slower``, ``same`` or ``undecided``


@dataclass(frozen=True)
class StepChange(Change):
    """The difference of the step."""

    currency: str = STEP  # ``step`` or ``iteration``
    noise: float = 0.0  # the assumed or measured relative difference between two runs of one program
    noise_source: str = ""  # where ``noise`` comes from, in words


@dataclass(frozen=True)
class PartChange(Change):
    """A part of the difference. The differences of all parts add up to that of the step."""

    cause: str = REST  # a cause of kernels, or a kind of part of the step
    label: str = ""  # the operator, the label of idle time, …; empty for a cause of kernels
    detail: str = ""  # what is known about the part, in words
    kernels: int = 0  # the number of rows of kernels behind it
    a_calls: float | None = None  # the number of calls in a step of A; ``None`` for causes of kernels and for idle time
    b_calls: float | None = None  # the number of calls in a step of B; ``None`` likewise


@dataclass(frozen=True)
class GraphChange:
    """A compiled graph of A and its counterpart in B."""

    a: str | None  # its label in A; ``None`` if only B has it
    b: str | None  # its label in B; ``None`` if only A has it
    a_s: float  # seconds in A
    b_s: float  # seconds in B
    delta_s: float  # seconds of B minus those of A
    a_calls: float  # the number of its calls in A
    b_calls: float  # the number of its calls in B
    alike: float  # the share of their kernels' time, 0 to 1, in kernels that both have


@dataclass(frozen=True)
class KernelSide:
    """A kernel of one side."""

    name: str  # its name
    kernel_id: str  # a hash of its content
    category: Category  # its category
    graph: str  # the label of its graph
    calls: float  # the number of its calls in a step or an iteration
    time_s: float  # its seconds in a step or an iteration
    configs: tuple[dict[str, int], ...] = ()  # the configurations of its runs
    file: str | None = None  # its standalone file in the first run
    operator: str | None = None  # the library operator that launches it


@dataclass(frozen=True)
class KernelChange:
    """Kernels of A and those of B that do their work; several if a fusion or a library call changed."""

    a: tuple[KernelSide, ...]  # the kernels of A
    b: tuple[KernelSide, ...]  # the kernels of B
    delta_s: float  # seconds of B minus those of A
    low_s: float  # lower end of the interval of the difference in seconds
    high_s: float  # upper end of that interval
    verdict: str  # the verdict on B: ``faster``, ``slower``, ``same`` or ``undecided``
    cause: str  # the cause of most of the difference
    seconds: dict[str, float] = field(default_factory=dict)  # the difference in seconds by its cause
    detail: str = ""  # what changed, in words


@dataclass(frozen=True)
class RunComparison:
    """The comparison of two runs."""

    comparable: bool  # whether the verdict says something about one change
    reasons: tuple[str, ...]  # why it says nothing about one change; empty if it does
    verdict: str  # that of the step, or ``not comparable``
    environment_differences: tuple[EnvironmentDifference, ...]  # the facts that differ between the runs
    a: SideSummary  # the side A
    b: SideSummary  # the side B
    step: StepChange  # the difference of the step
    parts: tuple[PartChange, ...] = ()  # they add up to the difference of the step, the largest first
    graphs: tuple[GraphChange, ...] = ()  # the compiled graphs and their counterparts
    kernels: tuple[KernelChange, ...] = ()  # the rows of all kernels, the largest difference first
    notes: tuple[str, ...] = ()  # what limits these figures


# The comparison of two kernels that were timed in turn.


@dataclass(frozen=True)
class Pairing:
    """Two kernels that were timed alternately, each in one configuration."""

    first_config: Config  # the configuration of the first kernel
    second_config: Config  # the configuration of the second kernel
    first_s: float | None = None  # the first kernel's median; ``None`` if the kernels could not be timed
    # the second kernel's median in the same rounds; ``None`` if the kernels could not be timed
    second_s: float | None = None
    ratio: Ratio | None = None  # the second kernel's time over the first's
    verdict: str = ""  # the verdict on the second kernel
    reason: str = ""  # the reason why they could not be timed


@dataclass(frozen=True)
class TimedPair:
    """The comparison of two kernels."""

    first: MeasuredKernel  # the first kernel's own measurement
    second: MeasuredKernel  # the second kernel's own measurement
    state: str  # the times that were compared: ``cold`` or ``warm``
    as_they_stand: Pairing  # both in their own configurations
    # the second in the configuration of the first, so that the rest of the difference is due to the code. It equals
    # ``as_they_stand`` if both have the same configuration.
    same_config: Pairing
    best_of_each: Pairing | None = None  # both in their best configurations, if they were retuned
    difference: str = ""  # the difference of their results, or the reason why it is unknown; empty if they are equal
    alike: bool | None = None  # whether both compute the same; ``None`` if unknown
    failures: tuple[Failure, ...] = ()  # failures of their retunes
    notes: tuple[str, ...] = ()  # doubts about the comparability of their times


# The comparison of two batches, model by model.


@dataclass(frozen=True)
class ModelComparison:
    """A model of both batches."""

    name: str  # the name of the model
    comparison: RunComparison | None = None  # the comparison of its runs; ``None`` if there is none
    problem: str = ""  # why there is no comparison
    lost: bool = False  # whether A has a run of a model that cannot be compared: B may have broken it


@dataclass(frozen=True)
class BatchComparison:
    """The comparison of two batches."""

    a: str  # the path of A, as it was typed
    b: str  # the path of B, as it was typed
    ratio: float | None  # the geometric mean of the ratios of B's steps to A's; ``None`` if no model is comparable
    models: tuple[ModelComparison, ...]  # the models of A in order, then those that only B has

    def count(self, verdict: str) -> int:
        """The number of models with a verdict."""
        return sum(model.comparison is not None and model.comparison.verdict == verdict for model in self.models)
