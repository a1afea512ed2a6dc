"""The document of a comparison of two runs or batches: how much slower B is, why, and the kernels that differ."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath

from .. import units
from ..analysis.comparison_words import (
    NOT_COMPLETE,
    describe_code,
    format_signed,
    format_signed_percent,
    knows_torch,
    list_next_commands,
    list_notes,
    name_main_parts,
    name_part,
    write_headline,
)
from ..analysis.findings.finding import join_words, plural
from ..records.comparison import (
    ADDED,
    FASTER,
    KERNEL_CAUSES,
    NOT_COMPARABLE,
    REMOVED,
    REST,
    SAME,
    SLOWER,
    UNCHANGED,
    UNDECIDED,
    BatchComparison,
    Change,
    KernelChange,
    KernelSide,
    KindChange,
    ModelComparison,
    PartChange,
    RunComparison,
    SideSummary,
)
from . import names
from .document import (
    BAD,
    GOOD,
    LEAD,
    NOTE,
    WARN,
    Bar,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    FileText,
    Item,
    Items,
    Row,
    Section,
    Sentence,
    ShownIn,
    SourceFile,
    Stretch,
    Table,
    TimeChange,
    make_notes,
    make_sentences,
    make_table,
    make_text_column,
    plot_waterfall,
)
from .formats import View, make_formats, write_csv
from .run.run_tables import write_source_file

TONES = {SLOWER: BAD, FASTER: GOOD, NOT_COMPARABLE: WARN}
NAME_WIDTH = 60
UNSET = "not set"
UNKNOWN = "{} does not say what it ran on: its versions, machine and variables are not compared."
NO_DIFFERENCE = (
    "The records show no difference around the program: versions, machine, torch's variables, switches, request. They "
    "do not hold the program's own variables."
)
MOST_PARTS, MOST_DIFFERENCES, MOST_GROUPED = 12, 14, 6
SMALLEST_SHARE = 0.001
"""A part that is only noise, and takes less than this share of A's step, gets no separate row on a terminal."""


# --- two runs --------------------------------------------------------------------------------------------------------


def make_comparison_document(comparison: RunComparison, view: View) -> Document:
    """Makes the answer, the differences around the program, the parts of the difference, and the kernels and graphs.

    Args:
        comparison: the record.
        view: ``files`` has the texts of the kernels' standalone files as ``a/NAME.py`` and ``b/NAME.py``.
    """
    sources = {place: write_source_file(text) for place, text in view.files.items()}
    changes = [change for change in comparison.kernels if change.cause != UNCHANGED]
    incomplete = [note for note in comparison.notes if note[1:].startswith(NOT_COMPLETE)]
    said = Items(tuple(Item(f"{note}.", NOTE) for note in comparison.notes if note not in incomplete))
    currency = "a step" if comparison.step.currency == "step" else "an iteration"
    commands = Commands(tuple((one.command, one.why) for one in list_next_commands(comparison)))
    return Document(
        f"{comparison.b.name} against {comparison.a.name}",
        (f"A: {_describe_side(comparison.a)}", f"B: {_describe_side(comparison.b)}"),
        (
            Sentence(write_headline(comparison, view.limit), LEAD),
            *(Sentence(f"{note}.", BAD) for note in incomplete),
            *_make_proof(comparison),
            *make_sentences(list_notes(comparison)),
            Section("What differs around the program", (_make_environment_table(comparison),), short="Environment"),
            Section(
                "Where the difference comes from",
                _make_parts_table(comparison) if comparison.parts else (),
                short="Parts",
                note="the parts add up to it",
            ),
            Section(
                "The kernels that differ",
                (_make_kernels_table(changes, sources, view.top),) if changes else (),
                short="Kernels",
                note=f"times of all calls in {currency}",
            ),
            Section("Graphs", (_make_graphs_table(comparison),) if comparison.graphs else (), on=ShownIn.PAPER),
            Section("Notes", (said,)),
            Section("Next", (commands,), quiet=True),
        ),
        sources,
    )


def _make_proof(comparison: RunComparison) -> Iterator[Block]:
    """The processes that decided the verdict, and the kinds of steps."""
    proof = comparison.proof
    if proof is None:
        return
    sides = [
        f"{name} {units.seconds(min(steps_s))} to {units.seconds(max(steps_s))}"
        for name, steps_s in (("A", proof.a_steps_s), ("B", proof.b_steps_s))
    ]
    if proof.difference:
        yield Sentence(f"B computes something else than A: {proof.difference}.", BAD)
    if proof.failure:
        yield Sentence(f"A process timed nothing, so no more were started: {proof.failure}.", WARN)
    counts = f"{len(proof.a_steps_s)} and {len(proof.b_steps_s)} processes ran in turn, without a profile"
    yield Sentence(f"{counts}; their steps take: {', '.join(sides)}.")
    yield from make_sentences(f"{note[:1].upper()}{note[1:]}." for note in proof.notes)
    if proof.kinds:
        yield make_table(proof.kinds, _list_kind_cells)


