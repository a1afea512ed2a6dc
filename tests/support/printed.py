"""What a result looks like in a format, as text."""

from __future__ import annotations

from typing import Any

from inductor_bench.report.document import Document
from inductor_bench.report.renderer import Format, View
from inductor_bench.report.terminal import document_text


def printed(form: Format[Any], result: Any, view: View | None = None) -> str:
    """A result in a format, on a terminal as plain text."""
    view = view or View()
    shown = form.render(result, view)
    if isinstance(shown, Document):
        return document_text(shown, view.columns)
    assert isinstance(shown, str)
    return shown
