"""Draws the plot of a batch: one bar per model with its time by category. Imports no drawing library itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ... import units
from ...analysis.batch_aggregation import ModelSummary
from ...records.category import Category
from ..run.figures import drawing, new_figure, png
from ..text import names, palette
from .phrases import part_title

MOST_MODELS = 100
"""Largest number of models in the plot. A larger batch shows the most expensive models."""

ROW = 0.2  # height of a row in inches
BAR = 0.78  # height of a bar as a share of its row
LEAST_PERCENT = 0.07  # smallest share of a bar that is labelled with its percentage
LEGEND_COLUMNS = 6


def draw_models(about: str, summaries: Sequence[ModelSummary]) -> bytes | None:
    """Draws the bars of the models.

    Args:
        about: the line below the title.
        summaries: the models.

    Returns:
        The content of a PNG file; ``None`` where no model was measured.
    """
    measured = [summary for summary in summaries if summary.parts]
    least = sorted((summary.time_s for summary in measured), reverse=True)[:MOST_MODELS][-1:]
    shown = [summary for summary in measured if summary.time_s >= least[0]][:MOST_MODELS]
    if not shown:
        return None
    weights: dict[Category | None, float] = {}
    for summary in shown:
        for part, share in summary.parts:
            weights[part] = weights.get(part, 0.0) + share
    order = sorted(weights, key=lambda part: (part is None, -weights[part]))
    lines = -(-len(order) // LEGEND_COLUMNS)
    top, bottom = 0.75 + 0.2 * lines, 0.3
    with drawing():
        height = top + bottom + ROW * len(shown)
        most = f", of the {len(shown)} that take most" if len(shown) < len(measured) else ""
        title = f"Where the time of each model goes{most}"
        figure, axes = new_figure(about, height, title, 2.5, 0.95, bottom, top)
        starts = [0.0] * len(shown)
        rows = range(len(shown))
        for part in order:
            widths = [dict(summary.parts).get(part, 0.0) for summary in shown]
            _draw_part(axes, part, part_title(part, shown[0]), starts, widths)
            if len(shown) <= 40:
                _name(axes, part, starts, widths)
            starts = [start + width for start, width in zip(starts, widths, strict=True)]
        for row, summary in enumerate(shown):
            axes.text(1.012, row, units.seconds(summary.time_s), fontsize=7.5, va="center", color=palette.MUTED)
        axes.set_yticks(rows, [names.middle(names.clean(summary.name), 36) for summary in shown], fontsize=7.5)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(shown) - 0.45, -0.55)
        axes.set_xlim(0, 1)
        axes.set_xticks([0, 0.2, 0.4, 0.6, 0.8, 1.0], [f"{tick}%" for tick in range(0, 101, 20)])
        axes.spines["left"].set_visible(False)
        figure.legend(
            loc="upper left",
            bbox_to_anchor=(0.012, 1 - 0.62 / height),
            ncols=LEGEND_COLUMNS,
            frameon=False,
            fontsize=8,
            handlelength=1,
            handletextpad=0.4,
            columnspacing=1.2,
            borderaxespad=0,
        )
        return png(figure)


def _draw_part(axes: Any, part: Category | None, title: str, starts: Sequence[float], widths: Sequence[float]) -> None:
    """Draws one category of all bars as one collection, because one patch per bar would take seconds."""
    heights, lefts, rights = [], [], []
    for row, (start, width) in enumerate(zip(starts, widths, strict=True)):
        heights += [row - BAR / 2, row + BAR / 2, math.nan]
        lefts += [start, start, math.nan]
        rights += [start + width, start + width, math.nan]
    hatch = "///" if part is None else None
    axes.fill_betweenx(
        heights, lefts, rights, color=_colour(part), label=title, hatch=hatch, edgecolor="white", linewidth=0.3
    )


def _name(axes: Any, part: Category | None, starts: Sequence[float], widths: Sequence[float]) -> None:
    for row, (start, width) in enumerate(zip(starts, widths, strict=True)):
        if width >= LEAST_PERCENT:
            axes.text(
                start + width / 2,
                row,
                units.whole_percent(width),
                ha="center",
                va="center",
                fontsize=7,
                color=palette.ink_on(_colour(part)),
            )


def _colour(part: Category | None) -> str:
    return palette.IDLE if part is None else palette.category_colour(part)
