"""The section of a program's step: bar, timeline, table of parts, ranks, graphs, and what the host does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from ... import units
from ...analysis.findings.step_findings import describe_spot, name_rank
from ...analysis.findings.step_phrases import describe_part_place, describe_unit, name_line
from ...analysis.step_costs import (
    compute_exposed_s,
    compute_idle_share,
    compute_work_s,
    find_idle_s,
    find_pace_setter,
    find_step,
    list_parts,
    runs_on_host,
)
from ...records.evidence import GENERATED, LIBRARY, OWN, TORCH, HostTrace, HostTraceFrame, HostTraceProfile
from ...records.run import (
    COLLECTIVE,
    COPY,
    EAGER,
    GRAPH,
    HOST_LANE,
    IDLE,
    OPTIMIZER,
    CallStretch,
    HostStretch,
    HostWork,
    Interval,
    Part,
    Program,
    RankSteps,
    Run,
)
from ...records.run import Timeline as StepTimeline
from .. import names, palette
from ..document import (
    LEAD,
    NOTE,
    Bar,
    Block,
    Cell,
    Column,
    FlameGraph,
    Mark,
    Row,
    Section,
    Sentence,
    Series,
    ShownIn,
    Sparkline,
    Stretch,
    Table,
    TimelineChart,
    make_notes,
    make_table,
    make_text_column,
)
from .run_tables import name_anchor
from .run_words import RankedKernel

RANK_WORDS = (
    "work: the device computes or copies · exposed: collectives run, or wait for other ranks, and nothing is computed "
    "· hidden: collectives beside computation"
)
"""What the columns of the ranks mean."""

MOST_PARTS = 12
MOST_RANKS = 16
MOST_IN_BAR = 10
FILLS = "█▓▒░"
"""The characters of the bar's segments, in turn. They distinguish neighbours if there is no colour."""

TICKS = 5
NAME_WIDTH = 64
STEP_COLOUR = palette.GRAPHS[0]
MOST_GRAPHS_NAMED = 4
_KIND_NAMES = {
    EAGER: "eager operators",
    OPTIMIZER: "optimizer",
    COLLECTIVE: "collectives",
    COPY: "copies",
    IDLE: "waiting, Python",
}


def make_step_section(run: Run, timeline: StepTimeline | None, entries: Sequence[RankedKernel] = ()) -> Section:
    """Where the step goes; nothing if no step was profiled. ``entries`` are the rows of the kernels."""
    program = find_step(run)
    if program is None:
        return Section("Where the step goes", ())
    rows = make_ledger_rows(program)
    bar = Bar(tuple(Stretch(one.share, one.colour, one.label, fill=one.fill) for one in rows), on=ShownIn.TERMINAL)
    few = Bar(tuple(Stretch(one.share, one.colour, one.label) for one in list_bar_parts(run)), on=ShownIn.PAGE)
    lanes = _make_lanes(run, timeline, entries)
    blocks = (bar, few, *lanes, *make_steps_plot(program), _make_ledger(program, rows), *_make_loops_table(program))
    note = f"every moment is in one part; {describe_idle_time(run)}"
    return Section("Where the step goes", blocks, short="Step", note=note)


# --- the parts of the step --------------------------------------------------------------------------------------------


class LedgerRow(NamedTuple):
    """A part of the step, or several small ones. ``fill`` is its character in the bar, ``time_s`` in seconds."""

    label: str
    kind: str
    calls: float | None
    time_s: float
    share: float
    where: str
    colour: str
    fill: str


def make_ledger_rows(program: Program, most: int = MOST_PARTS) -> list[LedgerRow]:
    """The longest parts of the step, and one row for the others; their shares add up to 1."""
    parts = sorted(program.parts, key=lambda part: -part.time_s)
    shown = parts if len(parts) <= most + 1 else parts[:most]
    rows = []
    for number, (part, colour) in enumerate(zip(shown, choose_colours(shown), strict=True)):
        fill = "·" if part.kind == IDLE else FILLS[number % len(FILLS)]
        calls = part.calls if part.calls and part.kind != IDLE else None
        rows.append(
            LedgerRow(label_part(part), part.kind, calls, part.time_s, part.share, describe_place(part), colour, fill)
        )
    others = parts[len(shown) :]
    if others:
        time_s, share = sum(part.time_s for part in others), sum(part.share for part in others)
        label = f"and {len(others)} more"
        rows.append(LedgerRow(label, "", None, time_s, share, "in tables/step.csv", palette.MUTED, "-"))
    return rows


