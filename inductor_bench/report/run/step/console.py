"""Renders the step's tables on the console: ledger, ranks, graphs. The text is complete without colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .... import units
from ....analysis.step_costs import graph_use
from ....records.run import Run
from ...text import names
from ...text.layout import WIDE, Column, Line, Word, bars, fit_columns, gap_of, header, row, titled_row, wrapped
from ...text.ranking import main_modules
from ...text.run_phrases import bar_parts, folded, method_notes
from .rows import RANK_WORDS, LedgerRow, graph_cells, idle_words, ledger_rows, rank_table

MOST_GRAPHS = 12
NARROWEST_PART = 18
SIGN = " "
"""The title of the column with the signs of the bar."""

LEAST_BAR = 12
"""Smallest width in columns in which a bar of categories is worth showing."""

CAPTION = "calls, time and share: in a step · own: the module's own run, outside of the program"


def ledger_lines(run: Run, width: int) -> Iterator[Line]:
    """Renders the parts of the step as one bar and as a table with the same signs."""
    rows = ledger_rows(run)
    if not rows:
        return
    yield [Word("Where the step goes", "title"), Word(f"   {idle_words(run)}", "dim")]
    yield bar(rows, width)
    gap = gap_of(width)
    columns = fit_columns(
        [
            *(Column(SIGN, 1, False), Column("part", NARROWEST_PART, False), Column("calls", 6), Column("time", 8)),
            *(Column("share", 6), Column("where", 30 if width >= WIDE else 24, False)),
        ],
        width,
        gap,
        ("where", "calls"),
        "part",
    )
    yield header(columns, gap)
    for one in rows:
        cells = {
            SIGN: "",
            "part": names.middle(one.label, columns[1].width),
            "calls": units.count(one.calls) if one.calls is not None else "",
            "time": units.seconds(one.time_s),
            "share": units.percent(one.share),
            "where": names.middle(one.where, columns[-1].width),
        }
        yield [Word(one.fill, one.colour), Word(titled_row(columns, cells, gap)[1:].rstrip())]
    yield []


def bar(rows: Sequence[LedgerRow], width: int) -> Line:
    """Renders the step as one bar of ``width`` columns. The columns of a part are its share, rounded without a rest."""
    line: Line = []
    start, done = 0.0, 0
    for one in rows:
        start += one.share
        end = min(width, round(start * width))
        if end > done:
            line.append(Word(one.fill * (end - done), one.colour))
        done = max(done, end)
    return line


def rank_lines(run: Run, width: int) -> Iterator[Line]:
    """Renders a line for each rank of a program of several processes."""
    table = rank_table(run)
    if table is None:
        return
    yield from wrapped(table.title, width, "", "title")
    gap = gap_of(width)
    short = ("rank", "step", "work", "exposed", "hidden", "idle")
    columns = [Column(short[0], 14, False), *(Column(title, 8) for title in short[1:])]
    yield header(columns, gap)
    for cells in table.rows:
        yield [Word(row(columns, cells, gap).rstrip())]
    yield from wrapped(RANK_WORDS, width, "", "dim")
    yield []


def step_graph_lines(run: Run, width: int) -> Iterator[Line]:
    """Renders a line for each selected graph: its use in the step, its own run, and its categories."""
    called = [module for module in run.modules if graph_use(run, module).calls]
    shown = [module for module in main_modules(run, MOST_GRAPHS) if module in called] or list(called[:1])
    if not shown:
        return
    gap = gap_of(width)
    label = min(24 if width >= WIDE else 16, max(5, *(names.cells(names.clean(module.label)) for module in shown)))
    cells = [graph_cells(run, module) for module in shown]
    launched = max(2, *(names.cells(each[4]) for each in cells))
    fixed = [Column("calls", 5), Column("time", 8), Column("share", 6), Column("as", launched, False)]
    every = [Column("graph", label, False), *fixed, Column("own wall", 8), Column("own busy", 8)]
    columns = fit_columns(every, width, gap, ("own busy", "own wall", "as"), "")
    titles = [column.title for column in every]
    left = sum(column.width + gap for column in columns)
    room = width - left if width - left >= LEAST_BAR else 0
    yield header(columns, gap)
    for module, each in zip(shown, cells, strict=True):
        named = {**dict(zip(titles, each, strict=True)), "graph": names.middle(each[0], label)}
        text = titled_row(columns, named, gap)
        categories = bars(bar_parts(run, module), room) if room else []
        yield [Word(text + " " * gap), *categories] if categories else [Word(text.rstrip())]
    for note in (CAPTION, folded(run, shown), *method_notes(run)):
        yield from wrapped(note, width, "", "dim")
    yield []
