"""The page that follows one number through the code: each function exists, and the one that it names calls it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "inductor_bench"
STOP = re.compile(r"^(\d+)\. `([\w/]+\.py)` · `(\w+)`(?: \((apart|from (\d+)(?:, given by (\d+))?)\))?:", re.MULTILINE)
PLACE = re.compile(r"`([\w/]+\.py)`")

Definition = ast.FunctionDef | ast.ClassDef


def definitions(file: str) -> dict[str, Definition]:
    """The functions and classes of a file by their names; none of a file that is not there."""
    path = PACKAGE / file
    tree = ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def name_of(node: ast.AST) -> str:
    return str(getattr(node, "id", "") or getattr(node, "attr", ""))


def nodes_within(file: str, name: str) -> Iterator[ast.AST]:
    """The code of a function or class, and of those of its file that it uses."""
    defined, new = definitions(file), [name]
    while new:
        node = defined.pop(new.pop(), None)
        for inner in ast.walk(node) if node else ():
            yield inner
            new += [name_of(inner)] if name_of(inner) in defined else []


def names_within(file: str, name: str) -> set[str]:
    """What they name."""
    return {name_of(node) for node in nodes_within(file, name)}


def calls_within(file: str, name: str) -> set[str]:
    """What they call. What they only name, as to hand it over, is none of it."""
    return {name_of(node.func) for node in nodes_within(file, name) if isinstance(node, ast.Call)}


def arguments_within(file: str, name: str) -> set[str]:
    """The arguments that they take."""
    return {node.arg for node in nodes_within(file, name) if isinstance(node, ast.arg)}


def wrong_stops(text: str) -> Iterator[str]:
    """The stops that are not there, and those that their caller does not call."""
    stops = STOP.findall(text)
    for place, (number, file, name, caller, of, giver) in enumerate(stops):
        if int(number) != place + 1:
            yield f"stop {number} is number {place + 1}"
        elif name not in definitions(file):
            yield f"{file} has no {name}"
        elif caller != "apart":
            _, before, calling, *_ = stops[int(of or place) - 1]
            called = calls_within(before, calling)
            if giver:
                _, before_it, giving, *_ = stops[int(giver) - 1]
                if name not in names_within(before_it, giving):
                    yield f"{giving} does not give {name}"
                if not called & arguments_within(before, calling):
                    yield f"{calling} calls nothing that it is given"
            elif name not in called:
                yield f"{calling} does not call {name}"


def test_the_page_names_what_is_there() -> None:
    text = (ROOT / "docs" / "inside.md").read_text()
    assert len(STOP.findall(text)) == len(re.findall(r"^\d+\. ", text, re.MULTILINE)) > 20
    assert list(wrong_stops(text)) == []
    assert [place for place in PLACE.findall(text) if "/" in place and not (PACKAGE / place).is_file()] == []


OBSERVE, MEASURE = (
    "`worker/capture/observation.py` · `observe`",
    "`worker/capture/step_observer.py` · `measure_window`",
)
NOTHING = "seconds calls nothing that it is given"
A, B = "`units.py` · `seconds`", "`analysis/ledger.py` · `sum_step_kernels`"


@pytest.mark.parametrize(
    ("page", "what"),
    [
        ("1. `analysis/gone.py` · `f` (apart): …", "analysis/gone.py has no f"),
        ("1. `analysis/analyse.py` · `gone` (apart): …", "analysis/analyse.py has no gone"),
        (f"1. {A} (apart): …\n2. {B}: …", "seconds does not call sum_step_kernels"),
        (f"1. {A} (apart): …\n2. {B} (apart): …\n3. {B} (from 1): …", "seconds does not call sum_step_kernels"),
        (f"1. {A} (apart): …\n3. {B} (apart): …", "stop 3 is number 2"),
        (f"1. {OBSERVE} (apart): …\n2. {MEASURE}: …", "observe does not call measure_window"),
        (f"1. {OBSERVE} (apart): …\n2. {B} (from 1, given by 1): …", "observe does not give sum_step_kernels"),
        (f"1. {OBSERVE} (apart): …\n2. {A} (apart): …\n3. {MEASURE} (from 2, given by 1): …", NOTHING),
    ],
)
def test_what_is_gone_is_seen(page: str, what: str) -> None:
    assert list(wrong_stops(page)) == [what]
