"""The section of the kinds of steps: how many steps call which graphs with which sizes, and how long they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import units
from ...analysis.findings.finding import join_words, repeat_command
from ...analysis.findings.step_phrases import (
    count_steps_to_profile,
    find_unprofiled_kinds,
    is_as_profiled,
    list_shown_kinds,
    name_kinds,
)
from ...records.run import Program, Run, StepKind
from ..document import BAD, Cell, Column, Row, Section, Sentence, ShownIn, Table, make_text_column
from .run_words import write_sentence

MOST_ROWS = 6
"""Number of kinds that have a row each on a terminal."""


def make_kinds_section(run: Run) -> Section:
    """A row for each kind of steps; nothing if the steps of the program are of one kind, or take the same time."""
    program = run.program
    kinds = list_shown_kinds(program) if program is not None else ()
    if program is None or not kinds:
        return Section("Kinds of steps", ())
    columns = (
        *(make_text_column("kind", least=18), Column("steps"), Column("of time"), Column("p50"), Column("p90")),
        *([Column("profiled")] if program.parts else []),
    )
    rows = [_make_row(name, [kind], program) for name, kind in zip(name_kinds(kinds, run), kinds, strict=True)]
    rest = kinds[MOST_ROWS:] if len(kinds) > MOST_ROWS + 1 else ()
    last = _make_row(f"and {sum(kind.pooled or 1 for kind in rest)} more", rest, program) if rest else None
    table = Table(columns, rows, most=MOST_ROWS if rest else 0, cut_on=ShownIn.SCREEN, rest=last)
    note = f"by their graphs and sizes, of {kinds[0].among} steps"
    if sum(kind.count for kind in kinds) < len(program.step_times_s):
        note += " (those between samples of the host do not count here)"
    mix = "the profiled ones" if is_as_profiled(program) or find_unprofiled_kinds(program) else "this mix of them"
    after = f"; what follows describes {mix}" if program.parts else ""
    return Section("Kinds of steps", (table, *_note_unprofiled(run, program)), short="Kinds", note=note + after)


def _make_row(name: str, kinds: Sequence[StepKind], program: Program) -> Row:
    """The row of a kind, or of several kinds together, whose p50 and p90 are unknown."""
    count, share = sum(kind.count for kind in kinds), sum(kind.share or 0.0 for kind in kinds)
    profiled = sum(kind.profiled or 0 for kind in kinds)
    p50_s, p90_s = (kinds[0].time_s, kinds[0].p90_s) if len(kinds) == 1 else (None, None)
    return Row(
        (
            Cell(name),
            Cell(str(count), count),
            Cell(units.percent(share), share),
            *(Cell(units.seconds(time_s) if time_s is not None else "", time_s) for time_s in (p50_s, p90_s)),
            *([Cell(str(profiled), profiled)] if program.parts else []),
        )
    )


def _note_unprofiled(run: Run, program: Program) -> Iterator[Sentence]:
    """Says which kinds take much of the time and were not profiled, and how to profile them."""
    kinds = find_unprofiled_kinds(program)
    if not kinds:
        return
    shown = list_shown_kinds(program)
    named = [name for kind, name in zip(shown, name_kinds(shown, run), strict=True) if kind in kinds]
    share = units.whole_percent(sum(kind.share or 0.0 for kind in kinds))
    command = repeat_command(run, steps=count_steps_to_profile(kinds, run.request.steps))
    how = f". `{command}` profiles more steps" if command else ""
    is_one = sum(kind.pooled or 1 for kind in kinds) == 1
    text = f"no step of {join_words(named, len(named))} was profiled, and {'it takes' if is_one else 'they take'} "
    text += f"{share} of the time: what follows leaves {'it' if is_one else 'them'} out{how}"
    yield Sentence(write_sentence(text, run), BAD)
