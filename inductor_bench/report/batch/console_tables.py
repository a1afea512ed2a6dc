"""Renders the tables of a batch's summary on the console: models, families, kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import units
from ...analysis.batch_aggregation import KernelGroup, ModelSummary
from ...analysis.findings.finding import plural
from ..text import names, palette
from ..text.layout import Column, Line, Word, bars, fit_columns, gap_of, header, peak_column, titled_row, wrapped
from .phrases import (
    batch_size,
    best_retune,
    family_name,
    gain_share,
    of_peak,
    part_title,
    place_words,
    retune_saving,
    wall_words,
)

MOST_MODELS = 40
WITH_TOP_KERNEL = 12
"""Largest number of models for which each has a second line with its most expensive kernel."""

NARROWEST_NAME = 16
WIDEST_NAME = 30
NARROWEST_BARS = 20
SPARE_OF_MODELS = ("batch", "busy")
SPARE_OF_KERNELS = ("kernels", "launches", "models", "of peak")
"""Columns that are left out on a narrow terminal, the least important first."""


def model_lines(summaries: Sequence[ModelSummary], width: int) -> Iterator[Line]:
    """Renders a row for each measured model; of many models only for the most expensive ones."""
    measured = [summary for summary in summaries if summary.parts]
    if not measured:
        return
    most_expensive = sorted(measured, key=lambda summary: -summary.time_s)[:MOST_MODELS]
    shown = [summary for summary in measured if summary in most_expensive]
    retuned = any(summary.retunes is not None for summary in measured)
    columns, gap = _model_columns(shown, width, retuned=retuned), gap_of(width)
    room = width - sum(column.width + gap for column in columns)
    yield [*header(columns, gap), Word(" " * gap + names.end("where the time goes", room), "dim")]
    for summary in shown:
        cells = {
            "model": names.middle(names.clean(summary.name), columns[0].width),
            "batch": batch_size(summary),
            "wall": wall_words(summary),
            "busy": units.percent(summary.busy_share),
            "gain limit": gain_share(summary),
            "saves": retune_saving(summary),
        }
        yield [
            Word(titled_row(columns, cells, gap) + " " * gap),
            *bars(bar_parts(summary), room),
        ]
        if len(shown) <= WITH_TOP_KERNEL and summary.top is not None:
            share = units.percent(summary.top.time_s / summary.time_s)
            yield [Word(names.end(f"  {share} {names.short(summary.top.name, 60)}", width), "dim")]
    if len(shown) < len(measured):
        rest = sum(summary.time_s for summary in measured) - sum(summary.time_s for summary in shown)
        others = plural(len(measured) - len(shown), "more model")
        yield from wrapped(f"{others}, {units.seconds(rest)} in all; summary.csv has every one", width, "", "dim")
    yield []


def _model_columns(shown: Sequence[ModelSummary], width: int, *, retuned: bool) -> list[Column]:
    """Returns the columns before the bars. Names and bars share the width that the other columns leave."""
    longest = max(5, *(names.cells(names.clean(summary.name)) for summary in shown))
    columns = [
        Column("model", min(NARROWEST_NAME, longest), False),
        Column("batch", 5),
        Column("wall", max(8, *(names.cells(wall_words(summary)) for summary in shown))),
        Column("busy", 5),
        Column("gain limit", 10),
        *([Column("saves", 6)] if retuned else []),
    ]
    gap = gap_of(width)
    model, *others = fit_columns(columns, width - gap - NARROWEST_BARS, gap, SPARE_OF_MODELS, "model")
    return [model._replace(width=min(model.width, longest, WIDEST_NAME)), *others]


def bar_parts(summary: ModelSummary) -> Iterator[tuple[str, float, str]]:
    """Yields the categories and idle time of a model as ``(short title, share, colour)``."""
    for part, share in summary.parts:
        yield part_title(part, summary), share, palette.IDLE if part is None else palette.category_colour(part)


def group_lines(
    groups: Sequence[KernelGroup], every: int, what: str, title: str, top: int, width: int, *, family: bool
) -> Iterator[Line]:
    """Renders the table of the ``top`` families or kernels."""
    shown = groups[:top]
    if not shown:
        return
    yield from wrapped(f"The {len(shown)} {what} of {every:,} that take most of the suite's time", width, "", "title")
    retuned = any(group.speedup is not None for group in groups)
    columns, gap = _group_columns(shown, title, width, family=family, retuned=retuned), gap_of(width)
    yield header(columns, gap)
    room = columns[1].width
    shorts = names.unique((group.name for group in shown), room)
    for number, group in enumerate(shown, 1):
        cells = {
            "#": str(number),
            title: names.short(family_name(group), room) if family else shorts[group.name],
            "kernels": units.count(group.ids),
            "models": units.count(len(group.models)),
            "launches": units.count(group.launches),
            "time": units.seconds(group.time_s),
            "share": units.percent(group.share),
            "of peak": of_peak(group),
            "gain limit": units.seconds(group.gain_limit_s),
            "retune": best_retune(group),
        }
        yield [Word(titled_row(columns, cells, gap))]
        if not family:
            yield [Word(names.end(" " * (columns[0].width + gap) + place_words(group), width), "dim")]
    yield []


def _group_columns(
    groups: Sequence[KernelGroup], title: str, width: int, *, family: bool, retuned: bool
) -> list[Column]:
    columns = [
        Column("#", 3),
        Column(title, NARROWEST_NAME, False),
        *([Column("kernels", 7)] if family else []),
        Column("models", 6),
        Column("launches", 8),
        Column("time", 8),
        Column("share", 6),
        peak_column(map(of_peak, groups)),
        Column("gain limit", 10),
        *([Column("retune", 6)] if retuned else []),
    ]
    return fit_columns(columns, width, gap_of(width), SPARE_OF_KERNELS, title)
