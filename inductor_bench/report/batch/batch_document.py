"""The document of a batch: its models, its failures, and the kernels and families that take most of the suite's
time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from ... import units
from ...analysis.batch_aggregation import KernelGroup, ModelSummary, compute_suite_time_s
from ...analysis.findings.finding import UNTUNABLE, plural
from ...devices.nvidia import NVIDIA
from ...devices.protocol import CPU
from ...devices.table import find_common_device
from ...records.base import Category
from ...records.batch_record import (
    DAMAGED,
    DONE,
    FAILED,
    MEASURED,
    NEWER,
    PARTIAL,
    RUNNING,
    SKIPPED,
    UNOPTIMIZED,
    WAITING,
    BatchResults,
    GraphResult,
)
from ...records.retune import NO_DIFFERENCE, SAVES, SLOWER, UNDECIDED
from ...store.files import write_in_background, write_text
from ...store.folder import BATCH, PAGE
from ...store.tables import write_parquet
from .. import names, palette
from ..document import (
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
    Row,
    Section,
    Sentence,
    ShownIn,
    Stretch,
    make_kernel_column,
    make_notes,
    make_sentences,
    make_table,
    make_text_column,
)
from ..formats import View, make_formats, show_as_markdown, show_as_page
from ..run.retune_document import describe_cautions, describe_left_savings, format_speedup
from ..run.run_words import name_bound
from .batch_settings_document import make_setting_sections, search_words
from .batch_tables import BatchView, find_problem, make_groups_csv, make_models_csv, make_settings_csv

STATUS_WORDS = (
    (MEASURED, "still to be retuned"),
    (UNOPTIMIZED, "still to be searched for settings"),
    (PARTIAL, "measured in part"),
    (FAILED, "failed"),
    (SKIPPED, "skipped"),
    (RUNNING, "running"),
)
UNREADABLE = ((DAMAGED, "damaged"), (NEWER, "of a newer format"))
LEAST_GAIN = 0.005  # smallest gain that the lead names, as a share of the time of all models
LEAD_NAME = 60  # largest number of characters of a family's name in the lead
STRETCHED = 1.0005
"""Ratio of profiled to unprofiled time above which the profiler's overhead is reported."""


def write_heading(results: BatchResults) -> str:
    """Returns ``timm · inference · 18 models``."""
    requests = [model.request for model in results.batch.models]
    parts = [Path(results.batch.source).stem]
    for field, said in (("training", {True: "training", False: "inference"}), ("amp", None), ("mode", None)):
        values = {getattr(request, field) for request in requests}
        if len(values) == 1 and (value := values.pop()) is not None:
            parts.append(said[value] if said else f"{value} autocast" if field == "amp" else f"mode {value}")
    return " · ".join([*parts, plural(len(requests), "model")])


def describe_progress(results: BatchResults) -> str:
    """Returns ``16 of 18 models measured, 1 failed, 1 waiting; 123 ms in all, one step of each``."""
    batch = results.batch
    problems = [model.problem.kind for model in results.models if model.problem is not None]
    measured = batch.count(MEASURED, UNOPTIMIZED, DONE, PARTIAL) - len(problems)
    parts = [f"{measured} of {plural(len(batch.models), 'model')} measured"]
    parts += [f"{batch.count(status)} {words}" for status, words in STATUS_WORDS if batch.count(status)]
    parts += [f"{count} {words}" for kind, words in UNREADABLE if (count := problems.count(kind))]
    parts += [f"{batch.count(WAITING)} still to be measured"] if batch.count(WAITING) else []
    total = compute_suite_time_s(results)
    return ", ".join(parts) + (f"; {units.seconds(total)} in all, {_describe_each(results)}" if total else "")


def _describe_each(results: BatchResults) -> str:
    """Says what the time of all models is a sum of: steps of their programs, or runs of their graphs."""
    in_step = {model.in_step for model in results.models if model.graphs}
    if in_step == {False}:
        return "each model once"
    return "one step of each" if in_step == {True} else "one step or iteration of each"


