"""What a batch says: its models, what failed, and the kernels and families that take most of the suite's time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from .. import units
from ..analysis.batch_aggregation import KernelGroup, ModelSummary
from ..analysis.findings.phrases import plural
from ..records.category import Category
from ..store.folder import PAGE
from .batch_files import BATCH_FILES
from .batch_tables import BatchView, models_csv
from .batch_words import (
    batch_size,
    best_retune,
    family_name,
    gain_share,
    heading,
    lead_words,
    model_notes,
    of_peak,
    part_title,
    place_words,
    problem_of,
    progress_words,
    retune_saving,
    retune_words,
    suite_machine,
    wall_words,
)
from .document import (
    BAD,
    LEAD,
    NOTE,
    Bar,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Item,
    Items,
    On,
    Row,
    Section,
    Sentence,
    Stretch,
    Table,
    kernel_column,
    notes,
    sentences,
    words,
)
from .renderer import View, as_json, document_formats
from .text import names, palette

NAME_WIDTH = 70
MOST_MODELS = 40
WITH_TOP_KERNEL = 12
"""Largest number of models for which a terminal names the most expensive kernel of each."""

MOST_FAILURES = 12
MOST_GROUPS = 300
"""Number of families and of kernels on the page; the CSV files have all."""


def batch_document(view: BatchView, options: View) -> Document:
    """The progress, what could win most, and the tables of models, families and kernels.

    Args:
        view: the results.
        options: ``folder`` is the batch folder, ``top`` the number of families and of kernels.
    """
    folder = options.folder or Path()
    summaries = view.models
    return Document(
        heading(view.results),
        (suite_machine(view.results),),
        (
            Sentence(f"{progress_words(view.results)}.", LEAD),
            *sentences((lead_words(view.families, view.suite_s), retune_words(summaries))),
            Section("Failed or skipped", _failures(summaries, folder), BAD, short="Failed"),
            Section("Models", (*_models(summaries), *_notes(summaries))),
            _group_section("Families of kernels", view.families, options.top, family=True),
            _group_section("Kernels", view.kernels, options.top, family=False),
            *_next(view, folder),
            _written(folder),
        ),
    )


def _first(items: Sequence[Item], most: int, file: str) -> tuple[Block, ...]:
    """A list, of which a terminal shows the first entries and the number of the others."""
    entries = [one if place < most else replace(one, on=On.PAPER) for place, one in enumerate(items)]
    left = len(items) - most
    more = (Sentence(f"and {left} more in {file}", NOTE, on=On.TERMINAL),) if left > 0 else ()
    return (Items(tuple(entries)), *more)


def _failures(summaries: Sequence[ModelSummary], folder: Path) -> tuple[Block, ...]:
    items = []
    for summary in summaries:
        failure, log = problem_of(summary), summary.model.model.log
        if failure is not None:
            text = f"{summary.name}: {failure.stage}, {failure.kind}: {failure.message}"
            place = str(folder / log) if log and (folder / log).is_file() else ""
            items.append(Item(text, BAD, failure.hint, log=failure.log_tail, place=place))
    return _first(items, MOST_FAILURES, "summary.csv") if items else ()


def _notes(summaries: Sequence[ModelSummary]) -> tuple[Block, ...]:
    items = [Item(note, NOTE) for note in model_notes(summaries)]
    return _first(items, MOST_FAILURES, "summary.md") if items else ()


# --- models ----------------------------------------------------------------------------------------------------------


def _models(summaries: Sequence[ModelSummary]) -> tuple[Block, ...]:
    """A row for each model; a terminal shows those that were measured, of many the most expensive ones."""
    measured = [summary for summary in summaries if summary.parts]
    if len(measured) > MOST_MODELS:
        measured.sort(key=lambda summary: -summary.time_s)
    ranked = [*measured, *(summary for summary in summaries if not summary.parts)]
    retuned = any(summary.retunes is not None for summary in summaries)
    most = min(MOST_MODELS, len(measured))
    rest_s = sum(summary.time_s for summary in ranked[most:])
    took = f", {units.seconds(rest_s)} in all" if rest_s else ""
    columns = (
        *(words("model", shorten=names.middles), Column("status", False, on=On.PAPER), Column("batch", spare=3)),
        *(Column("time"), Column("busy", spare=2), Column("gain limit")),
        *([Column("retune saves", short="saves")] if retuned else []),
        Column("where the time goes", False, spare=1),
    )
    rows = [_model_row(summary, retuned, len(measured) <= WITH_TOP_KERNEL) for summary in ranked]
    table = Table(columns, rows, filter="model, status, kernel", most=most, cut_on=On.TERMINAL)
    if not measured:
        return (replace(table, on=On.PAPER),)
    others = f"model{'s' * (len(ranked) - most > 1)}{took}; summary.csv has every one"
    return (replace(table, more=others),)


def _model_row(summary: ModelSummary, retuned: bool, few: bool) -> Row:
    row, time_s = summary.model.model, summary.time_s or None
    gain = summary.gain_limit_s / time_s if time_s and summary.gain_limit_s is not None else None
    saves = summary.retunes.saving_s / time_s if time_s and summary.retunes is not None else None
    top = summary.top
    most = f"{units.percent(top.time_s / time_s)} {names.short(top.name, NAME_WIDTH)}" if top and time_s else ""
    cells = (
        Cell(summary.name, link=f"{quote(row.run)}/{PAGE}" if row.run else ""),
        Cell(summary.status),
        Cell(batch_size(summary), row.batch_size or row.request.batch_size),
        Cell(wall_words(summary), time_s),
        Cell(units.percent(summary.busy_share), summary.busy_share),
        Cell(gain_share(summary), gain),
        *([Cell(retune_saving(summary), saves)] if retuned else []),
        Cell("", bar=_bar(summary), notes=notes(most, on=On.EVERYWHERE if few else On.PAPER)),
    )
    return Row(cells)


def _bar(summary: ModelSummary) -> Bar:
    """The categories and idle time of a model."""
    stretches = tuple(
        Stretch(share, palette.IDLE if part is None else palette.category_colour(part), part_title(part, summary))
        for part, share in summary.parts
    )
    return Bar(stretches, max(1.0, sum(one.share for one in stretches)))


# --- families and kernels --------------------------------------------------------------------------------------------


def _group_section(title: str, groups: Sequence[KernelGroup], top: int, *, family: bool) -> Section:
    retuned = any(group.speedup is not None for group in groups)
    columns = (
        *(Column("#"), kernel_column("family" if family else "kernel", NAME_WIDTH)),
        Column("kernels", spare=4, on=On.EVERYWHERE if family else On.PAPER),
        *(Column("models", spare=2), Column("launches", spare=3), Column("time"), Column("share")),
        *(Column("of peak", spare=1), Column("gain limit")),
        *([Column("best retune", short="retune")] if retuned else []),
    )
    rows = [_group_row(number, group, retuned, family) for number, group in enumerate(groups[:MOST_GROUPS], 1)]
    file = "families.csv" if family else "kernels.csv"
    table = Table(
        columns,
        rows,
        main=1,
        filter="name, model, operator, category",
        most=top,
        every=len(groups),
        more=f"in {file}",
    )
    return Section(
        title, (table,), short=title.split()[0], note=f"{len(groups):,}, those that take most of the suite's time first"
    )


def _group_row(number: int, group: KernelGroup, retuned: bool, family: bool) -> Row:
    name = family_name(group) if family else group.name
    colour = palette.category_colour(Category(group.category))
    said = notes(place_words(group), on=On.PAGE if family else On.EVERYWHERE)
    cells = (
        *(Cell(str(number), number), Cell(name, colour=colour, notes=said)),
        *(Cell(units.count(group.ids), group.ids), Cell(units.count(len(group.models)), len(group.models))),
        *(Cell(units.count(group.launches), group.launches), Cell(units.seconds(group.time_s), group.time_s)),
        *(Cell(units.percent(group.share), group.share), Cell(of_peak(group), group.peak_share)),
        Cell(units.seconds(group.gain_limit_s), group.gain_limit_s),
        *([Cell(best_retune(group), group.speedup)] if retuned else []),
    )
    return Row(cells, lambda: _group_facts(group))


def _group_facts(group: KernelGroup) -> Iterator[Block]:
    facts = (
        *(("name", group.name), ("id", group.key), ("category", group.category), ("operator", group.operator or "")),
        ("models", ", ".join(group.models)),
    )
    yield Facts(tuple(fact for fact in facts if fact[1]))


# --- what to do next -------------------------------------------------------------------------------------------------


def _next(view: BatchView, folder: Path) -> Iterator[Block]:
    gain = [group for group in view.kernels if group.gain_limit_s and not group.operator]
    if gain:
        best = max(gain, key=lambda group: group.gain_limit_s or 0.0)
        place = next(summary.model.model.run for summary in view.models if summary.name == best.model)
        run = shlex.quote(f"{folder / (place or '')}#{best.name}")
        why = "the kernel that could win most, by itself"
        yield Commands(((f"inductor-bench kernel {run}", why),), on=On.TERMINAL)


def _written(folder: Path) -> Facts:
    there = [file for file in BATCH_FILES if (folder / file).is_file()]
    runs = sum(1 for path in (folder / "models").glob("*/record.json"))
    things = [*there, f"{plural(runs, 'run')} in models/"]
    return Facts((("Written", f"{folder}/   {' · '.join(things)}"),), on=On.TERMINAL)


FORMATS = document_formats(
    batch_document,
    json=lambda view, _: as_json(view.results.batch),
    csv=lambda view, _: models_csv(view.models),
    record="batch.json",
    rows="a row for each model as CSV",
    of="a batch",
    names_folder=True,
)