def _list_kind_cells(kind: KindChange) -> Iterator[tuple[Column, Cell]]:
    ends = [format_signed(end_s) for end_s in (kind.low_s, kind.high_s) if end_s is not None]
    yield make_text_column("kind"), Cell(kind.name)
    yield Column("steps"), Cell(units.whole_percent(kind.share), kind.share)
    yield Column("A"), Cell(units.seconds(kind.a_s), kind.a_s)
    yield Column("B"), Cell(units.seconds(kind.b_s), kind.b_s)
    yield Column("difference"), Cell(format_signed_percent(kind.delta_s, kind.a_s), kind.delta_s)
    yield Column("interval", spare=1), Cell(" to ".join(ends) or units.MISSING)
    yield Column("verdict", False), Cell(kind.verdict, tone=TONES.get(kind.verdict, ""))


def _describe_side(side: SideSummary) -> str:
    runs = f"{side.runs} runs" if side.runs > 1 else ""
    names = dict.fromkeys((side.name, side.title, runs, side.machine, side.created))
    return " · ".join(filter(None, names))


def _make_environment_table(comparison: RunComparison) -> Block:
    if not comparison.environment_differences:
        unknown = join_words(
            [name for name, side in (("A", comparison.a), ("B", comparison.b)) if not knows_torch(side)]
        )
        return Sentence(UNKNOWN.format(unknown) if unknown else NO_DIFFERENCE, NOTE)
    rows = [
        Row((Cell(one.name), Cell(one.a or UNSET), Cell(one.b or UNSET))) for one in comparison.environment_differences
    ]
    columns = (make_text_column("what"), make_text_column("A"), make_text_column("B"))
    return Table(columns, rows, most=MOST_DIFFERENCES, cut_on=ShownIn.TERMINAL, more="with --format json")


def _make_parts_table(comparison: RunComparison) -> tuple[Block, ...]:
    """All parts, those above the noise first, and their sum."""
    step = comparison.step
    least = SMALLEST_SHARE * step.a_s
    counts = [part for part in comparison.parts if abs(part.delta_s) >= least or part.verdict in TONES]
    rest = [part for part in counts if part.cause == REST]
    large = [*[part for part in counts if part.cause != REST][: MOST_PARTS - len(rest)], *rest]
    small = [part for part in comparison.parts if part not in large]
    most = max((abs(part.delta_s) for part in comparison.parts), default=0.0)
    others = _sum(f"{len(small)} smaller", small)
    whole = PartChange(step.a_s, step.b_s, step.delta_s, None, None, comparison.verdict, f"the {step.currency}")
    list_cells = partial(_list_part_cells, comparison=comparison)
    table = make_table(
        [(part, most) for part in (*large, *small)],
        list_cells,
        total=_make_row(list_cells((whole, 0.0))),
        most=len(large) or 1,
        cut_on=ShownIn.TERMINAL,
        rest=_make_row(list_cells((others, 0.0))),
    )
    falls = [TimeChange(name_part(part), part.delta_s, part.verdict in TONES) for part in large]
    if small:
        falls.append(TimeChange(others.label, others.delta_s, False))
    picture = plot_waterfall((f"A: the {step.currency}", step.a_s), falls, (f"B: the {step.currency}", step.b_s))
    return (
        *picture,
        Sentence("Bars to the left: B takes less time. Bars to the right: B takes more time.", NOTE, on=ShownIn.PAGE),
        table,
    )


def _sum(label: str, parts: Sequence[PartChange]) -> PartChange:
    a_s, b_s, delta_s = (sum(getattr(part, name) for part in parts) for name in ("a_s", "b_s", "delta_s"))
    return PartChange(a_s, b_s, delta_s, None, None, "", label)


def _make_row(cells: Iterable[tuple[Column, Cell]]) -> Row:
    return Row(tuple(cell for _, cell in cells))


