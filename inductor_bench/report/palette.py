"""The colour of each category and of each kind of part on the console, in the plots and in the HTML page.

The hues come from the palettes of Okabe and Ito and of Paul Tol, which are distinct for colour-blind readers. The name
of the category stands beside each use of its colour.
"""

from __future__ import annotations

from ..records.base import Category
from ..records.run import COLLECTIVE, COPY, EAGER, GRAPH, OPTIMIZER
from ..records.run import IDLE as IDLE_PART

IDLE = "#d9d9d9"
INK = "#1f2328"
MUTED = "#6b7280"
PEAK = "#b3261e"
GRID = "#e5e7eb"
PAPER = "#fefefe"
"""The background of a plot below a label. Plain white is for text on a coloured bar."""

COLOURS: dict[Category, str] = {
    Category.POINTWISE: "#0072b2",
    Category.REDUCTION: "#e69f00",
    Category.PERSISTENT_REDUCTION: "#d55e00",
    Category.COOPERATIVE_REDUCTION: "#f4c27a",
    Category.SPLIT_SCAN: "#aa4499",
    Category.FOREACH: "#44aa99",
    Category.COMBO: "#117733",
    Category.TEMPLATE: "#332288",
    Category.USER_TRITON: "#882255",
    Category.EXTERN_GEMM: "#56b4e9",
    Category.EXTERN_CONV: "#009e73",
    Category.EXTERN_ATTENTION: "#cc79a7",
    Category.EXTERN_ATEN: "#b8a13a",
    Category.COPY: "#7b8d3c",
    Category.MEMSET: "#a6b1a0",
    Category.COLLECTIVE: "#661100",
    Category.CPP: "#5e4fa2",
    Category.OTHER: "#555555",
}

GRAPHS = ("#0072b2", "#56b4e9", "#332288", "#5e4fa2")
"""The colours of compiled graphs in a program's step, in turn."""

PARTS: dict[str, str] = {
    GRAPH: GRAPHS[0],
    EAGER: "#e69f00",
    OPTIMIZER: "#44aa99",
    COLLECTIVE: "#661100",
    COPY: "#7b8d3c",
    IDLE_PART: IDLE,
}
"""The colour of each kind of part."""

SHORT_TITLES: dict[Category, str] = {
    Category.PERSISTENT_REDUCTION: "persistent",
    Category.COOPERATIVE_REDUCTION: "cooperative",
    Category.EXTERN_GEMM: "gemm",
    Category.EXTERN_CONV: "conv",
    Category.EXTERN_ATTENTION: "attention",
    Category.EXTERN_ATEN: "ATen",
    Category.TEMPLATE: "template",
    Category.CPP: "C++",
}


UNKNOWN = COLOURS[Category.OTHER]
"""The colour of what a newer version of the tool recorded and this one does not know."""


def choose_category_colour(category: Category) -> str:
    """Returns the colour of a category."""
    return COLOURS.get(category, UNKNOWN)


def choose_part_colour(kind: str) -> str:
    """Returns the colour of parts of this kind."""
    return PARTS.get(kind, UNKNOWN)


def shorten_title(category: Category) -> str:
    """Returns the category in one or two words, for bars."""
    return SHORT_TITLES.get(category, category.title)


def choose_ink(colour: str) -> str:
    """Returns black or white, whichever has more contrast on ``colour`` (``#rrggbb``)."""
    red, green, blue = (_linearise_colour(int(colour[i : i + 2], 16) / 255) for i in (1, 3, 5))
    luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return "#000000" if (luminance + 0.05) ** 2 > 1.05 * 0.05 else "#ffffff"


def _linearise_colour(value: float) -> float:
    """A component of a colour of sRGB as a share of the light."""
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