def describe_leading_family(families: Sequence[KernelGroup], suite_s: float) -> str:
    """Returns a sentence about the family of generated kernels with the largest possible gain; empty without a gain."""
    tunable = [family for family in families if Category(family.category) not in UNTUNABLE and family.gain_limit_s]
    if not tunable or not suite_s:
        return ""
    best = max(tunable, key=lambda family: family.gain_limit_s or 0.0)
    gain = (best.gain_limit_s or 0.0) / suite_s
    if gain < LEAST_GAIN:
        return ""
    peak = f", {format_peak_share(best)}" if best.peak_share is not None else ""
    return (
        f"Of the generated kernels the family of {names.shorten(name_family(best), LEAD_NAME)} could save most: "
        f"{units.count(best.launches)} launch{'es' if best.launches != 1 else ''} in "
        f"{plural(len(best.models), 'model')}, {units.percent(best.share)} of suite time{peak}; at its peak the suite "
        f"would take {units.percent(gain)} less, an upper bound."
    )


def name_family(group: KernelGroup) -> str:
    """Returns the name of a family: the name of a generated kernel without its number, or a library call's operator."""
    if group.operator:
        return names.clean(group.operator)
    name = names.strip_kernel_name(group.name)
    stem = name.rstrip("0123456789").rstrip("_")
    return stem if name.startswith(("triton_", "cpp_", "graph_")) and stem else name


def format_peak_share(group: KernelGroup) -> str:
    """Returns ``38% DRAM``, the mean weighted by time; without a known share only the roof, or a dash."""
    on_host = group.category == Category.CPP.value or group.name.startswith("aten::")
    name = name_bound(group.bound, CPU if on_host else NVIDIA)
    if group.peak_share is None:
        return name
    return f"{units.whole_percent(group.peak_share)} {name.removesuffix(units.MISSING)}".rstrip()


def describe_place(group: KernelGroup) -> str:
    """Returns ``resnet50 and 3 more models · aten.convolution``, with the model of the most expensive kernel first."""
    others = len(group.models) - 1
    more = f" and {plural(others, 'more model')}" if others else ""
    return " · ".join([f"{names.clean(group.model)}{more}", *([names.clean(group.operator)] if group.operator else [])])


def name_part(part: Category | None, summary: ModelSummary) -> str:
    """Returns a category in one or two words; time outside kernels is idle time, or host time on a CPU."""
    if part is not None:
        return palette.shorten_title(part)
    return find_common_device(graph.device for graph in summary.model.graphs).words.outside


def find_batch_size(summary: ModelSummary) -> str:
    """Returns the batch size; ``64*`` if it differs from the requested one."""
    row = summary.model.model
    if row.batch_size is not None:
        return f"{row.batch_size}*"
    return str(row.request.batch_size) if row.request.batch_size is not None else units.MISSING


def describe_wall_time(summary: ModelSummary) -> str:
    """Returns ``17.8 ms a step``; without a step the wall times of the graphs, ``16.2 ms + 46.6 ms``.

    Of many graphs it is their sum.
    """
    graphs = summary.model.graphs
    if not graphs:
        return units.MISSING
    if summary.model.in_step:
        return f"{units.seconds(summary.time_s)} a step"
    if len(graphs) > 2:
        return f"{units.seconds(summary.time_s)} ({len(graphs)} graphs)"
    return " + ".join(units.seconds(graph.wall_time_s or graph.time_s) for graph in graphs)


