"""Prints lines of styled words on a terminal. Rich is imported only here; words are never read as markup."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from .. import units
from .text.layout import Line

_STYLES = {"title": "bold", "dim": "dim", "good": "green", "warn": "yellow", "bad": "bold red"}
_PLAIN = str.maketrans(
    {"·": "-", units.MISSING: "-", "…": "~", "µ": "u", **dict.fromkeys("▏▎▍▌", "|"), **dict.fromkeys("▋▊▉█", "#")}
)


def print_lines(lines: Iterable[Line], console: Console) -> None:
    """Prints lines of styled words. ASCII replaces characters that the console's encoding lacks."""
    plain = not (console.encoding or "").lower().replace("-", "").startswith("utf")
    for line in lines:
        text = Text()
        for word in line:
            shown = units.printable(word.text)
            shown = shown.translate(_PLAIN).encode("ascii", "replace").decode() if plain else shown
            text.append(shown, _STYLES.get(word.style, word.style))
        text.rstrip()
        # Soft wrapping keeps a long command in one piece, so that it can be copied.
        console.print(text, soft_wrap=True, highlight=False, markup=False, emoji=False)
