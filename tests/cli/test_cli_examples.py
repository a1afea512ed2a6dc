"""The examples: every command that they promise can be typed, and every factory gives what it says."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
from pathlib import Path

import click
import pytest

from inductor_bench.cli.breakdown import ARGUMENTS
from inductor_bench.cli.main import group

ROOT = Path(__file__).resolve().parent.parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SPOKEN = [*EXAMPLES, ROOT / "scripts" / "demo"]


def commands_in(text: str) -> list[list[str]]:
    """The command lines that a text shows, without their comments."""
    found = re.findall(r"^(?:say)?\W*inductor-bench ((?:breakdown|report|doctor).*?)['`]*$", text, re.MULTILINE)
    return [shlex.split(line, comments=True) for line in found]


@pytest.mark.parametrize("path", SPOKEN, ids=lambda path: path.name)
def test_what_is_promised_can_be_typed(path: Path) -> None:
    commands = [words for words in commands_in(path.read_text()) if words[0] == "breakdown"]
    assert commands
    for _, *words in commands:
        verb = group.get_command(click.Context(group), "breakdown")
        assert verb is not None
        context = verb.make_context("breakdown", list(words))
        scripts = [word for word in context.meta.get(ARGUMENTS, ()) if word.endswith(".py")]
        (target,) = context.params["targets"] or scripts
        name, _, factory = target.partition(":")
        text = (ROOT / name).read_text()
        functions = {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
        assert not factory or factory in functions


@pytest.mark.parametrize(
    ("name", "factory"),
    [
        ("train_convnet", "training_step"),
        ("transformer_block", "language_model"),
        ("compile_function", "softmax_of_rows"),
    ],
)
def test_a_factory_gives_a_callable_and_its_inputs(name: str, factory: str) -> None:
    torch = pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function, inputs = getattr(module, factory)()
    result = function(*inputs)
    if isinstance(function, torch.nn.Module):
        assert result.ndim == 0
        result.backward()
        assert all(parameter.grad is not None for parameter in function.parameters())
    else:
        torch.testing.assert_close(result, torch.softmax(inputs[0], dim=-1))
