"""``--autotune`` as people type it: its method may be left out, whatever word comes next."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

from inductor_bench.autotune.methods import METHODS

VERBS = {"batch": "source", "breakdown": "targets", "kernel": "targets"}
"""Each verb that retunes, and the name of its argument."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite").touch()


def parsed(verb: str, *words: str) -> tuple[str, list[str]]:
    """The method and the targets that a command line amounts to."""
    command: click.Command = import_module(f"inductor_bench.cli.{verb}").command
    values: dict[str, Any] = command.make_context(verb, list(words)).params
    targets = values[VERBS[verb]]
    return values.get("method", values.get("autotune")), list(targets) if isinstance(targets, tuple) else [str(targets)]


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("words", "method", "target"),
    [
        ("--autotune suite", "max", "suite"),
        ("--autotune gone/model.py", "max", "gone/model.py"),
        ("--autotune timm:vit", "max", "timm:vit"),
        ("--autotune run#triton_*", "max", "run#triton_*"),
        ("--autotune --budget 3 suite", "max", "suite"),
        ("suite --autotune", "max", "suite"),
        ("--autotune coordesc suite", "coordesc", "suite"),
        ("suite --autotune exhaustive", "exhaustive", "suite"),
        ("--autotune=coordesc suite", "coordesc", "suite"),
    ],
)
def test_a_target_is_no_method(verb: str, words: str, method: str, target: str) -> None:
    assert parsed(verb, *words.split()) == (method, [target])


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("words", ["--autotune=suite", "suite --autotune=slowly", "suite --autotune slowly"])
def test_what_was_meant_as_a_method_is_one_or_an_error(verb: str, words: str) -> None:
    with pytest.raises(click.BadParameter, match=f"is not one of {', '.join(map(repr, METHODS))}"):
        parsed(verb, *words.split())


def test_several_files_of_which_one_comes_next() -> None:
    assert parsed("kernel", "a.py", "--autotune", "b.py", "c.py") == ("max", ["a.py", "b.py", "c.py"])


def test_the_programs_own_words_are_left_alone() -> None:
    assert parsed("breakdown", "--autotune", "a.py", "--", "--autotune", "b.py") == ("max", ["a.py"])


@pytest.mark.parametrize("verb", VERBS)
def test_without_words_there_is_help(verb: str) -> None:
    with pytest.raises(click.exceptions.NoArgsIsHelpError):
        parsed(verb)
