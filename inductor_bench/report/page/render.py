"""Renders pages."""

from __future__ import annotations

import itertools
from pathlib import Path

from ..html import environment
from .pack import pack
from .parts import Page

_TEMPLATES = Path(__file__).parent / "templates"


def render_page(page: Page) -> str:
    """Renders a page as one HTML file that loads no other."""
    tables = itertools.count(1)
    template = environment(_TEMPLATES).get_template("page.html.j2")
    return template.render(page=page, packed=pack(page.files), next_table=lambda: next(tables))
