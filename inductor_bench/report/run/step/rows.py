"""The rows of the step's tables, for all formats. Pure functions of a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .... import units
from ....analysis.findings.program_findings import place_words
from ....analysis.findings.step_findings import rank_name
from ....analysis.step_costs import exposed_s, graph_use, idle_s, pace_setter, parts_of, runs_on_host, step_of, work_s
from ....records.module import ModuleRecord
from ....records.program import COLLECTIVE, COPY, EAGER, GRAPH, IDLE, Part, RankSteps
from ....records.run import Run
from ...text import names, palette

RANK_WORDS = (
    "work: the device computes or copies · exposed: it is in collectives and computes nothing, waits for other ranks "
    "included · hidden: collectives beside computation"
)
"""What the columns of the ranks mean."""

MOST_PARTS = 12
MOST_RANKS = 16
MOST_IN_BAR = 10
FILLS = "█▓▒░"
"""The characters of the bar's segments, in turn. They tell neighbours apart where there is no colour."""


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


def bar_rows(run: Run, most: int = MOST_IN_BAR) -> list[LedgerRow]:
    """The step in few pieces for a picture: eager operators and copies are one piece each, and idle time comes last."""
    program = step_of(run)
    groups: dict[tuple[str, str], list[Part]] = {}
    for part in program.parts if program else ():
        merged = {EAGER: "eager", COPY: "copies"}.get(part.kind)
        groups.setdefault((part.kind, merged or part_label(part)), []).append(part)
    rows = []
    for (kind, label), parts in groups.items():
        time_s, share = sum(part.time_s for part in parts), sum(part.share for part in parts)
        rows.append(LedgerRow(label, kind, None, time_s, share, "", "", ""))
    rows.sort(key=lambda row: (row.kind == IDLE, -row.time_s))
    shown = rows if len(rows) <= most else sorted(rows, key=lambda row: -row.time_s)[:most]
    graphs = graph_colours(run)
    named = [
        row._replace(colour=graphs.get(row.label) or palette.part_colour(row.kind)) for row in rows if row in shown
    ]
    rest = 1 - sum(row.share for row in named)
    others = LedgerRow("others", "", None, rest * (program.step_time_s if program else 0), rest, "", palette.MUTED, "")
    return [*named, others] if len(named) < len(rows) else named


def graph_colours(run: Run) -> dict[str, str]:
    """The colour of each compiled graph by its label."""
    parts = parts_of(run, GRAPH)
    return {part_label(part): colour for part, colour in zip(parts, colours(parts), strict=True)}


@dataclass(frozen=True)
class Table:
    """A table of texts. ``alignment`` has an ``l`` or ``r`` for each column."""

    title: str
    header: tuple[str, ...]
    alignment: str
    rows: tuple[tuple[str, ...], ...]


def idle_words(run: Run) -> str:
    """What idle time is on the device of the program."""
    return "idle: time in which no operator runs" if runs_on_host(run) else "idle: time in which the device is idle"


def ledger_rows(run: Run, most: int = MOST_PARTS) -> list[LedgerRow]:
    """The longest parts of the step, and one row for the others; their shares add up to 1."""
    program = step_of(run)
    if program is None:
        return []
    parts = sorted(program.parts, key=lambda part: -part.time_s)
    shown = parts if len(parts) <= most + 1 else parts[:most]
    rows = []
    for number, (part, colour) in enumerate(zip(shown, colours(shown), strict=True)):
        fill = "·" if part.kind == IDLE else FILLS[number % len(FILLS)]
        calls = part.calls if part.calls and part.kind != IDLE else None
        rows.append(LedgerRow(part_label(part), part.kind, calls, part.time_s, part.share, where(part), colour, fill))
    others = parts[len(shown) :]
    if others:
        time_s, share = sum(part.time_s for part in others), sum(part.share for part in others)
        label = f"and {len(others)} more"
        rows.append(LedgerRow(label, "", None, time_s, share, "in tables/step.csv", palette.MUTED, "-"))
    return rows


