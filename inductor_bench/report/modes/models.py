"""Renders which mode to take for which model of a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ... import units
from ...analysis.findings.phrases import join_words, plural
from ...records.modes.comparison import ModeRow
from ...records.modes.models import ModelModes, ModesByModel
from ...records.modes.settings import EAGER
from ..csvs import table_text
from ..renderer import View
from ..run.markdown import escaped, table
from ..text import names
from ..text.layout import Column, Line, Word, bullet, fit_columns, gap_of, header, labelled, titled_row, wrapped
from .phrases import QUIETER, machine
from .rows import cells_of

TITLES = ("model", "take", "step", "of eager", "compile", "pays after", "outputs")
COLUMNS = ("model", "take", "decided", "step_time_s", "ratio_to_eager", "compile_time_s", "pays_after_steps", "failure")
SPARE = ("outputs", "compile", "of eager", "pays after")
NAMES, WIDEST_NAME = ("model", "take"), 26
"""Columns of words, and the most columns of the console that each gets."""

UNDECIDED = "undecided"
NOTHING = "nothing"


def console(found: ModesByModel, view: View) -> Iterator[Line]:
    """Yields the lines of a list: the modes with their models, what to type for each, a row for each model."""
    width = view.width
    yield [Word(names.clean(f"{found.source} · {plural(len(found.models), 'model')}"), "title")]
    described = next((machine(one.comparison) for one in found.models if one.comparison is not None), "")
    yield [Word(described, "dim")]
    yield []
    for name, models, lines in chosen_settings(found):
        yield from wrapped(advice_words(name, models), width, "", "title")
        yield from ([Word(f"  {line}")] for line in lines)
    yield []
    rows = [model_cells(model) for model in found.models]
    columns, gap = _columns(rows, width), gap_of(width)
    yield header(columns, gap)
    for model, row in zip(found.models, rows, strict=True):
        fitting = {column.title: names.end(row[column.title], column.width) for column in columns}
        yield [Word(titled_row(columns, fitting, gap).rstrip(), "bad" if model.failure else "")]
    yield []
    for problem in problems(found):
        yield from bullet(names.clean(problem), width, "bad")
    if view.folder is not None:
        written = f"{view.folder}/   report.html · NAME/modes.json · NAME/records/ · NAME/logs/"
        yield from labelled("Written", written, width)


def model_titles(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The columns that hold something."""
    return [title for title in TITLES if any(row[title] for row in rows)]


def _columns(rows: Sequence[Mapping[str, str]], width: int) -> list[Column]:
    columns = []
    for title in model_titles(rows):
        longest = max(names.cells(text) for text in (title, *(row[title] for row in rows)))
        columns.append(Column(title, min(longest, WIDEST_NAME), title not in NAMES))
    return fit_columns(columns, width, gap_of(width), SPARE, "")


def chosen_settings(found: ModesByModel) -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Each advised setting with its models and the lines to type; then the models without advice."""
    models: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for model in found.models:
        winner = model.comparison.winner if model.comparison else None
        key = (NOTHING, ()) if winner is None else (winner.name, winner.lines) if winner.decided else (UNDECIDED, ())
        models.setdefault(key, []).append(model.name)
    for name, lines in sorted(models, key=lambda key: (key[0] in (NOTHING, UNDECIDED), -len(models[key]))):
        yield name, models[name, lines], lines


def advice_words(name: str, models: Sequence[str]) -> str:
    """What to do with the models that have one advice: ``Take default for resnet50``."""
    said = {EAGER: "Leave uncompiled:", UNDECIDED: "Undecided:", NOTHING: "Without advice:"}
    return f"{said.get(name, f'Take {name} for')} {join_words(list(models))}"


def _row_of(model: ModelModes) -> ModeRow | None:
    """The advised row."""
    comparison = model.comparison
    if comparison is None or comparison.winner is None:
        return None
    return next(row for row in comparison.rows if row.name == comparison.winner.name)


def model_cells(model: ModelModes) -> dict[str, str]:
    """The cells of a model by title."""
    row = _row_of(model)
    if model.comparison is None or model.comparison.winner is None or row is None:
        return dict.fromkeys(TITLES, "") | {"model": model.name, "take": units.MISSING}
    cells = cells_of(row) | {"model": model.name, "take": row.name if model.comparison.winner.decided else UNDECIDED}
    return {title: cells[title] for title in TITLES}


def problems(found: ModesByModel) -> Iterator[str]:
    """What went wrong, and what is undecided."""
    for model in found.models:
        if model.failure is not None:
            yield f"{model.name}: {model.failure.message}"
        failures = [row for row in (model.comparison.rows if model.comparison else ()) if row.failure is not None]
        yield from (f"{model.name}, {row.name}: {row.failure.message}" for row in failures if row.failure is not None)
    for name, models, _ in chosen_settings(found):
        if name == UNDECIDED:
            yield f"{join_words(models)}: the differences may be noise. {QUIETER}"


def markdown(found: ModesByModel, view: View) -> str:
    """Renders the table, what to type, and what went wrong as Markdown."""
    rows = [model_cells(model) for model in found.models]
    titles = model_titles(rows)
    lines = [f"# {escaped(found.source)}", ""]
    alignment = "".join("l" if title in NAMES else "r" for title in titles)
    lines += table(titles, alignment, [[row[title] for title in titles] for row in rows])
    for name, models, typed in chosen_settings(found):
        lines += ["", escaped(advice_words(name, models))]
        lines += ["", "```", *typed, "```"] if typed else []
    lines += ["", *(f"- {escaped(problem)}" for problem in problems(found))]
    return "\n".join(lines).rstrip() + "\n"


def csv_text(found: ModesByModel, view: View) -> str:
    """Renders a row for each model, with SI base units. Cells of unknown values are empty."""
    return table_text(COLUMNS, map(_csv_row, found.models))


def _csv_row(model: ModelModes) -> list[object]:
    row, winner = _row_of(model), model.comparison.winner if model.comparison else None
    failure = model.failure.message if model.failure else None
    if row is None or row.figures is None or winner is None:
        return [model.name, *[None] * (len(COLUMNS) - 2), failure]
    figures = row.figures
    ratio = figures.to_eager.ratio if figures.to_eager else None
    taken = [model.name, row.name, winner.decided, figures.step_time_s, ratio]
    return [*taken, figures.compile_time_s, figures.pays_after, failure]
