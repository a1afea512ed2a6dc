"""The page that follows one number through the code: each function exists, and the one that it names calls it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "inductor_bench"
STOP = re.compile(r"^(\d+)\. `([\w/]+\.py)` · `(\w+)`(?: \((apart|from (\d+))\))?:", re.MULTILINE)
PLACE = re.compile(r"`([\w/]+\.py)`")

Definition = ast.FunctionDef | ast.ClassDef


def definitions(file: str) -> dict[str, Definition]:
    """The functions and classes of a file by their names; none of a file that is not there."""
    path = PACKAGE / file
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def names_within(file: str, name: str) -> set[str]:
    """What a function or class names, and what those of its file name that it uses."""
    defined, found, new = definitions(file), set[str](), [name]
    while new:
        node = defined.pop(new.pop(), None)
        for inner in ast.walk(node) if node else ():
            named = getattr(inner, "id", "") or getattr(inner, "attr", "")
            found.add(named)
            new += [named] if named in defined else []
    return found


def wrong_stops(text: str) -> Iterator[str]:
    """The stops that are not there, and those that their caller does not call."""
    stops = STOP.findall(text)
    for place, (number, file, name, caller, of) in enumerate(stops):
        if int(number) != place + 1:
            yield f"stop {number} is number {place + 1}"
        elif name not in definitions(file):
            yield f"{file} has no {name}"
        elif caller != "apart":
            _, before, calling, *_ = stops[int(of or place) - 1]
            if name not in names_within(before, calling):
                yield f"{calling} does not call {name}"


def test_the_page_names_what_is_there() -> None:
    text = (ROOT / "docs" / "inside.md").read_text()
    assert len(STOP.findall(text)) == len(re.findall(r"^\d+\. ", text, re.MULTILINE)) > 20
    assert list(wrong_stops(text)) == []
    assert [place for place in PLACE.findall(text) if "/" in place and not (PACKAGE / place).is_file()] == []


A, B = "`units.py` · `seconds`", "`analysis/ledger.py` · `step_kernels`"


@pytest.mark.parametrize(
    ("page", "what"),
    [
        ("1. `analysis/gone.py` · `f` (apart): …", "analysis/gone.py has no f"),
        ("1. `analysis/analyse.py` · `gone` (apart): …", "analysis/analyse.py has no gone"),
        (f"1. {A} (apart): …\n2. {B}: …", "seconds does not call step_kernels"),
        (f"1. {A} (apart): …\n2. {B} (apart): …\n3. {B} (from 1): …", "seconds does not call step_kernels"),
        (f"1. {A} (apart): …\n3. {B} (apart): …", "stop 3 is number 2"),
    ],
)
def test_what_is_gone_is_seen(page: str, what: str) -> None:
    assert list(wrong_stops(page)) == [what]
