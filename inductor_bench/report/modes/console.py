"""Renders a comparison of modes for the console: the advice, what to type, the table, failures and notes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from ...analysis.findings.finding import join_words, plural
from ...records.mode_comparison import NOT_TIMED, ModeComparison, ModeRow
from ..renderer import View
from ..text import names
from ..text.layout import WIDE, Column, Line, Word, bullet, fit_columns, gap_of, header, labelled, titled_row, wrapped
from .phrases import advice, grouped_failures, legend, machine, notes
from .rows import cells_of, titles_of

SPARE = ("breaks", "memory", "busy", "vs shorter", "launches", "outputs")
"""Columns that may be left out on a narrow console, the first one first."""


NAME_WIDTH, NARROW_NAME_WIDTH = 28, 16
"""Columns that the name of a row gets at least, on a wide console and on a narrow one."""


def console(comparison: ModeComparison, view: View) -> Iterator[Line]:
    """Yields the lines of a comparison."""
    width = view.width
    yield from _heading(comparison, width)
    yield []
    yield from wrapped(advice(comparison), width, "", "title")
    winner = comparison.winner
    for index, line in enumerate(winner.lines if winner and winner.decided else ()):
        yield [Word(names.pad("Type" if index == 0 else "", 6), "title"), Word(line)]
    yield []
    columns = _columns(comparison, width)
    yield from _table(comparison, columns, width)
    yield from wrapped(_processes(comparison, [column.title for column in columns]), width, "", "dim")
    yield []
    yield from _failures(comparison.rows, width)
    said = list(notes(comparison))
    if said:
        yield [Word("Notes", "title")]
        for note in said:
            yield from bullet(names.clean(note), width, "dim")
        yield []
    if view.folder is not None:
        yield from labelled("Written", f"{view.folder}/   report.html · modes.json · records/ · logs/", width)


def _heading(comparison: ModeComparison, width: int) -> Iterator[Line]:
    left, right = names.clean(comparison.title), machine(comparison)
    room = width - names.cells(left) - names.cells(right)
    if room >= 2:
        yield [Word(left, "title"), Word(" " * room), Word(right, "dim")]
    else:
        yield [Word(names.end(left, width), "title")]
        yield [Word(names.end(right, width), "dim")]


def _columns(comparison: ModeComparison, width: int) -> list[Column]:
    rows = [cells_of(row) for row in comparison.rows]
    columns = [_column(title, [row[title] for row in rows]) for title in titles_of(comparison)]
    longest = columns[0].width
    shortest = min(longest, NAME_WIDTH if width >= WIDE else NARROW_NAME_WIDTH)
    mode, *others = fit_columns(
        [columns[0]._replace(width=shortest), *columns[1:]], width, gap_of(width), SPARE, "mode"
    )
    return [mode._replace(width=min(mode.width, longest)), *others]


def _table(comparison: ModeComparison, columns: Sequence[Column], width: int) -> Iterator[Line]:
    rows = [cells_of(row) for row in comparison.rows]
    gap = gap_of(width)
    yield header(columns, gap)
    best = comparison.winner.name if comparison.winner else ""
    for row, cells in zip(comparison.rows, rows, strict=True):
        style = "good" if row.name == best else "bad" if row.failure else ""
        named = {**cells, "mode": names.end(cells["mode"], columns[0].width)}
        yield [Word(titled_row(columns, named, gap).rstrip(), style)]


def _column(title: str, cells: Sequence[str]) -> Column:
    return Column(title, max(names.cells(text) for text in (title, *cells)), title != "mode")


def _processes(comparison: ModeComparison, shown: Collection[str]) -> str:
    counts = [len(row.processes) for row in comparison.rows if row.processes]
    if not counts:
        return ""
    steps = [len(one.step_times_s) for row in comparison.rows for one in row.processes]
    few, many = min(steps), max(steps)
    timed = plural(many, "step") if few == many else f"{few} to {many} steps"
    most = max(counts)
    each = "1 process" if most == 1 else f"{most} processes"
    return f"{each} of each row, in turn, {timed} of each · {legend(shown)}"


def _failures(rows: Sequence[ModeRow], width: int) -> Iterator[Line]:
    failures = grouped_failures(rows)
    if not failures:
        return
    yield [Word("Not measured", "bad")]
    for failure, named in failures.items():
        style = "dim" if failure.kind == NOT_TIMED else "bad"
        yield from bullet(names.clean(f"{join_words(named)}: {failure.message}"), width, style)
        if failure.hint:
            yield from wrapped(f"Hint: {names.clean(failure.hint)}", width, "    ")
    yield []
