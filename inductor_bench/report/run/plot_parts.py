"""Draws parts of the plots on given axes: names, columns, marks and curves. Imports no drawing library itself."""

from __future__ import annotations

import contextlib
import io
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Figure
from matplotlib.lines import Line2D as Line2D

from ... import units
from ...records.run import Run
from .. import names, palette
from .run_words import Entry, heading, machine, of_peak

Axes = Any
"""The axes of matplotlib."""

DPI = 160
WIDTH = 9.0
"""Width of a plot in inches."""

DARK = {
    palette.INK: "#e4e8ec",
    palette.MUTED: "#9aa5b1",
    palette.GRID: "#2f3740",
    palette.IDLE: "#3d4650",
    palette.PAPER: "#14181d",
    palette.PEAK: "#ff7b72",
}
"""The colours of a drawing on a dark page, by those on a light one."""

WHITE_LINES = '[style*="stroke: #ffffff"]{stroke:#14181d!important}'
"""White lines divide bars; white fills are text on them, which stays white."""

STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.5,
    "text.parse_math": False,  # a dollar sign in a kernel's name begins no formula
    "text.color": palette.INK,
    "axes.labelcolor": palette.INK,
    "axes.edgecolor": palette.MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": palette.MUTED,
    "ytick.color": palette.INK,
    "axes.axisbelow": True,
    "hatch.linewidth": 1.6,
    "svg.hashsalt": "inductor-bench",  # equal drawings are equal files
}


@contextlib.contextmanager
def drawing() -> Iterator[None]:
    """Applies the style of all plots within the ``with`` block."""
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def svg(figure: Figure) -> bytes:
    """Renders a figure as SVG without a background, whose colours follow the theme of the page that shows it."""
    figure.patch.set_visible(False)
    for axes in figure.axes:
        axes.patch.set_visible(False)
    drawn = io.BytesIO()
    canvas: Any = FigureCanvasSVG(figure)
    canvas.print_svg(drawn, metadata={"Date": None})
    rules = [
        f'[style*="{what}: {light}"]{{{what}:{dark}!important}}'
        for light, dark in DARK.items()
        for what in ("fill", "stroke")
    ]
    style = f"<style>@media (prefers-color-scheme:dark){{{''.join(rules)}{WHITE_LINES}}}</style>"
    head, tag, rest = drawn.getvalue().partition(b"<defs>")
    return head + style.encode() + tag + rest


def run_figure(
    run: Run, height: float, title: str, left: float, right: float, bottom: float, top: float = 0.85
) -> tuple[Figure, Axes]:
    """Makes a figure with one pair of axes. The margins are in inches, so they are the same for any height."""
    about = " ".join(filter(None, (heading(run), f"({where})" if (where := machine(run)) else "")))
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height))
    figure.text(0.02, 1 - 0.18 / height, title, fontsize=12, fontweight="bold", va="top")
    below = names.end(names.clean(about), 118)
    figure.text(0.02, 1 - 0.46 / height, below, fontsize=9, color=palette.MUTED, va="top")
    return figure, axes


def colour_legend(figure: Figure, entries: Sequence[tuple[str, str]]) -> None:
    handles = [
        Line2D([], [], marker="s", linestyle="", markersize=7, color=colour, label=name) for name, colour in entries
    ]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.012, 1 - 0.62 / figure.get_figheight()),
        ncols=5,
        frameon=False,
        fontsize=8.5,
        handletextpad=0.4,
        columnspacing=1.2,
    )


MOST_GENERATED, MOST_LIBRARY = 6, 4  # largest numbers of kernels that the headroom plot names


def label_inches(labels: list[str]) -> float:
    """Returns the width in inches of a column with the labels of graphs, with the gap before it."""
    return max(0.82, 0.1 + 0.066 * max(map(names.cells, labels))) if labels else 0.0


def figure_columns(axes: Axes, entries: list[Entry], labels: list[str]) -> None:
    """Writes columns of figures to the right of the bars, at fixed distances in inches from the axes.

    ``labels`` are those of the entries' graphs; empty for a run with a single graph.
    """
    columns = [
        (0.78, "achieved", [units.rate(e.kernel.roof.bandwidth) for e in entries]),
        (1.72, "of peak", [of_peak(e) for e in entries]),
        (2.2, "time", [units.percent(e.share) for e in entries]),
    ]
    if labels:
        columns.append((2.2 + label_inches(labels), "graph", labels))
    width = axes.get_position().width * axes.get_figure().get_figwidth()
    style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "fontsize": 8.5, "ha": "right"}
    for inches, header, cells in columns:
        x = 1 + inches / width
        axes.text(x, -0.72, header, color=palette.MUTED, va="bottom", **style)
        for row, cell in enumerate(cells):
            axes.text(x, row, cell, va="center", **style)


