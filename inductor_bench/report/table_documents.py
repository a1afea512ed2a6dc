"""The documents of the commands whose answer is mostly a table: doctor, extract, query, and modes of a list."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path

from .. import units
from ..analysis.findings.finding import join_words, plural
from ..devices.table import find_best_device, find_device_of_peaks
from ..records.base import NUMBER, TEXT, WHOLE, YES_NO, Answer, Category, QueryTable
from ..records.comparison import EAGER, ModelModes, ModeRow, ModesByModel
from ..records.module import ExtractedKernel, ExtractOutcome
from ..records.run import Check, DoctorReport, Environment, Peaks
from ..records.summary import SCHEMA_VERSION
from ..store.caches import find_cache_folder, make_peaks_key, slug
from ..version import __version__
from . import names
from .document import (
    BAD,
    GOOD,
    LEAD,
    NOTE,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Item,
    Items,
    Note,
    Row,
    Section,
    Sentence,
    ShownIn,
    Table,
    make_table,
    make_text_column,
)
from .document_summary import write_json
from .formats import DEFAULT_VIEW, Renderer, View, make_formats, write_csv
from .modes_document import QUIETER, describe_machine, make_mode_cells, make_mode_table, write_advice
from .run.run_words import describe_cache_rates

TONES = {"ok": GOOD, "missing": BAD, "broken": BAD}


def make_doctor_document(report: DoctorReport, view: View = DEFAULT_VIEW) -> Document:
    """The checks with what to do about them, why the device was not measured, and its peaks."""
    python = report.environment.versions.python
    columns = (Column("status", False), Column("what", False), make_text_column("found", least=24, wraps=True))
    checks = [_check_row(check) for check in (*report.checks, *report.packages)]
    blocks: list[Block] = [
        Sentence(describe_diagnosis(report), LEAD),
        Section("Installed", (Table(columns, checks, main=1, titled=False),), quiet=True),
    ]
    failure, peaks = report.failure, report.peaks
    if failure is not None:
        blocks.append(
            Section("Failed", (Items((Item(failure.message, BAD, failure.hint, log=failure.log_tail),)),), BAD)
        )
    if peaks is not None:
        threads = f" with {peaks.threads} thread{'s' * (peaks.threads > 1)}" if peaks.threads else ""
        title = f'What {peaks.device} reaches{threads}: the peaks that "of peak" refers to'
        reached = Table(
            (Column("limit", False), Column("rate"), make_text_column("how", least=24, wraps=True)),
            _make_peak_rows(peaks),
            titled=False,
        )
        blocks.append(Section(title, (reached,), short="Peaks"))
        blocks.append(Section("The age of the peaks", tuple(_make_age_blocks(peaks, report.environment)), quiet=True))
    return Document(f"inductor-bench {__version__}", (f"Python {python}" if python else "",), tuple(blocks))


def describe_diagnosis(report: DoctorReport) -> str:
    """Says in one sentence what keeps the tool from measuring."""
    missing = [check.name for check in report.checks if check.status == "missing"]
    if missing:
        return f"Missing: {', '.join(missing)}."
    return "The peaks of the device were not measured." if report.failure else "All that is needed is there."


def _check_row(check: Check) -> Row:
    hint = (Note(f"→ {check.hint}", tone="", whole=True),) if check.hint else ()
    return Row((Cell(check.status, tone=TONES.get(check.status, "")), Cell(check.name, notes=hint), Cell(check.found)))


def _make_peak_rows(peaks: Peaks) -> list[Row]:
    cache = find_device_of_peaks(peaks).words.cache
    found = [("DRAM", units.rate(peaks.memory_bandwidth), f"simple kernels over arrays far larger than the {cache}")]
    if rates := describe_cache_rates(peaks):
        held = f"a third of its {units.size(peaks.cache_bytes)}" if peaks.cache_bytes else "arrays that it holds"
        least = f", down to {units.size(peaks.cache_roofs[0].size)}" if len(peaks.cache_roofs) > 1 else ""
        found.append((cache, rates, f"the same over {held}{least}"))
    found += [
        (f"compute {dtype}", units.flop_rate(rate), "dense matrix products of random numbers" if index == 0 else "")
        for index, (dtype, rate) in enumerate(peaks.matmul_flops.items())
    ]
    if peaks.launch_floor_s is not None:
        found.append(("latency", units.seconds(peaks.launch_floor_s), "an empty kernel; no kernel takes less"))
    return [Row(tuple(map(Cell, texts))) for texts in found]


def _make_age_blocks(peaks: Peaks, environment: Environment) -> Iterator[Block]:
    """Yields the age of the peaks, the file that holds them, and the command that measures them again."""
    device = find_device_of_peaks(peaks)
    path = find_cache_folder() / "peaks" / f"{slug(make_peaks_key(environment, device.type))}.json"
    facts = [("Measured", format_age(peaks.measured_at))] if peaks.measured_at else []
    yield Facts((*facts, *([("Kept in", str(path))] if path.is_file() else [])))
    option = "" if device is find_best_device(environment) else f" --device {device.type}"
    yield Sentence("Other work on the machine lowers these figures.", NOTE)
    yield Commands(((f"inductor-bench doctor --remeasure{option}", "measures again, on an idle machine"),))


def format_age(measured_at: str) -> str:
    """Returns ``2025-01-01 12:00 UTC (3 days ago)``; an invalid time is returned unchanged."""
    try:
        then = datetime.fromisoformat(measured_at.replace("Z", "+00:00"))
    except ValueError:
        return measured_at
    then = then if then.tzinfo else then.replace(tzinfo=timezone.utc)
    seconds = (datetime.now(timezone.utc) - then).total_seconds()
    shown = then.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length:
            number = int(seconds // length)
            return f"{shown} ({number} {unit}{'s' * (number > 1)} ago)"
    return f"{shown} (just now)"


DOCTOR_FORMATS = make_formats(make_doctor_document, of="a diagnosis")


NAME_WIDTH = 56
SHOWN_NAMES = 4
SHOWN_REASONS = 8


def make_extraction_document(outcome: ExtractOutcome, view: View = DEFAULT_VIEW) -> Document:
    """The list of kernels if no file was written, their numbers, why some have no file, and what to run next."""
    kernels, folder = outcome.kernels, outcome.folder
    no_file = [(one.name, one.reason) for one in kernels if one.reason]
    beyond = [(one.name, one.note) for one in kernels if one.note]
    beyond_words = "Not all values are recorded (--values-limit SIZE sets the limit) for"
    remarks = (
        *(Item(f"note: {note}", NOTE) for note in outcome.notes),
        *(Item(f"failed: {failure.message}", BAD, failure.hint) for failure in outcome.failures),
    )
    blocks: list[Block] = []
    if folder is None and kernels:
        blocks.append(Section("Kernels", (_make_kernel_table(kernels),), quiet=True))
    totals: Block = _describe_totals(outcome) if kernels else Sentence("It has no kernels.")
    blocks.append(Section("By category", (totals,), quiet=True))
    blocks.append(Section(f"No file for {plural(len(no_file), 'kernel')}", tuple(_list_reasons(no_file))))
    blocks.append(Section(f"{beyond_words} {plural(len(beyond), 'kernel')}", tuple(_list_reasons(beyond))))
    blocks.append(Section("Remarks", (Items(remarks),), quiet=True))
    if folder is not None:
        blocks.append(Section("Files", tuple(_list_written_files(folder, kernels)), quiet=True))
    return Document(plural(len(kernels), "kernel"), blocks=tuple(blocks))


def _make_kernel_table(kernels: Sequence[ExtractedKernel]) -> Table:
    timed = any(kernel.time_s is not None for kernel in kernels)

    def list_cells(kernel: ExtractedKernel) -> Iterator[tuple[Column, Cell]]:
        yield make_text_column("kernel"), Cell(kernel.name)
        yield Column("category", False), Cell(kernel.category.title)
        yield Column("calls"), Cell(units.count(kernel.calls), kernel.calls)
        if timed:
            yield Column("time"), Cell(units.seconds(kernel.time_s), kernel.time_s)

    return make_table(kernels, list_cells, filter="name, category")


def _describe_totals(outcome: ExtractOutcome) -> Table:
    rows = []
    for category, (total, written) in _count_by_category(outcome.kernels).items():
        made = str(total) if outcome.folder is None else f"{written} of {total}"
        rows.append(Row((Cell(category.title), Cell(made, total))))
    return Table((Column("category", False), Column("kernels")), rows, titled=False)


def _list_reasons(reasons: Sequence[tuple[str, str]]) -> Iterator[Block]:
    """Names grouped by reason; ``reasons`` has pairs of name and reason."""
    alike: dict[str, list[str]] = {}
    for name, reason in reasons:
        alike.setdefault(reason, []).append(names.cut_middle(names.clean(name), NAME_WIDTH))
    items = []
    for reason, found in list(alike.items())[:SHOWN_REASONS]:
        others = f" and {len(found) - SHOWN_NAMES} more" if len(found) > SHOWN_NAMES else ""
        items.append(Item(f"{', '.join(found[:SHOWN_NAMES])}{others}: {reason}"))
    yield Items(tuple(items))
    remaining = sum(len(found) for found in list(alike.values())[SHOWN_REASONS:])
    if remaining:
        yield Sentence(f"and {remaining} more; --format json has every reason", NOTE)


def _list_written_files(folder: Path, kernels: Sequence[ExtractedKernel]) -> Iterator[Block]:
    values = {folder / kernel.values for kernel in kernels if kernel.values}
    files = {kernel.file: kernel.time_s or 0.0 for kernel in kernels if kernel.file}
    facts = []
    if values:
        amount = units.size(sum(file.stat().st_size for file in values))
        facts.append(("Values", f"{amount} next to {len(values)} of the files, as {next(iter(values)).suffix}"))
    facts.append(("Written", f"{plural(len(files), 'file')} in {folder}/, and kernels.json, which lists them"))
    yield Facts(tuple(facts))
    if files:
        costliest = max(files, key=lambda file: files[file])
        yield Commands(((f"python {shlex.quote(str(folder / costliest))}", ""),))


def _count_by_category(kernels: Sequence[ExtractedKernel]) -> dict[Category, tuple[int, int]]:
    """Counts the kernels of each category: ``(all, with a file)``."""
    counts: dict[Category, tuple[int, int]] = {}
    for kernel in kernels:
        total, written = counts.get(kernel.category, (0, 0))
        counts[kernel.category] = (total + 1, written + (kernel.file is not None))
    return counts


EXTRACTION_FORMATS = make_formats(make_extraction_document, of="an extraction")


MOST_ROWS = 100
"""Largest number of rows on a terminal; the other formats have all rows."""

NARROWEST = 24
"""Smallest width of a text column on a terminal. If the table is still too wide, each row becomes a block of lines."""

_TYPES = {TEXT: "text", NUMBER: "number", WHOLE: "whole number", YES_NO: "yes or no"}
EXAMPLES = (
    "SELECT model, name, time_s, peak_share FROM kernels ORDER BY gain_limit_s DESC LIMIT 10",
    "SELECT category, sum(share) AS share FROM categories GROUP BY ALL ORDER BY share DESC",
)


@dataclass(frozen=True)
class QueryResult:
    """The tables of a folder and the answer to a query. With ``None`` the tables and their columns are listed."""

    tables: Sequence[QueryTable]
    answer: Answer | None = None


def make_query_document(result: QueryResult, view: View) -> Document:
    """The rows of the answer, or the tables, their columns and two example queries."""
    return (
        _make_listing_document(result.tables, view.folder)
        if result.answer is None
        else make_answer_table(result.answer)
    )


def _make_listing_document(tables: Sequence[QueryTable], folder: Path | None) -> Document:
    widest = max(len(column.name) for table in tables for column in table.columns)
    columns = (Column("column", False), Column("type", False), make_text_column("about", shorten=_align_at_end))
    sections = [
        Section(
            table.name,
            (
                Table(
                    columns,
                    [
                        Row(tuple(map(Cell, (f"{one.name:<{widest}}", _TYPES[one.type], one.about))))
                        for one in table.columns
                    ],
                    titled=False,
                ),
            ),
            note=f"{plural(len(table), 'row')}, one {table.about}",
        )
        for table in tables
    ]
    examples = tuple(
        (f'inductor-bench query {shlex.quote(str(folder or Path()))} "{example}"', "") for example in EXAMPLES
    )
    known = Sentence("Times are in seconds, sizes in bytes, shares from 0 to 1; unknown values are NULL.", NOTE)
    return Document("", blocks=(*sections, Section("Try", (known, Commands(examples, "Try")), quiet=True)))


def _align_at_end(texts: Sequence[str], width: int) -> Sequence[str]:
    return [names.cut_end(text, width) for text in texts]


def make_answer_table(answer: Answer) -> Document:
    """The rows as a table."""
    if not answer.rows:
        return Document("", blocks=(Sentence("no rows"),))
    numeric = [_is_numeric(values) for values in zip(*answer.rows, strict=True)]
    columns = [
        Column(title, number, least=0 if number else NARROWEST)
        for title, number in zip(answer.columns, numeric, strict=True)
    ]
    rows = [Row(tuple(Cell(_format_value(value), _number(value)) for value in values)) for values in answer.rows]
    more = "rows: --format csv has all, LIMIT fewer"
    table = Table(tuple(columns), rows, filter="its values", most=MOST_ROWS, cut_on=ShownIn.TERMINAL, more=more)
    return Document("", blocks=(table,), wide=True)


def list_tables(tables: Sequence[QueryTable]) -> Answer:
    """Returns a table of all columns of all tables."""
    rows = [(table.name, column.name, column.type, column.about) for table in tables for column in table.columns]
    return Answer(("table", "column", "type", "about"), rows)


def write_answer_csv(answer: Answer) -> str:
    """Renders the rows as CSV. Cells of unknown values are empty."""
    return write_csv(
        answer.columns, ([_join_list(_make_plain_value(value)) for value in values] for values in answer.rows)
    )


QUERY_SCHEMA = f"query-rows/{SCHEMA_VERSION}"
"""The name of the JSON of the answer of a query."""


def write_answer_json(answer: Answer) -> str:
    """Renders the rows as objects in a list, beside the name of its schema."""
    titles = _make_titles_unique(answer.columns)
    rows = [dict(zip(titles, map(_make_plain_value, values), strict=True)) for values in answer.rows]
    return write_json({"schema": QUERY_SCHEMA, "rows": rows})


def _is_numeric(values: Sequence[object]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in known
    )


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float | Decimal) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None  # type: ignore[arg-type]


def _format_value(value: object) -> str:
    """Formats a value: six significant digits, one line."""
    if value is None:
        return units.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    return names.clean(str(_join_list(_make_plain_value(value))))


def _make_plain_value(value: object) -> object:
    """Converts a value to a type that JSON has."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): _make_plain_value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_make_plain_value(one) for one in value]
    return str(value)


