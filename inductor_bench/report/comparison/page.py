"""The page of a comparison: of two runs, and of two batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from ... import units
from ...analysis.comparison_words import code_words, headline, part_name, reasons, signed, signed_percent
from ...records.comparison import (
    FASTER,
    SLOWER,
    BatchComparison,
    Change,
    KernelChange,
    KernelSide,
    ModelComparison,
    PartChange,
    RunComparison,
    SideSummary,
)
from ..page.parts import (
    BAD,
    FEW_ROWS,
    GOOD,
    NOTE,
    Cell,
    Column,
    DataTable,
    Facts,
    FileCode,
    Item,
    Items,
    Lines,
    Page,
    Part,
    Row,
    Section,
    SourceFile,
    Stretch,
    columns_of,
)
from ..page.render import render_page
from ..run.kernel_rows import source_file
from .batch import COLUMNS as MODEL_COLUMNS
from .batch import lead_words, model_cells, sorted_models
from .rows import (
    KERNEL_COLUMNS,
    PART_COLUMNS,
    UNSET,
    changed_kernels,
    detail_lines,
    graph_table,
    kernel_cells,
    kernel_name,
    part_cells,
)

TONES = {SLOWER: BAD, FASTER: GOOD}
NAME_WIDTH = 60


def comparison_html(comparison: RunComparison, files: Mapping[str, str] = {}, limit: float | None = None) -> str:
    """Renders the page with all parts, graphs and kernels that differ. It loads no other file.

    Args:
        comparison: the record.
        files: the texts of the kernels' standalone files as ``a/NAME.py`` and ``b/NAME.py``.
        limit: the slowdown, as a share, from which the comparison fails.
    """
    return render_page(comparison_page(comparison, files, limit))


def comparison_page(comparison: RunComparison, files: Mapping[str, str] = {}, limit: float | None = None) -> Page:
    """The parts of the page; see :func:`comparison_html`."""
    sources = {place: source_file(text) for place, text in files.items()}
    changes = changed_kernels(comparison)
    notes = tuple(Item(f"{note}.", NOTE) for note in comparison.notes)
    return Page(
        title=f"{comparison.b.name} against {comparison.a.name}",
        about=(f"A: {_side(comparison.a)}", f"B: {_side(comparison.b)}"),
        lead=headline(comparison, limit),
        reasons=tuple(reasons(comparison)),
        sections=(
            Section("What differs around the program", _environment(comparison), short="Environment"),
            Section("Where the difference comes from", (_parts(comparison),), short="Parts"),
            Section("The kernels that differ", (_kernels(changes, sources),) if changes else (), short="Kernels"),
            Section("Graphs", (_graphs(comparison),) if comparison.graphs else ()),
            Section("Notes", (Items(notes),) if notes else ()),
        ),
        files=sources,
    )


def _side(side: SideSummary) -> str:
    runs = f"{side.runs} runs" if side.runs > 1 else ""
    return " · ".join(filter(None, (side.name, side.title, runs, side.machine, side.created)))


def _environment(comparison: RunComparison) -> tuple[Part, ...]:
    if not comparison.environment_differences:
        return (Lines(("Nothing that the records hold: versions, machine, variables, switches and request.",)),)
    rows = tuple(
        Row((Cell(one.name), Cell(one.a or UNSET), Cell(one.b or UNSET))) for one in comparison.environment_differences
    )
    return (DataTable(tuple(Column(title, False) for title in ("what", "A", "B")), rows),)


def _parts(comparison: RunComparison) -> DataTable:
    step = comparison.step
    most = max((abs(part.delta_s) for part in comparison.parts), default=0.0)
    whole = PartChange(step.a_s, step.b_s, step.delta_s, None, None, comparison.verdict, f"the {step.currency}")
    return DataTable(
        columns=tuple(Column(title, title not in ("part", "verdict")) for title in PART_COLUMNS),
        rows=tuple(_part_row(comparison, part, most) for part in comparison.parts),
        total=_part_row(comparison, whole, 0.0),
        caption=("The parts add up to the difference of the step. Bars: to the left B takes less, to the right more.",),
    )


def _part_row(comparison: RunComparison, part: PartChange, most: float) -> Row:
    cells = part_cells(comparison, part)
    values = (None, part.a_s, part.b_s, part.delta_s, part.delta_s, None)
    texts = dict(zip(PART_COLUMNS, zip(cells, values, strict=True), strict=True))
    return Row(tuple(_cell(title, text, value, part, most) for title, (text, value) in texts.items()))


def _cell(title: str, text: str, value: float | None, part: PartChange, most: float) -> Cell:
    return Cell(
        text,
        value,
        notes=(part.detail,) if title == "part" and part.detail else (),
        tone=TONES.get(text, "") if title == "verdict" else "",
        bar=_difference_bar(part, most) if title == "difference" else (),
    )


def _difference_bar(change: Change, most: float) -> tuple[Stretch, ...]:
    """A bar from the middle: to the left where B takes less time, to the right where it takes more."""
    if not most:
        return ()
    width = 50 * abs(change.delta_s) / most
    colour = "var(--bad)" if change.delta_s > 0 else "var(--good)"
    sure = colour if change.verdict in TONES else "var(--muted)"
    return (Stretch(width, sure, signed(change.delta_s), 50.0 if change.delta_s > 0 else 50 - width),)


def _kernels(changes: Sequence[KernelChange], files: Mapping[str, SourceFile]) -> DataTable:
    return DataTable(
        columns=tuple(Column(title, title not in ("kernel", "cause", "verdict")) for title in KERNEL_COLUMNS),
        rows=tuple(_kernel_row(number, change, files) for number, change in enumerate(changes, 1)),
        main=1,
        caption=("Times of all calls in a step. A name shows what is known of both sides.",),
        filter="name, cause, detail" if len(changes) > FEW_ROWS else "",
    )


def _kernel_row(number: int, change: KernelChange, files: Mapping[str, SourceFile]) -> Row:
    _, cause, calls, a_words, b_words, difference, verdict = kernel_cells(change, NAME_WIDTH)
    a_s, b_s = (sum(side.time_s for side in sides) for sides in (change.a, change.b))
    cells = (
        Cell(str(number), number),
        Cell(kernel_name(change, NAME_WIDTH), notes=tuple(detail_lines(change))),
        Cell(cause),
        Cell(calls, sum(side.calls for side in change.b)),
        Cell(a_words, a_s),
        Cell(b_words, b_s),
        Cell(difference, change.delta_s),
        Cell(verdict, tone=TONES.get(verdict, "")),
    )
    facts = [*_side_facts("A", change.a), *_side_facts("B", change.b)]
    facts += [("by cause", ", ".join(f"{cause} {signed(delta)}" for cause, delta in change.seconds.items()))]
    places = [
        f"{side}/{PurePosixPath(kernel.file).name}"
        for side, kernels in (("a", change.a), ("b", change.b))
        for kernel in kernels
        if kernel.file
    ]
    shown = (FileCode(place) for place in dict.fromkeys(places) if place in files)
    return Row(cells, (Facts(tuple(fact for fact in facts if fact[1])), *shown))


def _side_facts(side: str, kernels: Sequence[KernelSide]) -> Iterator[tuple[str, str]]:
    for kernel in kernels:
        configs = "; ".join(", ".join(f"{key}={value}" for key, value in config.items()) for config in kernel.configs)
        calls = f"{units.count(kernel.calls)} call{'s' * (kernel.calls != 1)}"
        figures = f"{calls}, {units.seconds(kernel.time_s)}, in {kernel.graph}"
        words = (kernel.name, figures, f"config {configs}" if configs else "", kernel.file or "", kernel.kernel_id)
        yield side, "\n".join(filter(None, words))


def _graphs(comparison: RunComparison) -> DataTable:
    table = graph_table(comparison)
    rows = []
    for cells, graph in zip(table.rows, comparison.graphs, strict=True):
        values = (None, None, graph.a_s, graph.b_s, graph.delta_s, graph.b_calls, graph.alike)
        rows.append(Row(tuple(map(Cell, cells, values))))
    return DataTable(columns_of(table.header, table.alignment), tuple(rows))


def batch_comparison_html(batch: BatchComparison) -> str:
    """Renders the page of a comparison of two batches: a row for each model. It loads no other file."""
    columns = tuple(Column(title, title in MODEL_COLUMNS[1:5]) for title in MODEL_COLUMNS)
    rows = tuple(map(_model_row, sorted_models(batch)))
    table = DataTable(columns, rows, filter="model, verdict, part" if len(rows) > FEW_ROWS else "")
    page = Page(
        title=f"{batch.b} against {batch.a}",
        about=(f"A: {batch.a}", f"B: {batch.b}"),
        lead=lead_words(batch),
        sections=(Section("Models", (table,)),),
    )
    return render_page(page)


def _model_row(model: ModelComparison) -> Row:
    found = model.comparison
    step = found.step if found is not None else None
    relative = step.delta_s / step.a_s if step is not None and step.a_s else None
    values = (None, *((step.a_s, step.b_s, step.delta_s) if step is not None else (None,) * 3), relative, None, None)
    cells = tuple(
        Cell(text, value, tone=TONES.get(text, "") if title == "verdict" else "")
        for title, text, value in zip(MODEL_COLUMNS, model_cells(model), values, strict=True)
    )
    if found is None:
        return Row(cells)
    parts = [
        (part_name(part), f"{signed(part.delta_s)} ({signed_percent(part.delta_s, found.step.a_s)}), {part.verdict}")
        for part in found.parts
    ]
    return Row(cells, (Lines((headline(found), *reasons(found), code_words(found))), Facts(tuple(parts))))