def _list_part_cells(item: tuple[PartChange, float], comparison: RunComparison) -> Iterator[tuple[Column, Cell]]:
    part, most = item
    name = f"{name_part(part)} ({part.kernels})" if part.cause in KERNEL_CAUSES else name_part(part)
    difference = Cell(format_signed(part.delta_s), part.delta_s, bar=_make_difference_bar(part, most))
    share = format_signed_percent(part.delta_s, comparison.step.a_s)
    yield make_text_column("part", least=20), Cell(name, notes=make_notes(part.detail, whole=True))
    yield Column("A", spare=1), Cell(units.seconds(part.a_s), part.a_s)
    yield Column("B"), Cell(units.seconds(part.b_s), part.b_s)
    yield Column("difference"), difference
    yield Column("of A's step", spare=2), Cell(share, part.delta_s)
    yield Column("verdict", False), _make_verdict_cell(part)


def _make_verdict_cell(change: PartChange | KernelChange) -> Cell:
    """The verdict. Kernels that only one side has are not faster or slower than others."""
    sides = {ADDED: "only in B", REMOVED: "only in A"}
    tone = TONES.get(change.verdict, "")
    return Cell(sides.get(change.cause, change.verdict) if tone else change.verdict, tone=tone)


def _make_difference_bar(change: Change, most: float) -> Bar | None:
    """A bar from the middle: to the left if B takes less time, to the right if it takes more."""
    if not most:
        return None
    width = 0.5 * abs(change.delta_s) / most
    colour = "bad" if change.delta_s > 0 else "good"
    sure = colour if change.verdict in (SLOWER, FASTER) else "muted"
    left = 0.5 if change.delta_s > 0 else 0.5 - width
    return Bar((Stretch(width, sure, label_part(change), format_signed(change.delta_s), left),))


def label_part(change: Change) -> str:
    """What a bar of a difference is called."""
    return f"difference, {change.verdict}" if change.verdict else "difference"


def _make_kernels_table(changes: Sequence[KernelChange], files: Mapping[str, SourceFile], top: int) -> Table:
    return make_table(
        enumerate(changes, 1),
        _list_kernel_cells,
        lambda item, cells: Row(cells, lambda: _list_kernel_details(item[1], files)),
        main=1,
        filter="name, cause, detail",
        most=top,
        more="with --format json",
    )


def _list_kernel_cells(item: tuple[int, KernelChange]) -> Iterator[tuple[Column, Cell]]:
    number, change = item
    a_s, b_s = (sum(side.time_s for side in sides) for sides in (change.a, change.b))
    first, *more = _list_detail_lines(change) or [""]
    said = (
        *make_notes(": ".join(filter(None, (change.cause, first))), on=ShownIn.TERMINAL, whole=True),
        *make_notes(first, on=ShownIn.PAPER),
        *make_notes(*more, whole=True),
    )
    name = make_text_column("kernel", least=20, shorten=_shorten_pairs, most=NAME_WIDTH)
    yield Column("#"), Cell(str(number), number)
    yield name, Cell(_name_kernel(change), notes=said)
    yield Column("cause", False, on=ShownIn.PAPER), Cell(change.cause)
    yield Column("calls", spare=3), Cell(_format_calls(change), sum(side.calls for side in change.b))
    yield Column("A", spare=2), Cell(units.seconds(a_s if change.a else None), a_s)
    yield Column("B", spare=1), Cell(units.seconds(b_s if change.b else None), b_s)
    yield Column("difference"), Cell(format_signed(change.delta_s), change.delta_s)
    yield Column("verdict", False), _make_verdict_cell(change)


def _name_kernel(change: KernelChange) -> str:
    """Names a kernel:

    ``triton_poi_fused_add_1``; if its counterpart has another name, names both: ``… → 2 kernels``.
    """
    first, second = _group(change.a), _group(change.b)
    if not change.a or not change.b or {side.name for side in change.a} == {side.name for side in change.b}:
        return first or second
    return f"{first} → {second}"


def _group(sides: Sequence[KernelSide]) -> str:
    return names.strip_kernel_name(sides[0].name) if len(sides) == 1 else f"{len(sides)} kernels" if sides else ""


def _shorten_pairs(texts: Sequence[str], width: int) -> list[str]:
    return [_shorten_pair(text, width) for text in texts]