def list_model_notes(summaries: Sequence[ModelSummary]) -> Iterator[str]:
    """Yields notes on the rows of models: figures that do not count, changed settings, the base of the shares."""
    for summary in summaries:
        if summary.model.doubt:
            yield f"{summary.name}: its figures do not count, and its gain limits are left out: {summary.model.doubt}"
    for summary in summaries:
        yield from (f"{summary.name}: {note}" for note in summary.model.model.notes)
    for summary in summaries:
        if not summary.model.in_step and any(map(_is_stretched, summary.model.graphs)):
            longer = f"{units.seconds(summary.time_s)} under the profiler, more than its wall time"
            yield f"{summary.name}: shares are of {longer}"
        if summary.retunes is not None and (caution := describe_cautions(summary.retunes)):
            yield f"{summary.name}: of the retuned kernels {caution}"
        if summary.retunes is not None and summary.retunes.waiting:
            waiting = plural(summary.retunes.waiting, "retuned kernel")
            yield f"{summary.name}: no saving is projected for {waiting} in graphs that wait for their host"


def _is_stretched(graph: GraphResult) -> bool:
    """Whether an iteration of the graph took longer under the profiler than without."""
    return graph.time_s > (graph.wall_time_s or graph.time_s) * STRETCHED


def format_retune_saving(summary: ModelSummary) -> str:
    """Returns the projected saving of the retuned kernels as a share of the model's time."""
    if summary.retunes is None or not summary.time_s:
        return units.MISSING
    return units.percent(summary.retunes.saving_s / summary.time_s)


def describe_batch_retunes(summaries: Sequence[ModelSummary]) -> str:
    """Returns what the retunes project, and what was proven in the models' steps; see :func:`describe_proofs`.

    ``Retuned: 60 kernels of 3 models: 31 faster, which would save 2.30 ms (1.2% of these models), a projection.``
    """
    retuned = [summary.retunes for summary in summaries if summary.retunes is not None]
    if not retuned:
        return ""
    kernels, faster = sum(len(each.rows) for each in retuned), sum(each.faster for each in retuned)
    saved, whole = sum(each.saving_s for each in retuned), sum(s.time_s for s in summaries if s.retunes is not None)
    share = f" ({units.percent(saved / whole)} of these models)" if whole else ""
    left_s = sum(each.left_s for each in retuned)
    left = f" ({describe_left_savings(left_s)})" if left_s else ""
    saves = f", which would save {units.seconds(saved)}{share}, a projection{left}" if saved else ""
    unreached, without = sum(each.unreached for each in retuned), sum(each.without for each in retuned)
    rest = f"; {unreached} not reached within the budget" if unreached else ""
    rest += f"; {without} without a result" if without else ""
    of = f"{plural(kernels, 'kernel')} of {plural(len(retuned), 'model')}"
    return " ".join(filter(None, [f"Retuned: {of}: {faster} faster{saves}{rest}.", describe_proofs(summaries)]))


def describe_proofs(summaries: Sequence[ModelSummary]) -> str:
    """``Compared in the steps of 10 models: 8 save 2.10 ms together (3.1% of all 10 steps), 1 undecided.``"""
    proven = [(summary.name, summary.model.proven) for summary in summaries if summary.model.proven is not None]
    if not proven:
        return ""
    saved = [saving for _, saving in proven if saving.verdict == SAVES]
    whole = sum(saving.own_s for _, saving in proven)
    saved_s = sum(saving.saving_s for saving in saved)
    words = ["none was found to save"]
    if saved:
        share, together = units.percent(saved_s / whole), " together" * (len(saved) > 1)
        of = f" of all {len(proven)} steps" * (len(proven) > 1)
        words = [f"{len(saved)} save{'s' * (len(saved) == 1)} {units.seconds(saved_s)}{together} ({share}{of})"]
    for verdict, what in ((NO_DIFFERENCE, "without a difference"), (UNDECIDED, UNDECIDED)):
        count = sum(saving.verdict == verdict for _, saving in proven)
        words += [f"{count} {what}"] if count else []
    slower = [name for name, saving in proven if saving.verdict == SLOWER]
    rest = f"; slower: {', '.join(slower)}" if slower else "; none was found slower"
    return f"Compared in the steps of {plural(len(proven), 'model')}: {', '.join(words)}{rest}."