def _make_ledger(program: Program, few: Sequence[LedgerRow]) -> Table:
    """Makes the table of all parts. A terminal shows one row for the small parts, and the signs of its bar."""
    every = make_ledger_rows(program, most=10**6)
    signs = [one.fill for one in few] + [""] * len(every)
    folded = len(few) < len(every)
    rest = Row(tuple(cell for _, cell in _list_ledger_cells((few[-1], few[-1].fill)))) if folded else None
    return make_table(
        zip(every, signs, strict=False),
        _list_ledger_cells,
        filter="part, kind, place",
        most=len(few) - 1 if folded else 0,
        cut_on=ShownIn.SCREEN,
        rest=rest,
    )


def _make_loops_table(program: Program) -> Iterator[Block]:
    """Makes the table of a step's repeated calls, and of the calls between them; nothing if no calls repeat."""
    if not program.stretches:
        return

    def list_cells(one: CallStretch) -> Iterator[tuple[Column, Cell]]:
        yield make_text_column("loops in the step", least=18), Cell(describe_unit(one))
        yield Column("repeats"), Cell(units.count(one.repetitions), one.repetitions)
        yield Column("time of one"), Cell(units.seconds(one.time_s), one.time_s)
        yield Column("busy", spare=1), Cell(units.percent(one.busy_time_s / one.time_s))
        yield Column("time"), Cell(units.seconds(one.whole_s), one.whole_s)
        yield Column("of step"), Cell(units.percent(one.whole_s / program.step_time_s))

    yield make_table((one for one in program.stretches if one.time_s), list_cells, filter="graph")


def _list_ledger_cells(item: tuple[LedgerRow, str]) -> Iterator[tuple[Column, Cell]]:
    one, sign = item
    yield make_text_column("part", least=18), Cell(one.label, colour=one.colour, fill=sign)
    yield Column("kind", False, on=ShownIn.PAPER), Cell(one.kind)
    yield Column("calls", spare=1), Cell(units.count(one.calls) if one.calls is not None else "", one.calls)
    yield Column("time"), Cell(units.seconds(one.time_s), one.time_s)
    yield Column("of step"), Cell(units.percent(one.share), one.share)
    yield make_text_column("where", spare=2, least=24), Cell(one.where)


def list_bar_parts(run: Run, most: int = MOST_IN_BAR) -> list[LedgerRow]:
    """The step in few pieces for a picture: eager operators and copies are one piece each, and idle time comes last."""
    program = find_step(run)
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in program.parts if program else ():
        merged = {EAGER: "eager", COPY: "copies"}.get(part.kind)
        groups.setdefault((part.kind, merged or label_part(part)), []).append(part)
    rows = []
    for (kind, label), parts in groups.items():
        time_s, share = sum(part.time_s for part in parts), sum(part.share for part in parts)
        rows.append(LedgerRow(label, kind, None, time_s, share, "", "", ""))
    rows.sort(key=lambda row: (row.kind == IDLE, -row.time_s))
    shown = rows if len(rows) <= most else sorted(rows, key=lambda row: -row.time_s)[:most]
    graphs = choose_graph_colours(run)
    named = [
        row._replace(colour=graphs.get(row.label) or palette.choose_part_colour(row.kind))
        for row in rows
        if row in shown
    ]
    rest = 1 - sum(row.share for row in named)
    others = LedgerRow("others", "", None, rest * (program.step_time_s if program else 0), rest, "", palette.MUTED, "")
    return [*named, others] if len(named) < len(rows) else named


def choose_graph_colours(run: Run) -> dict[str, str]:
    """The colour of each compiled graph by its label."""
    parts = list_parts(run, GRAPH)
    return {label_part(part): colour for part, colour in zip(parts, choose_colours(parts), strict=True)}


