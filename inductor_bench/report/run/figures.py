"""Makes figures in the style of all plots. Matplotlib is used without a display and without global state."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes as Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure as Figure
from matplotlib.lines import Line2D as Line2D
from PIL import Image  # a dependency of matplotlib

from ...records.run import Run
from ..text import names, palette
from ..text.run_phrases import heading, machine

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


def png(figure: Figure) -> bytes:
    """Renders a figure as PNG with a palette of 256 colours, which halves the size without a visible difference."""
    canvas: Any = FigureCanvasAgg(figure)
    small = io.BytesIO()
    canvas.draw()
    picture = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    few = picture.quantize(256, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    few.save(small, format="png", optimize=True, dpi=(DPI, DPI))
    return small.getvalue()


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
    where = machine(run)
    about = f"{heading(run)} ({where})" if where else heading(run)
    return new_figure(about, height, title, left, right, bottom, top)


def new_figure(
    about: str, height: float, title: str, left: float, right: float, bottom: float, top: float = 0.85
) -> tuple[Figure, Axes]:
    """Makes a figure with one pair of axes. The margins are in inches, so they are the same for any height."""
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
