"""The most expensive kernels of a run, retuned: what came of it, and what the model would win."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from .category import Category
from .failure import Failure
from .forms import Place
from .tuning import MeasuredKernel, Tuning

FASTER = "faster"
LIKENESS = 3.0
"""How many times longer or shorter a kernel may take by itself than in the model, for a projection onto it."""

INTERRUPTED = "it was not retuned to the end"
UNREACHED = "the budget was spent before its turn: retune this RUN again, or with a larger --budget"
UNFINISHED = (INTERRUPTED, UNREACHED)
"""Problems of those that are still to be retuned."""

EDITED = (
    "its file was edited, so it is not what the model runs; move it away and retune this RUN again, which writes and "
    "retunes the model's kernel"
)


@dataclass(frozen=True)
class Retune:
    """A kernel of a run, or a library call with its arguments, and its retune as ``file`` has it.

    ``calls`` and ``time_s`` are of one iteration of each of ``graphs``, which launch it. ``kernel`` is what was
    measured of the file, with all that was tried; ``failure`` says why there is nothing. While there is neither the
    retune was asked for and has not come to an end; a ``kernel`` of which nothing was tried is one that the budget did
    not last for.
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

    @property
    def tuning(self) -> Tuning | None:
        return self.kernel.tuning if self.kernel is not None else None

    @property
    def row(self) -> RetuneRow:
        """Its figures."""
        place = (self.name, self.kernel_id, self.category, self.graphs, self.calls, self.time_s, self.file, self.method)
        tuning = self.tuning
        if tuning is None:
            message = self.failure.message if self.failure is not None else None
            return RetuneRow(*place, problem=why_untuned(message, self.kernel is not None))
        caution = "; ".join(self.kernel.advice) if self.kernel is not None else ""
        row = RetuneRow(*place, caution=caution)
        return row.tuned(tuning.default_s, tuning.best_s, tuning.speedup, tuning.verdict)


def why_untuned(failure: str | None, measured: bool) -> str:
    """Why nothing came of a retune: the message of its failure, or that it is still to be done."""
    return failure if failure is not None else UNREACHED if measured else INTERRUPTED


class RetuneRow(NamedTuple):
    """The figures of a retune. ``problem`` says why there are none, ``caution`` what is wrong with their measurement.

    ``tuned_default_s`` and ``tuned_best_s`` are of one cold call of the standalone file. ``saving_s`` is a projection
    for one iteration of the model: as if the kernel got as much faster there as its file did by itself. It is 0 where
    that was not surely faster, or where it takes another time by itself than in the model, beyond ``LIKENESS``.
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

    @property
    def over(self) -> bool:
        """Whether it has come to an end, whatever that was."""
        return self.problem not in UNFINISHED

    def tuned(self, default_s: float, best_s: float, speedup: float, verdict: str) -> RetuneRow:
        """The row with what came of it."""
        row = self._replace(tuned_default_s=default_s, tuned_best_s=best_s, speedup=speedup, verdict=verdict)
        if verdict != FASTER:
            return row._replace(saving_s=0.0)
        factor = default_s * self.calls / self.time_s
        if not 1 / LIKENESS <= factor <= LIKENESS:
            why = f"by itself it takes {factor:.2g} times what it takes in the model, so that nothing is projected"
            return row._replace(saving_s=0.0, caution="; ".join(filter(None, [why, self.caution])))
        return row._replace(saving_s=self.time_s * (1 - 1 / speedup))


def best_of_each(rows: Iterable[RetuneRow]) -> tuple[RetuneRow, ...]:
    """One row for each kernel, in their order: of several ways of tuning the one that won most."""
    best: dict[str, RetuneRow] = {}
    for row in rows:
        other = best.setdefault(row.kernel_id, row)
        if (row.speedup or 0.0) > (other.speedup or 0.0):
            best[row.kernel_id] = row
    return tuple(best.values())


def by_kernel(rows: Iterable[RetuneRow]) -> dict[str, RetuneRow]:
    """The best row of each kernel by its id, and by the name of its file: library kernels know that of their call."""
    return {key: row for row in best_of_each(rows) for key in (row.file, row.kernel_id) if key}