def describe_idle_time(run: Run) -> str:
    """Says what idle time means on the program's device, and how much of the step it is."""
    what = "no operator runs" if runs_on_host(run) else "the device is idle"
    time_s = sum(part.time_s for part in list_parts(run, IDLE))
    return f"idle: {what}, {units.seconds(time_s)} ({units.percent(compute_idle_share(run))}) in all"


def choose_colours(parts: Sequence[Part]) -> list[str]:
    """The colour of each part: one for each kind, and of the graphs several in turn."""
    graphs: dict[str, str] = {}
    found = []
    for part in parts:
        if part.kind == GRAPH:
            graphs.setdefault(part.label, palette.GRAPHS[len(graphs) % len(palette.GRAPHS)])
            found.append(graphs[part.label])
        else:
            found.append(palette.choose_part_colour(part.kind))
    return found


def label_part(part: Part) -> str:
    """Returns the part's name in tables: ``Block.forward``, ``aten.embedding``, ``idle: launching``."""
    label = names.clean(part.label)
    if part.kind == IDLE:
        return f"idle: {label}"
    return f"copy: {label}" if part.kind == COPY else label.replace("::", ".", 1)


def describe_place(part: Part) -> str:
    """Returns a part's line or module; for a graph how it is launched, for a collective its hidden time."""
    place = names.clean(describe_part_place(part))
    if part.kind == IDLE and part.function:
        return names.clean(describe_spot(part))
    if part.kind == GRAPH:
        return describe_launches(part.calls, part.replays, part.launches)
    if part.kind == COLLECTIVE and part.hidden_s:
        return ", ".join(filter(None, [f"{units.seconds(part.hidden_s)} more is hidden", place]))
    return place


def describe_launches(calls: float, replays: float, launches: float) -> str:
    """Returns ``replays``, ``120 launches``, or ``3 of 4 replays``; empty if nothing is known to be launched."""
    if calls and replays >= calls:
        return "replays"
    if replays:
        return f"{units.count(replays)} of {units.count(calls)} replays"
    return f"{units.count(launches)} launch{'es' * (launches != 1)}" if launches else ""


# --- the ranks --------------------------------------------------------------------------------------------------------


def rank_section(run: Run) -> Section:
    """A row for each process; nothing for a program of one process."""
    ranks = run.program.ranks if run.program else ()
    if len(ranks) < 2:
        return Section("Ranks", ())
    table = make_table(ranks[:MOST_RANKS], _list_rank_cells, every=len(ranks), more="in tables/step.csv")
    title = f"{len(ranks)} ranks; {name_rank(find_pace_setter(ranks))} sets the pace, and the parts are of its step"
    return Section("Ranks", (Sentence(f"{title}.", LEAD), table, Sentence(RANK_WORDS, NOTE)), quiet=True)


def _list_rank_cells(rank: RankSteps) -> Iterator[tuple[Column, Cell]]:
    hidden_s = sum(part.hidden_s for part in rank.parts if part.kind == COLLECTIVE)
    yield make_text_column("rank"), Cell(name_rank(rank))
    yield Column("step"), Cell(units.seconds(rank.step_time_s), rank.step_time_s)
    for column, value in (
        (Column("work"), compute_work_s(rank)),
        (Column("exposed collectives", short="exposed"), compute_exposed_s(rank)),
        *((Column("hidden"), hidden_s), (Column("idle"), find_idle_s(rank))),
    ):
        known = value if rank.parts else None
        yield column, Cell(units.seconds(known), known)


# --- the timeline -----------------------------------------------------------------------------------------------------


