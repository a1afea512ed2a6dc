"""Draws the step's ledger and its timeline on given axes. Imports no drawing library itself."""

from __future__ import annotations

from collections.abc import Sequence

from .... import units
from ....records.program import Interval, Timeline
from ....records.run import Run
from ...text import names, palette
from ..geometry import Segment
from ..plot_parts import Axes, name_segments
from .rows import bar_rows, graph_colours
from .timeline import interval_colour, lanes_of, legend_of

HEIGHT = 0.62
"""Height of a bar; the distance of two rows is 1."""

VISIBLE = 0.008
"""Share of the step from which an interval has a white edge, which tells it from a neighbour of its colour."""


def draw_ledger(axes: Axes, run: Run) -> None:
    """Draws the parts of the step as one bar, with their names inside or below."""
    bar, start = [], 0.0
    for row in bar_rows(run):
        bar.append(Segment(names.end(row.label, 24), start, row.share, row.colour, row.time_s))
        start += row.share
    for segment in bar:
        axes.barh(
            0,
            segment.share,
            left=segment.start,
            height=HEIGHT,
            color=segment.colour,
            edgecolor="white",
            linewidth=0.8,
            hatch="///" if segment.colour == palette.IDLE else None,
        )
    axes.set_ylim(0.95, -0.5)
    axes.set_xlim(0, max(1.0, start))
    axes.set_yticks([])
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
    axes.spines["left"].set_visible(False)
    name_segments(axes, 0, bar)


def draw_timeline(axes: Axes, run: Run, timeline: Timeline) -> list[tuple[str, str]]:
    """Draws the lanes of one step; intervals have the colours of the ledger.

    Returns:
        The entries of a legend: ``(name, colour)``.
    """
    lanes = lanes_of(timeline)
    colour_of = graph_colours(run)
    scale, unit = (1.0, "s") if timeline.time_s >= 1 else (1e3, "ms") if timeline.time_s >= 1e-3 else (1e6, "µs")
    axes.set_xlim(0, timeline.time_s * scale)
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    for row, lane in enumerate(lanes):
        shown = [one for one in timeline.intervals if one.lane == lane]
        fills = [interval_colour(one, colour_of) for one in shown]
        widths = [(one.end_s - one.start_s) * scale for one in shown]
        bars = axes.barh(
            [row] * len(shown), widths, left=[one.start_s * scale for one in shown], height=HEIGHT, color=fills
        )
        for bar in bars:
            if bar.get_width() > VISIBLE * timeline.time_s * scale:
                bar.set(edgecolor="white", linewidth=0.5)
        _name_intervals(axes, row, shown, fills, scale)
    axes.set_yticks(range(len(lanes)), [names.middle(names.clean(lane), 18) for lane in lanes])
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=palette.GRID, linewidth=0.8)
    axes.set_xlabel(f"{unit} in one profiled step of {units.seconds(timeline.time_s)}; the profiler slows the host")
    return legend_of(timeline.intervals, colour_of)


def _name_intervals(axes: Axes, row: int, shown: Sequence[Interval], fills: Sequence[str], scale: float) -> None:
    """Writes the label of each interval into it where it fits."""
    unit = float(axes.transData.transform((1, 0))[0] - axes.transData.transform((0, 0))[0])
    for one, fill in zip(shown, fills, strict=True):
        width = (one.end_s - one.start_s) * scale * unit
        if width < 30:
            continue
        middle = (one.start_s + one.end_s) / 2 * scale
        words = names.end(names.clean(one.label), 40)
        text = axes.text(middle, row, words, ha="center", va="center", fontsize=8, color=palette.ink_on(fill))
        if text.get_window_extent().width > width - 6:
            text.remove()