def find_best_retune(group: KernelGroup) -> str:
    """Returns ``1.34x``; ``stays`` if no retune was reliably faster, a dash without a retune."""
    if group.speedup is None:
        return units.MISSING
    return format_speedup(group.speedup) if group.speedup > 1 else "stays"


def compute_gain_share(summary: ModelSummary) -> str:
    """Returns the gain limit of the generated kernels as a share of the model's time."""
    if summary.gain_limit_s is None or not summary.time_s:
        return units.MISSING
    return units.percent(summary.gain_limit_s / summary.time_s)


TOP = 20
"""Number of families and of kernels in ``summary.md``."""

SETTINGS = "settings.csv"

BATCH_FILES = (BATCH, "summary.csv", SETTINGS, "kernels.csv", "families.csv", "kernels.parquet", "summary.md", PAGE)
"""The files in the order in which ``Written`` lists them. ``kernels.parquet`` represents all Parquet tables."""


NAME_WIDTH = 70
MOST_MODELS = 40
WITH_TOP_KERNEL = 12
"""Largest number of models for which a terminal names the most expensive kernel of each."""

MOST_FAILURES = 12
MOST_GROUPS = 300
"""Number of families and of kernels on the page; the CSV files have all."""

MANY_GROUPS = 10_000
"""Number of kernels from which their CSV file takes long to make."""


def make_batch_document(view: BatchView, options: View) -> Document:
    """The progress, what could win most, and the tables of models, families and kernels.

    Args:
        view: the results.
        options: ``folder`` is the batch folder, ``top`` the number of families and of kernels.
    """
    folder = options.folder or Path()
    summaries = view.models
    return Document(
        write_heading(view.results),
        (", ".join(dict.fromkeys(names.clean(model.machine) for model in view.results.models if model.machine)),),
        (
            Sentence(f"{describe_progress(view.results)}.", LEAD),
            *make_sentences(
                (
                    describe_leading_family(view.families, view.suite_s),
                    describe_batch_retunes(summaries),
                    search_words(summaries, view.searches),
                )
            ),
            Section("Failed or skipped", _list_failures(summaries, folder), BAD, short="Failed"),
            *make_setting_sections(summaries, view.settings),
            Section("Models", (*_make_models_table(summaries), *_list_notes(summaries))),
            _make_group_section("Families of kernels", view.families, options.top, family=True),
            _make_group_section("Kernels", view.kernels, options.top, family=False),
            *_list_next_commands(view, folder),
            _list_written_files(folder),
        ),
    )


def _note_left_out(items: Sequence[Item], most: int, file: str) -> tuple[Block, ...]:
    """A list; a terminal shows its first entries and the number of the others."""
    entries = [one if place < most else replace(one, on=ShownIn.PAPER) for place, one in enumerate(items)]
    left = len(items) - most
    more = (Sentence(f"and {left} more in {file}", NOTE, on=ShownIn.TERMINAL),) if left > 0 else ()
    return (Items(tuple(entries)), *more)


def _list_failures(summaries: Sequence[ModelSummary], folder: Path) -> tuple[Block, ...]:
    items = []
    for summary in summaries:
        failure, log = find_problem(summary), summary.model.model.log
        if failure is not None:
            text = f"{summary.name} ({failure.stage}, {failure.kind}): {failure.message}"
            place = str(folder / log) if log and (folder / log).is_file() else ""
            items.append(Item(text, BAD, failure.hint, log=failure.log_tail, place=place))
    return _note_left_out(items, MOST_FAILURES, "summary.csv") if items else ()


def _list_notes(summaries: Sequence[ModelSummary]) -> tuple[Block, ...]:
    items = [Item(note, NOTE) for note in list_model_notes(summaries)]
    return _note_left_out(items, MOST_FAILURES, "summary.md") if items else ()


