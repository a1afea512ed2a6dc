"""The document of a comparison of modes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from .. import units
from ..analysis.findings.finding import join_words, plural
from ..devices.table import find_device
from ..records.base import Failure
from ..records.comparison import (
    AGREES,
    DIFFERS,
    EAGER,
    NOT_TIMED,
    UNKNOWN,
    ModeComparison,
    ModeFigures,
    ModeRow,
    ModeWinner,
    StepRatio,
)
from ..records.request_fields import COMPILED_HERE
from . import palette
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
    Row,
    Section,
    Sentence,
    ShownIn,
    Stretch,
    Table,
    make_notes,
    make_text_column,
)
from .formats import View, make_formats, write_csv

CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")

NOISY = 0.1
"""Relative difference between the processes of a row above which the report says that the machine is noisy."""

QUIETER = "Run more rounds (--rounds), or keep the machine free of other work"

LEGEND = {
    "step": "mean over the processes, with its 95% interval",
    "of eager": "the step divided by eager's",
    "compile": "time from the first compilation until the steps settle, with empty caches; measured once",
    "pays after": "steps until the compilation has paid off against eager",
    "vs shorter": "the same against the row with the next shorter compilation",
    "device": "sum of the durations on the device in a profiled step",
    "memory": "peak of the last process, on a CPU with Python and the compiler",
    "outputs": "relative difference to eager, root mean square",
}
"""What a column means."""


def describe_processes(comparison: ModeComparison, titles: Collection[str]) -> str:
    """Says how many processes and steps were timed, and what the shown columns mean."""
    counts = [len(row.processes) for row in comparison.rows if row.processes]
    if not counts:
        return ""
    steps = [len(one.step_times_s) for row in comparison.rows for one in row.processes]
    few, many = min(steps), max(steps)
    timed = plural(many, "step") if few == many else f"{few} to {many} steps"
    each = "1 process" if max(counts) == 1 else f"{max(counts)} processes"
    legend = " · ".join(f"{title}: {meaning}" for title, meaning in LEGEND.items() if title in titles)
    return f"{each} of each row, in turn, {timed} of each · {legend}"


def describe_machine(comparison: ModeComparison) -> str:
    """Describes the machine in one line: ``NVIDIA H200 · torch 2.11.0``."""
    environment = comparison.environment
    kinds = {one.device for row in comparison.rows for one in row.processes}
    on_host = all(find_device(kind).runs_on_host for kind in kinds)
    parts = [environment.host.cpu if on_host else environment.device.accelerator or ""]
    threads = {one.threads for row in comparison.rows for one in row.processes if one.threads}
    if on_host and len(threads) == 1:
        parts.append(plural(min(threads), "thread"))
    if environment.versions.torch:
        parts.append(f"torch {environment.versions.torch}")
    return " · ".join(filter(None, parts))


def write_advice(comparison: ModeComparison) -> str:
    """Writes the sentence at the top: the row to choose, and how certain that is."""
    winner = comparison.winner
    if winner is None:
        return _explain_no_advice(comparison)
    rows = {row.name: row for row in comparison.rows}
    chosen, fastest = rows[winner.name], rows[winner.fastest]
    if not winner.decided:
        return (
            f"Undecided: {fastest.name} measured {_format_step(fastest)} a step and "
            f"{chosen.name} {_format_step(chosen)}, but the "
            f"processes of a row differ so much that this may be noise. {QUIETER}. Until then, keep {chosen.name}, "
            f"which {_explain_choice(chosen, fastest)}."
        )
    if chosen.settings.mode == EAGER:
        if winner.fastest == winner.name:
            return (
                f"Leave it uncompiled: {_format_step(chosen)} a step; no mode measured "
                f"faster.{_describe_equals(winner)}"
            )
        return (
            f"Leave it uncompiled: {_format_step(chosen)} a step; {fastest.name} measured "
            f"{_format_step(fastest)}, which is within "
            "the noise of these processes."
        )
    text = f"Take {winner.name}: {_format_step(chosen)} a step{_describe_gain(chosen)}."
    if winner.fastest != winner.name:
        return (
            f"{text} {fastest.name} measured {_format_step(fastest)}: the difference is "
            f"within noise, and {winner.name} "
            f"{_explain_choice(chosen, fastest)}."
        )
    return f"{text}{_describe_equals(winner)}"


def _describe_equals(winner: ModeWinner) -> str:
    return f" The difference to {join_words(list(winner.equals))} is within noise." if winner.equals else ""


def _explain_choice(chosen: ModeRow, fastest: ModeRow) -> str:
    """Says why a row is advised although another row measured faster."""
    if chosen.settings.mode == EAGER:
        return "compiles nothing"
    ours, theirs = (row.figures.compile_time_s if row.figures else None for row in (chosen, fastest))
    return "compiles in less time" if ours is not None and theirs and ours < theirs else "is the plainer setting"


def _describe_gain(row: ModeRow) -> str:
    figures = row.figures
    ratio = figures.to_eager if figures else None
    if figures is None or ratio is None:
        return ""
    if ratio.verdict != "faster":
        return f", {describe_ratio(ratio)} the speed of eager, which is within noise"
    paid = ""
    if figures.pays_after is not None:
        paid = (
            f"; its compilation of {units.seconds(figures.compile_time_s)} has paid off after "
            f"{_format_steps(figures.pays_after)}"
        )
        if figures.cheaper != EAGER and figures.pays_after_cheaper is not None:
            steps = _format_steps(figures.pays_after_cheaper)
            paid += f". For up to {steps} {figures.cheaper} takes less time, including compilation"
    return f", {describe_ratio(ratio)} as fast as eager{paid}"


def _explain_no_advice(comparison: ModeComparison) -> str:
    measured = [row for row in comparison.rows if row.processes]
    if not measured:
        return "No mode was measured."
    if len(measured) < 2:
        return "Only one row was measured, so there is nothing to compare."
    return (
        "There is no advice: that needs two rounds of two rows whose outputs agree, and one of these rows has to "
        "be compiled."
    )


def describe_ratio(ratio: StepRatio) -> str:
    """How many times as fast: ``2.13 times (99% interval 2.08 to 2.19)``; the interval is that of the verdict."""
    middle, low, high = (f"{1 / value:.3g}" for value in (ratio.ratio, ratio.high, ratio.low))
    return f"{middle} times (99% interval {low} to {high})"


def _format_step(row: ModeRow) -> str:
    return units.seconds(row.figures.step_time_s if row.figures else None)


def _format_steps(number: float | None) -> str:
    return plural(max(1, round(number)), "step") if number is not None else units.MISSING


def group_failures(rows: Sequence[ModeRow]) -> dict[Failure, list[str]]:
    """The names of the rows by their failure, without its log: several rows may fail in the same way."""
    found: dict[Failure, list[str]] = {}
    for row in rows:
        if row.failure is not None:
            found.setdefault(replace(row.failure, log_tail=""), []).append(row.name)
    return found


def list_notes(comparison: ModeComparison) -> Iterator[str]:
    """Yields what limits the figures, and what each mode really did."""
    measured = [row for row in comparison.rows if row.processes]
    if not measured:
        return
    yield from _list_noise_notes(measured)
    yield from _list_code_notes(measured)
    yield from _list_call_notes(comparison, measured)
    yield from _list_output_notes(comparison, measured)
    yield from _list_notes_of_rows(measured)


def _list_noise_notes(measured: Sequence[ModeRow]) -> Iterator[str]:
    """Names the rows whose processes differ so much that little can be decided."""
    spreads = {
        row.name: max(times) / min(times) - 1
        for row in measured
        if len(times := [one.step_time_s for one in row.processes]) > 1
    }
    worst = max(spreads, key=lambda name: spreads[name], default="")
    if worst and spreads[worst] > NOISY:
        yield (
            f"the machine is noisy: the slowest process of {worst} takes {units.whole_percent(spreads[worst])} longer "
            "for a step than the fastest"
        )


def _list_code_notes(measured: Sequence[ModeRow]) -> Iterator[str]:
    twins: dict[str, list[str]] = {}
    for row in measured:
        if row.figures and row.figures.same_code_as:
            twins.setdefault(row.figures.same_code_as, []).append(row.name)
    for name, others in twins.items():
        yield (
            f"{join_words(others)}: the same generated code as {name}"
            f"{_describe_missing_graphs(measured, others)}; a difference in step time is noise"
        )
    for row in measured:
        if len({(one.codes, one.configs) for one in row.processes}) > 1:
            yield (
                f"{row.name}: its processes did not run the same code or the same configs of "
                "kernels, which also changes the step"
            )
    asked = [row for row in measured if row.settings.mode in CUDA_GRAPH_MODES]
    if asked and all(find_device(row.processes[0].device).runs_on_host for row in asked):
        yield f"{join_words([row.name for row in asked])}: CUDA graphs need a GPU, and these steps ran on a CPU"
        return
    for row in measured:
        refusals = row.processes[0].refusals
        if refusals:
            yield f"{row.name}: Inductor refused CUDA graphs ({'; '.join(reason.strip(' :') for reason in refusals)})"
        elif row.settings.mode in CUDA_GRAPH_MODES and row.processes[0].replays:
            yield f"{row.name}: CUDA graphs replay {plural(row.processes[0].replays, 'graph')}"


def _describe_missing_graphs(measured: Sequence[ModeRow], names: Sequence[str]) -> str:
    asked = [row for row in measured if row.name in names and row.settings.mode in CUDA_GRAPH_MODES]
    return ", and no CUDA graphs" if asked and not any(one.replays for row in asked for one in row.processes) else ""


def _list_call_notes(comparison: ModeComparison, measured: Sequence[ModeRow]) -> Iterator[str]:
    if comparison.request.kind in COMPILED_HERE:
        return
    by_count: dict[int, list[str]] = {}
    for row in measured:
        if row.settings.mode != EAGER:
            by_count.setdefault(row.processes[0].calls, []).append(row.name)
    for count, rows in by_count.items():
        who = "each compiled row" if len(by_count) == 1 else join_words(rows)
        yield f"{who}: the settings of {plural(count, 'call')} of torch.compile were replaced"
    kept = dict.fromkeys(reason for row in measured for reason in row.processes[0].kept_calls)
    if kept:
        yield f"calls of torch.compile with {join_words(list(kept))} were not changed"


def _list_output_notes(comparison: ModeComparison, measured: Sequence[ModeRow]) -> Iterator[str]:
    if comparison.request.kind not in COMPILED_HERE:
        yield "outputs were not compared: only a factory or a named model returns them to this tool"
        return
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in measured:
        agreement = row.figures.agreement if row.figures else None
        if agreement is not None and agreement.state in (DIFFERS, UNKNOWN):
            reasons.setdefault((agreement.state, agreement.reason), []).append(row.name)
    for (state, reason), rows in reasons.items():
        said = "the outputs differ from eager" if state == DIFFERS else "the outputs cannot be compared"
        yield f"{join_words(rows)}: {said} ({reason})"


def _list_notes_of_rows(measured: Sequence[ModeRow]) -> Iterator[str]:
    said: dict[str, list[str]] = {}
    for row in measured:
        for note in dict.fromkeys(note for one in row.processes for note in one.notes):
            said.setdefault(note, []).append(row.name)
        breaks = row.processes[0].graph_breaks
        if breaks:
            first = breaks[0].strip().partition("\n")[0] or "without a reason"
            said.setdefault(f"{plural(len(breaks), 'graph break')}, the first one: {first}", []).append(row.name)
    for note, rows in said.items():
        yield f"{join_words(rows) if len(rows) < len(measured) else 'each row'}: {note}"


TITLES = (
    *("mode", "step", "of eager", "compile", "pays after", "vs shorter", "device", "launches", "busy", "memory"),
    *("breaks", "outputs"),
)
SPARE = {"breaks": 7, "memory": 6, "busy": 5, "vs shorter": 4, "launches": 3, "outputs": 2, "device": 1}
"""Columns that a narrow terminal may leave out, the largest number first."""

STEP_COLOUR = palette.GRAPHS[1]
MOST_BREAKS = 5


# --- one program -----------------------------------------------------------------------------------------------------


def make_modes_document(comparison: ModeComparison, view: View) -> Document:
    """Makes the advice, the lines to type, the rows, failures and notes."""
    failures = [
        Item(f"{join_words(named)}: {failure.message}", NOTE if failure.kind == NOT_TIMED else BAD, failure.hint)
        for failure, named in group_failures(comparison.rows).items()
    ]
    found = [Item(f"{note}.", NOTE) for note in list_notes(comparison)]
    written = f"{view.folder}/   report.html · modes.json · records/ · logs/" if view.folder else ""
    winner = comparison.winner
    typed = "\n".join(winner.lines) if winner is not None and winner.decided else ""
    return Document(
        comparison.title,
        (describe_machine(comparison),),
        (
            Sentence(write_advice(comparison), LEAD),
            Commands(((typed, ""),) if typed else (), "Type"),
            Section("Modes", _make_blocks(comparison) if comparison.rows else (), quiet=True),
            Section("Not measured", (Items(tuple(failures)),), BAD),
            Section("Notes", (Items(tuple(found)),)),
            Facts((("Written", written),) if written else (), on=ShownIn.TERMINAL),
        ),
    )


def _make_blocks(comparison: ModeComparison) -> tuple[Block, ...]:
    table = make_mode_table(comparison)
    legend = describe_processes(comparison, [column.title for column in table.columns])
    return (table, Sentence(legend, NOTE))


def make_mode_table(comparison: ModeComparison) -> Table:
    """A row for each mode, and the columns that hold something."""
    rows = [make_mode_cells(row) for row in comparison.rows]
    titles = [title for title in TITLES if any(row[title].text not in ("", units.MISSING) for row in rows)]
    winner = comparison.winner.name if comparison.winner is not None and comparison.winner.decided else ""
    longest = max((_find_upper_end_s(row) for row in comparison.rows), default=0.0)
    return Table(
        tuple(_make_column(title) for title in titles),
        [
            _make_mode_row(row, cells, titles, longest, row.name == winner)
            for row, cells in zip(comparison.rows, rows, strict=True)
        ],
    )


def _make_column(title: str) -> Column:
    if title == "mode":
        return make_text_column(title)
    return Column(title, title != "outputs", LEGEND.get(title, ""), SPARE.get(title, 0))


def _find_upper_end_s(row: ModeRow) -> float:
    figures = row.figures
    return max(figures.step_time_s, min(figures.high_s or 0.0, 2 * figures.step_time_s)) if figures else 0.0


def _make_mode_row(
    row: ModeRow, cells: Mapping[str, Cell], titles: Sequence[str], longest: float, advised: bool
) -> Row:
    said = make_notes("advised", on=ShownIn.PAPER) if advised else ()
    found = dict(cells)
    found["mode"] = Cell(row.name, notes=said)
    found["step"] = Cell(cells["step"].text, cells["step"].value, bar=_make_step_bar(row, longest))
    tone = GOOD if advised else BAD if row.failure and row.failure.kind != NOT_TIMED else ""
    return Row(tuple(found[title] for title in titles), lambda: _list_details(row), tone=tone)


def make_mode_cells(row: ModeRow) -> dict[str, Cell]:
    """The cells of a row by title."""
    figures = row.figures
    if figures is None:
        return dict.fromkeys(TITLES, Cell("")) | {"mode": Cell(row.name), "step": Cell(_describe_missing(row))}
    compiled, work, ratio = row.settings.mode != EAGER, figures.work, figures.to_eager
    memory = figures.peak_memory_bytes
    found = {
        "mode": Cell(row.name),
        "step": Cell(_format_step_interval(figures), figures.step_time_s),
        "of eager": Cell(f"{ratio.ratio:.3f}", ratio.ratio) if ratio else Cell(""),
        "compile": Cell(units.seconds(figures.compile_time_s) if compiled else "", figures.compile_time_s),
        "pays after": Cell(_format_steps_to_pay(ratio, figures.pays_after), figures.pays_after),
        "vs shorter": Cell(
            _format_steps_to_pay(figures.to_cheaper, figures.pays_after_cheaper), figures.pays_after_cheaper
        ),
        "memory": Cell(units.size(memory) if memory else "", memory),
        "breaks": Cell(str(figures.graph_breaks) if compiled and figures.graph_breaks else "", figures.graph_breaks),
        "outputs": _format_agreement(figures),
        **dict.fromkeys(("device", "launches", "busy"), Cell("")),
    }
    if work is not None:
        found["device"] = Cell(units.seconds(work.time_s), work.time_s)
        found["launches"] = Cell(units.count(work.launches), work.launches)
        found["busy"] = Cell(units.whole_percent(work.busy_share), work.busy_share)
    return found


def _describe_missing(row: ModeRow) -> str:
    if row.failure is None:
        return "not measured"
    return "not timed" if row.failure.kind == NOT_TIMED else "failed"


def _format_step_interval(figures: ModeFigures) -> str:
    text = units.seconds(figures.step_time_s)
    if figures.low_s is None or figures.high_s is None:
        return text
    spread = (figures.high_s / figures.low_s) ** 0.5 - 1
    if spread >= 1:
        return f"{text} ±>100%"
    return f"{text} ±{spread * 100:.{0 if spread >= 0.0995 else 1}f}%"


def _format_steps_to_pay(ratio: StepRatio | None, steps: float | None) -> str:
    if ratio is None:
        return ""
    if steps is None:
        return {"undecided": "unsure", "slower": "never", "same": "never"}.get(ratio.verdict, units.MISSING)
    return units.count(max(1, round(steps)))


def _format_agreement(figures: ModeFigures) -> Cell:
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


def _make_step_bar(row: ModeRow, longest: float) -> Bar | None:
    """Makes a bar from 0 to the step's time, with the interval of the mean over its end."""
    figures = row.figures
    if figures is None or not longest:
        return None
    found = [Stretch(figures.step_time_s / longest, STEP_COLOUR, "step", _format_step_interval(figures), 0.0)]
    if figures.low_s is not None and figures.high_s is not None:
        low, high = (min(1.0, value / longest) for value in (figures.low_s, figures.high_s))
        found.append(Stretch(high - low, "interval", "interval", "95% interval of the mean", low))
    return Bar(tuple(found))


def _list_details(row: ModeRow) -> Iterator[Block]:
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


def make_modes_csv(comparison: ModeComparison, view: View) -> str:
    """Renders a row for each mode, with SI base units. Cells of unknown values are empty."""
    return write_csv(COLUMNS, map(_make_mode_csv, comparison.rows))


def _make_mode_csv(row: ModeRow) -> list[object]:
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


FORMATS = make_formats(
    make_modes_document,
    csv=make_modes_csv,
    record="what modes.json holds",
    rows="a row for each mode",
    names_folder=True,
)
