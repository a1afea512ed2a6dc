"""The picture of the accuracy benchmark: how far each method is from the profiler, by the time of the kernel."""

from __future__ import annotations

import io
import statistics
from collections.abc import Sequence
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from inductor_bench.records.base import Category
from inductor_bench.report import palette
from inductor_bench.report.run.plots import DPI, STYLE, WIDTH

from .outcomes import CLASSES, METHODS, Outcome, errors

HEIGHT = 5.6
STRAIGHT = 0.05  # the scale is straight up to this error, then logarithmic
TICKS = (-1.0, -0.5, -0.2, -0.1, -0.05, -0.02, 0.0, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
BAND = "#e8f3ec"
LOOKS: dict[str, dict[str, Any]] = {
    "cold": {"marker": "o", "color": palette.COLOURS[Category.POINTWISE]},
    "warm": {"marker": "o", "color": palette.COLOURS[Category.EXTERN_GEMM]},
    "race_cold": {"marker": "v", "color": palette.COLOURS[Category.POINTWISE]},
    "race_warm": {"marker": "v", "color": palette.COLOURS[Category.EXTERN_GEMM]},
    "inductor": {"marker": "D", "color": palette.COLOURS[Category.REDUCTION]},
    "do_bench": {"marker": "s", "color": palette.COLOURS[Category.PERSISTENT_REDUCTION]},
}
NOTES = (
    "Shaded: the target of this tool. Above: the median of all errors, whatever their sign. Each method is held",
    "against the profiler under its own protocol: this tool's cold one (copies in turn, after a read of more than the",
    "L2 holds) and warm one; the two others fill a buffer with zeros before each call.",
)


def draw_errors(outcomes: Sequence[Outcome], about: str) -> bytes | None:
    """A PNG file in memory; ``None`` if nothing was compared."""
    kernels = [one for one in outcomes if one["step"] == "kernel"]
    found = {method: errors(kernels, method) for method in METHODS}
    times = [truth for points in found.values() for truth, _, _ in points]
    if not times:
        return None
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI)
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.1, 0.22, 0.875, 0.58))
        _scale(axes, min(times) / 1.2, max(times) * 1.2, [e / t for points in found.values() for t, e, _ in points])
        _shade_targets(axes)
        for method, points in reversed(found.items()):
            axes.scatter(
                [truth * 1e6 for truth, _, _ in points],
                [error / truth for truth, error, _ in points],
                s=20,
                edgecolors="white",
                linewidths=0.4,
                zorder=3,
                **LOOKS[method],
            )
        _words(figure, about, found)
        drawn = io.BytesIO()
        figure.savefig(drawn, format="png", dpi=DPI)
        return drawn.getvalue()


def _scale(axes: Any, low_s: float, high_s: float, relative: Sequence[float]) -> None:
    axes.set_xscale("log")
    axes.set_xlim(low_s * 1e6, high_s * 1e6)
    axes.set_xticks([tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500) if low_s * 1e6 <= tick <= high_s * 1e6])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.set_xlabel("time by the profiler, µs (log scale)")
    axes.set_yscale("symlog", linthresh=STRAIGHT, linscale=1.2)
    low, high = min(-0.05, *relative) * 1.25, max(0.05, *relative) * 1.25
    axes.set_ylim(low, high)
    axes.set_yticks([tick for tick in TICKS if low <= tick <= high])
    axes.set_yticks([], minor=True)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value * 100:+g}%" if value else "0%")
    axes.set_ylabel("error")
    axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
    axes.axhline(0.0, color=palette.MUTED, linewidth=0.9)


def _shade_targets(axes: Any) -> None:
    left, right = (edge_us * 1e-6 for edge_us in axes.get_xlim())
    for each in CLASSES:
        low, high = max(each.low_s, left), min(each.high_s, right)
        times = [low * (high / low) ** (step / 100) for step in range(101)] if low < high else []
        limits = [each.limit_s(time_s) / time_s for time_s in times]
        below = [-limit for limit in limits]
        axes.fill_between([time_s * 1e6 for time_s in times], below, limits, color=BAND, linewidth=0, zorder=0.5)


def _words(figure: Figure, about: str, found: dict[str, list[tuple[float, float, str]]]) -> None:
    figure.text(
        0.02, 1 - 0.18 / HEIGHT, "How far from the profiler's device time", fontsize=12, fontweight="bold", va="top"
    )
    figure.text(0.02, 1 - 0.46 / HEIGHT, about, fontsize=9, color=palette.MUTED, va="top")
    handles = []
    for method, points in found.items():
        if points:
            typical = statistics.median(abs(error / truth) for truth, error, _ in points)
            label = f"{METHODS[method][0]}: {typical:.1%}"
            handles.append(Line2D([], [], linestyle="", markersize=5, label=label, **LOOKS[method]))
    place: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.012, 1 - 0.64 / HEIGHT)}
    figure.legend(handles=handles, ncols=4, frameon=False, fontsize=8.5, handletextpad=0.3, columnspacing=1.2, **place)
    for line, text in enumerate(NOTES):
        figure.text(0.02, (0.5 - 0.19 * line) / HEIGHT, text, fontsize=8.5, color=palette.MUTED)