def _join_list(value: object) -> object:
    """Joins a list in one cell; returns any other value unchanged."""
    return "; ".join(map(str, value)) if isinstance(value, list) else value


def _make_titles_unique(titles: Sequence[str]) -> list[str]:
    """Makes titles unique: a repeated title gets a number."""
    taken: dict[str, None] = {}
    for title in titles:
        number, name = 1, title
        while name in taken:
            number += 1
            name = f"{title}_{number}"
        taken[name] = None
    return list(taken)


def _make_answer_format(render: Callable[[Answer], str]) -> Renderer[QueryResult]:
    def rendered(result: QueryResult, view: View) -> str:
        return render(list_tables(result.tables) if result.answer is None else result.answer)

    return rendered


QUERY_FORMATS = make_formats(
    make_query_document,
    json=_make_answer_format(write_answer_json),
    csv=_make_answer_format(write_answer_csv),
    screen="a table for the terminal",
    record="JSON (a list of objects under `rows`)",
    of="a query",
)


MODEL_TITLES = ("model", "take", "step", "of eager", "compile", "pays after", "outputs")
MODEL_SPARE = {"outputs": 4, "compile": 3, "of eager": 2, "pays after": 1}
MODEL_COLUMNS = (
    *("model", "take", "decided", "step_time_s", "ratio_to_eager", "compile_time_s", "pays_after_steps", "failure"),
)
UNDECIDED = "undecided"
NOTHING = "nothing"


