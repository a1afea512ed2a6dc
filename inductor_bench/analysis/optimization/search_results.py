"""The results of searches: one search in words, and the searches of a batch by setting. Pure functions."""

from __future__ import annotations

import math
import re
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ... import units
from ...records.optimization import (
    DIFFERS,
    FAILED,
    FASTER,
    KEPT,
    REDUNDANT,
    UNPROVEN,
    MeasuredGain,
    MenuRow,
    Optimization,
    OptimizedProgram,
)
from ..findings.finding import list_program_words
from ..statistics import CONFIDENCE, compute_median_interval, count_needed_samples

NO_INTERVAL = -1
"""If the lower end of an interval is at or below this share of the step, the saving has too few samples."""

DIFFERING = 0.1
"""If processes with equal settings differ by more than this, the mean of their steps says little about the program."""


def describe_result(found: Optimization) -> str:
    """Says what a result saves in whole runs, as the user runs it, and in the proof: the smaller saving first.

    The proof has its interval, and the whole runs say what to expect in a new process. A result without whole runs has
    only the proof. If the processes of the whole runs differ widely, the proof comes first as well. Empty if there is
    no result.
    """
    winner = found.winner
    if winner is None:
        return ""
    gain, alone, where = winner.gain, winner.alone, describe_proof_processes(found)
    those = "this setting" if len(winner.slugs) == 1 else "these settings"
    if alone is None or gain.share < alone.share or alone.placebo > DIFFERING:
        said = f"{format_whole_step(gain)} {_saving(gain, format_interval(gain))}, proven {where}"
        if alone is None:
            return f"{said}; {_expect(winner)}" if winner.expected else said
        got = _saving(alone, _expect(winner) or format_interval(alone))
        said = f"{said}; in new processes that start with {those}: {_format_step_change(alone)} {got}"
        differ = f", and processes with equal settings differ by up to {format_exact_percent(alone.placebo)}"
        return said + differ * (alone.placebo > DIFFERING)
    got = _saving(alone, _expect(winner) or format_interval(alone))
    said = f"{format_whole_step(alone)} if you run the program with {those} {got}"
    return f"{said}; its proof, {where}: {_format_step_change(gain)} {_saving(gain, format_interval(gain))}"


def _expect(winner: OptimizedProgram) -> str:
    """What a new process saves, or nothing if it is not known: ``expect 39.8 to 52.0% in a new process``."""
    if winner.expected is None:
        return ""
    low, high = winner.expected
    return f"expect {low * 100:.1f} to {high * 100:.1f}% in a new process"


def describe_proof_processes(found: Optimization) -> str:
    """Where the proof of a result was measured."""
    return "in turns with the original in one process" if is_alternating(found) else "in processes of its own"


def is_alternating(found: Optimization) -> bool:
    """Whether all settings of the result took turns with the original in one process."""
    slugs = found.winner.slugs if found.winner is not None else ()
    return all(row.alternates for row in found.rows if row.slug in slugs)


def format_interval(gain: MeasuredGain) -> str:
    """Formats the interval of a saving: ``99.9% interval 18.6 to 20.1%``; or says that there are too few processes."""
    if gain.low <= NO_INTERVAL:
        return f"{count_processes(gain.processes)}, too few for an interval"
    return f"99.9% interval {gain.low * 100:.1f} to {gain.high * 100:.1f}%"


def _saving(gain: MeasuredGain, spread: str) -> str:
    sign = "+" if gain.share < 0 else "\N{MINUS SIGN}"
    return f"({sign}{format_exact_percent(abs(gain.share))}, {spread})"


def format_whole_step(gain: MeasuredGain) -> str:
    """The step before and after."""
    return f"{_format_step_change(gain)} a step"


def _format_step_change(gain: MeasuredGain) -> str:
    """Formats the step's time before and after: ``10.0 ms → 8.0 ms``."""
    return f"{units.seconds(gain.before_s)} → {units.seconds(gain.after_s)}"


def format_exact_percent(share: float) -> str:
    return f"{share * 100:.1f}%"


def count_processes(count: int) -> str:
    """A number of processes: ``1 process``, ``4 processes``."""
    return "1 process" if count == 1 else f"{count} processes"


def write_program_command(found: Optimization) -> str:
    """Returns the command of a search's program as one types it, without secrets."""
    return list_program_words(found.request) or shlex.join(["python", found.target, *found.request.arguments])


