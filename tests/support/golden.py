"""Screens and pages as they should be, in files. ``scripts/golden`` writes them anew."""

from __future__ import annotations

import os

from conftest import ROOT

FOLDER = ROOT / "tests" / "report" / "golden"
RENEW = "RENEW_GOLDEN"


def golden(name: str, text: str) -> None:
    """Compares a text with its file, or writes the file if the variable ``RENEW_GOLDEN`` is set."""
    path = FOLDER / name
    if os.environ.get(RENEW):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, (
        f"{path} differs: `scripts/golden` writes it anew; look at the diff"
    )
