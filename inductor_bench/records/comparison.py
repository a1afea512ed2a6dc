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
    """One of the two sides.

    Attributes:
        name: the path that the user gave.
        title: the title of its first run.
        machine: device and versions of its first run, as one line.
        created: the time of its first run (ISO 8601).
        runs: the number of its runs; their figures are averaged.
    """

    name: str
    title: str
    machine: str
    created: str
    runs: int = 1


@dataclass(frozen=True)
class EnvironmentDifference:
    """A fact that differs between the runs.

    Attributes:
        name: the fact: a version, the device, a variable or an option.
        a: its value in A; empty for a variable or an option that is unset.
        b: its value in B; the same.
    """

    name: str
    a: str
    b: str


@dataclass(frozen=True)
class Change:
    """The difference of a time between A and B, with its verdict.

    Attributes:
        a_s: seconds of A.
        b_s: seconds of B.
        delta_s: seconds of B less those of A.
        low_s: lower end of the interval of the difference in seconds; ``None`` where no uncertainty is known.
        high_s: upper end of that interval.
        verdict: the verdict on B: ``faster``, ``slower``, ``same`` or ``undecided``.
    """

    a_s: float
    b_s: float
    delta_s: float
    low_s: float | None
    high_s: float | None
    verdict: str


@dataclass(frozen=True)
class StepChange(Change):
    """The difference of the step.

    Attributes:
        currency: ``step`` or ``iteration``.
        noise: the assumed or measured relative difference between two runs of one program.
        noise_source: where ``noise`` comes from, in words.
    """

    currency: str = STEP
    noise: float = 0.0
    noise_source: str = ""


@dataclass(frozen=True)
class PartChange(Change):
    """A part of the difference. The differences of all parts add up to that of the step.

    Attributes:
        cause: a cause of kernels, or a kind of part of the step.
        label: the operator, the label of idle time, …; empty for a cause of kernels.
        detail: what is known about the part, in words.
        kernels: the number of rows of kernels behind it.
        a_calls: the number of calls in a step of A; ``None`` for causes of kernels and for idle time.
        b_calls: the number of calls in a step of B; ``None`` likewise.
    """

    cause: str = REST
    label: str = ""
    detail: str = ""
    kernels: int = 0
    a_calls: float | None = None
    b_calls: float | None = None


@dataclass(frozen=True)
class GraphChange:
    """A compiled graph of A and its counterpart in B.

    Attributes:
        a: its label in A; ``None`` where only B has it.
        b: its label in B; ``None`` where only A has it.
        a_s: seconds in A.
        b_s: seconds in B.
        delta_s: seconds of B less those of A.
        a_calls: the number of its calls in A.
        b_calls: the number of its calls in B.
        alike: the share of their kernels' time, 0 to 1, in kernels that both have.
    """

    a: str | None
    b: str | None
    a_s: float
    b_s: float
    delta_s: float
    a_calls: float
    b_calls: float
    alike: float


@dataclass(frozen=True)
class KernelSide:
    """A kernel of one side.

    Attributes:
        name: its name.
        kernel_id: a hash of its content.
        category: its category.
        graph: the label of its graph.
        calls: the number of its calls in a step or an iteration.
        time_s: its seconds in a step or an iteration.
        configs: the configurations of its runs.
        file: its standalone file in the first run.
        operator: the library operator that launches it.
    """

    name: str
    kernel_id: str
    category: Category
    graph: str
    calls: float
    time_s: float
    configs: tuple[dict[str, int], ...] = ()
    file: str | None = None
    operator: str | None = None


@dataclass(frozen=True)
class KernelChange:
    """Kernels of A and those of B that do their work; several where a fusion or a library call changed.

    Attributes:
        a: the kernels of A.
        b: the kernels of B.
        delta_s: seconds of B less those of A.
        low_s: lower end of the interval of the difference in seconds.
        high_s: upper end of that interval.
        verdict: the verdict on B: ``faster``, ``slower``, ``same`` or ``undecided``.
        cause: the cause of most of the difference.
        seconds: the difference in seconds by its cause.
        detail: what changed, in words.
    """

    a: tuple[KernelSide, ...]
    b: tuple[KernelSide, ...]
    delta_s: float
    low_s: float
    high_s: float
    verdict: str
    cause: str
    seconds: dict[str, float] = field(default_factory=dict)
    detail: str = ""


