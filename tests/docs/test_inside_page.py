"""The page that follows one number through the code names files and functions that exist, each used by the next."""

from __future__ import annotations

import ast
import re
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "inductor_bench"
STOP = re.compile(r"^\d+\. `([\w/]+\.py)` · `(\w+)`", re.MULTILINE)
BY_FILE = {"write_steps", "run_breakdown", "capture_program", "install", "Kernel", "run_document", "show"}
"""Stops that the one before does not name: it starts their process, or they read what it has written."""


def stops(text: str) -> list[tuple[str, str]]:
    return STOP.findall(text)


def wrong_stops(text: str) -> list[str]:
    """The stops that are not there, and those that no file on the way before them names."""
    found = stops(text)
    wrong = []
    for file, name in found:
        path = PACKAGE / file
        tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        wrong += [] if name in defined else [f"{file} has no {name}"]
    seen = ""
    for (before, _), (file, name) in pairwise(found):
        seen += (PACKAGE / before).read_text() if (PACKAGE / before).is_file() else ""
        if name not in BY_FILE and not re.search(rf"\b{name}\b", seen):
            wrong.append(f"nothing before {file} names {name}")
    return wrong


def test_the_page_names_what_is_there() -> None:
    text = (ROOT / "docs" / "inside.md").read_text()
    assert len(stops(text)) == 21
    assert wrong_stops(text) == []


@pytest.mark.parametrize(
    ("stop", "what"),
    [
        ("1. `analysis/gone.py` · `f`", "analysis/gone.py has no f"),
        ("1. `analysis/analyse.py` · `gone`", "analysis/analyse.py has no gone"),
        (
            "1. `units.py` · `seconds`\n2. `analysis/ledger.py` · `step_kernels`",
            "nothing before analysis/ledger.py names step_kernels",
        ),
    ],
)
def test_what_is_gone_is_seen(stop: str, what: str) -> None:
    assert wrong_stops(stop) == [what]