def _make_lanes(run: Run, timeline: StepTimeline | None, entries: Sequence[RankedKernel]) -> Iterator[Block]:
    if timeline is None or not timeline.intervals or timeline.time_s <= 0:
        return
    colour_of = choose_graph_colours(run)
    lanes = tuple(
        (lane, tuple(_make_interval(timeline, one, colour_of) for one in timeline.intervals if one.lane == lane))
        for lane in list_lanes(timeline)
    )
    places = [tick / (TICKS - 1) for tick in range(TICKS)]
    ticks = tuple((place, units.seconds(timeline.time_s * place)) for place in places)
    legend = tuple((colour, name) for name, colour in make_legend(timeline.intervals, colour_of))
    whose = f" of rank {timeline.rank}" if timeline.rank is not None else ""
    step = units.seconds(run.program.step_time_s) if run.program is not None else ""
    slower = f"the profiler slows the host: without it a step takes {step}"
    yield Sentence(f"One profiled step{whose}, {units.seconds(timeline.time_s)}; {slower}.", NOTE, on=ShownIn.PAGE)
    marks = tuple(_list_marks(timeline, entries))
    yield TimelineChart(
        lanes, ticks, legend, f"Timeline of one profiled step{whose}", marks, timeline.time_s, on=ShownIn.PAGE
    )
    click = "A click on a kernel leads to its row. " if marks else ""
    yield Sentence(f"{click}traces/step.trace.json.gz opens in Perfetto.", NOTE, on=ShownIn.PAGE)


def _list_marks(timeline: StepTimeline, entries: Sequence[RankedKernel]) -> Iterator[Mark]:
    """The kernels of a timeline, each in the colour of its category."""
    rows = {(entry.module.slug, entry.kernel.name): entry for entry in entries}
    for one in timeline.kernels:
        entry = rows.get((one.graph, one.name))
        colour = palette.choose_category_colour(entry.kernel.category) if entry else palette.UNKNOWN
        spans = tuple((begin / timeline.time_s, (end - begin) / timeline.time_s) for begin, end in one.spans_s)
        yield Mark(
            names.shorten(one.name, NAME_WIDTH),
            name_anchor(entry) if entry else "",
            colour,
            one.lane,
            spans,
        )


def list_step_numbers(rank: RankSteps) -> tuple[int, ...]:
    """Returns the numbers of the timed steps; in older records their places."""
    return rank.step_numbers or tuple(range(len(rank.step_times_s)))


TimedSteps = list[tuple[int, float]]
"""The number and the seconds of each step."""


def split_timed_steps(rank: RankSteps) -> tuple[TimedSteps, TimedSteps, TimedSteps]:
    """Returns the timed steps before the level of the figures, those at that level, and those after it."""
    timed = list(zip(list_step_numbers(rank), rank.step_times_s, strict=False))
    begin, end = rank.level if rank.level[1] > rank.level[0] else (0, len(timed))
    return timed[:begin], timed[begin:end], timed[end:]


def make_steps_plot(program: Program) -> Iterator[Block]:
    """The times of the steps in their order, and where the profiled ones are; nothing for a single step."""
    ranks = program.ranks
    rank = find_pace_setter(ranks) if ranks else None
    if rank is None or len(rank.step_times_s) < 2:
        return
    numbers = list_step_numbers(rank)
    known = bool(rank.step_numbers) and rank.profiled_steps > 0 and rank.profiled_step_time_s is not None
    before = rank.steps_before_profile
    begin = numbers[before - 1] + 1 if 0 < before <= len(numbers) else max(0, numbers[0] - rank.profiled_steps)
    profiled = range(begin, begin + rank.profiled_steps) if known else range(0)
    profiled_s = rank.profiled_step_time_s or 0.0
    first, last = min((*numbers, *profiled)), max((*numbers, *profiled))
    high_s = max((*rank.step_times_s, *([profiled_s] if profiled else [])))
    if last <= first or high_s <= 0:
        return

    def list_points(steps: Iterable[tuple[int, float]]) -> tuple[tuple[float, float], ...]:
        return tuple(((number - first) / (last - first), time_s / high_s) for number, time_s in steps)

    before_level, used, after_level = split_timed_steps(rank)
    others = [*before_level, *after_level]
    step = units.seconds(program.step_time_s)
    series = (
        Series(f"{len(used)} timed steps, from which the figures are computed: {step}", STEP_COLOUR, list_points(used)),
        Series(f"{len(others)} other timed steps", "muted", list_points(others)),
        Series(
            f"{len(profiled)} profiled steps, at their mean of {units.seconds(profiled_s)}",
            "bad",
            list_points((number, profiled_s) for number in profiled),
        ),
    )
    shown = tuple(one for one in series if one.points)
    title = f"Times of the steps {first} to {last}: {'; '.join(one.title for one in shown)}"
    yield Sparkline(title, shown, "0", units.seconds(high_s), (f"step {first}", f"step {last}"))


