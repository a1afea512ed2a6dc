"""The retunes of a run's most expensive kernels, and the projected saving of the model."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from .category import Category
from .failure import Failure
from .forms import Place
from .tuning import Config, MeasuredKernel, Tuning

FASTER, UNDECIDED = "faster", "undecided"
KEPT = ("slower", "same", UNDECIDED)
"""Verdicts with which a kernel keeps its configuration."""
LIKENESS = 3.0
"""Maximum factor between a kernel's standalone time and its time in the model for which a saving is projected."""

INTERRUPTED = "it was not retuned to the end"
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
    "cuDNN's search for an algorithm: apply leaves this setting to you",
    "cuDNN's search for an algorithm: torch.backends.cudnn.benchmark = True turns it on, for all convolutions, and "
    "`inductor-bench modes PROGRAM --with cudnn-benchmark` measures it on the step",
)
OTHER_THREADS = Obstacle(
    "another number of threads: apply leaves this setting to you",
    "another number of threads for one library call: torch.set_num_threads sets it for the whole program",
)
TIMED_ANEW = Obstacle(*["a CUTLASS kernel, which Inductor takes only after it has timed it"] * 2)

EDITED = (
    "its file was edited, so it is not what the model runs; move it away and retune this RUN again, which writes and "
    "retunes the model's kernel"
)


@dataclass(frozen=True)
class TuningOrigin:
    """The run in which a kernel was tuned.

    Attributes:
        run_id: the name of that run.
        title: the title of that run.
        tuned_at: the time at which the tuning ended (ISO 8601).
    """

    run_id: str
    title: str
    tuned_at: str


@dataclass(frozen=True)
class Retune:
    """The retune of a kernel, or of a library call with its arguments.

    Attributes:
        name: the name of the kernel.
        kernel_id: a hash of the kernel's content.
        category: the category of the kernel.
        graphs: the labels of the graphs that launch it.
        calls: its calls in one step of the program, else in one iteration of these graphs together.
        time_s: the time of these calls.
        file: its standalone file.
        method: the way of choosing candidates.
        kernel: the measurement of the file with all candidates. It has no ``tuning`` where the budget was spent before.
        failure: the reason why there is no measurement, or why the best configuration is wrong in the program. ``None``
            beside a ``kernel`` of ``None`` means that the retune has not come to an end.
        known_from: the run from which the tuning was taken over; ``None`` where the kernel was tuned for this run.
    """

    name: str
    kernel_id: str
    category: Category
    graphs: tuple[str, ...]
    calls: float
    time_s: float
    file: Place | None
    method: str
    kernel: MeasuredKernel | None = None
    failure: Failure | None = None
    known_from: TuningOrigin | None = None

    @property
    def tuning(self) -> Tuning | None:
        return self.kernel.tuning if self.kernel is not None else None

    @property
    def switch(self) -> str:
        """The setting of a library, for all of its calls, that won; empty where a configuration of the kernel did."""
        return _switch_in(self.category, self.tuning.best_config) if self.tuning is not None else ""

    @property
    def obstacle(self) -> Obstacle | None:
        """Why ``apply`` does not put the winner into a program; ``None`` if nothing in the record is in its way."""
        if self.tuning is None or self.tuning.verdict != FASTER:
            return None
        unlike = unlikeness(self.tuning.default_s, self.calls, self.time_s)
        return find_obstacle(self.category, self.tuning.best_config, unlike)

    @property
    def row(self) -> RetuneRow:
        """The figures of the retune."""
        place = (self.name, self.kernel_id, self.category, self.graphs, self.calls, self.time_s, self.file, self.method)
        tuning = self.tuning
        if tuning is None or self.failure is not None:
            message = self.failure.message if self.failure is not None else None
            return RetuneRow(*place, problem=why_untuned(message, self.kernel is not None))
        caution = "; ".join(self.kernel.advice) if self.kernel is not None else ""
        row = RetuneRow(*place, caution=caution)
        return row.tuned(tuning.default_s, tuning.best_s, tuning.speedup, tuning.verdict, tuning.best_config)


