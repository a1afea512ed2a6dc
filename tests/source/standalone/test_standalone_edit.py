"""Changes in the text of a standalone file: made where they belong, and nowhere else."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from gather_kernel import SOURCE, gather_text

from inductor_bench.errors import InductorBenchError
from inductor_bench.source.standalone_writer import edit_standalone


def literals(text: str) -> dict[str, Any]:
    found = {}
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in ("RECORDED", "SOURCE"):
            found[target.id] = ast.literal_eval(node.value)
    return found


def test_facts_and_source_are_replaced_and_the_rest_is_kept() -> None:
    text = gather_text(calls=3)
    before = literals(text)
    cpp = {**before["RECORDED"]["cpp"], "threads": 4, "flags": "unroll"}
    edited = edit_standalone(text, {"cpp": cpp}, SOURCE + "// it's '''new'''\n")
    after = literals(edited)
    assert after["SOURCE"] == SOURCE + "// it's '''new'''\n"
    assert after["RECORDED"] == {**before["RECORDED"], "cpp": cpp}
    lost = [line for line in text.replace(SOURCE, "").splitlines() if line not in edited.splitlines()]
    assert lost == ["        'threads': 1,", "SOURCE = r''''''"]


def test_a_change_and_the_change_back_give_the_same_text() -> None:
    text = gather_text()
    before = literals(text)
    there = edit_standalone(text, {"cpp": {**before["RECORDED"]["cpp"], "threads": 7}}, "int x;\n")
    assert there != text
    assert edit_standalone(there, {"cpp": before["RECORDED"]["cpp"]}, before["SOURCE"]) == text


def test_facts_alone_leave_the_source_alone() -> None:
    text = gather_text()
    edited = edit_standalone(text, {"threads": 3})
    assert literals(edited)["RECORDED"]["threads"] == 3 and literals(edited)["SOURCE"] == SOURCE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SOURCE = ''\n", "the file has no RECORDED"),
        ("RECORDED = {'launch': {}}\n", "the file has no SOURCE"),
        ("RECORDED = dict(launch={})\nSOURCE = ''\n", "RECORDED is not a plain literal"),
        ("RECORDED = [1]\nSOURCE = ''\n", "RECORDED is not a plain literal"),
        ("RECORDED = {\n", "it is not Python"),
    ],
)
def test_a_file_that_somebody_rewrote_is_refused(text: str, why: str) -> None:
    with pytest.raises(InductorBenchError, match=why):
        edit_standalone(text, {"threads": 3}, "new")