def colours(parts: Sequence[Part]) -> list[str]:
    """The colour of each part: one for each kind, and of the graphs several in turn."""
    graphs: dict[str, str] = {}
    found = []
    for part in parts:
        if part.kind == GRAPH:
            graphs.setdefault(part.label, palette.GRAPHS[len(graphs) % len(palette.GRAPHS)])
            found.append(graphs[part.label])
        else:
            found.append(palette.part_colour(part.kind))
    return found


def part_label(part: Part) -> str:
    """Returns the part's name in tables: ``Block.forward``, ``aten.embedding``, ``idle: launching``."""
    label = names.clean(part.label)
    if part.kind == IDLE:
        return f"idle: {label}"
    return f"copy: {label}" if part.kind == COPY else label.replace("::", ".", 1)


def where(part: Part) -> str:
    """Returns the line or the module of a part; of a graph how it is launched, of a collective what is hidden."""
    place = names.clean(place_words(part))
    if part.kind == GRAPH:
        return launched(part.calls, part.replays, part.launches)
    if part.kind == COLLECTIVE and part.hidden_s:
        return ", ".join(filter(None, [f"{units.seconds(part.hidden_s)} more is hidden", place]))
    return place


def launched(calls: float, replays: float, launches: float) -> str:
    """Returns ``replays``, ``120 launches``, or ``3 of 4 replays``; empty where nothing is known to be launched."""
    if calls and replays >= calls:
        return "replays"
    if replays:
        return f"{units.count(replays)} of {units.count(calls)} replays"
    return f"{units.count(launches)} launch{'es' * (launches != 1)}" if launches else ""


def ledger_table(run: Run) -> Table:
    """The ledger with all its parts."""
    rows = tuple(
        (row.label, row.kind, units.count(row.calls), units.seconds(row.time_s), units.percent(row.share), row.where)
        for row in ledger_rows(run, most=10**6)
    )
    return Table("Where the step goes", ("part", "kind", "calls", "time", "share", "where"), "llrrrl", rows)


def rank_table(run: Run) -> Table | None:
    """A row for each process; ``None`` for a program of one process."""
    ranks = run.program.ranks if run.program else ()
    if len(ranks) < 2:
        return None
    rows = tuple(_rank_row(rank) for rank in ranks[:MOST_RANKS])
    more = f"; {len(ranks) - MOST_RANKS} more in tables/step.csv" if len(ranks) > MOST_RANKS else ""
    title = f"{len(ranks)} ranks; {rank_name(pace_setter(ranks))} sets the pace, and the ledger is its own{more}"
    return Table(title, ("rank", "step", "work", "exposed collectives", "hidden", "idle"), "lrrrrr", rows)


def _rank_row(rank: RankSteps) -> tuple[str, ...]:
    collectives = [part for part in rank.parts if part.kind == COLLECTIVE]
    return (
        rank_name(rank),
        units.seconds(rank.step_time_s),
        units.seconds(work_s(rank) if rank.parts else None),
        units.seconds(exposed_s(rank) if rank.parts else None),
        units.seconds(sum(part.hidden_s for part in collectives) if rank.parts else None),
        units.seconds(idle_s(rank) if rank.parts else None),
    )


def graph_table(run: Run) -> Table:
    """A row for each graph: its use in the step, and its own run beside."""
    header = ("graph", "calls", "time", "share", "as", "own wall", "own busy")
    return Table("Graphs in the step", header, "lrrrlrr", tuple(graph_cells(run, module) for module in run.modules))


def graph_cells(run: Run, module: ModuleRecord) -> tuple[str, ...]:
    """The cells of a graph below the header of :func:`graph_table`."""
    use = graph_use(run, module)
    return (
        names.clean(module.label),
        units.count(use.calls),
        units.seconds(use.time_s),
        units.percent(use.share),
        launched(use.calls, use.replays, use.launches),
        units.seconds(module.times.wall_time_s),
        units.percent(module.times.busy_share),
    )
