"""The commands that the documentation shows: where they stand, whether they can be typed, and the words to run them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

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


def commands(paths: Iterable[Path] = PAGES) -> frozenset[str]:
    """The command lines in the blocks of pages. Those within the prose are names, and not typed as they stand."""
    blocks = (markdown.read(path.read_text(encoding="utf-8")).blocks for path in paths)
    pages = (markdown.Page("", each) for each in blocks)
    return frozenset(PROGRAM + command for page in pages for command in markdown.commands(page))


def documented(command: str, places: Mapping[str, str | Path] | None = None) -> list[str]:
    """The words after ``inductor-bench`` of a command that a page shows, for a test that runs it.

    Args:
        command: the command line as the page has it.
        places: what stands in the test for words of the page, or for their part before a ``#`` or a ``:``.

    Raises:
        AssertionError: no page shows the command.
    """
    assert command in _all_commands(), f"no page shows {command!r}"
    return [_placed(word, places or {}) for word in markdown.words_of(command.removeprefix(PROGRAM))]


def with_options(words: Sequence[str], *options: str | Path) -> list[str]:
    """The words of a command with more options, behind its verb: those that make it short, or tell a test more."""
    return [words[0], *map(str, options), *words[1:]]


@cache
def _all_commands() -> frozenset[str]:
    return commands()


def _placed(word: str, places: Mapping[str, str | Path]) -> str:
    name, mark, rest = re.fullmatch(r"([^#:]*)([#:]?)(.*)", word, re.DOTALL).groups()  # type: ignore[union-attr]
    return str(places[word]) if word in places else f"{places.get(name, name)}{mark}{rest}"


def refusal(command: str) -> str:
    """Why ``inductor-bench COMMAND`` cannot be typed; empty if it can. No file has to exist."""
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
