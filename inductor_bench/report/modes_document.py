"""What a comparison of modes says: of one program, and of the models of a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .. import units
from ..analysis.findings.phrases import join_words, plural
from ..records.modes.comparison import AGREES, DIFFERS, NOT_TIMED, ModeComparison, ModeFigures, ModeRow, StepRatio
from ..records.modes.models import ModelModes, ModesByModel
from ..records.modes.settings import EAGER
from .csvs import table_text
from .document import (
    BAD,
    GOOD,
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
    notes,
    words,
)
from .modes_words import LEGEND, QUIETER, advice, grouped_failures, machine, mode_notes, processes_words
from .renderer import View, document_formats
from .text import palette

TITLES = (
    *("mode", "step", "of eager", "compile", "pays after", "vs shorter", "device", "launches", "busy", "memory"),
    *("breaks", "outputs"),
)
SPARE = {"breaks": 7, "memory": 6, "busy": 5, "vs shorter": 4, "launches": 3, "outputs": 2, "device": 1}
"""Columns that a narrow terminal may leave out, the largest number first."""

STEP_COLOUR = palette.GRAPHS[1]
MOST_BREAKS = 5


# --- one program -----------------------------------------------------------------------------------------------------


def modes_document(comparison: ModeComparison, view: View) -> Document:
    """The advice, what to type, the rows, failures and notes."""
    failures = [
        Item(f"{join_words(named)}: {failure.message}", NOTE if failure.kind == NOT_TIMED else BAD, failure.hint)
        for failure, named in grouped_failures(comparison.rows).items()
    ]
    found = [Item(f"{note}.", NOTE) for note in mode_notes(comparison)]
    written = f"{view.folder}/   report.html · modes.json · records/ · logs/" if view.folder else ""
    winner = comparison.winner
    typed = "\n".join(winner.lines) if winner is not None and winner.decided else ""
    return Document(
        comparison.title,
        (machine(comparison),),
        (
            Sentence(advice(comparison), LEAD),
            Commands(((typed, ""),) if typed else (), "Type"),
            Section("Modes", _mode_blocks(comparison) if comparison.rows else (), quiet=True),
            Section("Not measured", (Items(tuple(failures)),), BAD),
            Section("Notes", (Items(tuple(found)),)),
            Facts((("Written", written),) if written else (), on=On.TERMINAL),
        ),
    )


def _mode_blocks(comparison: ModeComparison) -> tuple[Block, ...]:
    table = mode_table(comparison)
    legend = processes_words(comparison, [column.title for column in table.columns])
    return (table, Sentence(legend, NOTE))


def mode_table(comparison: ModeComparison) -> Table:
    """A row for each mode, and the columns that hold something."""
    rows = [mode_cells(row) for row in comparison.rows]
    titles = [title for title in TITLES if any(row[title].text not in ("", units.MISSING) for row in rows)]
    winner = comparison.winner.name if comparison.winner is not None and comparison.winner.decided else ""
    longest = max((_high_s(row) for row in comparison.rows), default=0.0)
    return Table(
        tuple(_column(title) for title in titles),
        [
            _mode_row(row, cells, titles, longest, row.name == winner)
            for row, cells in zip(comparison.rows, rows, strict=True)
        ],
    )


def _column(title: str) -> Column:
    if title == "mode":
        return words(title)
    return Column(title, title != "outputs", LEGEND.get(title, ""), SPARE.get(title, 0))


def _high_s(row: ModeRow) -> float:
    figures = row.figures
    return max(figures.step_time_s, min(figures.high_s or 0.0, 2 * figures.step_time_s)) if figures else 0.0


def _mode_row(row: ModeRow, cells: Mapping[str, Cell], titles: Sequence[str], longest: float, advised: bool) -> Row:
    said = notes("advised", on=On.PAPER) if advised else ()
    found = dict(cells)
    found["mode"] = Cell(row.name, notes=said)
    found["step"] = Cell(cells["step"].text, cells["step"].value, bar=_step_bar(row, longest))
    tone = GOOD if advised else BAD if row.failure and row.failure.kind != NOT_TIMED else ""
    return Row(tuple(found[title] for title in titles), lambda: _details(row), tone=tone)


def mode_cells(row: ModeRow) -> dict[str, Cell]:
    """The cells of a row by title."""
    figures = row.figures
    if figures is None:
        return dict.fromkeys(TITLES, Cell("")) | {"mode": Cell(row.name), "step": Cell(_missing(row))}
    compiled, work, ratio = row.settings.mode != EAGER, figures.work, figures.to_eager
    found = {
        "mode": Cell(row.name),
        "step": Cell(_step(figures), figures.step_time_s),
        "of eager": Cell(f"{ratio.ratio:.3f}", ratio.ratio) if ratio else Cell(""),
        "compile": Cell(units.seconds(figures.compile_time_s) if compiled else "", figures.compile_time_s),
        "pays after": Cell(_pays(ratio, figures.pays_after), figures.pays_after),
        "vs shorter": Cell(_pays(figures.to_cheaper, figures.pays_after_cheaper), figures.pays_after_cheaper),
        "memory": _memory(figures.peak_memory_bytes),
        "breaks": Cell(str(figures.graph_breaks) if compiled and figures.graph_breaks else "", figures.graph_breaks),
        "outputs": _outputs(figures),
        **dict.fromkeys(("device", "launches", "busy"), Cell("")),
    }
    if work is not None:
        found["device"] = Cell(units.seconds(work.time_s), work.time_s)
        found["launches"] = Cell(units.count(work.launches), work.launches)
        found["busy"] = Cell(units.whole_percent(work.busy_share), work.busy_share)
    return found


def _memory(size: float | None) -> Cell:
    return Cell(units.size(size), size) if size else Cell("")


def _missing(row: ModeRow) -> str:
    if row.failure is None:
        return "not measured"
    return "not timed" if row.failure.kind == NOT_TIMED else "failed"


def _step(figures: ModeFigures) -> str:
    text = units.seconds(figures.step_time_s)
    if figures.low_s is None or figures.high_s is None:
        return text
    spread = (figures.high_s / figures.low_s) ** 0.5 - 1
    if spread >= 1:
        return f"{text} ±>100%"
    return f"{text} ±{spread * 100:.{0 if spread >= 0.0995 else 1}f}%"


def _pays(ratio: StepRatio | None, steps: float | None) -> str:
    if ratio is None:
        return ""
    if steps is None:
        return {"undecided": "unsure", "slower": "never", "same": "never"}.get(ratio.verdict, units.MISSING)
    return units.count(max(1, round(steps)))


def _outputs(figures: ModeFigures) -> Cell:
    agreement = figures.agreement
    if agreement is None:
        return Cell("")
    if agreement.state not in (AGREES, DIFFERS):
        return Cell("unknown")
    differ = agreement.state == DIFFERS
    word = "DIFFER" if differ else "agree"
    if agreement.error is not None:
        word = f"{word} {agreement.error:.0e}" if agreement.error else "equal"
    return Cell(word, tone=BAD if differ else "")


def _step_bar(row: ModeRow, longest: float) -> Bar | None:
    """The step from 0, and over its end the interval of the mean."""
    figures = row.figures
    if figures is None or not longest:
        return None
    found = [Stretch(figures.step_time_s / longest, STEP_COLOUR, "step", _step(figures), 0.0)]
    if figures.low_s is not None and figures.high_s is not None:
        low, high = (min(1.0, value / longest) for value in (figures.low_s, figures.high_s))
        found.append(Stretch(high - low, "interval", "interval", "95% interval of the mean", low))
    return Bar(tuple(found))


def _details(row: ModeRow) -> Iterator[Block]:
    facts = [("settings", row.name)]
    for one in row.processes:
        steps = f"{units.seconds(one.step_time_s)} a step, {plural(len(one.step_times_s), 'step')} by {one.source}"
        facts.append((f"round {one.round + 1}", steps))
        facts += [("graph break", reason) for reason in one.graph_breaks[:MOST_BREAKS]]
        facts += [("note", note) for note in one.notes]
    if row.failure is not None:
        facts.append(("failure", row.failure.message))
    yield Facts(tuple(facts))


COLUMNS = (
    *("mode", "step_time_s", "low_s", "high_s", "rounds", "ratio_to_eager", "ratio_low", "ratio_high", "verdict"),
    *("compile_time_s", "recompile_time_s", "pays_after_steps", "shorter_compile", "pays_after_steps_vs_shorter"),
    *("device_time_s", "launches", "busy_share", "peak_memory_bytes", "graph_breaks", "compile_calls", "outputs"),
    *("output_error", "same_code_as", "failure"),
)


def modes_csv(comparison: ModeComparison, view: View) -> str:
    """Renders a row for each mode, with SI base units. Cells of unknown values are empty."""
    return table_text(COLUMNS, map(_mode_csv, comparison.rows))


def _mode_csv(row: ModeRow) -> list[object]:
    figures, failure = row.figures, row.failure.message if row.failure else None
    if figures is None:
        return [row.name, *[None] * (len(COLUMNS) - 2), failure]
    ratio, work, agreement = figures.to_eager, figures.work, figures.agreement
    return [
        *(row.name, figures.step_time_s, figures.low_s, figures.high_s, len(row.processes)),
        *((ratio.ratio, ratio.low, ratio.high, ratio.verdict) if ratio else [None] * 4),
        *(figures.compile_time_s, figures.recompile_time_s, figures.pays_after),
        *(figures.cheaper or None, figures.pays_after_cheaper),
        *((work.time_s, work.launches, work.busy_share) if work else [None] * 3),
        *(figures.peak_memory_bytes, figures.graph_breaks, row.processes[0].calls),
        *((agreement.state, agreement.error) if agreement else [None] * 2),
        *(figures.same_code_as or None, failure),
    ]


FORMATS = document_formats(
    modes_document, csv=modes_csv, record="what modes.json holds", rows="a row for each mode", names_folder=True
)


# --- a list of models ------------------------------------------------------------------------------------------------

MODEL_TITLES = ("model", "take", "step", "of eager", "compile", "pays after", "outputs")
MODEL_SPARE = {"outputs": 4, "compile": 3, "of eager": 2, "pays after": 1}
MODEL_COLUMNS = (
    *("model", "take", "decided", "step_time_s", "ratio_to_eager", "compile_time_s", "pays_after_steps", "failure"),
)
UNDECIDED = "undecided"
NOTHING = "nothing"


def models_document(found: ModesByModel, view: View) -> Document:
    """Which modes to take for which models, what to type for each, and a row for each model."""
    rows = [_model_cells(model) for model in found.models]
    titles = [title for title in MODEL_TITLES if any(row[title].text for row in rows)]
    columns = tuple(
        words(title, most=26) if title in ("model", "take") else Column(title, spare=MODEL_SPARE.get(title, 0))
        for title in titles
    )
    advised: list[Block] = []
    for name, models, lines in chosen_settings(found):
        advised.append(Sentence(f"{advice_words(name, models)}.", LEAD))
        advised += [Commands((("\n".join(lines), ""),), "Type")] if lines else []
    table = Table(
        columns,
        [_model_row(model, row, titles) for model, row in zip(found.models, rows, strict=True)],
        filter="model, mode",
    )
    wrong = Items(tuple(Item(f"{problem}.", BAD) for problem in problems(found)))
    written = f"{view.folder}/   report.html · NAME/modes.json · NAME/records/ · NAME/logs/" if view.folder else ""
    described = next((machine(one.comparison) for one in found.models if one.comparison is not None), "")
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


def advice_words(name: str, models: Sequence[str]) -> str:
    """What to do with the models that have one advice: ``Take default for resnet50``."""
    said = {EAGER: "Leave uncompiled:", UNDECIDED: "Undecided:", NOTHING: "Without advice:"}
    return f"{said.get(name, f'Take {name} for')} {join_words(list(models))}"


def _taken(model: ModelModes) -> ModeRow | None:
    """The advised row."""
    comparison = model.comparison
    if comparison is None or comparison.winner is None:
        return None
    return next(row for row in comparison.rows if row.name == comparison.winner.name)


def _model_cells(model: ModelModes) -> dict[str, Cell]:
    row, winner = _taken(model), model.comparison.winner if model.comparison else None
    if row is None or winner is None:
        return dict.fromkeys(MODEL_TITLES, Cell("")) | {"model": Cell(model.name), "take": Cell(units.MISSING)}
    cells = mode_cells(row) | {"model": Cell(model.name), "take": Cell(row.name if winner.decided else UNDECIDED)}
    return {title: cells[title] for title in MODEL_TITLES}


def _model_row(model: ModelModes, cells: Mapping[str, Cell], titles: Sequence[str]) -> Row:
    comparison = model.comparison
    details = (lambda: (Sentence(advice(comparison)), mode_table(comparison))) if comparison is not None else None
    return Row(tuple(cells[title] for title in titles), details, tone=BAD if model.failure else "")


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


def models_csv(found: ModesByModel, view: View) -> str:
    """Renders a row for each model, with SI base units. Cells of unknown values are empty."""
    return table_text(MODEL_COLUMNS, map(_model_csv, found.models))


def _model_csv(model: ModelModes) -> list[object]:
    row, winner = _taken(model), model.comparison.winner if model.comparison else None
    failure = model.failure.message if model.failure else None
    if row is None or row.figures is None or winner is None:
        return [model.name, *[None] * (len(MODEL_COLUMNS) - 2), failure]
    figures = row.figures
    ratio = figures.to_eager.ratio if figures.to_eager else None
    taken = [model.name, row.name, winner.decided, figures.step_time_s, ratio]
    return [*taken, figures.compile_time_s, figures.pays_after, failure]


LIST_FORMATS = document_formats(
    models_document,
    csv=models_csv,
    summary="which mode for which model, for the terminal",
    record="what each modes.json holds",
    rows="a row for each model",
    of="a list of models",
    names_folder=True,
)
