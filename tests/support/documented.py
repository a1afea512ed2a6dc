"""The commands that the documentation shows: where they stand, whether they can be typed, and the words to run them."""

from __future__ import annotations

from functools import cache

import click
import markdown_pages as markdown
from conftest import ROOT

from inductor_bench.cli.main import group
from inductor_bench.errors import InductorBenchError

PROGRAM = "inductor-bench "
GENERATED = ("commands.md", "record.md")
"""Pages that ``scripts/docs`` makes: their commands are those of ``--help``."""

PAGES = [
    ROOT / "README.md",
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED),
]
"""The pages that people write."""


@cache
def commands() -> frozenset[str]:
    """The command lines of all pages, in blocks and in the prose."""
    texts = (path.read_text(encoding="utf-8") for path in PAGES)
    return frozenset(PROGRAM + command for text in texts for command in markdown.commands(markdown.read(text)))


def documented(command: str) -> list[str]:
    """The words after ``inductor-bench`` of a command that a page shows. A test runs them, on files of its own.

    Raises:
        AssertionError: no page shows the command.
    """
    assert command in commands(), f"no page shows {command!r}"
    return markdown.words_of(command.removeprefix(PROGRAM))


def refusal(command: str) -> str:
    """Why ``inductor-bench COMMAND`` cannot be typed; empty where it can. No file has to exist."""
    try:
        words = markdown.words_of(command)
    except ValueError as error:
        return str(error)
    if not words or words[0].startswith("-"):
        words.insert(0, "")
    verb, *rest = words
    found: click.Command | None = group if not verb else group.get_command(click.Context(group), verb)
    if found is None:
        return f"{verb} is no command"
    if not rest or "[OPTIONS]" in rest:  # a verb's name alone, or its usage
        return ""
    try:
        with click.Context(group) as context:
            found.make_context(verb or "inductor-bench", rest, parent=context if verb else None)
    except click.exceptions.Exit:  # --help and --version
        return ""
    except (click.ClickException, InductorBenchError) as error:
        return error.message
    return ""
