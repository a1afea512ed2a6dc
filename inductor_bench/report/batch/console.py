"""A batch as lines of styled words: the answer, a row for each model, the families and kernels that matter."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ... import units
from ...analysis.batch_aggregation import KernelGroup, ModelSummary, suite_time_s
from ...analysis.findings.phrases import plural
from ...records.batch_results import Corpus
from ..text import names, palette
from ..text.layout import (
    Column,
    Line,
    Word,
    bars,
    bullet,
    command_lines,
    fitting,
    gap_of,
    header,
    labelled,
    titled_row,
    wrapped,
)
from .phrases import (
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

MOST_MODELS = 40
MOST_FAILURES = 12
WITH_TOP_KERNEL = 12
"""So many models have a second line, with the kernel that takes most of their time."""

NARROWEST_NAME = 16
WIDEST_NAME = 30
NARROWEST_BARS = 20
SPARE_OF_MODELS = ("batch", "busy")
SPARE_OF_KERNELS = ("kernels", "launches", "models", "of peak")
"""The columns that a narrow terminal has no room for, the least important first."""


def corpus_screen(
    corpus: Corpus,
    summaries: Sequence[ModelSummary],
    families: Sequence[KernelGroup],
    kernels: Sequence[KernelGroup],
    folder: Path,
    width: int,
    top: int,
) -> Iterator[Line]:
    """The whole screen; ``top`` families and kernels."""
    left, right = names.clean(heading(corpus)), suite_machine(corpus)
    room = width - names.cells(left) - names.cells(right)
    if room >= 2:
        yield [Word(left, "title"), Word(" " * room), Word(right, "dim")]
    else:
        yield [Word(names.end(left, width), "title")]
        yield [Word(names.end(right, width), "dim")]
    yield []
    yield from wrapped(f"{progress_words(corpus)}.", width, "", "title")
    lead = lead_words(families, suite_time_s(corpus))
    if lead:
        yield from wrapped(lead, width, "", "title")
    retuned = retune_words(summaries)
    if retuned:
        yield from wrapped(retuned, width, "", "title")
    yield []
    yield from _failures(summaries, folder, width)
    yield from _models(summaries, width)
    yield from _groups(families, len(families), "families of kernels", "family", top, width, family=True)
    yield from _groups(kernels, len(kernels), "kernels", "kernel", top, width, family=False)
    yield from _notes(summaries, width)
    yield from _next(summaries, kernels, folder, width)
    yield from _written(folder, width)


def _failures(summaries: Sequence[ModelSummary], folder: Path, width: int) -> Iterator[Line]:
    failed = [(summary, problem) for summary in summaries if (problem := problem_of(summary)) is not None]
    if not failed:
        return
    yield [Word("Failed or skipped", "bad")]
    for summary, failure in failed[:MOST_FAILURES]:
        text = f"{summary.name}: {failure.stage}, {failure.kind}: {names.clean(failure.message)}"
        yield from bullet(text, width, "bad")
        if failure.hint:
            yield from wrapped(f"Hint: {names.clean(failure.hint)}", width, "    ")
        log = summary.model.model.log
        if log and (folder / log).is_file():
            yield [Word(f"    Log:  {folder / log}", "dim")]
    if len(failed) > MOST_FAILURES:
        yield [Word(f"  and {len(failed) - MOST_FAILURES} more in summary.csv", "dim")]
    yield []


def _models(summaries: Sequence[ModelSummary], width: int) -> Iterator[Line]:
    measured = [summary for summary in summaries if summary.parts]
    if not measured:
        return
    dearest = sorted(measured, key=lambda summary: -summary.time_s)[:MOST_MODELS]
    shown = [summary for summary in measured if summary in dearest]
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
            *bars(_bar_parts(summary), room),
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
    """The columns before the bars; names and bars share what room the others leave."""
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
    model, *others = fitting(columns, width - gap - NARROWEST_BARS, gap, SPARE_OF_MODELS, "model")
    return [model._replace(width=min(model.width, longest, WIDEST_NAME)), *others]


def _bar_parts(summary: ModelSummary) -> Iterator[tuple[str, float, str]]:
    for part, share in summary.parts:
        yield part_title(part, summary), share, palette.IDLE if part is None else palette.COLOURS[part]


def _groups(
    groups: Sequence[KernelGroup], every: int, what: str, title: str, top: int, width: int, *, family: bool
) -> Iterator[Line]:
    shown = groups[:top]
    if not shown:
        return
    yield from wrapped(f"The {len(shown)} {what} of {every:,} that take most of the suite's time", width, "", "title")
    retuned = any(group.speedup is not None for group in groups)
    columns, gap = _group_columns(title, width, family=family, retuned=retuned), gap_of(width)
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


def _group_columns(title: str, width: int, *, family: bool, retuned: bool) -> list[Column]:
    columns = [
        Column("#", 3),
        Column(title, NARROWEST_NAME, False),
        *([Column("kernels", 7)] if family else []),
        Column("models", 6),
        Column("launches", 8),
        Column("time", 8),
        Column("share", 6),
        Column("of peak", 11),
        Column("gain limit", 10),
        *([Column("retune", 6)] if retuned else []),
    ]
    return fitting(columns, width, gap_of(width), SPARE_OF_KERNELS, title)


def _notes(summaries: Sequence[ModelSummary], width: int) -> Iterator[Line]:
    notes = list(model_notes(summaries))
    for note in notes[:MOST_FAILURES]:
        yield from wrapped(f"* {note}", width, "", "dim")
    if len(notes) > MOST_FAILURES:
        yield [Word(f"  and {len(notes) - MOST_FAILURES} more in summary.md", "dim")]
    if notes:
        yield []


def _next(
    summaries: Sequence[ModelSummary], kernels: Sequence[KernelGroup], folder: Path, width: int
) -> Iterator[Line]:
    gain = [group for group in kernels if group.gain_limit_s and not group.operator]
    if gain:
        best = max(gain, key=lambda group: group.gain_limit_s or 0.0)
        place = next(s.model.model.run for s in summaries if s.name == best.model)
        run = shlex.quote(f"{folder / (place or '')}#{best.name}")
        command = f"inductor-bench kernel {run}"
        yield from command_lines("Next", command, "the kernel that could win most, by itself", width)


def _written(folder: Path, width: int) -> Iterator[Line]:
    tables = ("summary.csv", "kernels.csv", "families.csv", "kernels.parquet")
    files = ("batch.json", *tables, "summary.md", "plots/categories.png")
    there = [file for file in files if (folder / file).is_file()]
    runs = sum(1 for path in (folder / "models").glob("*/record.json"))
    things = [*there, plural(runs, "run") + " in models/"]
    yield from labelled("Written", f"{folder}/   {' · '.join(things)}", width)
