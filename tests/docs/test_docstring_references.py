"""What docstrings and comments refer to, such as ``autotune.methods.find_least``, is there."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "inductor_bench"
REFERENCE = re.compile(r"``((?:\w+\.)+)([A-Za-z_]\w+)``")

FOLDERS = frozenset(path.name for path in PACKAGE.iterdir() if path.is_dir())
OTHERS = frozenset({"torch", "triton"})
"""Packages whose names are not looked up."""


def defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    """The names that a module or a class defines."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        yield from (one.id for target in targets if target for one in ast.walk(target) if isinstance(one, ast.Name))


@cache
def holders() -> Mapping[str, frozenset[str]]:
    """What folders and modules hold, by their names; those of one name together."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.parent.name if path.stem == "__init__" else path.stem
        found.setdefault(name, set()).update(defined(ast.parse(path.read_text()).body))
        found.setdefault(path.parent.name, set()).add(path.stem)
    return {name: frozenset(held) for name, held in found.items()}


def lost_references(text: str) -> Iterator[str]:
    """The references whose module does not hold what they name.

    The end of a module's name may stand for it. An attribute of an object is no reference: no module holds its name.
    """
    every = frozenset().union(*holders().values())
    for path, name in REFERENCE.findall(text):
        parts = path.split(".")[:-1]
        first, last = parts[0], parts[-1]
        held = (names for holder, names in holders().items() if holder == last or holder.endswith(f"_{last}"))
        is_ours = first in FOLDERS or (last.islower() and first not in OTHERS and name in every)
        if is_ours and not any(name in names for names in held):
            yield f"{path}{name}"


def test_what_is_referred_to_is_there() -> None:
    lost = {path.name: list(lost_references(path.read_text())) for path in PACKAGE.rglob("*.py")}
    assert {name: found for name, found in lost.items() if found} == {}


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        ("see ``autotune.methods.find_least``, ``methods.find_least`` and ``aggregation.judge_in_step``", []),
        ("an option ``request.anything``, a label ``Block.forward`` and ``torch.cuda.graph``", []),
        ("see ``autotune.methods.gone``", ["autotune.methods.gone"]),
        ("see ``stake.find_least``", ["stake.find_least"]),
        ("see ``ledger.find_least``", ["ledger.find_least"]),
    ],
)
def test_a_lost_reference_is_seen(text: str, lost: list[str]) -> None:
    assert list(lost_references(text)) == lost