def mark_point(axes: Axes, entry: Entry) -> Box:
    """Draws the mark of a kernel, with a size by its gain limit, and returns the box of the mark."""
    kernel, cost, library = entry.kernel, entry.cost, entry.kernel.category.is_library
    gain = (cost.gain_limit_s or 0.0) / cost.time_s * (entry.share or 0.0)
    colour, size = palette.category_colour(kernel.category), 18 + 3200 * min(gain, 0.1)
    point = (entry.share or 0.0, kernel.roof.peak_share or 0.0)
    axes.scatter(
        *point,
        s=size,
        marker={"memory": "o", "compute": "s"}.get(kernel.roof.bound, "D"),
        facecolors="none" if library else colour,
        edgecolors=colour if library else "white",
        linewidths=1.3 if library else 0.7,
        zorder=3,
    )
    x, y = axes.transData.transform(point)
    half = (size**0.5 / 2 + 1) * axes.get_figure().dpi / 72  # in points, with its edge
    return Box(x - half, y - half, x + half, y + half)


def _place(
    axes: Axes, words: str, places: Callable[[float, float], Sequence[Box]], taken: Sequence[Box], **style: Any
) -> Box:
    """Writes words at the best of several places and returns the box of the words."""
    text = axes.annotate(words, (0, 0), xycoords="figure fraction", ha="left", va="bottom", zorder=4, **style)
    extent, room = text.get_window_extent(), Box(*axes.get_window_extent().extents)
    _, peak = axes.transData.transform((axes.get_xlim()[0], 1.0))
    line = room._replace(bottom=peak - 1, top=peak + 1)
    place = best_place(places(extent.width, extent.height), room, [*taken, line])
    width, height = axes.get_figure().bbox.size  # a fraction is the same in pixels of any size
    text.set_position((place.left / width, place.bottom / height))
    return place


def gain_lines(axes: Axes, taken: Sequence[Box]) -> None:
    """Draws curves of equal gain limit, as a share of the whole time, and writes the share beside each curve.

    The shares avoid the boxes in ``taken``.
    """
    taken = list(taken)
    low, high = axes.get_xlim()
    for gain in (0.0001, 0.001, 0.01, 0.1):
        xs = [low * (high / low) ** (step / 200) for step in range(201)]
        points = [(x, 1 - gain / x) for x in xs if 1 - gain / x >= axes.get_ylim()[0]]
        if len(points) < 8 or points[0][1] > 0.93:
            continue
        axes.plot(*zip(*points, strict=True), color="#b6c2d1", linewidth=0.9, linestyle=(0, (4, 3)), zorder=1)
        curve = axes.transData.transform([point for point in points if point[1] <= 0.93])
        words = f"gain {gain * 100:g}%"
        paper = {"facecolor": palette.PAPER, "edgecolor": "none", "pad": 0.6}
        taken.append(_place(axes, words, partial(beside, curve), taken, fontsize=8, color=palette.MUTED, bbox=paper))


def minor_percent(value: float, digits: Sequence[int]) -> str:
    """Returns the label of a minor tick of a logarithmic axis, ``20%``; empty unless its digit is one of these."""
    digit = value / 10 ** math.floor(math.log10(value))
    return f"{value * 100:g}%" if round(digit) in digits else ""


