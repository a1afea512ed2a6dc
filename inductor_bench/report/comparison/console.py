"""Renders a comparison as lines of styled words: what differs around, how much slower, why, and the kernels."""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.comparison_words import headline, next_commands, reasons
from ...records.comparison import FASTER, NOT_COMPARABLE, SLOWER, PartChange, RunComparison, SideSummary
from ..text import names
from ..text.layout import Column, Line, Word, bullet, command_lines, fit_columns, gap_of, header, titled_row, wrapped
from .rows import (
    KERNEL_COLUMNS,
    PART_COLUMNS,
    changed_kernels,
    detail_lines,
    environment_table,
    kernel_cells,
    of_step,
    part_cells,
)

VERDICT_STYLES = {SLOWER: "bad", FASTER: "good", NOT_COMPARABLE: "warn"}
NO_DIFFERENCE = (
    "Around the program nothing differs that the records hold: versions, machine, variables, switches, request."
)
MOST_PARTS = 12
MOST_DIFFERENCES = 14
SMALLEST_SHARE = 0.001
"""Share of A's step below which a part that is no more than noise gets no row of its own."""


def comparison_lines(comparison: RunComparison, width: int, top: int, limit: float | None = None) -> Iterator[Line]:
    """Renders a comparison.

    Args:
        comparison: the record.
        width: columns of the console.
        top: the number of kernels to show.
        limit: the slowdown, as a share, from which the comparison fails.
    """
    for side, summary in (("A", comparison.a), ("B", comparison.b)):
        yield from _title(side, summary, width)
    yield []
    yield from _environment(comparison, width)
    yield from wrapped(headline(comparison, limit), width, "", "title")
    for reason in reasons(comparison):
        yield from wrapped(reason, width)
    yield []
    yield from _parts(comparison, width)
    yield from _kernels(comparison, width, top)
    if comparison.notes:
        yield [Word("Notes", "title")]
        for note in comparison.notes:
            yield from bullet(f"{names.clean(note)}.", width, "dim")
        yield []
    for index, command in enumerate(next_commands(comparison)):
        yield from command_lines("Next" if index == 0 else "", names.clean(command.command), command.why, width)


def _title(side: str, summary: SideSummary, width: int) -> Iterator[Line]:
    runs = f" · {summary.runs} runs" if summary.runs > 1 else ""
    left = f"{side}  {names.clean(summary.name)}   {names.clean(summary.title)}{runs}"
    right = names.clean(summary.machine)
    room = width - names.cells(left) - names.cells(right)
    if room >= 2:
        yield [Word(left, "title"), Word(" " * room), Word(right, "dim")]
    else:
        yield [Word(names.end(left, width), "title")]
        yield [Word(names.end(f"   {right}", width), "dim")]


def _environment(comparison: RunComparison, width: int) -> Iterator[Line]:
    table = environment_table(comparison)
    if table is None:
        yield from wrapped(NO_DIFFERENCE, width, "", "dim")
        yield []
        return
    yield [Word(table.title, "title")]
    first = min(max(names.cells(row[0]) for row in table.rows), 40)
    room = (width - first - 7) // 2
    for cells in table.rows[:MOST_DIFFERENCES]:
        texts = [names.pad(names.middle(cells[0], first), first), *(names.middle(cell, room) for cell in cells[1:])]
        yield [Word(f"  {texts[0]}  "), Word(f"{texts[1]} → {texts[2]}")]
    if len(table.rows) > MOST_DIFFERENCES:
        yield [Word(f"  and {len(table.rows) - MOST_DIFFERENCES} more: --format json", "dim")]
    yield []