def _make_interval(timeline: StepTimeline, one: Interval, colour_of: dict[str, str]) -> Stretch:
    length_s = one.end_s - one.start_s
    title = f"idle: {one.label}" if one.kind == IDLE else one.label
    said = f"{title} {units.seconds(length_s)}"
    return Stretch(
        length_s / timeline.time_s, choose_interval_colour(one, colour_of), title, said, one.start_s / timeline.time_s
    )


def list_lanes(timeline: StepTimeline) -> list[str]:
    """The lanes from top to bottom: the host, then the device's streams by their first interval."""
    found = dict.fromkeys(one.lane for one in sorted(timeline.intervals, key=lambda one: one.start_s))
    return sorted(found, key=lambda lane: lane != HOST_LANE)


def choose_interval_colour(one: Interval, colour_of: dict[str, str]) -> str:
    """The colour of an interval; ``colour_of`` has those of the graphs by label."""
    return colour_of.get(one.label, palette.PARTS[GRAPH]) if one.kind == GRAPH else palette.choose_part_colour(one.kind)


def make_legend(intervals: Iterable[Interval], colour_of: dict[str, str]) -> list[tuple[str, str]]:
    """The entries of a legend for these intervals: ``(name, colour)``."""
    kinds = {one.kind for one in intervals}
    graphs = [(names.cut_end(names.clean(label), 28), colour) for label, colour in colour_of.items()]
    named = graphs if len(graphs) <= MOST_GRAPHS_NAMED else [("graphs", palette.PARTS[GRAPH])]
    kinds_shown = [*(kind for kind in _KIND_NAMES if kind in kinds), *sorted(kinds - {GRAPH, *_KIND_NAMES})]
    others = [(_KIND_NAMES.get(kind) or names.clean(kind), palette.choose_part_colour(kind)) for kind in kinds_shown]
    return [*(named if GRAPH in kinds else []), *others]


MANY = 40
"""Number of samples up to which the screen says how uncertain they are."""

MOST_LINES = 6
MOST_CODE = 100
MOST_LEVELS = 48
NARROWEST = 0.001
"""The share of the flame graph's width below which a function is left out."""

_COLOURS = {OWN: palette.PARTS["eager"], LIBRARY: "#cc79a7", TORCH: palette.PARTS["graph"], GENERATED: "#56b4e9"}


def make_host_section(run: Run) -> Section:
    """What the host does while the device waits; nothing if it was not sampled."""
    program = find_step(run)
    host = program.host if program is not None else None
    if program is None or host is None:
        return Section("", ())
    on_host = runs_on_host(run)
    if not host.stretches:
        return Section(
            "", (Sentence(describe_few_samples(host), NOTE, on=ShownIn.PAPER if on_host else ShownIn.EVERYWHERE),)
        )
    title = "What the host does outside of operators" if on_host else "What the host does while the device waits"
    blocks = (*_make_host_table(run, host), Sentence(describe_sampling_cost(host, on_host=on_host), NOTE))
    note = f"the innermost function that ran, and the line of your program that called it; {_describe_sum(run, host)}"
    return Section(title, blocks, short="Host", note=note)


def _describe_sum(run: Run, host: HostWork) -> str:
    """Says how much of a step's idle time all rows add up to."""
    rows = units.seconds(sum(one.time_s for one in host.stretches))
    idle = units.seconds(sum(part.time_s for part in list_parts(run, IDLE)))
    return f"all rows add up to the {idle} of idle time" if rows == idle else f"all rows: {rows} of {idle} of idle time"


def _make_host_table(run: Run, host: HostWork) -> Iterator[Block]:
    whole_s = run.program.step_time_s if run.program else 0.0
    if not host.stretches or not whole_s:
        return
    yield make_table(
        host.stretches,
        partial(_list_host_cells, whole_s=whole_s),
        filter="function, line",
        most=MOST_LINES,
        cut_on=ShownIn.TERMINAL,
        more="in report.html",
    )


