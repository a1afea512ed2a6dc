"""The program's step as parts of the page: the bar, the timeline, the ledger and the ranks."""

from __future__ import annotations

from collections.abc import Iterator

from .... import units
from ....analysis.step_costs import step_of
from ....records.program import GRAPH, IDLE, Interval, Timeline
from ....records.run import Run
from ...page.parts import FEW_ROWS, Bar, Cell, Column, DataTable, Lanes, Lines, Part, Row, Stretch, columns_of
from ...text import palette
from .rows import RANK_WORDS, LedgerRow, bar_rows, graph_colours, idle_words, ledger_rows, rank_table
from .timeline import interval_colour, lanes_of, legend_of

CHARACTER = 0.55
"""Width in percent of a wide page that a character of a label takes."""
TICKS = 5
NUMBERS = ("calls", "time", "share")


def step_parts(run: Run, timeline: Timeline | None) -> tuple[Part, ...]:
    """The parts of the section about the step; none where no step was profiled."""
    if step_of(run) is None:
        return ()
    return (_bar(run), *_lanes(run, timeline), _ledger(run))


def css_colour(colour: str) -> str:
    """The colour as the page names it: that of idle time is darker on a dark page."""
    return "var(--idle)" if colour == palette.IDLE else colour


def stretch(width: float, colour: str, text: str, label: str = "", left: float | None = None) -> Stretch:
    """A stretch with its colours; a label that does not fit is left out."""
    ink = "inherit" if colour == palette.IDLE else palette.ink_on(colour)
    return Stretch(width, css_colour(colour), text, left, label if width >= CHARACTER * len(label) else "", ink)


def _bar(run: Run) -> Bar:
    return Bar(
        tuple(
            stretch(100 * row.share, row.colour, f"{row.label} {units.percent(row.share)}", row.label)
            for row in bar_rows(run)
        )
    )


def _lanes(run: Run, timeline: Timeline | None) -> Iterator[Lanes]:
    if timeline is None or not timeline.intervals or timeline.time_s <= 0:
        return
    colour_of = graph_colours(run)
    lanes = tuple(
        (lane, tuple(_intervals(timeline, [one for one in timeline.intervals if one.lane == lane], colour_of)))
        for lane in lanes_of(timeline)
    )
    ticks = tuple(
        (100 * tick / (TICKS - 1), units.seconds(timeline.time_s * tick / (TICKS - 1))) for tick in range(TICKS)
    )
    whose = f" of rank {timeline.rank}" if timeline.rank is not None else ""
    legend = tuple((css_colour(colour), name) for name, colour in legend_of(timeline.intervals, colour_of))
    caption = f"One profiled step{whose}; the profiler slows the host. traces/step.trace.json.gz opens in Perfetto."
    yield Lanes(lanes, ticks, legend, caption)


def _intervals(timeline: Timeline, shown: list[Interval], colour_of: dict[str, str]) -> Iterator[Stretch]:
    for one in shown:
        width = 100 * (one.end_s - one.start_s) / timeline.time_s
        words = f"idle: {one.label}" if one.kind == IDLE else one.label
        text = f"{words} {units.seconds(one.end_s - one.start_s)}"
        yield stretch(width, interval_colour(one, colour_of), text, words, 100 * one.start_s / timeline.time_s)


def _ledger(run: Run) -> DataTable:
    rows = tuple(map(_ledger_row, ledger_rows(run, most=10**6)))
    return DataTable(
        columns=tuple(Column(title, title in NUMBERS) for title in ("part", "kind", *NUMBERS, "where")),
        rows=rows,
        caption=(f"Every moment of the step is in one part; {idle_words(run)}.",),
        filter="part, kind, place" if len(rows) > FEW_ROWS else "",
    )


def _ledger_row(row: LedgerRow) -> Row:
    return Row(
        (
            Cell(row.label, colour=css_colour(row.colour)),
            Cell("compiled graph" if row.kind == GRAPH else row.kind),
            Cell(units.count(row.calls) if row.calls is not None else "", row.calls),
            Cell(units.seconds(row.time_s), row.time_s),
            Cell(units.percent(row.share), row.share),
            Cell(row.where),
        )
    )


def rank_parts(run: Run) -> tuple[Part, ...]:
    """The table of the processes; none for a program of one process."""
    table = rank_table(run)
    if table is None:
        return ()
    rows = tuple(Row(tuple(map(Cell, cells))) for cells in table.rows)
    said = Lines((f"{table.title}.", f"{RANK_WORDS}."), "note")
    return (said, DataTable(columns_of(table.header, table.alignment), rows))
