"""The page of a comparison of modes: of one program, and of the models of a list."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import units
from ...analysis.findings.finding import join_words, plural
from ...records.mode_comparison import ModeComparison, ModelModes, ModeRow, ModesByModel
from ..page.parts import (
    BAD,
    FEW_ROWS,
    GOOD,
    NOTE,
    Cell,
    Code,
    Column,
    DataTable,
    Facts,
    Item,
    Items,
    Lines,
    Page,
    Part,
    Row,
    Section,
    Stretch,
)
from ..page.render import render_page
from ..text import palette
from .models import NAMES, advice_words, chosen_settings, model_cells, model_titles, problems
from .phrases import LEGEND, advice, grouped_failures, machine, notes
from .rows import cells_of, titles_of

WORDS = ("mode", "outputs")
STEP_COLOUR = palette.GRAPHS[1]


def modes_html(comparison: ModeComparison) -> str:
    """Renders the page. It loads no other file."""
    return render_page(modes_page(comparison))


def modes_page(comparison: ModeComparison) -> Page:
    """The parts of the page."""
    failures = [
        Item(f"{join_words(named)}: {failure.message}", BAD, failure.hint)
        for failure, named in grouped_failures(comparison.rows).items()
    ]
    found = [Item(f"{note}.", NOTE) for note in notes(comparison)]
    return Page(
        title=comparison.title,
        about=(machine(comparison),),
        lead=advice(comparison),
        sections=(
            Section("What to type", _typed(comparison), short="Type"),
            Section("Modes", (_table(comparison),) if comparison.rows else ()),
            Section("Failed", (Items(tuple(failures)),) if failures else (), BAD),
            Section("Notes", (Items(tuple(found)),) if found else ()),
        ),
    )


def _typed(comparison: ModeComparison) -> tuple[Part, ...]:
    winner = comparison.winner
    return (Code("\n".join(winner.lines)),) if winner is not None and winner.decided and winner.lines else ()


def _table(comparison: ModeComparison) -> DataTable:
    titles = titles_of(comparison)
    winner = comparison.winner.name if comparison.winner is not None and comparison.winner.decided else ""
    longest = max((_high_s(row) for row in comparison.rows), default=0.0)
    return DataTable(
        columns=tuple(Column(title, title not in WORDS, LEGEND.get(title, "")) for title in titles),
        rows=tuple(_row(row, titles, longest, row.name == winner) for row in comparison.rows),
        caption=tuple(f"{title}: {LEGEND[title]}." for title in titles if title in LEGEND),
    )


def _high_s(row: ModeRow) -> float:
    figures = row.figures
    return max(figures.step_time_s, min(figures.high_s or 0.0, 2 * figures.step_time_s)) if figures else 0.0


def _row(row: ModeRow, titles: Sequence[str], longest: float, advised: bool) -> Row:
    texts, values = cells_of(row), _values(row)
    cells = tuple(
        Cell(
            texts[title],
            values.get(title),
            notes=("advised",) if title == "mode" and advised else (),
            tone=GOOD if advised and title == "mode" else BAD if "DIFFER" in texts[title] else "",
            bar=tuple(_step_bar(row, longest)) if title == "step" else (),
        )
        for title in titles
    )
    return Row(cells, tuple(_details(row)))


def _values(row: ModeRow) -> dict[str, float | None]:
    """The numbers by which the columns are sorted."""
    figures = row.figures
    if figures is None:
        return {}
    work = figures.work
    return {
        "step": figures.step_time_s,
        "of eager": figures.to_eager.ratio if figures.to_eager else None,
        "compile": figures.compile_time_s,
        "pays after": figures.pays_after,
        "vs shorter": figures.pays_after_cheaper,
        "device": work.time_s if work else None,
        "launches": work.launches if work else None,
        "busy": work.busy_share if work else None,
        "memory": figures.peak_memory_bytes,
        "breaks": figures.graph_breaks,
    }


def _step_bar(row: ModeRow, longest: float) -> Iterator[Stretch]:
    """The step from 0, and over its end the interval of the mean."""
    figures = row.figures
    if figures is None or not longest:
        return
    step = 100 * figures.step_time_s / longest
    yield Stretch(step, STEP_COLOUR, cells_of(row)["step"], 0.0)
    if figures.low_s is not None and figures.high_s is not None:
        low, high = (min(100.0, 100 * value / longest) for value in (figures.low_s, figures.high_s))
        yield Stretch(high - low, "var(--interval)", "95% interval of the mean", low)


def _details(row: ModeRow) -> Iterator[Part]:
    facts = [("settings", row.name)]
    for one in row.processes:
        steps = f"{units.seconds(one.step_time_s)} a step, {plural(len(one.step_times_s), 'step')} by {one.source}"
        facts.append((f"round {one.round + 1}", steps))
        facts += [("graph break", reason) for reason in one.graph_breaks[:5]]
        facts += [("note", note) for note in one.notes]
    if row.failure is not None:
        facts.append(("failure", row.failure.message))
    if row.processes or row.failure is not None:
        yield Facts(tuple(facts))


def models_html(found: ModesByModel) -> str:
    """Renders the page of a list of models. It loads no other file."""
    rows = [model_cells(model) for model in found.models]
    titles = model_titles(rows)
    table = DataTable(
        columns=tuple(Column(title, title not in NAMES, LEGEND.get(title, "")) for title in titles),
        rows=tuple(_model_row(model, cells, titles) for model, cells in zip(found.models, rows, strict=True)),
        filter="model, mode" if len(rows) > FEW_ROWS else "",
    )
    advised: list[Part] = []
    for name, models, lines in chosen_settings(found):
        advised.append(Lines((f"{advice_words(name, models)}.",)))
        advised += [Code("\n".join(lines))] if lines else []
    failed = tuple(Item(f"{problem}.", BAD) for problem in problems(found))
    described = (machine(one.comparison) for one in found.models if one.comparison is not None)
    page = Page(
        title=f"{found.source} · {plural(len(found.models), 'model')}",
        about=tuple(filter(None, [next(described, "")])),
        sections=(
            Section("What to type", tuple(advised), short="Type"),
            Section("Models", (table,) if rows else ()),
            Section("Problems", (Items(failed),) if failed else (), BAD),
        ),
    )
    return render_page(page)


def _model_row(model: ModelModes, cells: dict[str, str], titles: list[str]) -> Row:
    comparison = model.comparison
    rows = {row.name: row for row in comparison.rows} if comparison is not None else {}
    taken = rows.get(comparison.winner.name) if comparison is not None and comparison.winner is not None else None
    values = _values(taken) if taken is not None else {}
    details: tuple[Part, ...] = (Lines((advice(comparison),)), _table(comparison)) if comparison is not None else ()
    return Row(tuple(Cell(cells[title], values.get(title)) for title in titles), details)