# --- models ----------------------------------------------------------------------------------------------------------


def _make_models_table(summaries: Sequence[ModelSummary]) -> tuple[Block, ...]:
    """A row for each model; a terminal shows those that were measured, of many the most expensive ones."""
    measured = [summary for summary in summaries if summary.parts]
    if len(measured) > MOST_MODELS:
        measured.sort(key=lambda summary: -summary.time_s)
    ranked = [*measured, *(summary for summary in summaries if not summary.parts)]
    retuned = any(summary.retunes is not None for summary in summaries)
    most = min(MOST_MODELS, len(measured))
    rest_s = sum(summary.time_s for summary in ranked[most:])
    took = f", {units.seconds(rest_s)} in all" if rest_s else ""
    list_cells = partial(_list_model_cells, retuned=retuned, few=len(measured) <= WITH_TOP_KERNEL)
    table = make_table(ranked, list_cells, filter="model, status, kernel", most=most, cut_on=ShownIn.TERMINAL)
    if not measured:
        return (replace(table, on=ShownIn.PAPER),)
    others = f"model{'s' * (len(ranked) - most > 1)}{took}; summary.csv has every model"
    return (replace(table, more=others),)


def _list_model_cells(summary: ModelSummary, retuned: bool, few: bool) -> Iterator[tuple[Column, Cell]]:
    row, time_s = summary.model.model, summary.time_s or None
    gain = summary.gain_limit_s / time_s if time_s and summary.gain_limit_s is not None else None
    saves = summary.retunes.saving_s / time_s if time_s and summary.retunes is not None else None
    top = summary.top
    most = f"{units.percent(top.time_s / time_s)} {names.shorten(top.name, NAME_WIDTH)}" if top and time_s else ""
    said = make_notes(most, on=ShownIn.EVERYWHERE if few else ShownIn.PAPER)
    link = f"{quote(row.run)}/{PAGE}" if row.run else ""
    yield make_text_column("model", shorten=names.cut_middles), Cell(summary.name, link=link)
    yield Column("status", False, on=ShownIn.PAPER), Cell(summary.status)
    yield Column("batch", spare=3), Cell(find_batch_size(summary), row.batch_size or row.request.batch_size)
    yield Column("time"), Cell(describe_wall_time(summary), time_s)
    yield Column("busy", spare=2), Cell(units.percent(summary.busy_share), summary.busy_share)
    yield Column("gain limit"), Cell(compute_gain_share(summary), gain)
    if retuned:
        yield Column("retune saves", short="saves"), Cell(format_retune_saving(summary), saves)
    yield Column("where the time goes", False, spare=1), Cell("", bar=_make_bar(summary), notes=said)


def _make_bar(summary: ModelSummary) -> Bar:
    """The categories and idle time of a model."""
    stretches = tuple(
        Stretch(share, palette.IDLE if part is None else palette.choose_category_colour(part), name_part(part, summary))
        for part, share in summary.parts
    )
    return Bar(stretches, max(1.0, sum(one.share for one in stretches)))


# --- families and kernels --------------------------------------------------------------------------------------------


def _make_group_section(title: str, groups: Sequence[KernelGroup], top: int, *, family: bool) -> Section:
    retuned = any(group.speedup is not None for group in groups)
    file = "families.csv" if family else "kernels.csv"
    table = make_table(
        enumerate(groups[:MOST_GROUPS], 1),
        partial(_list_group_cells, retuned=retuned, family=family),
        lambda item, cells: Row(cells, lambda: _list_group_facts(item[1])),
        main=1,
        filter="name, model, operator, category",
        most=top,
        every=len(groups),
        more=f"in {file}",
    )
    return Section(
        title, (table,), short=title.split()[0], note=f"{len(groups):,}, those that take most of the suite's time first"
    )