@dataclass(frozen=True)
class RunComparison:
    """The comparison of two runs.

    Attributes:
        comparable: whether the verdict says something about one change.
        reasons: why it says nothing about one change; empty where it does.
        verdict: that of the step, or ``not comparable``.
        environment_differences: the facts that differ between the runs.
        a: the side A.
        b: the side B.
        step: the difference of the step.
        parts: they add up to the difference of the step, the largest first.
        graphs: the compiled graphs and their counterparts.
        kernels: the rows of all kernels, the largest difference first.
        notes: what limits these figures.
    """

    comparable: bool
    reasons: tuple[str, ...]
    verdict: str
    environment_differences: tuple[EnvironmentDifference, ...]
    a: SideSummary
    b: SideSummary
    step: StepChange
    parts: tuple[PartChange, ...] = ()
    graphs: tuple[GraphChange, ...] = ()
    kernels: tuple[KernelChange, ...] = ()
    notes: tuple[str, ...] = ()


# The comparison of two kernels that were timed in turn.


@dataclass(frozen=True)
class Pairing:
    """Two kernels that were timed alternately, each in one configuration.

    Attributes:
        first_config: the configuration of the first kernel.
        second_config: the configuration of the second kernel.
        first_s: the first kernel's median; ``None`` where the kernels could not be timed.
        second_s: the second kernel's median in the same rounds; ``None`` where the kernels could not be timed.
        ratio: the second kernel's time over the first's.
        verdict: the verdict on the second kernel.
        reason: the reason why they could not be timed.
    """

    first_config: Config
    second_config: Config
    first_s: float | None = None
    second_s: float | None = None
    ratio: Ratio | None = None
    verdict: str = ""
    reason: str = ""


@dataclass(frozen=True)
class TimedPair:
    """The comparison of two kernels.

    Attributes:
        first: the first kernel's own measurement.
        second: the second kernel's own measurement.
        state: the times that were compared: ``cold`` or ``warm``.
        as_they_stand: both in their own configurations.
        same_config: the second in the configuration of the first, so that the rest of the difference is due to the
            code. It equals ``as_they_stand`` where both have the same configuration.
        best_of_each: both in their best configurations, where they were retuned.
        difference: the difference of their results, or the reason why it is unknown; empty where they are equal.
        alike: whether both compute the same; ``None`` where unknown.
        failures: failures of their retunes.
        notes: doubts about the comparability of their times.
    """

    first: MeasuredKernel
    second: MeasuredKernel
    state: str
    as_they_stand: Pairing
    same_config: Pairing
    best_of_each: Pairing | None = None
    difference: str = ""
    alike: bool | None = None
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()


# The comparison of two batches, model by model.


@dataclass(frozen=True)
class ModelComparison:
    """A model of both batches.

    Attributes:
        name: the name of the model.
        comparison: the comparison of its runs; ``None`` where there is none.
        problem: why there is no comparison.
        lost: whether A has a run of a model that cannot be compared: B may have broken it.
    """

    name: str
    comparison: RunComparison | None = None
    problem: str = ""
    lost: bool = False


@dataclass(frozen=True)
class BatchComparison:
    """The comparison of two batches.

    Attributes:
        a: the path of A, as it was typed.
        b: the path of B, as it was typed.
        ratio: the geometric mean of the ratios of B's steps to A's; ``None`` where no model is comparable.
        models: the models of A in order, then those that only B has.
    """

    a: str
    b: str
    ratio: float | None
    models: tuple[ModelComparison, ...]

    def count(self, verdict: str) -> int:
        """The number of models with a verdict."""
        return sum(model.comparison is not None and model.comparison.verdict == verdict for model in self.models)
