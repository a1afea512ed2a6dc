"""Draws the plots of a run's page, as SVG whose colours follow the theme of the page."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from ... import units
from ...devices.table import common_device
from ...records.retune import AppliedKernel, Saving, Verification
from ...records.run import Run
from .. import names, palette
from .plot_parts import (
    Axes,
    Figure,
    colour_legend,
    drawing,
    figure_columns,
    gain_lines,
    label_inches,
    mark_point,
    minor_percent,
    name_points,
    run_figure,
    svg,
)
from .retune_document import PINNED
from .run_words import Entry, rank, whole_words

PLOTS = ("bandwidth", "headroom", "savings")
MOST_KERNELS = 16
NOTE_WIDTH = 138  # characters per line of the notes below a plot


def draw_plots(run: Run) -> dict[str, bytes]:
    """Draws the plots of a run.

    Returns:
        The contents of SVG files by name: ``bandwidth`` (achieved and peak bandwidth of the top kernels), ``headroom``
        (each kernel's share of the time against its share of the peak) and ``savings`` (what each retuned kernel saves
        in the program). A plot without data is missing.
    """
    drawings: tuple[Callable[[Run], Figure | None], ...] = (_draw_bandwidth, _draw_headroom, _draw_savings)
    with drawing():
        figures = {name: draw(run) for name, draw in zip(PLOTS, drawings, strict=True)}
        return {name: svg(figure) for name, figure in figures.items() if figure is not None}


def _legend(figure: Figure, entries: Sequence[Entry]) -> None:
    categories = list(dict.fromkeys(entry.kernel.category for entry in entries))
    colour_legend(figure, [(category.title, palette.category_colour(category)) for category in categories])


# --- achieved against peak bandwidth ---------------------------------------------------------------------------------


def _draw_bandwidth(run: Run) -> Figure | None:
    entries = [entry for entry in rank(run) if entry.kernel.roof.bandwidth and entry.cost.time_s][:MOST_KERNELS]
    if not entries:
        return None
    peak = run.peaks.memory_bandwidth if run.peaks else None
    fastest = max([peak or 0.0, *(entry.kernel.roof.bandwidth or 0.0 for entry in entries)])
    scale, unit = (1e12, "TB/s") if fastest >= 1e12 else (1e9, "GB/s")
    title = f"Achieved{' against peak' if peak else ''} bandwidth"
    graphs = names.unique((module.label for module in run.modules), 20, names.label) if len(run.modules) > 1 else {}
    notes = _bandwidth_notes(entries)
    bottom = 0.6 + 0.2 * len(notes)
    labels = [graphs[entry.module.label] for entry in entries] if graphs else []
    right = 2.3 + label_inches(labels)
    figure, axes = run_figure(run, 1.15 + bottom + 0.29 * len(entries), title, 3.3, right, bottom, 1.1)
    rows = range(len(entries))
    bars = axes.barh(rows, [(entry.kernel.roof.bandwidth or 0.0) / scale for entry in entries], height=0.62)
    for bar, entry in zip(bars, entries, strict=True):
        bar.set_facecolor(palette.category_colour(entry.kernel.category))
        if entry.kernel.roof.bound == "cache":
            bar.set(hatch="////", edgecolor="white", linewidth=0)
    axes.set_ylim(len(entries) - 0.4, -0.6)
    axes.set_xlim(0, fastest / scale * 1.04)
    axes.set_xlabel(unit)
    shorts = names.unique((entry.kernel.name for entry in entries), 36)
    axes.set_yticks(rows, [f"{shorts[entry.kernel.name]}  {entry.number:>2}" for entry in entries], fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color=palette.GRID, linewidth=0.8)
    if peak:
        name = common_device(entry.module.device for entry in entries).words.memory
        axes.axvline(peak / scale, color=palette.PEAK, linewidth=1.4)
        label = f"{name} peak, measured: {units.rate(peak)}"
        axes.text(peak / scale, -0.72, label, color=palette.PEAK, fontsize=8.5, ha="right", va="bottom")
    figure_columns(axes, entries, labels)
    _legend(figure, entries)
    for line, text in enumerate(reversed(notes)):
        figure.text(0.02, (0.14 + 0.2 * line) / figure.get_figheight(), text, fontsize=8.5, color=palette.MUTED)
    return figure


def _bandwidth_notes(entries: list[Entry]) -> list[str]:
    known = ", of those whose bytes are known" if entries[-1].number > len(entries) else ""
    notes = [f"The kernels that take most time{known}; numbers as in the kernel table."]
    cache = common_device(entry.module.device for entry in entries).words.whole_cache
    if any(entry.kernel.roof.bound == "cache" for entry in entries):
        notes[0] += f" Hatched: {cache} serves it, so DRAM is not its limit."
    library = any(entry.kernel.category.is_library for entry in entries)
    bytes_of_calls = ", of library kernels those of their part of the ATen call" if library else ""
    notes.append(f"Bytes: each buffer once{bytes_of_calls}; a kernel that reads twice moves more.")
    return textwrap.wrap(" ".join(notes), NOTE_WIDTH)


# --- share of time against share of peak -----------------------------------------------------------------------------


def _draw_headroom(run: Run) -> Figure | None:
    entries = [e for e in rank(run) if e.kernel.roof.peak_share is not None and e.share and e.share >= 1e-4]
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
    axes.xaxis.set_minor_formatter(lambda value, _: minor_percent(value, shown))
    axes.tick_params(axis="x", which="minor", pad=5)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    axes.set_xlabel(f"share of {whole_words(run)} (log scale)")
    axes.set_ylabel("of the measured peak that bounds the kernel")
    axes.axhline(1.0, color=palette.PEAK, linewidth=1.2)
    marks = [mark_point(axes, entry) for entry in entries]
    numbers = name_points(axes, entries, marks)
    gain_lines(axes, [*marks, *numbers])
    _legend(figure, entries)
    cache = common_device(entry.module.device for entry in entries).words.cache
    for line, text in enumerate(
        (
            "Filled: generated kernels, which can be tuned. Hollow: library kernels, whose limit may be out of reach.",
            f"Bound by ● DRAM  ■ compute  ◆ {cache}.  Dashed lines: the same gain limit, as a share of all time.",
        )
    ):
        figure.text(0.02, (0.34 - 0.2 * line) / 6.1, text, fontsize=8.5, color=palette.MUTED)
    return figure


# --- what the retuned kernels save ------------------------------------------------------------------------------------

MOST_BARS = 14
OWN, TUNED, SAVED, LOST = palette.IDLE, "#0072b2", "#009e73", palette.PEAK
HEIGHT = 0.62
"""Height of a bar; the distance of two rows is 1."""


def _draw_savings(run: Run) -> Figure | None:
    kernels = measured_kernels(run.verification)
    if not kernels or run.verification is None or run.verification.device is None:
        return None
    title = "What the retuned kernels save of a step's device time; the ticks are the projections"
    figure, axes = run_figure(run, 1.5 + 0.27 * row_count(kernels), title, 3.1, 1.0, 0.62, 0.75)
    draw_waterfall(axes, run.verification.device, kernels)
    return figure


def measured_kernels(found: Verification | None) -> list[AppliedKernel]:
    """The pinned kernels whose saving was measured, the largest first; empty where there is no waterfall to draw."""
    if found is None or found.device is None:
        return []
    kernels = [one for one in found.kernels if one.state == PINNED and one.saving_s is not None]
    return sorted(kernels, key=lambda one: -(one.saving_s or 0.0))


def row_count(kernels: Sequence[AppliedKernel]) -> int:
    """The number of rows: the step before and after, the kernels, those that are folded, and the rest."""
    return 3 + min(len(kernels), MOST_BARS) + (len(kernels) > MOST_BARS)


def draw_waterfall(axes: Axes, device: Saving, kernels: Sequence[AppliedKernel]) -> None:
    """Draws a bar for each saving, from the time before it to the time after it, and a tick at its projection."""
    shown, folded = kernels[:MOST_BARS], kernels[MOST_BARS:]
    steps: list[tuple[str, float, float | None]] = []
    steps += [(names.short(one.name, 40), one.saving_s or 0.0, one.predicted_s) for one in shown]
    if folded:
        saving, projected = sum(one.saving_s or 0.0 for one in folded), sum(one.predicted_s for one in folded)
        steps.append((f"{len(folded)} more kernels", saving, projected))
    steps.append(("everything else", device.own_s - device.tuned_s - sum(step[1] for step in steps), None))
    axes.barh(0, device.own_s, height=HEIGHT, color=OWN, edgecolor="white")
    left, labels = device.own_s, ["as it was"]
    lowest = device.own_s
    for row, (label, saving, expected) in enumerate(steps, 1):
        axes.barh(row, -saving, left=left, height=HEIGHT, color=SAVED if saving >= 0 else LOST, edgecolor="white")
        if expected is not None:
            axes.plot([left - expected] * 2, [row - 0.42, row + 0.42], color=palette.INK, linewidth=1.1)
        left -= saving
        lowest = min(lowest, left, left + saving - (expected or 0.0))
        labels.append(label)
    axes.barh(len(steps) + 1, device.tuned_s, height=HEIGHT, color=TUNED, edgecolor="white")
    labels.append("as it is")
    values = [device.own_s, *(step[1] for step in steps), device.tuned_s]
    low = max(0.0, lowest - 0.25 * (device.own_s - lowest))
    axes.set_xlim(low, device.own_s + 0.02 * (device.own_s - low))
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.tick_params(axis="y", length=0)
    for row, value in enumerate(values):
        whole = row in (0, len(values) - 1)
        sign = "" if whole else "-" if value >= 0 else "+"
        text = f"{sign}{units.seconds(abs(value))}"
        axes.text(1.01, row, text, transform=axes.get_yaxis_transform(), va="center", fontsize=8.5)
    axes.set_xlabel(f"device time of a step; the axis begins at {units.seconds(low)}", fontsize=8.5)
    axes.xaxis.set_major_formatter(lambda value, _: units.seconds(value) if value else "0")