def name_points(axes: Axes, entries: list[Entry], marks: Sequence[Box]) -> list[Box]:
    """Lists the kernels with the largest gain limits on the right, and writes their numbers beside their marks.

    The numbers are the same as in the kernel table.

    Args:
        axes: the axes of the plot.
        entries: the kernels of the plot.
        marks: the box of each kernel's mark.

    Returns:
        The boxes of the numbers.
    """
    by_gain = sorted((e for e in entries if e.cost.gain_limit_s), key=lambda e: -(e.cost.gain_limit_s or 0.0))
    generated = [entry for entry in by_gain if not entry.kernel.category.is_library][:MOST_GENERATED]
    library = [entry for entry in by_gain if entry.kernel.category.is_library][:MOST_LIBRARY]
    shorts = names.unique((entry.kernel.name for entry in (*generated, *library)), 33)
    style: dict[str, Any] = {"transform": axes.transAxes, "va": "top"}
    top = 1.0
    for title, group in (("Generated: most to win", generated), ("Library: an upper bound", library)):
        if not group:
            continue
        axes.text(1.03, top, title, fontsize=9, color=palette.MUTED, **style)
        top -= 0.055
        for entry in group:
            kernel = entry.kernel
            gain = f"{units.seconds(entry.cost.gain_limit_s)} of {units.seconds(entry.cost.time_s)} · {of_peak(entry)}"
            axes.text(1.03, top, str(entry.number), fontsize=8.5, fontweight="bold", **style)
            axes.text(1.085, top, shorts[kernel.name], fontsize=8, **style)
            axes.text(1.085, top - 0.038, gain, fontsize=8, color=palette.MUTED, **style)
            top -= 0.091
        top -= 0.02
    mark_of = {entry.number: mark for entry, mark in zip(entries, marks, strict=True)}
    centres = {number: ((box.left + box.right) / 2, (box.bottom + box.top) / 2) for number, box in mark_of.items()}
    points = [Point(*centres[entry.number], entry.number) for entry in (*generated, *library)]
    labels: list[Box] = []
    for near in neighbours(points, 34, 26):
        numbers = sorted(point.number for point in near)
        places = partial(around, [mark_of[number] for number in numbers])
        words = ", ".join(map(str, numbers))
        labels.append(_place(axes, words, places, [*marks, *labels], fontsize=8.5, fontweight="bold"))
    return labels


# --- places of labels -------------------------------------------------------------------------------------------------

MARGIN = 3.0
"""Free pixels around a label."""

GAPS = (4.0, 12.0)
"""Possible distances in pixels of a label from its marks."""


class Point(NamedTuple):
    """A numbered point on the canvas, in pixels."""

    x: float
    y: float
    number: int


class Box(NamedTuple):
    """A rectangle on the canvas, in pixels; ``bottom`` is smaller than ``top``."""

    left: float
    bottom: float
    right: float
    top: float

    def covered(self, other: Box) -> float:
        """Returns the area of the intersection."""
        across = min(self.right, other.right) - max(self.left, other.left)
        along = min(self.top, other.top) - max(self.bottom, other.bottom)
        return max(across, 0.0) * max(along, 0.0)


def around(marks: Sequence[Box], width: float, height: float) -> list[Box]:
    """Returns possible places for a label of these marks: above, right, left, below; the nearest first."""
    left, bottom = min(mark.left for mark in marks), min(mark.bottom for mark in marks)
    right, top = max(mark.right for mark in marks), max(mark.top for mark in marks)
    x, y = (left + right - width) / 2, (bottom + top - height) / 2
    corners = [
        corner
        for gap in GAPS
        for corner in ((x, top + gap), (right + gap, y), (left - gap - width, y), (x, bottom - gap - height))
    ]
    return [Box(left, bottom, left + width, bottom + height) for left, bottom in corners]


def beside(curve: Sequence[tuple[float, float]], width: float, height: float) -> list[Box]:
    """Returns possible places for the name of a rising curve: to the right of each of its points."""
    corners = [(x + 7, y + 4) for x, y in curve]
    return [Box(left, bottom, left + width, bottom + height) for left, bottom in corners]


def best_place(places: Sequence[Box], room: Box, taken: Sequence[Box]) -> Box:
    """Returns the first place that is inside ``room`` and covers nothing in ``taken``; otherwise the place with the
    smallest overlap."""

    def badness(place: Box) -> float:
        near = Box(place.left - MARGIN, place.bottom - MARGIN, place.right + MARGIN, place.top + MARGIN)
        outside = place.covered(place) - place.covered(room)
        return outside + sum(near.covered(other) for other in taken)

    return min(places, key=badness)


def neighbours(points: Sequence[Point], across: float, along: float) -> list[list[Point]]:
    """Groups points: each point of a group lies within ``across`` by ``along`` pixels of another point of the group."""
    groups: list[list[Point]] = []
    for point in sorted(points):
        near = [g for g in groups if any(abs(o.x - point.x) < across and abs(o.y - point.y) < along for o in g)]
        for group in near:
            groups.remove(group)
        groups.append([*(other for group in near for other in group), point])
    return groups