def make_models_document(found: ModesByModel, view: View) -> Document:
    """Makes the advice of a mode for each model, the lines to type, and a row for each model."""
    rows = [_make_model_cells(model) for model in found.models]
    titles = [title for title in MODEL_TITLES if any(row[title].text for row in rows)]
    columns = tuple(
        make_text_column(title, most=26)
        if title in ("model", "take")
        else Column(title, spare=MODEL_SPARE.get(title, 0))
        for title in titles
    )
    advised: list[Block] = []
    for name, models, lines in list_chosen_settings(found):
        advised.append(Sentence(f"{describe_advice(name, models)}.", LEAD))
        advised += [Commands((("\n".join(lines), ""),), "Type")] if lines else []
    table = Table(
        columns,
        [_make_model_row(model, row, titles) for model, row in zip(found.models, rows, strict=True)],
        filter="model, mode",
    )
    wrong = Items(tuple(Item(f"{problem}.", BAD) for problem in list_problems(found)))
    written = f"{view.folder}/   report.html · NAME/modes.json · NAME/records/ · NAME/logs/" if view.folder else ""
    described = next((describe_machine(one.comparison) for one in found.models if one.comparison is not None), "")
    return Document(
        f"{found.source} · {plural(len(found.models), 'model')}",
        (described,),
        (
            Section("What to type", tuple(advised), short="Type", quiet=True),
            Section("Models", (table,), quiet=True),
            Section("Problems", (wrong,), BAD, quiet=True),
            Facts((("Written", written),) if written else (), on=ShownIn.TERMINAL),
        ),
    )


