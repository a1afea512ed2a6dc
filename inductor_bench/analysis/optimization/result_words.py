"""What a search has found, in words: what a result saves, and the command of the program."""

from __future__ import annotations

import shlex

from ... import units
from ...records.optimization import MeasuredGain, Optimization
from ..findings.finding import list_program_words

CONFIDENCE = "99.9%"
NO_INTERVAL = -1
"""If the lower end of an interval is at or below this share of the step, the saving has too few samples."""


def describe_result(found: Optimization) -> str:
    """What a result saves from the program's start, as the user runs it, and by the proof: the smaller saving first.

    Each has its own interval. A result that was not run from the program's start has the proof alone. Empty if there is
    no result.
    """
    winner = found.winner
    if winner is None:
        return ""
    gain, alone, where = winner.gain, winner.alone, describe_proof_processes(found)
    if alone is None or gain.share < alone.share:
        said = f"{format_whole_step(gain)} {_saving(gain)}, proven {where}"
        return f"{said}; from the program's start: {_step(alone)} {_saving(alone)}" if alone is not None else said
    those = "this setting" if len(winner.slugs) == 1 else "these settings"
    said = f"{format_whole_step(alone)} if you run the program with {those} {_saving(alone)}"
    return f"{said}; its proof, {where}: {_step(gain)} {_saving(gain)}"


def describe_proof_processes(found: Optimization) -> str:
    """Where the proof of a result was measured."""
    return "in turns with the original in one process" if is_alternating(found) else "in processes of its own"


def is_alternating(found: Optimization) -> bool:
    """Whether all settings of the result took turns with the original in one process."""
    slugs = found.winner.slugs if found.winner is not None else ()
    return all(row.alternates for row in found.rows if row.slug in slugs)


def format_interval(gain: MeasuredGain) -> str:
    """The interval of a saving: ``99.9% interval 18.6 to 20.1%``; that there is none of too few processes."""
    if gain.low <= NO_INTERVAL:
        return f"{count_processes(gain.processes)}, too few for an interval"
    return f"{CONFIDENCE} interval {gain.low * 100:.1f} to {gain.high * 100:.1f}%"


def _saving(gain: MeasuredGain) -> str:
    sign = "+" if gain.share < 0 else "\N{MINUS SIGN}"
    return f"({sign}{format_exact_percent(abs(gain.share))}, {format_interval(gain)})"


def format_whole_step(gain: MeasuredGain) -> str:
    """The step before and after."""
    return f"{_step(gain)} a step"


def _step(gain: MeasuredGain) -> str:
    return f"{units.seconds(gain.before_s)} → {units.seconds(gain.after_s)}"


def format_exact_percent(share: float) -> str:
    return f"{share * 100:.1f}%"


def count_processes(count: int) -> str:
    """A number of processes: ``1 process``, ``4 processes``."""
    return "1 process" if count == 1 else f"{count} processes"


def write_program_command(found: Optimization) -> str:
    """The program of a search as it is typed, without secrets."""
    return list_program_words(found.request) or shlex.join(["python", found.target, *found.request.arguments])
