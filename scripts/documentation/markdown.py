"""Markdown of generated pages: their first line, wrapped paragraphs, lists, and the anchors of headings."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable

WIDTH = 120
"""The longest line of a page, in characters."""

MADE_BY = "<!-- Made by `scripts/docs`. Do not edit: change the code, and run it again. -->"


def page(title: str, blocks: Iterable[str]) -> str:
    """A whole page: its first line names the command that made it."""
    return "\n\n".join([MADE_BY, f"# {title}", *blocks]) + "\n"


def paragraph(text: str) -> str:
    """A paragraph of words, wrapped."""
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def bullet(text: str) -> str:
    """One entry of a list, wrapped."""
    return textwrap.fill(
        f"- {' '.join(text.split())}", WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def code_block(text: str, language: str = "text") -> str:
    return f"```{language}\n{text}\n```"


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """A text whose parts outside of backticks are changed."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if at % 2 else change(part) for at, part in enumerate(parts))


def escaped(text: str) -> str:
    """Words with a backslash before each mark that Markdown would read, apart from code between backticks."""
    return outside_code(text, lambda part: re.sub(r"([*<\[\]])", r"\\\1", part))


def anchor(heading: str) -> str:
    """The anchor that hosts of code make from a heading."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


def link(heading: str, text: str = "") -> str:
    """A link to a heading of the same page."""
    return f"[{text or heading}](#{anchor(heading)})"