def list_chosen_settings(found: ModesByModel) -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Yields each advised setting with its models and the lines to type; then the models without advice."""
    models: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for model in found.models:
        winner = model.comparison.winner if model.comparison else None
        key = (NOTHING, ()) if winner is None else (winner.name, winner.lines) if winner.decided else (UNDECIDED, ())
        models.setdefault(key, []).append(model.name)
    for name, lines in sorted(models, key=lambda key: (key[0] in (NOTHING, UNDECIDED), -len(models[key]))):
        yield name, models[name, lines], lines


def describe_advice(name: str, models: Sequence[str]) -> str:
    """Says what to do with models that have the same advice: ``Take default for resnet50``."""
    said = {EAGER: "Leave uncompiled:", UNDECIDED: "Undecided:", NOTHING: "Without advice:"}
    return f"{said.get(name, f'Take {name} for')} {join_words(list(models))}"


def _find_taken_row(model: ModelModes) -> ModeRow | None:
    """The advised row."""
    comparison = model.comparison
    if comparison is None or comparison.winner is None:
        return None
    return next(row for row in comparison.rows if row.name == comparison.winner.name)


def _make_model_cells(model: ModelModes) -> dict[str, Cell]:
    row, winner = _find_taken_row(model), model.comparison.winner if model.comparison else None
    if row is None or winner is None:
        return dict.fromkeys(MODEL_TITLES, Cell("")) | {"model": Cell(model.name), "take": Cell(units.MISSING)}
    cells = make_mode_cells(row) | {"model": Cell(model.name), "take": Cell(row.name if winner.decided else UNDECIDED)}
    return {title: cells[title] for title in MODEL_TITLES}


def _make_model_row(model: ModelModes, cells: Mapping[str, Cell], titles: Sequence[str]) -> Row:
    comparison = model.comparison
    details = (
        (lambda: (Sentence(write_advice(comparison)), make_mode_table(comparison))) if comparison is not None else None
    )
    return Row(tuple(cells[title] for title in titles), details, tone=BAD if model.failure else "")


def list_problems(found: ModesByModel) -> Iterator[str]:
    """Yields what failed, and what is undecided."""
    for model in found.models:
        if model.failure is not None:
            yield f"{model.name}: {model.failure.message}"
        failures = [row for row in (model.comparison.rows if model.comparison else ()) if row.failure is not None]
        yield from (f"{model.name}, {row.name}: {row.failure.message}" for row in failures if row.failure is not None)
    for name, models, _ in list_chosen_settings(found):
        if name == UNDECIDED:
            yield f"{join_words(models)}: the differences may be noise. {QUIETER}"


def make_modes_of_models_csv(found: ModesByModel, view: View) -> str:
    """Renders a row for each model, with SI base units. Cells of unknown values are empty."""
    return write_csv(MODEL_COLUMNS, map(_make_model_csv, found.models))


def _make_model_csv(model: ModelModes) -> list[object]:
    row, winner = _find_taken_row(model), model.comparison.winner if model.comparison else None
    failure = model.failure.message if model.failure else None
    if row is None or row.figures is None or winner is None:
        return [model.name, *[None] * (len(MODEL_COLUMNS) - 2), failure]
    figures = row.figures
    ratio = figures.to_eager.ratio if figures.to_eager else None
    taken = [model.name, row.name, winner.decided, figures.step_time_s, ratio]
    return [*taken, figures.compile_time_s, figures.pays_after, failure]


LIST_FORMATS = make_formats(
    make_models_document,
    csv=make_modes_of_models_csv,
    screen="which mode for which model, for the terminal",
    record="what each modes.json holds",
    rows="a row for each model",
    of="a list of models",
    names_folder=True,
)
