"""Settings are put into the text of a program."""

import ast

import pytest

from inductor_bench.source.user_program import OPTIMIZERS, add_keywords, add_lines, write_diff

PROGRAM = '''"""A program."""
from __future__ import annotations

import torch
from torch.optim import AdamW


def main(rate):
    model = torch.compile(torch.nn.Linear(3, 3))
    optimizer = AdamW(
        model.parameters(),
        lr=(rate),
        foreach=False,
    )
    print("é", optimizer)
'''


def call(text: str, name: str) -> dict[str, str]:
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    (found,) = [node for node in calls if ast.unparse(node.func).endswith(name)]
    return {str(one.arg): ast.unparse(one.value) for one in found.keywords}


def test_a_keyword_is_added_to_the_only_call() -> None:
    changed = add_keywords(PROGRAM, OPTIMIZERS, {"fused": "True", "foreach": "None"})
    assert changed is not None
    assert call(changed, "AdamW") == {"lr": "rate", "foreach": "None", "fused": "True"}
    assert changed.replace("foreach=None, fused=True", "foreach=False") == PROGRAM


def test_a_function_may_be_named_with_its_module() -> None:
    changed = add_keywords(PROGRAM, ["torch.compile"], {"dynamic": "True"})
    assert changed is not None and "torch.compile(torch.nn.Linear(3, 3), dynamic=True)" in changed


@pytest.mark.parametrize(
    "text",
    [
        "AdamW(a)\nAdamW(b)\n",
        "x = 1\n",
        "AdamW(**options)\n",
        "AdamW(\n",
        "AdamW(x for x in y)\n",
    ],
)
def test_a_call_that_is_not_clear_is_left_alone(text: str) -> None:
    assert add_keywords(text, OPTIMIZERS, {"fused": "True"}) is None


@pytest.mark.parametrize("text", ["AdamW()", "AdamW(a)", "AdamW(a,)", "AdamW((a))", "AdamW(('é', a), b=(1))"])
def test_any_call_can_be_extended(text: str) -> None:
    changed = add_keywords(text, OPTIMIZERS, {"fused": "True"})
    assert changed is not None and call(changed, "AdamW")["fused"] == "True"


def test_lines_stand_after_the_imports() -> None:
    changed = add_lines(PROGRAM, ["torch.backends.cudnn.benchmark = True"])
    assert changed is not None
    lines = changed.splitlines()
    assert lines.index("torch.backends.cudnn.benchmark = True") == lines.index("from torch.optim import AdamW") + 2
    assert add_lines("x = 1\n", ["y"]) is None and add_lines("(", ["y"]) is None
    assert add_lines("import a", ["y = 1"]) == "import a\n\ny = 1\n"


def test_the_difference_is_one_that_patch_reads() -> None:
    text = write_diff("a\nb\n", "a\nc\n", "train.py")
    assert text.splitlines() == ["--- a/train.py", "+++ b/train.py", "@@ -1,2 +1,2 @@", " a", "-b", "+c"]
    assert "\\ No newline at end of file" in write_diff("a", "b", "x")
