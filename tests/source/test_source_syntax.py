"""The search for one statement of a text, which parses no more than this statement."""

from __future__ import annotations

import ast
import re

import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.source.generated_text import find_statement

TEXT = '''"""A file.

FACTS = 1 is no statement here... it has text before it.
"""
import os

FACTS = {
    "a": [
        1,
],
}
CODE = r"""
#include <cmath>
extern int x;
}
"""


@decorate(
    1,
)
@again
def function(x):
    return x


broken(
'''


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [(r"^import", (5, 5)), (r"^FACTS = \{", (7, 11)), (r"^CODE = ", (12, 16)), (r"^@dec", (19, 24))],
)
def test_a_statement_has_the_lines_of_the_text(pattern: str, lines: tuple[int, int]) -> None:
    node = find_statement(TEXT, re.compile(pattern, re.MULTILINE))
    assert node is not None
    first = node.decorator_list[0] if isinstance(node, ast.FunctionDef) else node
    assert (first.lineno, node.end_lineno) == lines


def test_a_statement_with_many_lines_at_the_margin_is_whole() -> None:
    text = 'CODE = """\n' + "int x;\n" * 500 + '"""\n'
    node = find_statement(text, re.compile(r"^CODE = ", re.MULTILINE))
    assert node is not None and node.end_lineno == 502


def test_a_statement_that_is_missing_or_broken() -> None:
    assert find_statement(TEXT, re.compile(r"^OTHER = ", re.MULTILINE)) is None
    with pytest.raises(InductorBenchError, match="it is not Python"):
        find_statement(TEXT, re.compile(r"^broken", re.MULTILINE))
    with pytest.raises(InductorBenchError, match="hundreds of digits"):
        find_statement(f"FACTS = {'1' * 400}\n", re.compile(r"^FACTS = ", re.MULTILINE))
