"""Paints the first screen. The only file that imports rich; words are never read as markup."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console
from rich.text import Text

from .. import units
from ..records.run import Run
from .run.console import screen
from .text.layout import Line

NARROWEST = 60
WIDEST = 120

_STYLES = {"title": "bold", "dim": "dim", "good": "green", "warn": "yellow", "bad": "bold red"}
_PLAIN = str.maketrans(
    {"·": "-", units.MISSING: "-", "…": "~", "µ": "u", **dict.fromkeys("▏▎▍▌", "|"), **dict.fromkeys("▋▊▉█", "#")}
)


def print_run(run: Run, folder: Path | None, console: Console, sort: str = "time", top: int = 10) -> None:
    """Prints the summary of a run.

    Args:
        run: the record.
        folder: the RUN folder as the user would type it, ``None`` where nothing was written.
        console: where to; its width is used between 60 and 120 columns.
        sort: ``time``, ``gain`` or ``calls``.
        top: how many kernels to show.

    Raises:
        UsageError: an unknown ``sort``.
    """
    print_lines(screen(run, folder, width_of(console), sort, top), console)


def width_of(console: Console) -> int:
    """The columns that are used of a console."""
    return min(max(console.width, NARROWEST), WIDEST)


def print_lines(lines: Iterable[Line], console: Console) -> None:
    """Prints lines of styled words; what the console's encoding lacks is written in ASCII."""
    plain = not (console.encoding or "").lower().replace("-", "").startswith("utf")
    for line in lines:
        text = Text()
        for word in line:
            shown = units.printable(word.text)
            shown = shown.translate(_PLAIN).encode("ascii", "replace").decode() if plain else shown
            text.append(shown, _STYLES.get(word.style, word.style))
        text.rstrip()
        # Soft wrapping leaves long commands in one piece, so that they can be copied.
        console.print(text, soft_wrap=True, highlight=False, markup=False, emoji=False)