def _shorten_pair(text: str, width: int) -> str:
    first, arrow, second = text.partition(" → ")
    if names.count_columns(text) <= width or not arrow:
        return names.shorten(text, width)
    room = max(8, (width - 3) // 2)
    return f"{names.shorten(first, room)} → {names.shorten(second, room)}"


def _format_calls(change: KernelChange) -> str:
    calls = [units.count(sum(side.calls for side in sides)) for sides in (change.a, change.b) if sides]
    return calls[0] if len(set(calls)) == 1 else " → ".join(calls)


def _list_detail_lines(change: KernelChange) -> list[str]:
    """What is known about a change: the words, and the names of grouped kernels."""
    lines = [names.clean(change.detail)] if change.detail else []
    for side, kernels in (("A", change.a), ("B", change.b)):
        if len(kernels) > 1:
            lines.append(f"{side}: " + ", ".join(names.shorten(one.name, NAME_WIDTH) for one in kernels[:MOST_GROUPED]))
    return lines


def _list_kernel_details(change: KernelChange, files: Mapping[str, SourceFile]) -> Iterator[Block]:
    facts = [*_list_side_facts("A", change.a), *_list_side_facts("B", change.b)]
    facts += [("by cause", ", ".join(f"{cause} {format_signed(delta)}" for cause, delta in change.seconds.items()))]
    yield Facts(tuple(fact for fact in facts if fact[1]))
    sides = (("a", change.a), ("b", change.b))
    places = [f"{side}/{PurePosixPath(one.file).name}" for side, kernels in sides for one in kernels if one.file]
    yield from (FileText(place) for place in dict.fromkeys(places) if place in files)


def _list_side_facts(side: str, kernels: Sequence[KernelSide]) -> Iterator[tuple[str, str]]:
    for kernel in kernels:
        configs = "; ".join(", ".join(f"{key}={value}" for key, value in config.items()) for config in kernel.configs)
        calls = f"{units.count(kernel.calls)} call{'s' * (kernel.calls != 1)}"
        figures = f"{calls}, {units.seconds(kernel.time_s)}, in {kernel.graph}"
        lines = (kernel.name, figures, f"config {configs}" if configs else "", kernel.file or "", kernel.kernel_id)
        yield side, "\n".join(filter(None, lines))


def _make_graphs_table(comparison: RunComparison) -> Table:
    rows = []
    for graph in comparison.graphs:
        calls = list(dict.fromkeys(units.count(calls) for calls in (graph.a_calls, graph.b_calls)))
        labels = [Cell(label if label is not None else units.MISSING) for label in (graph.a, graph.b)]
        times = [Cell(units.seconds(value), value) for value in (graph.a_s, graph.b_s)]
        difference = Cell(format_signed(graph.delta_s), graph.delta_s)
        last = (Cell(" → ".join(calls), graph.b_calls), Cell(units.whole_percent(graph.alike), graph.alike))
        rows.append(Row((*labels, *times, difference, *last)))
    titles = ("A", "B", "difference", "calls", "same code")
    return Table((make_text_column("graph of A"), make_text_column("graph of B"), *map(Column, titles)), rows)


HEADER = (
    *("row", "cause", "name", "a_names", "b_names", "graph", "a_calls", "b_calls", "a_s", "b_s", "delta_s", "low_s"),
    *("high_s", "verdict", "a_config", "b_config", "a_kernel_id", "b_kernel_id", "detail"),
)


def make_comparison_csv(comparison: RunComparison, view: View) -> str:
    """Renders the step, the parts that add up to it, and the kernels, which are also in the parts. SI base units."""
    step = comparison.step
    whole = PartChange(step.a_s, step.b_s, step.delta_s, step.low_s, step.high_s, comparison.verdict, step.currency)
    rows = [_make_part_csv("step", whole), *(_make_part_csv("part", part) for part in comparison.parts)]
    return write_csv(HEADER, [*rows, *map(_make_kernel_csv, comparison.kernels)])


def _make_part_csv(row: str, part: PartChange) -> tuple[object, ...]:
    times = (part.a_s, part.b_s, part.delta_s, part.low_s, part.high_s, part.verdict)
    return (row, part.cause, part.label, "", "", "", "", "", *times, "", "", "", "", part.detail)


def _make_kernel_csv(change: KernelChange) -> tuple[object, ...]:
    a, b = change.a, change.b
    times = tuple(sum(side.time_s for side in sides) for sides in (a, b))
    return (
        *("kernel", change.cause, (a or b)[0].name),
        *("; ".join(side.name for side in sides) for sides in (a, b)),
        (a or b)[0].graph,
        *(sum(side.calls for side in sides) for sides in (a, b)),
        *(*times, change.delta_s, change.low_s, change.high_s, change.verdict),
        *(
            _format_configs(a),
            _format_configs(b),
            *("; ".join(side.kernel_id for side in sides) for sides in (a, b)),
            change.detail,
        ),
    )


def _format_configs(sides: tuple[KernelSide, ...]) -> str:
    configs = (config for side in sides for config in side.configs)
    return "; ".join(" ".join(f"{name}={value}" for name, value in config.items()) for config in configs)


FORMATS = make_formats(
    make_comparison_document,
    csv=make_comparison_csv,
    rows="parts and kernels as CSV",
    of="a comparison of two runs",
    shows_files=True,
)


# --- two batches -----------------------------------------------------------------------------------------------------


def make_batch_comparison_document(batch: BatchComparison, view: View) -> Document:
    """The answer and a row for each model, the largest relative difference first."""
    columns = (
        *(
            make_text_column("model", shorten=_shorten_pairs),
            Column("A", spare=1),
            Column("B"),
            Column("difference", spare=2),
        ),
        *(
            Column("relative"),
            Column("verdict", False),
            Column("most of it", False, on=ShownIn.PAPER),
        ),
    )
    rows = [_make_model_row(model) for model in sorted(batch.models, key=_compute_relative_step, reverse=True)]
    return Document(
        f"{batch.b} against {batch.a}",
        (f"A: {batch.a}", f"B: {batch.b}"),
        (
            Sentence(write_batch_lead(batch), LEAD),
            Section("Models", (Table(columns, rows, filter="model, verdict, part"),)),
        ),
    )


def write_batch_lead(batch: BatchComparison) -> str:
    """The answer: how many models are slower, and the mean."""
    verdicts = ((SLOWER, SLOWER), (FASTER, FASTER), (SAME, "the same"), (UNDECIDED, UNDECIDED))
    counts = [f"{batch.count(verdict)} {said}" for verdict, said in verdicts if batch.count(verdict)]
    left = sum(model.comparison is None or model.comparison.verdict == NOT_COMPARABLE for model in batch.models)
    counts += [f"{left} not compared"] if left else []
    mean = f" B takes {batch.ratio:.3f}x the time of A (geometric mean)." if batch.ratio is not None else ""
    return f"Of {plural(len(batch.models), 'model')}: {', '.join(counts)}.{mean}"


def _compute_relative_step(model: ModelComparison) -> float:
    step = model.comparison.step if model.comparison is not None else None
    return abs(step.delta_s) / step.a_s if step is not None and step.a_s else -1.0


def _make_model_row(model: ModelComparison) -> Row:
    found = model.comparison
    if found is None:
        said = make_notes(model.problem, on=ShownIn.TERMINAL, whole=True)
        missing = [Cell(units.MISSING)] * 4
        return Row((Cell(model.name, notes=said), *missing, Cell("not compared", tone=NOTE), Cell(model.problem)))
    step = found.step
    most = ", ".join(f"{name_part(part)} {format_signed(part.delta_s)}" for part in name_main_parts(found)[:2])
    why = "; ".join(found.reasons) if found.verdict == NOT_COMPARABLE else most
    code = "" if describe_code(found).startswith("All") else describe_code(found)
    relative = step.delta_s / step.a_s if step.a_s else None
    cells = (
        *(
            Cell(model.name, notes=make_notes(why, code, on=ShownIn.TERMINAL, whole=True)),
            Cell(units.seconds(step.a_s), step.a_s),
        ),
        *(Cell(units.seconds(step.b_s), step.b_s), Cell(format_signed(step.delta_s), step.delta_s)),
        Cell(format_signed_percent(step.delta_s, step.a_s), relative),
        *(Cell(found.verdict, tone=TONES.get(found.verdict, "")), Cell(why)),
    )
    return Row(cells, lambda: _list_model_details(found))


def _list_model_details(found: RunComparison) -> Iterator[Block]:
    yield from make_sentences((write_headline(found), *list_notes(found), describe_code(found)))
    parts = [
        (
            name_part(part),
            f"{format_signed(part.delta_s)} ({format_signed_percent(part.delta_s, found.step.a_s)}), {part.verdict}",
        )
        for part in found.parts
    ]
    yield Facts(tuple(parts))


def make_batch_comparison_csv(batch: BatchComparison, view: View) -> str:
    """Renders a row for each model, in seconds."""
    rows = []
    for model in batch.models:
        step = model.comparison.step if model.comparison is not None else None
        times = (step.a_s, step.b_s, step.delta_s, step.low_s, step.high_s) if step is not None else ("",) * 5
        verdict = model.comparison.verdict if model.comparison is not None else "not compared"
        reason = "; ".join(model.comparison.reasons) if model.comparison is not None else model.problem
        rows.append((model.name, *times, verdict, reason))
    return write_csv(("model", "a_s", "b_s", "delta_s", "low_s", "high_s", "verdict", "problem"), rows)


BATCH_FORMATS = make_formats(
    make_batch_comparison_document,
    csv=make_batch_comparison_csv,
    rows="a row for each model as CSV",
    of="a comparison of two batches",
)
