"""Draws the plots of a run's page, as SVG whose colours follow the theme of the page."""

from __future__ import annotations

import contextlib
import io
import math
import textwrap
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
from ...devices.table import find_common_device
from ...records.run import Run
from .. import names, palette
from .run_words import RankedKernel, describe_machine, describe_whole, format_peak_share, rank_kernels, write_heading

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
"""The colours of a drawing on a dark page, by the colours on a light page."""

WHITE_LINES = '[style*="stroke: #ffffff"]{stroke:#14181d!important}'
"""White lines divide bars; white fills are text on them, which stays white."""

FAMILIES = b"'DejaVu Sans',Verdana,sans-serif"
"""The font of a drawing, and fonts as wide or narrower for a machine without it."""

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
    "svg.fonttype": "none",  # text stays text: a fifth of the size, in the font of the reader
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
    style = f"<style>@media screen and (prefers-color-scheme:dark){{{''.join(rules)}{WHITE_LINES}}}</style>"
    head, tag, rest = drawn.getvalue().partition(b"<defs>")
    return (head + style.encode() + tag + rest).replace(b"'DejaVu Sans'", FAMILIES)


def run_figure(
    run: Run, height: float, title: str, left: float, right: float, bottom: float, top: float = 0.85
) -> tuple[Figure, Axes]:
    """Makes a figure with one pair of axes. The margins are in inches, so they are the same for any height."""
    about = " ".join(filter(None, (write_heading(run), f"({where})" if (where := describe_machine(run)) else "")))
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height))
    figure.text(0.02, 1 - 0.18 / height, title, fontsize=12, fontweight="bold", va="top")
    below = names.cut_end(names.clean(about), 118)
    figure.text(0.02, 1 - 0.46 / height, below, fontsize=9, color=palette.MUTED, va="top")
    return figure, axes


def draw_colour_legend(figure: Figure, entries: Sequence[tuple[str, str]]) -> None:
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
    return max(0.82, 0.1 + 0.066 * max(map(names.count_columns, labels))) if labels else 0.0


