"""What the host does while the device waits: a table by function and line, and a flame graph."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ... import units
from ...analysis.findings.program_findings import line_words
from ...analysis.step_costs import runs_on_host, step_of
from ...records.evidence import GENERATED, LIBRARY, OWN, TORCH, HostTrace, HostTraceFrame, HostTraceProfile
from ...records.program import HostStretch, HostWork
from ...records.run import Run
from .. import names, palette
from ..document import NOTE, Block, Cell, Column, FlameGraph, On, Row, Section, Sentence, Stretch, Table, notes, words

MANY = 40
"""Number of samples up to which the screen says how uncertain they are."""

MOST_LINES = 6
MOST_CODE = 100
MOST_LEVELS = 48
NARROWEST = 0.001
"""The share of the flame graph's width below which a function is left out."""

_COLOURS = {OWN: palette.PARTS["eager"], LIBRARY: "#cc79a7", TORCH: palette.PARTS["graph"], GENERATED: "#56b4e9"}


def host_section(run: Run, trace: HostTrace | None) -> Section:
    """What the host does while the device waits; nothing if it was not sampled."""
    program = step_of(run)
    host = program.host if program is not None else None
    if program is None or host is None:
        return Section("", ())
    on_host = runs_on_host(run)
    if not host.stretches:
        return Section("", (Sentence(few_words(host), NOTE, on=On.PAPER if on_host else On.EVERYWHERE),))
    title = "What the host does outside of operators" if on_host else "What the host does while the device waits"
    blocks = (*_table(run, host), *_flame(host, trace), Sentence(cost_words(host, on_host=on_host), NOTE))
    return Section(
        title, blocks, short="Host", note="the innermost function that ran, and the line of yours it is under"
    )


def _table(run: Run, host: HostWork) -> Iterator[Block]:
    whole_s = run.program.step_time_s if run.program else 0.0
    if not host.stretches or not whole_s:
        return
    columns = (
        *(words("function", least=18), Column("doing", False), Column("time"), Column("share")),
        words("line", spare=1, least=20),
    )
    rows = [_row(one, whole_s) for one in host.stretches]
    yield Table(columns, rows, filter="function, line", most=MOST_LINES, cut_on=On.TERMINAL, more="in report.html")


def _row(one: HostStretch, whole_s: float) -> Row:
    line = f"{line_words(one.source)} {one.source.function}" if one.source else ""
    code = f"`{names.end(one.source.code, MOST_CODE)}`" if one.source and one.source.code else ""
    return Row(
        (
            Cell(names.clean(one.function) or "-"),
            Cell(one.label),
            *(Cell(units.seconds(one.time_s), one.time_s), Cell(units.percent(one.time_s / whole_s))),
            Cell(names.clean(line), notes=notes(code, on=On.PAPER)),
        )
    )


def few_words(host: HostWork) -> str:
    """Says that the samples name no functions, because there are too few."""
    return f"Functions of the host are not named: {host.samples} samples in {host.steps} further steps are too few"


def cost_words(host: HostWork, *, on_host: bool) -> str:
    """What the samples are worth, and what they cost."""
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


def _flame(host: HostWork, trace: HostTrace | None) -> Iterator[Block]:
    profile = trace.profiles[0] if trace is not None and trace.profiles else None
    if trace is None or profile is None or sum(profile.weights) <= 0:
        return
    levels = flame_levels(profile, trace.shared.frames)
    if levels:
        yield FlameGraph(levels)
        caption = f"{profile.name[:1].upper()}{profile.name[1:]}: width is time. traces/host.speedscope.json opens in"
        yield Sentence(f"{caption} speedscope.app, with every stack.", NOTE, on=On.PAGE)


def flame_levels(profile: HostTraceProfile, frames: tuple[HostTraceFrame, ...]) -> tuple[tuple[Stretch, ...], ...]:
    """The bars of each level, from the outermost functions. A place that no frame has is left out."""
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
                levels[len(open_bars)].append(_bar(frames[place], begin, share))

    for stack, weight in stacks:
        shared = 0
        while shared < min(len(stack), len(open_bars)) and stack[shared] == open_bars[shared][0]:
            shared += 1
        close(shared)
        open_bars += [(place, left) for place in stack[shared:]]
        left += weight / whole_s
    close(0)
    return tuple(map(tuple, levels))


def _bar(frame: HostTraceFrame, left: float, share: float) -> Stretch:
    place = f" {'/'.join(frame.file.split('/')[-2:])}:{frame.line}" if frame.file else ""
    name = names.clean(frame.name)
    return Stretch(share, _COLOURS.get(frame.owner, palette.MUTED), name, f"{name}{place} {units.percent(share)}", left)
