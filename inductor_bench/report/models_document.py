"""Which mode to take for which model of a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import units
from ..analysis.findings.finding import join_words, plural
from ..records.comparison import EAGER, ModelModes, ModeRow, ModesByModel
from .document import (
    BAD,
    LEAD,
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
    Table,
    make_text_column,
)
from .formats import View, make_formats, write_csv
from .modes_document import QUIETER, describe_machine, make_mode_cells, make_mode_table, write_advice

MODEL_TITLES = ("model", "take", "step", "of eager", "compile", "pays after", "outputs")
MODEL_SPARE = {"outputs": 4, "compile": 3, "of eager": 2, "pays after": 1}
MODEL_COLUMNS = (
    *("model", "take", "decided", "step_time_s", "ratio_to_eager", "compile_time_s", "pays_after_steps", "failure"),
)
UNDECIDED = "undecided"
NOTHING = "nothing"


def make_models_document(found: ModesByModel, view: View) -> Document:
    """Which modes to take for which models, what to type for each, and a row for each model."""
    rows = [_make_model_cells(model) for model in found.models]
    titles = [title for title in MODEL_TITLES if any(row[title].text for row in rows)]
    columns = tuple(
        make_text_column(title, most=26)
        if title in ("model", "take")
        else Column(title, spare=MODEL_SPARE.get(title, 0))
        for title in titles
    )
    advised: list[Block] = []
    for name, models, lines in chosen_settings(found):
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
            Facts((("Written", written),) if written else (), on=On.TERMINAL),
        ),
    )


def chosen_settings(found: ModesByModel) -> Iterator[tuple[str, list[str], tuple[str, ...]]]:
    """Each advised setting with its models and the lines to type; then the models without advice."""
    models: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for model in found.models:
        winner = model.comparison.winner if model.comparison else None
        key = (NOTHING, ()) if winner is None else (winner.name, winner.lines) if winner.decided else (UNDECIDED, ())
        models.setdefault(key, []).append(model.name)
    for name, lines in sorted(models, key=lambda key: (key[0] in (NOTHING, UNDECIDED), -len(models[key]))):
        yield name, models[name, lines], lines


def describe_advice(name: str, models: Sequence[str]) -> str:
    """What to do with the models that have one advice: ``Take default for resnet50``."""
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
    """What went wrong, and what is undecided."""
    for model in found.models:
        if model.failure is not None:
            yield f"{model.name}: {model.failure.message}"
        failures = [row for row in (model.comparison.rows if model.comparison else ()) if row.failure is not None]
        yield from (f"{model.name}, {row.name}: {row.failure.message}" for row in failures if row.failure is not None)
    for name, models, _ in chosen_settings(found):
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