def divide_figure(axes: Axes, entries: list[RankedKernel], labels: list[str]) -> None:
    """Writes columns of figures to the right of the bars, at fixed distances in inches from the axes.

    ``labels`` are those of the entries' graphs; empty for a run with a single graph.
    """
    columns = [
        (0.78, "achieved", [units.rate(e.kernel.roof.bandwidth) for e in entries]),
        (1.72, "of peak", [format_peak_share(e) for e in entries]),
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


def mark_point(axes: Axes, entry: RankedKernel) -> Box:
    """Draws the mark of a kernel, with a size by its gain limit, and returns the box of the mark."""
    kernel, cost, library = entry.kernel, entry.cost, entry.kernel.category.is_library
    gain = (cost.gain_limit_s or 0.0) / cost.time_s * (entry.share or 0.0)
    colour, size = palette.choose_category_colour(kernel.category), 18 + 3200 * min(gain, 0.1)
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
    place = find_best_place(places(extent.width, extent.height), room, [*taken, line])
    width, height = axes.get_figure().bbox.size  # a fraction is the same in pixels of any size
    text.set_position((place.left / width, place.bottom / height))
    return place


def draw_gain_lines(axes: Axes, taken: Sequence[Box]) -> None:
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
        taken.append(
            _place(axes, words, partial(list_places_beside, curve), taken, fontsize=8, color=palette.MUTED, bbox=paper)
        )


def format_minor_percent(value: float, digits: Sequence[int]) -> str:
    """Returns the label of a minor tick of a logarithmic axis, ``20%``; empty unless its digit is one of these."""
    digit = value / 10 ** math.floor(math.log10(value))
    return f"{value * 100:g}%" if round(digit) in digits else ""


def name_points(axes: Axes, entries: list[RankedKernel], marks: Sequence[Box]) -> list[Box]:
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
    shorts = names.make_names_unique((entry.kernel.name for entry in (*generated, *library)), 33)
    style: dict[str, Any] = {"transform": axes.transAxes, "va": "top"}
    top = 1.0
    for title, group in (("Generated: most to win", generated), ("Library: an upper bound", library)):
        if not group:
            continue
        axes.text(1.03, top, title, fontsize=9, color=palette.MUTED, **style)
        top -= 0.055
        for entry in group:
            kernel = entry.kernel
            gain, time = units.seconds(entry.cost.gain_limit_s), units.seconds(entry.cost.time_s)
            gain = f"{gain} of {time} · {format_peak_share(entry)}"
            axes.text(1.03, top, str(entry.number), fontsize=8.5, fontweight="bold", **style)
            axes.text(1.085, top, shorts[kernel.name], fontsize=8, **style)
            axes.text(1.085, top - 0.038, gain, fontsize=8, color=palette.MUTED, **style)
            top -= 0.091
        top -= 0.02
    mark_of = {entry.number: mark for entry, mark in zip(entries, marks, strict=True)}
    centres = {number: ((box.left + box.right) / 2, (box.bottom + box.top) / 2) for number, box in mark_of.items()}
    points = [Point(*centres[entry.number], entry.number) for entry in (*generated, *library)]
    labels: list[Box] = []
    for near in find_neighbours(points, 34, 26):
        numbers = sorted(point.number for point in near)
        places = partial(list_places_around, [mark_of[number] for number in numbers])
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


def list_places_around(marks: Sequence[Box], width: float, height: float) -> list[Box]:
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


def list_places_beside(curve: Sequence[tuple[float, float]], width: float, height: float) -> list[Box]:
    """Returns possible places for the name of a rising curve: to the right of each of its points."""
    corners = [(x + 7, y + 4) for x, y in curve]
    return [Box(left, bottom, left + width, bottom + height) for left, bottom in corners]


def find_best_place(places: Sequence[Box], room: Box, taken: Sequence[Box]) -> Box:
    """Returns the first place that is inside ``room`` and covers nothing in ``taken``; otherwise the place with the
    smallest overlap."""

    def compute_badness(place: Box) -> float:
        near = Box(place.left - MARGIN, place.bottom - MARGIN, place.right + MARGIN, place.top + MARGIN)
        outside = place.covered(place) - place.covered(room)
        return outside + sum(near.covered(other) for other in taken)

    return min(places, key=compute_badness)


def find_neighbours(points: Sequence[Point], across: float, along: float) -> list[list[Point]]:
    """Groups points: each point of a group lies within ``across`` by ``along`` pixels of another point of the group."""
    groups: list[list[Point]] = []
    for point in sorted(points):
        near = [g for g in groups if any(abs(o.x - point.x) < across and abs(o.y - point.y) < along for o in g)]
        for group in near:
            groups.remove(group)
        groups.append([*(other for group in near for other in group), point])
    return groups


PLOTS = ("bandwidth", "headroom")
MOST_KERNELS = 16
NOTE_WIDTH = 138  # characters per line of the notes below a plot


def draw_plots(run: Run) -> dict[str, bytes]:
    """Draws the plots of a run.

    Returns:
        The contents of SVG files by name: ``bandwidth`` (achieved and peak bandwidth of the top kernels) and
        ``headroom`` (each kernel's share of the time against its share of the peak). A plot without data is missing.
    """
    drawings: tuple[Callable[[Run], Figure | None], ...] = (_draw_bandwidth, _draw_headroom)
    with drawing():
        figures = {name: draw(run) for name, draw in zip(PLOTS, drawings, strict=True)}
        return {name: svg(figure) for name, figure in figures.items() if figure is not None}


def _draw_legend(figure: Figure, entries: Sequence[RankedKernel]) -> None:
    categories = list(dict.fromkeys(entry.kernel.category for entry in entries))
    draw_colour_legend(figure, [(category.title, palette.choose_category_colour(category)) for category in categories])


# --- achieved against peak bandwidth ---------------------------------------------------------------------------------


def _draw_bandwidth(run: Run) -> Figure | None:
    entries = [entry for entry in rank_kernels(run) if entry.kernel.roof.bandwidth and entry.cost.time_s][:MOST_KERNELS]
    if not entries:
        return None
    peak = run.peaks.memory_bandwidth if run.peaks else None
    fastest = max([peak or 0.0, *(entry.kernel.roof.bandwidth or 0.0 for entry in entries)])
    scale, unit = (1e12, "TB/s") if fastest >= 1e12 else (1e9, "GB/s")
    title = f"Achieved{' against peak' if peak else ''} bandwidth"
    graphs = (
        names.make_names_unique((module.label for module in run.modules), 20, names.shorten_label)
        if len(run.modules) > 1
        else {}
    )
    notes = _list_bandwidth_notes(entries)
    bottom = 0.6 + 0.2 * len(notes)
    labels = [graphs[entry.module.label] for entry in entries] if graphs else []
    right = 2.3 + label_inches(labels)
    figure, axes = run_figure(run, 1.15 + bottom + 0.29 * len(entries), title, 3.3, right, bottom, 1.1)
    rows = range(len(entries))
    bars = axes.barh(rows, [(entry.kernel.roof.bandwidth or 0.0) / scale for entry in entries], height=0.62)
    for bar, entry in zip(bars, entries, strict=True):
        bar.set_facecolor(palette.choose_category_colour(entry.kernel.category))
        if entry.kernel.roof.bound == "cache":
            bar.set(hatch="////", edgecolor="white", linewidth=0)
    axes.set_ylim(len(entries) - 0.4, -0.6)
    axes.set_xlim(0, fastest / scale * 1.04)
    axes.set_xlabel(unit)
    shorts = names.make_names_unique((entry.kernel.name for entry in entries), 36)
    axes.set_yticks(rows, [f"{shorts[entry.kernel.name]}  {entry.number:>2}" for entry in entries], fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=palette.GRID, linewidth=0.8)
    if peak:
        name = find_common_device(entry.module.device for entry in entries).words.memory
        axes.axvline(peak / scale, color=palette.PEAK, linewidth=1.4)
        label = f"{name} peak, measured: {units.rate(peak)}"
        axes.text(peak / scale, -0.72, label, color=palette.PEAK, fontsize=8.5, ha="right", va="bottom")
    divide_figure(axes, entries, labels)
    _draw_legend(figure, entries)
    for line, text in enumerate(reversed(notes)):
        figure.text(0.02, (0.14 + 0.2 * line) / figure.get_figheight(), text, fontsize=8.5, color=palette.MUTED)
    return figure


def _list_bandwidth_notes(entries: list[RankedKernel]) -> list[str]:
    known = ", of those whose bytes are known" if entries[-1].number > len(entries) else ""
    notes = [f"The kernels that take most time{known}; numbers as in the kernel table."]
    cache = find_common_device(entry.module.device for entry in entries).words.whole_cache
    if any(entry.kernel.roof.bound == "cache" for entry in entries):
        notes[0] += f" Hatched: {cache} serves it, so DRAM is not its limit."
    library = any(entry.kernel.category.is_library for entry in entries)
    bytes_of_calls = ", and a library kernel counts with its part of the ATen call" if library else ""
    notes.append(f"Bytes: each buffer once{bytes_of_calls}; a kernel that reads twice moves more.")
    return textwrap.wrap(" ".join(notes), NOTE_WIDTH)


# --- share of time against share of peak -----------------------------------------------------------------------------


LEAST_SHARE_DRAWN = 1e-3
"""The share of all time below which a kernel has no mark. Of a step of 640 kernels 494 have less, together 10%."""


def _draw_headroom(run: Run) -> Figure | None:
    judged = [entry for entry in rank_kernels(run) if entry.kernel.roof.peak_share is not None and entry.share]
    large = [entry for entry in judged if (entry.share or 0.0) >= LEAST_SHARE_DRAWN]
    entries = large or [entry for entry in judged if (entry.share or 0.0) >= LEAST_SHARE_DRAWN / 10]
    small = len(judged) - len(entries)
    left_out = f"  Without {small} kernels below 0.1%." if large and small else ""
    if not entries:
        return None
    figure, axes = run_figure(run, 6.1, "What a better kernel could win at most", 0.85, 3.05, 1.0, 1.1)
    shares = [entry.share or 0.0 for entry in entries]
    axes.set_xscale("log")
    axes.set_xlim(min(shares) / 1.6, max(min(1.0, max(shares) * 3), max(shares) * 1.2))
    axes.set_ylim(-0.06, max(1.06, max(entry.kernel.roof.peak_share or 0.0 for entry in entries) + 0.06))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value * 100:g}%")
    low, high = axes.get_xlim()
    shown = (2, 5) if high < 30 * low else ()  # a short axis may hold a single power of ten
    axes.xaxis.set_minor_formatter(lambda value, _: format_minor_percent(value, shown))
    axes.tick_params(axis="x", which="minor", pad=5)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel(f"share of {describe_whole(run)} (log scale)")
    axes.set_ylabel("of the measured peak that bounds the kernel")
    axes.axhline(1.0, color=palette.PEAK, linewidth=1.2)
    marks = [mark_point(axes, entry) for entry in entries]
    numbers = name_points(axes, entries, marks)
    draw_gain_lines(axes, [*marks, *numbers])
    _draw_legend(figure, entries)
    cache = find_common_device(entry.module.device for entry in entries).words.cache
    for line, text in enumerate(
        (
            "Filled: generated kernels, which can be tuned. Hollow: library kernels, whose limit may be out of reach.",
            f"Bound by ● DRAM  ■ compute  ◆ {cache}.  Dashed lines: the same gain limit, as a share of all time."
            + left_out,
        )
    ):
        figure.text(0.02, (0.34 - 0.2 * line) / 6.1, text, fontsize=8.5, color=palette.MUTED)
    return figure