def _list_host_cells(one: HostStretch, whole_s: float) -> Iterator[tuple[Column, Cell]]:
    line = name_line(one.source)
    if one.source is not None and not line.endswith(f" {one.source.function}"):
        line = f"{line} {one.source.function}"
    code = f"`{names.cut_end(one.source.code, MOST_CODE)}`" if one.source and one.source.code else ""
    said = make_notes(code, on=ShownIn.PAPER)
    yield make_text_column("function", least=18), Cell(names.clean(one.function) or "-")
    yield Column("doing", False), Cell(one.label)
    yield Column("time"), Cell(units.seconds(one.time_s), one.time_s)
    yield Column("of step"), Cell(units.percent(one.time_s / whole_s))
    yield make_text_column("line", spare=1, least=20), Cell(names.clean(line), notes=said)


def describe_few_samples(host: HostWork) -> str:
    """Says that the samples name no functions, because there are too few."""
    return f"Functions of the host are not named: {host.samples} samples in {host.steps} further steps are too few"


def describe_sampling_cost(host: HostWork, *, on_host: bool) -> str:
    """Says how certain the samples are, and what sampling costs."""
    moments = "outside of operators" if on_host else "with the device idle"
    said = f"{host.samples} of {host.every} samples, in {host.steps} further steps, found the host {moments}"
    if 0 < host.samples < MANY:
        said += f" (few: shares of the idle time are ± {units.whole_percent(0.5 / math.sqrt(host.samples))} or less)"
    if not host.blocks:
        return f"{said}; what sampling costs is unknown"
    times = "1 block" if host.blocks == 1 else f"{host.blocks} blocks"
    low, high = sorted((host.cost_low, host.cost_high))
    return (
        f"{said}. Sampled steps differ from their neighbours by {100 * host.cost:+.1f}% "
        f"({100 * low:+.1f} to {100 * high:+.1f}%; {times})"
    )


def make_flame_section(run: Run, trace: HostTrace | None) -> Section:
    """The stacks of the host as a flame graph, for a page; nothing if it was not sampled."""
    profile = trace.profiles[0] if trace is not None and trace.profiles else None
    if find_step(run) is None or trace is None or profile is None or sum(profile.weights) <= 0:
        return Section("", ())
    levels = list_flame_levels(profile, trace.shared.frames)
    name = f"{profile.name[:1].upper()}{profile.name[1:]}"
    caption = Sentence("traces/host.speedscope.json opens in speedscope.app, with every stack.", NOTE, on=ShownIn.PAGE)
    blocks = (FlameGraph(levels, f"Flame graph of the host: {name}"), caption) if levels else ()
    return Section("The host's functions", blocks, note=f"{name}: width is time", on=ShownIn.PAGE)


def list_flame_levels(profile: HostTraceProfile, frames: tuple[HostTraceFrame, ...]) -> tuple[tuple[Stretch, ...], ...]:
    """Returns the bars of each level, beginning with the outermost functions. Empty places are left out."""
    whole_s = sum(profile.weights)
    stacks = sorted(zip(profile.samples, profile.weights, strict=False))
    levels: list[list[Stretch]] = []
    open_bars: list[tuple[int, float]] = []
    left = 0.0

    def close(depth: int) -> None:
        while len(open_bars) > depth:
            place, begin = open_bars.pop()
            share = left - begin
            if share >= NARROWEST and len(open_bars) < MOST_LEVELS and 0 <= place < len(frames):
                while len(levels) <= len(open_bars):
                    levels.append([])
                levels[len(open_bars)].append(_make_flame_bar(frames[place], begin, share))

    for stack, weight in stacks:
        shared = 0
        while shared < min(len(stack), len(open_bars)) and stack[shared] == open_bars[shared][0]:
            shared += 1
        close(shared)
        open_bars += [(place, left) for place in stack[shared:]]
        left += weight / whole_s
    close(0)
    return tuple(map(tuple, levels))


def _make_flame_bar(frame: HostTraceFrame, left: float, share: float) -> Stretch:
    place = f" {'/'.join(frame.file.split('/')[-2:])}:{frame.line}" if frame.file else ""
    name = names.clean(frame.name)
    return Stretch(share, _COLOURS.get(frame.owner, palette.MUTED), name, f"{name}{place} {units.percent(share)}", left)