def _list_group_cells(item: tuple[int, KernelGroup], retuned: bool, family: bool) -> Iterator[tuple[Column, Cell]]:
    number, group = item
    name = name_family(group) if family else group.name
    colour = palette.choose_category_colour(Category(group.category))
    said = make_notes(describe_place(group), on=ShownIn.PAGE if family else ShownIn.EVERYWHERE)
    kernels = Column("kernels", spare=4, on=ShownIn.EVERYWHERE if family else ShownIn.PAPER)
    yield Column("#"), Cell(str(number), number)
    yield make_kernel_column("family" if family else "kernel", NAME_WIDTH), Cell(name, colour=colour, notes=said)
    yield kernels, Cell(units.count(group.ids), group.ids)
    yield Column("models", spare=2), Cell(units.count(len(group.models)), len(group.models))
    yield Column("launches", spare=3), Cell(units.count(group.launches), group.launches)
    yield Column("time"), Cell(units.seconds(group.time_s), group.time_s)
    yield Column("of suite"), Cell(units.percent(group.share), group.share)
    yield Column("of peak", spare=1), Cell(format_peak_share(group), group.peak_share)
    yield Column("gain limit"), Cell(units.seconds(group.gain_limit_s), group.gain_limit_s)
    if retuned:
        yield Column("best retune", short="retune"), Cell(find_best_retune(group), group.speedup)


def _list_group_facts(group: KernelGroup) -> Iterator[Block]:
    facts = (
        *(("name", group.name), ("id", group.key), ("category", group.category), ("operator", group.operator or "")),
        ("models", ", ".join(group.models)),
    )
    yield Facts(tuple(fact for fact in facts if fact[1]))


# --- what to do next -------------------------------------------------------------------------------------------------


def _list_next_commands(view: BatchView, folder: Path) -> Iterator[Block]:
    gain = [group for group in view.kernels if group.gain_limit_s and not group.operator]
    if gain:
        best = max(gain, key=lambda group: group.gain_limit_s or 0.0)
        place = next(summary.model.model.run for summary in view.models if summary.name == best.model)
        run = shlex.quote(f"{folder / (place or '')}#{best.name}")
        why = "the kernel that could save most, by itself"
        yield Commands(((f"inductor-bench kernel {run}", why),), on=ShownIn.TERMINAL)


def _list_written_files(folder: Path) -> Facts:
    there = [file for file in BATCH_FILES if (folder / file).is_file()]
    runs = sum(1 for path in (folder / "models").glob("*/record.json"))
    things = [*there, f"{plural(runs, 'run')} in models/"]
    return Facts((("Written", f"{folder}/   {' · '.join(things)}"),), on=ShownIn.TERMINAL)


FORMATS = make_formats(
    make_batch_document,
    of_record=lambda view: view.results.batch,
    csv=lambda view, _: make_models_csv(view.models),
    record="batch.json",
    rows="a row for each model as CSV",
    of="a batch",
    names_folder=True,
)


def write_batch(view: BatchView, folder: Path) -> bool:
    """Writes the texts of :data:`BATCH_FILES` and, if DuckDB is installed, all tables as Parquet.

    Returns:
        Whether DuckDB is installed.

    Raises:
        InductorBenchError: a file cannot be written.
    """
    write_text(folder / "summary.csv", make_models_csv(view.models))
    if view.searches:
        write_text(folder / SETTINGS, make_settings_csv(view.settings))
    kernels = view.kernels
    with write_in_background(
        lambda: write_text(folder / "kernels.csv", make_groups_csv(kernels, "kernel_id")),
        takes_long=len(kernels) >= MANY_GROUPS,
    ):
        write_text(folder / "families.csv", make_groups_csv(view.families, "family_id"))
        write_text(folder / "summary.md", show_as_markdown(FORMATS, view, View(folder, top=TOP)))
        write_text(folder / PAGE, show_as_page(FORMATS, view, View(folder)))
        return write_parquet(view.tables(), folder)
