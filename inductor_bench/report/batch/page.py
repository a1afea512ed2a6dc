"""The page of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from ... import units
from ...analysis.batch_aggregation import KernelGroup, ModelSummary
from ...records.category import Category
from ...store.folder import PAGE
from ..page.parts import (
    BAD,
    FEW_ROWS,
    NOTE,
    Cell,
    Column,
    DataTable,
    Facts,
    Item,
    Items,
    Page,
    Part,
    Row,
    Section,
    Stretch,
)
from ..page.render import render_page
from ..run.step.page import css_colour, stretch
from ..text import names, palette
from ..text.run_phrases import share_words
from .console_tables import bar_parts
from .phrases import (
    batch_size,
    best_retune,
    family_name,
    gain_share,
    heading,
    lead_words,
    model_notes,
    of_peak,
    place_words,
    problem_of,
    progress_words,
    retune_saving,
    retune_words,
    suite_machine,
    wall_words,
)
from .view import BatchView

NAME_WIDTH = 70
MOST_GROUPS = 300
"""Number of families and of kernels on the page; the CSV files have all."""


def batch_html(view: BatchView) -> str:
    """Renders the page, which loads no other file. Models link to the pages of their RUNs beside it."""
    return render_page(batch_page(view))


def batch_page(view: BatchView) -> Page:
    """The parts of the page."""
    summaries = view.models
    notes = tuple(Item(f"{note}.", NOTE) for note in model_notes(summaries))
    return Page(
        title=heading(view.results),
        about=tuple(filter(None, [suite_machine(view.results)])),
        lead=f"{progress_words(view.results)}.",
        reasons=tuple(filter(None, [lead_words(view.families, view.suite_s), retune_words(summaries)])),
        sections=(
            Section("Failed or skipped", _failures(summaries), BAD, short="Failed"),
            Section("Models", (_models(summaries), *((Items(notes),) if notes else ()))),
            Section("Families of kernels", _groups(view.families, family=True), short="Families"),
            Section("Kernels", _groups(view.kernels, family=False)),
        ),
    )


def _failures(summaries: Sequence[ModelSummary]) -> tuple[Part, ...]:
    found = [(summary.name, problem_of(summary)) for summary in summaries]
    entries = tuple(
        Item(f"{name}: {one.stage}, {one.kind}: {one.message}", BAD, one.hint, log=one.log_tail)
        for name, one in found
        if one is not None
    )
    return (Items(entries),) if entries else ()


def _models(summaries: Sequence[ModelSummary]) -> DataTable:
    retuned = any(summary.retunes is not None for summary in summaries)
    titles = ("batch", "time", "busy", "gain limit", *(["retune saves"] if retuned else []))
    columns = (Column("model", False), Column("status", False), *map(Column, titles))
    return DataTable(
        columns=(*columns, Column("where the time goes", False)),
        rows=tuple(_model_row(summary, retuned) for summary in summaries),
        filter="model, status, kernel" if len(summaries) > FEW_ROWS else "",
    )


def _model_row(summary: ModelSummary, retuned: bool) -> Row:
    row, time_s = summary.model.model, summary.time_s or None
    parts = list(bar_parts(summary))
    gain = summary.gain_limit_s / time_s if time_s and summary.gain_limit_s is not None else None
    saves = summary.retunes.saving_s / time_s if time_s and summary.retunes is not None else None
    cells = (
        Cell(summary.name, link=f"{quote(row.run)}/{PAGE}" if row.run else ""),
        Cell(summary.status),
        Cell(batch_size(summary), row.batch_size or row.request.batch_size),
        Cell(wall_words(summary), time_s),
        Cell(units.percent(summary.busy_share), summary.busy_share),
        Cell(gain_share(summary), gain),
        *([Cell(retune_saving(summary), saves)] if retuned else []),
        Cell("", notes=_part_words(summary, parts), bar=_bar(parts)),
    )
    return Row(cells)


def _part_words(summary: ModelSummary, parts: Sequence[tuple[str, float, str]]) -> tuple[str, ...]:
    words = share_words((title, share) for title, share, _ in parts)
    top = summary.top
    most = ""
    if top is not None and summary.time_s:
        most = f"{units.percent(top.time_s / summary.time_s)} {names.short(top.name, NAME_WIDTH)}"
    return tuple(filter(None, [words, most]))


def _bar(parts: Sequence[tuple[str, float, str]]) -> tuple[Stretch, ...]:
    whole = max(1.0, sum(share for _, share, _ in parts))
    return tuple(
        stretch(100 * share / whole, colour, f"{title} {units.percent(share)}") for title, share, colour in parts
    )


def _groups(groups: Sequence[KernelGroup], *, family: bool) -> tuple[Part, ...]:
    if not groups:
        return ()
    retuned = any(group.speedup is not None for group in groups)
    titles = ("kernels", "models", "launches", "time", "share", "of peak", "gain limit")
    columns = (Column("#"), Column("family" if family else "kernel", False), *map(Column, titles))
    file = "families.csv" if family else "kernels.csv"
    more = f"; {file} has all {len(groups):,}" if len(groups) > MOST_GROUPS else ""
    shown = groups[:MOST_GROUPS]
    table = DataTable(
        columns=(*columns, *([Column("best retune")] if retuned else [])),
        rows=tuple(_group_row(number, group, retuned, family) for number, group in enumerate(shown, 1)),
        main=1,
        caption=(f"The {len(shown)} that take most of the suite's time{more}.",),
        filter="name, model, operator, category" if len(shown) > FEW_ROWS else "",
    )
    return (table,)


def _group_row(number: int, group: KernelGroup, retuned: bool, family: bool) -> Row:
    name = names.short(family_name(group) if family else group.name, NAME_WIDTH)
    cells = (
        Cell(str(number), number),
        Cell(name, colour=css_colour(palette.category_colour(Category(group.category))), notes=(place_words(group),)),
        Cell(units.count(group.ids), group.ids),
        Cell(units.count(len(group.models)), len(group.models)),
        Cell(units.count(group.launches), group.launches),
        Cell(units.seconds(group.time_s), group.time_s),
        Cell(units.percent(group.share), group.share),
        Cell(of_peak(group), group.peak_share),
        Cell(units.seconds(group.gain_limit_s), group.gain_limit_s),
        *([Cell(best_retune(group), group.speedup)] if retuned else []),
    )
    facts = (
        ("name", group.name),
        ("id", group.key),
        ("category", group.category),
        ("operator", group.operator or ""),
        ("models", ", ".join(group.models)),
    )
    return Row(cells, (Facts(tuple(fact for fact in facts if fact[1])),))
