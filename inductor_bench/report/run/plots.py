"""Draws the plots of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ... import units
from ...analysis.step_costs import category_totals, graph_use, step_of
from ...devices.table import common_device
from ...records.module import ModuleRecord
from ...records.program import Timeline
from ...records.run import Run
from ..text import names, palette
from ..text.ranking import Entry, main_modules, rank, wall_known
from ..text.run_phrases import folded, whole_words
from .figures import WIDTH, Figure, colour_legend, drawing, png, run_figure, svg
from .geometry import segments, step_segments
from .plot_parts import figure_columns, gain_lines, label_inches, mark_point, minor_percent, name_points, name_segments
from .retunes.waterfall import draw_waterfall, measured_kernels, row_count
from .step.pictures import draw_ledger, draw_timeline
from .step.timeline import lanes_of

PLOTS = ("step", "timeline", "categories", "bandwidth", "headroom", "savings")
ON_PAGE = ("bandwidth", "headroom", "savings")
"""The plots of the HTML page, which shows what the others do in parts of its own."""

MOST_GRAPHS = 10
MOST_KERNELS = 16
NOTE_WIDTH = 138  # characters per line of the notes below a plot


class Drawn(NamedTuple):
    """A plot as the contents of a PNG file and, where it is on the HTML page, of an SVG file."""

    png: bytes
    svg: bytes | None = None


def draw_plots(run: Run, timeline: Timeline | None = None) -> dict[str, Drawn]:
    """Draws the plots of a run.

    Args:
        run: the record.
        timeline: the timeline of the program's step, where there is one.

    Returns:
        The plots by name: ``step`` (the parts of the program's step), ``timeline`` (one step on the
        host and the device), ``categories`` (the time of each graph by category), ``bandwidth`` (achieved
        and peak bandwidth of the top kernels), ``headroom`` (each kernel's share of the time against its share of
        the peak) and ``savings`` (what each retuned kernel saves in the program). A plot without data is missing.
    """
    drawings: tuple[Callable[[Run], Figure | None], ...] = (
        *(_draw_step, lambda run: _draw_timeline(run, timeline)),
        *(_draw_categories, _draw_bandwidth, _draw_headroom, _draw_savings),
    )
    pictures = {}
    with drawing():
        for name, draw in zip(PLOTS, drawings, strict=True):
            figure = draw(run)
            if figure is not None:
                pictures[name] = Drawn(png(figure), svg(figure) if name in ON_PAGE else None)
    return pictures


def _legend(figure: Figure, entries: Sequence[Entry]) -> None:
    categories = list(dict.fromkeys(entry.kernel.category for entry in entries))
    colour_legend(figure, [(category.title, palette.category_colour(category)) for category in categories])


# --- the program's step ----------------------------------------------------------------------------------------------


def _draw_step(run: Run) -> Figure | None:
    program = step_of(run)
    if program is None:
        return None
    title = f"Where a step of {units.seconds(program.step_time_s)} goes"
    figure, axes = run_figure(run, 2.35, title, 0.35, 0.35, 0.42, 0.66)
    draw_ledger(axes, run)
    return figure


def _draw_timeline(run: Run, timeline: Timeline | None) -> Figure | None:
    if timeline is None or not timeline.intervals:
        return None
    whose = f" of rank {timeline.rank}" if timeline.rank is not None else ""
    height = 1.75 + 0.44 * len(lanes_of(timeline))
    figure, axes = run_figure(run, height, f"One step{whose}", 1.35, 0.35, 0.6, 1.1)
    colour_legend(figure, draw_timeline(axes, run, timeline))
    return figure


def _draw_savings(run: Run) -> Figure | None:
    kernels = measured_kernels(run.verification)
    if not kernels or run.verification is None or run.verification.device is None:
        return None
    title = "What the retuned kernels save of a step's device time; the ticks are the projections"
    figure, axes = run_figure(run, 1.5 + 0.27 * row_count(kernels), title, 3.1, 1.0, 0.62, 0.75)
    draw_waterfall(axes, run.verification.device, kernels)
    return figure


# --- time by category ------------------------------------------------------------------------------------------------


def _draw_categories(run: Run) -> Figure | None:
    modules = [module for module in main_modules(run, MOST_GRAPHS) if category_totals(run, module)]
    if not modules:
        return None
    in_step = step_of(run) is not None
    what = "wall time" if wall_known(run) else "device time"
    rest = folded(run, modules)
    title = "Where each graph's time in the step goes" if in_step else f"Where the {what} of each graph goes"
    figure, axes = run_figure(
        run, 1.05 + 0.92 * len(modules) + 0.2 * bool(rest), title, 1.75, 0.35, 0.42 + 0.2 * bool(rest), 0.62
    )
    bars = [step_segments(run, module) if in_step else segments(module) for module in modules]
    for row, bar in enumerate(bars):
        for segment in bar:
            hatch = "///" if segment.colour == palette.IDLE else None
            axes.barh(
                row,
                segment.share,
                left=segment.start,
                height=0.56,
                color=segment.colour,
                edgecolor="white",
                linewidth=0.8,
                hatch=hatch,
            )
    shorts = names.unique((module.label for module in modules), 22, names.label)
    labels = [f"{shorts[m.label]}\n{units.seconds(_graph_time_s(run, m))}" for m in modules]
    axes.set_yticks(range(len(modules)), labels)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(modules) - 0.35, -0.5)
    axes.set_xlim(0, max(1.0, *(bar[-1].start + bar[-1].share for bar in bars if bar)))
    ticks = [0, 0.2, 0.4, 0.6, 0.8, 1.0]
    axes.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
    axes.spines["left"].set_visible(False)
    for row, bar in enumerate(bars):
        name_segments(axes, row, bar)
    if rest:
        figure.text(
            1 - 0.35 / WIDTH,
            0.12 / figure.get_figheight(),
            names.end(rest, 110),
            fontsize=8.5,
            color=palette.MUTED,
            ha="right",
        )
    return figure


def _graph_time_s(run: Run, module: ModuleRecord) -> float | None:
    return graph_use(run, module).time_s if step_of(run) else module.times.wall_time_s or module.times.busy_time_s


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