Searches = Sequence[tuple[str, Optimization]]
"""The searches of a batch, each with the name of its model."""


@dataclass(frozen=True)
class SettingFailures:
    """Models in which a setting failed, or changed the numbers, for the same reason."""

    differs: bool  # whether the numbers differ; else the setting was refused, or its variant failed
    reason: str  # why, in words; of several that differ in numbers only the first model's
    models: tuple[str, ...]  # the names of the models


@dataclass(frozen=True)
class SettingSummary:
    """A setting in all models of a batch. Savings are shares of a model's step."""

    slug: str  # its name
    title: str  # what it is, in words
    group: str  # its name for ``--allow`` and ``--deny``
    tried: tuple[str, ...]  # the models in which it ran
    helps: tuple[tuple[str, MeasuredGain], ...]  # models that this setting alone makes faster, proven, with the saving
    kept: int  # the number of those whose final settings include it
    unproven: int  # the number of models in which the time was too short to decide
    saved: tuple[float, ...]  # what it saves in each model in which its numbers agree and its steps were timed
    failures: tuple[SettingFailures, ...]  # where it failed or changed the numbers

    @property
    def median(self) -> float | None:
        """The median of :attr:`saved`; ``None`` if it was timed in no model."""
        return statistics.median(self.saved) if self.saved else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95% interval of the median, from the ranks of the models alone; ``None`` with too few models."""
        return compute_median_interval(self.saved) if len(self.saved) >= FEWEST_MODELS else None

    @property
    def failed(self) -> int:
        """The number of models in which it was refused or failed."""
        return sum(len(one.models) for one in self.failures if not one.differs)

    @property
    def wrong(self) -> int:
        """The number of models whose numbers it changed."""
        return sum(len(one.models) for one in self.failures if one.differs)


_NUMBER = re.compile(r"\d[\d.,]*(e[+-]?\d+)?")

FEWEST_MODELS = count_needed_samples(CONFIDENCE)
"""The smallest number of models whose ranks give an interval of the median."""


def summarize_settings(searches: Searches) -> list[SettingSummary]:
    """Summarizes each setting that was tried in any model; those that help most models come first."""
    rows: dict[str, list[tuple[str, MenuRow]]] = {}
    for name, search in searches:
        for row in search.tried:
            rows.setdefault(row.slug, []).append((name, row))
    found = [_summarize(each) for each in rows.values()]
    return sorted(found, key=lambda one: (-len(one.helps), -(one.median if one.median is not None else -1.0)))


def _summarize(rows: Sequence[tuple[str, MenuRow]]) -> SettingSummary:
    first = rows[0][1]
    gains = [row.proven or row.screened for _, row in rows if row.state not in (FAILED, DIFFERS)]
    return SettingSummary(
        first.slug,
        first.title,
        first.group,
        tuple(name for name, _ in rows),
        tuple((name, row.proven) for name, row in rows if row.proven is not None and _is_helpful(row)),
        sum(row.state == KEPT for _, row in rows),
        sum(row.state == UNPROVEN for _, row in rows),
        tuple(gain.share for gain in gains if gain is not None),
        tuple(_count_failures(rows)),
    )


def _is_helpful(row: MenuRow) -> bool:
    """Whether this setting alone is proven to make the step shorter, with numbers that agree."""
    return row.state in (KEPT, REDUNDANT) and row.proven is not None and row.proven.verdict == FASTER


def _count_failures(rows: Sequence[tuple[str, MenuRow]]) -> Iterator[SettingFailures]:
    """Groups the failures by reason. Reasons that differ only in numbers count as one."""
    found: dict[tuple[bool, str], list[tuple[str, str]]] = {}
    for name, row in rows:
        if row.state in (FAILED, DIFFERS):
            kind = _NUMBER.sub("0", row.reason)
            found.setdefault((row.state == DIFFERS, kind), []).append((name, row.reason))
    for (differs, _), places in found.items():
        yield SettingFailures(differs, places[0][1], tuple(name for name, _ in places))


def compute_mean_saving(searches: Searches) -> float | None:
    """Returns the share by which the searched models become faster: the geometric mean over their steps.

    A model without a result counts with 0, one whose search is not complete does not count.
    """
    shares = [
        search.winner.gain.share if search.winner is not None else 0.0 for _, search in searches if search.is_complete
    ]
    logs = [math.log1p(-share) for share in shares if share < 1]
    return -math.expm1(statistics.fmean(logs)) if logs else None