def unlikeness(default_s: float, calls: float, time_s: float) -> str:
    """``by itself it takes 54 times what it takes in the model``; empty within a factor of ``LIKENESS``.

    Args:
        default_s: seconds of one call of the standalone file.
        calls: the calls in the model.
        time_s: seconds of these calls in the model.
    """
    factor = default_s * calls / time_s if time_s else math.inf
    if 1 / LIKENESS <= factor <= LIKENESS:
        return ""
    return f"by itself it takes {factor:.2g} times what it takes in the model"


def find_obstacle(category: Category, config: Config, unlike: str) -> Obstacle | None:
    """Why ``apply`` does not put a faster configuration into a program; ``None`` if nothing is in its way.

    Args:
        category: the kernel's category.
        config: the configuration.
        unlike: how far the file's time is from the time in the model; see :func:`unlikeness`.
    """
    if unlike:
        return Obstacle(unlike, f"{unlike}, so that its winner says nothing of the model")
    if switch := _switch_in(category, config):
        return SEARCHED if switch == CUDNN_SEARCH else OTHER_THREADS
    return TIMED_ANEW if config.get("backend") == CUTLASS else None


def _switch_in(category: Category, config: Config) -> str:
    return next((name for name in SWITCHES if config.get(name)), "") if category.is_library else ""


def why_untuned(failure: str | None, measured: bool) -> str:
    """The reason why a retune has no result.

    Args:
        failure: the message of its failure, if it failed.
        measured: whether the kernel's own times were measured.
    """
    return failure if failure is not None else UNREACHED if measured else INTERRUPTED


class RetuneRow(NamedTuple):
    """The figures of a retune; see :class:`Retune` for the first eight.

    Attributes:
        tuned_default_s, tuned_best_s: seconds of one cold call of the standalone file.
        speedup: the speedup of the best candidate.
        verdict: the verdict on the best candidate.
        saving_s: projected saving in seconds per iteration of the model, assuming the speedup of the standalone file.
            It is 0 where no candidate is surely faster. Where standalone time and time in the model differ by more than
            a factor of ``LIKENESS``, a faster candidate is undecided.
        problem: the reason why there are no figures.
        caution: doubts about their measurement.
        left_to_user: whether ``apply`` leaves a faster candidate to the user: a setting of a library, or a kernel that
            Inductor times anew.
        obstacle: why ``apply`` does not put a faster candidate into a program, in short words.
    """

    name: str
    kernel_id: str
    category: Category
    graphs: tuple[str, ...]
    calls: float
    time_s: float
    file: str | None
    method: str
    tuned_default_s: float | None = None
    tuned_best_s: float | None = None
    speedup: float | None = None
    verdict: str = ""
    saving_s: float | None = None
    problem: str = ""
    caution: str = ""
    left_to_user: bool = False
    obstacle: str = ""

    @property
    def over(self) -> bool:
        """Whether the retune has come to an end, with or without a result."""
        return self.problem not in UNFINISHED

    def tuned(self, default_s: float, best_s: float, speedup: float, verdict: str, config: Config) -> RetuneRow:
        """The row with the result of the retune; ``config`` is that of the best candidate."""
        row = self._replace(tuned_default_s=default_s, tuned_best_s=best_s, speedup=speedup, verdict=verdict)
        if verdict != FASTER:
            return row._replace(saving_s=0.0)
        unlike = unlikeness(default_s, self.calls, self.time_s)
        if (obstacle := find_obstacle(self.category, config, unlike)) is not None:
            row = row._replace(obstacle=obstacle.short, left_to_user=not unlike)
        if unlike:
            why = f"{unlike}, so that nothing is projected"
            return row._replace(verdict=UNDECIDED, saving_s=0.0, caution="; ".join(filter(None, [why, self.caution])))
        return row._replace(saving_s=self.time_s * (1 - 1 / speedup))


def best_of_each(rows: Iterable[RetuneRow]) -> tuple[RetuneRow, ...]:
    """One row for each kernel, in order: of several methods the row with the highest speedup."""
    best: dict[str, RetuneRow] = {}
    for row in rows:
        other = best.setdefault(row.kernel_id, row)
        if (row.speedup or 0.0) > (other.speedup or 0.0):
            best[row.kernel_id] = row
    return tuple(best.values())


def by_kernel(rows: Iterable[RetuneRow]) -> dict[str, RetuneRow]:
    """The best row of each kernel, by its id and by its file, because a library kernel has the file of its call."""
    return {key: row for row in best_of_each(rows) for key in (row.file, row.kernel_id) if key}
