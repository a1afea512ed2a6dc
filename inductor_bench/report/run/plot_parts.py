"""Draws parts of the plots on given axes: names, columns and curves. Imports no drawing library itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ... import units
from ..text import names, palette
from ..text.ranking import Entry
from ..text.run_phrases import of_peak
from .geometry import Box, Point, Segment, around, beside, best_place, neighbours, spread

Axes = Any
"""The axes of matplotlib, which only ``plots`` may import."""

MOST_GENERATED, MOST_LIBRARY = 6, 4  # largest numbers of kernels that the headroom plot names
LEAST_SHARE = 0.004  # smallest share of a bar that is named; narrower segments are only drawn


def name_segments(axes: Axes, row: int, bar: list[Segment]) -> None:
    """Writes the name of each segment inside it, or below it with a thin line and its colour if it does not fit inside.

    Segments below :data:`LEAST_SHARE` get no name.
    """
    outside = []
    for segment in bar:
        if segment.share < LEAST_SHARE:
            continue
        room = axes.transData.transform((segment.share, 0))[0] - axes.transData.transform((0, 0))[0]
        percent = units.percent(segment.share)
        for second in (f"{percent} · {units.seconds(segment.time_s)}", percent):
            inside = axes.text(
                segment.start + segment.share / 2,
                row,
                f"{segment.title}\n{second}",
                ha="center",
                va="center",
                fontsize=8.5,
                color=palette.ink_on(segment.colour),
            )
            if inside.get_window_extent().width <= room - 8:
                break
            inside.remove()
        else:
            outside.append(segment)
    _label_below(axes, row, outside)


def _label_below(axes: Axes, row: int, outside: list[Segment]) -> None:
    low, high = (float(axes.transAxes.transform((x, 0))[0]) for x in (0, 1))
    low, high, gap, key = low - 20, high + 20, 12.0, 19.0
    texts = {
        segment: axes.text(
            0, row + 0.47, f"{segment.title} {units.percent(segment.share)}", fontsize=8.5, ha="center", va="center"
        )
        for segment in outside
    }
    width = {segment: float(text.get_window_extent().width) + key for segment, text in texts.items()}
    while outside and sum(width[segment] + gap for segment in outside) > high - low:
        smallest = min(outside, key=lambda segment: segment.share)
        outside.remove(smallest)
        texts[smallest].remove()
    centres = [segment.start + segment.share / 2 for segment in outside]
    pixels = [float(axes.transData.transform((centre, 0))[0]) for centre in centres]
    for segment, centre, pixel in zip(
        outside, centres, spread(pixels, [width[segment] for segment in outside], low, high, gap), strict=True
    ):
        left = pixel - width[segment] / 2
        middle, beside, words = (
            float(axes.transData.inverted().transform((x, 0))[0]) for x in (pixel, left + key / 2 - 4, pixel + key / 2)
        )
        texts[segment].set_x(words)
        axes.plot([centre, middle], [row + 0.29, row + 0.38], color=palette.MUTED, linewidth=0.7, clip_on=False)
        axes.plot([beside], [row + 0.47], marker="s", markersize=5, color=segment.colour, clip_on=False)


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
    """Writes words at the best of several places and returns the box of the words.

    The words avoid the boxes in ``taken`` and the line of the peak where possible.

    Args:
        axes: the axes of the plot.
        words: the text.
        places: returns the possible places for a width and height in pixels.
        taken: the boxes to avoid.
        style: keyword arguments of matplotlib's text.
    """
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
