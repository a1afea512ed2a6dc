"""Renders pages. Jinja2 is imported only here; it escapes all values."""

from __future__ import annotations

import base64
import functools
import itertools
import re
from pathlib import Path

import jinja2
import markupsafe

from ..text import names
from .pack import pack
from .parts import Page

_TEMPLATES = Path(__file__).parent / "templates"
_PLAIN = re.compile(r"[\w .#%/:()-]")


def render_page(page: Page) -> str:
    """Renders a page as one HTML file that loads no other."""
    tables = itertools.count(1)
    template = _environment().get_template("page.html.j2")
    return template.render(page=page, packed=pack(page.files), next_table=lambda: next(tables))


@functools.cache  # compiling the templates takes longer than rendering a page
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(clean=names.clean, prose=_prose, lines=_lines, css=_css_text, base64=_base64)
    return environment


def _prose(text: str) -> markupsafe.Markup:
    """One line, in which what stands in backticks is code."""
    pieces = [markupsafe.escape(piece) for piece in names.clean(text).split("`")]
    if len(pieces) % 2 == 0:
        return markupsafe.escape("`").join(pieces)
    pieces[1::2] = [markupsafe.Markup("<code>{}</code>").format(piece) for piece in pieces[1::2]]
    return markupsafe.Markup("").join(pieces)


def _lines(text: str) -> str:
    """Text of several lines without control characters."""
    return "\n".join(re.sub(r"\S.*", lambda found: names.clean(found[0]), line) for line in text.splitlines())


def _css_text(text: str) -> str:
    """The content of a string of CSS; every unusual character is an escape."""
    return "".join(each if _PLAIN.fullmatch(each) and each.isascii() else f"\\{ord(each):x} " for each in text)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
