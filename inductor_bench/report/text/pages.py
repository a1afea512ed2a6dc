"""Renders templates as HTML pages. Jinja2 is imported only here, and escapes all values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import jinja2

from . import names


def render_page(template: str, values: Mapping[str, object], *folders: Path) -> str:
    """Renders a template with its values. A value that is missing raises an error.

    Args:
        template: the name of the template.
        values: its variables.
        folders: the folders of the template and of those that it includes.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clean"] = names.clean
    return environment.get_template(template).render(dict(values))
