"""Renders a comparison of two batches: a row for each model."""

from __future__ import annotations

from collections.abc import Iterator

from ... import units
from ...analysis.comparison.words import code_words, main_parts, part_name, signed, signed_percent
from ...analysis.findings.phrases import plural
from ...records.comparisons.batch import BatchComparison, ModelComparison
from ...records.comparisons.run import FASTER, NOT_COMPARABLE, SAME, SLOWER, UNDECIDED
from ..csvs import table_text
from ..run.markdown import escaped, table
from ..text import names
from ..text.layout import Column, Line, Word, fit_columns, gap_of, header, titled_row, wrapped
from .console import VERDICT_STYLES

COLUMNS = ("model", "A", "B", "difference", "relative", "verdict", "most of it")


def lead_words(batch: BatchComparison) -> str:
    """The answer: how many models are slower, and the mean."""
    verdicts = (
        (SLOWER, SLOWER),
        (FASTER, FASTER),
        (SAME, "the same"),
        (UNDECIDED, UNDECIDED),
    )
    counts = [f"{batch.count(verdict)} {words}" for verdict, words in verdicts if batch.count(verdict)]
    left = sum(model.comparison is None or model.comparison.verdict == NOT_COMPARABLE for model in batch.models)
    counts += [f"{left} not compared"] if left else []
    mean = f" B takes {batch.ratio:.3f}x the time of A (geometric mean)." if batch.ratio is not None else ""
    return f"Of {plural(len(batch.models), 'model')}: {', '.join(counts)}.{mean}"


def model_cells(model: ModelComparison) -> tuple[str, ...]:
    """The cells of a model below :data:`COLUMNS`."""
    name, found = names.clean(model.name), model.comparison
    if found is None:
        return (name, *[units.MISSING] * 4, "not compared", names.clean(model.problem))
    step = found.step
    most = ", ".join(f"{part_name(part)} {signed(part.delta_s)}" for part in main_parts(found)[:2])
    why = "; ".join(found.reasons) if found.verdict == NOT_COMPARABLE else most
    times = (units.seconds(step.a_s), units.seconds(step.b_s), signed(step.delta_s))
    return (name, *times, signed_percent(step.delta_s, step.a_s), found.verdict, names.clean(why))


def batch_lines(batch: BatchComparison, width: int) -> Iterator[Line]:
    """Renders the answer and a row for each model, the largest relative difference first."""
    yield [Word(f"A  {names.clean(batch.a)}", "title")]
    yield [Word(f"B  {names.clean(batch.b)}", "title")]
    yield []
    yield from wrapped(lead_words(batch), width, "", "title")
    yield []
    gap = gap_of(width)
    columns = [Column("model", 18, right=False), *(Column(title, 9) for title in COLUMNS[1:3])]
    columns += [Column("difference", 10), Column("relative", 8), Column("verdict", 14, right=False)]
    columns = fit_columns(columns, width, gap, ["difference", "A"], "model")
    yield header(columns, gap)
    for model in sorted_models(batch):
        cells = dict(zip(COLUMNS, model_cells(model), strict=True))
        cells["model"] = names.middle(cells["model"], columns[0].width)
        text = titled_row(columns, {**cells, "verdict": ""}, gap).rstrip()
        used = sum(column.width + gap for column in columns[:-1])
        yield [Word(names.pad(text, used)), Word(cells["verdict"], VERDICT_STYLES.get(cells["verdict"], "dim"))]
        yield from wrapped(cells["most of it"], width, "    ", "dim")
        if model.comparison is not None and not code_words(model.comparison).startswith("All"):
            yield from wrapped(code_words(model.comparison), width, "    ", "dim")


def sorted_models(batch: BatchComparison) -> list[ModelComparison]:
    """The models, the largest relative difference first."""

    def relative(model: ModelComparison) -> float:
        step = model.comparison.step if model.comparison is not None else None
        return abs(step.delta_s) / step.a_s if step is not None and step.a_s else -1.0

    return sorted(batch.models, key=relative, reverse=True)


def batch_csv(batch: BatchComparison) -> str:
    """Renders a row for each model, in seconds."""
    rows = []
    for model in batch.models:
        step = model.comparison.step if model.comparison is not None else None
        times = (step.a_s, step.b_s, step.delta_s, step.low_s, step.high_s) if step is not None else ("",) * 5
        verdict = model.comparison.verdict if model.comparison is not None else "not compared"
        reasons = "; ".join(model.comparison.reasons) if model.comparison is not None else model.problem
        rows.append((model.name, *times, verdict, reasons))
    return table_text(("model", "a_s", "b_s", "delta_s", "low_s", "high_s", "verdict", "problem"), rows)


def batch_markdown(batch: BatchComparison) -> str:
    """Renders the answer and the table of models."""
    head = [f"# {escaped(batch.b)} against {escaped(batch.a)}", "", f"**{escaped(lead_words(batch))}**", ""]
    return "\n".join([*head, *table(COLUMNS, "lrrrrll", map(model_cells, sorted_models(batch)))]) + "\n"