def _parts(comparison: RunComparison, width: int) -> Iterator[Line]:
    least = SMALLEST_SHARE * comparison.step.a_s
    parts = [part for part in comparison.parts if abs(part.delta_s) >= least or part.verdict in VERDICT_STYLES]
    shown = parts[:MOST_PARTS]
    yield [Word("Where the difference comes from", "title"), Word("   the parts add up to it", "dim")]
    gap = gap_of(width)
    columns = _part_columns(width - 2, gap)
    yield [Word("  "), *header(columns, gap)]
    for part in shown:
        yield _part_line(columns, part_cells(comparison, part), gap)
        if part.detail:
            yield from wrapped(names.clean(part.detail), width, "    ", "dim")
    others = [part for part in comparison.parts if part not in shown]
    if others:
        yield _part_line(columns, _others(comparison, others), gap)
    step = comparison.step
    whole = PartChange(step.a_s, step.b_s, step.delta_s, None, None, comparison.verdict, f"the {step.currency}")
    yield _part_line(columns, part_cells(comparison, whole), gap, "title")
    yield []


def _part_columns(width: int, gap: int) -> list[Column]:
    first = Column(PART_COLUMNS[0], 20, right=False)
    columns = [first, *(Column(title, 10) for title in PART_COLUMNS[1:4])]
    columns += [Column(PART_COLUMNS[4], 11), Column(PART_COLUMNS[5], 14, right=False)]
    return fit_columns(columns, width, gap, [PART_COLUMNS[4], PART_COLUMNS[1]], PART_COLUMNS[0])


def _part_line(columns: list[Column], cells: tuple[str, ...], gap: int, style: str = "") -> Line:
    named = dict(zip(PART_COLUMNS, cells, strict=True))
    named[PART_COLUMNS[0]] = names.middle(cells[0], columns[0].width)
    verdict = named[PART_COLUMNS[5]]
    text = titled_row(columns, {**named, PART_COLUMNS[5]: ""}, gap).rstrip()
    used = sum(column.width + gap for column in columns[:-1])
    return [Word(f"  {names.pad(text, used)}", style), Word(verdict, VERDICT_STYLES.get(verdict, style or "dim"))]


def _others(comparison: RunComparison, parts: list[PartChange]) -> tuple[str, ...]:
    a_s, b_s = sum(part.a_s for part in parts), sum(part.b_s for part in parts)
    delta_s = sum(part.delta_s for part in parts)
    whole = PartChange(a_s, b_s, delta_s, None, None, "", f"{len(parts)} smaller")
    return (*part_cells(comparison, whole)[:4], of_step(comparison, whole.delta_s), "")


def _kernels(comparison: RunComparison, width: int, top: int) -> Iterator[Line]:
    changes = changed_kernels(comparison)
    if not changes:
        return
    whole = f"The {top} kernels of {len(changes)} that differ most" if len(changes) > top else "The kernels that differ"
    unit = f"   times of all calls in {_currency(comparison)}"
    yield [Word(whole, "title"), Word(unit if names.cells(whole + unit) <= width else "", "dim")]
    gap = gap_of(width)
    columns = _kernel_columns(width, gap)
    yield header(columns, gap)
    for number, change in enumerate(changes[:top], 1):
        kernel = next(column.width for column in columns if column.title == "kernel")
        cells = dict(zip(KERNEL_COLUMNS, (str(number), *kernel_cells(change, kernel)), strict=True))
        text = titled_row(columns, {**cells, "verdict": ""}, gap).rstrip()
        used = sum(column.width + gap for column in columns[:-1])
        yield [Word(names.pad(text, used)), Word(change.verdict, VERDICT_STYLES.get(change.verdict, "dim"))]
        first, *more = detail_lines(change) or [""]
        yield from wrapped(": ".join(filter(None, [change.cause, first])), width, "     ", "dim")
        for line in more:
            yield from wrapped(line, width, "     ", "dim")
    yield []


def _currency(comparison: RunComparison) -> str:
    return "a step" if comparison.step.currency == "step" else "an iteration"


def _kernel_columns(width: int, gap: int) -> list[Column]:
    columns = [
        Column(KERNEL_COLUMNS[0], 3),
        Column("kernel", 20, right=False),
        Column("calls", 7),
        *(Column(title, 8) for title in ("A", "B")),
        Column("difference", 10),
        Column("verdict", 9, right=False),
    ]
    return fit_columns(columns, width, gap, ["calls", "A", "B"], "kernel")
