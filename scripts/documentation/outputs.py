"""The output that the documentation shows: which command made each block, and what that command prints today.

A comment stands above each block of output, each table of measured figures, and each picture of some::

    <!-- made by: inductor-bench report runs/decode -->

    <!-- made by: scripts/benchmark_step.py decode.py blocks.py
         on: NVIDIA H200, torch 2.11.0, triton 3.6.0
         date: 2026-11-23 -->

Without ``on`` the command is repeated here, on the recorded RUNs of ``tests/data/documented``, and the block has to be
its output; a line ``…`` stands for lines left out. With ``on`` and ``date`` the figures were measured elsewhere.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

from . import transcript

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = ROOT / "tests" / "data" / "documented"
"""Zipped RUNs. The documentation calls ``train.zip`` the RUN ``runs/train``."""

LEFT_OUT = "…"
FIGURES = ("table", "picture")
"""What stands for the language of what holds figures and is no block."""

WIDTH = "100"
"""Columns of a block: those that output to a file has."""

COMMENT = r"(?:^<!-- made by: (?P<facts>(?:(?!-->)[\s\S])*?)\s*-->\n)"
BLOCK = re.compile(COMMENT + r"?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
PICTURE = re.compile(COMMENT + r"?^(?P<text>!\[[^\]]*\]\([^)]*\))$", re.MULTILINE)
TABLE = re.compile(COMMENT + r"?(?P<text>(?:^\|[^\n]*\n)+)", re.MULTILINE)
FACT = re.compile(r"^\s*(on|date): ", re.MULTILINE)
FIGURE = re.compile(r"\d+(?:[.,]\d+)* ?(?:%|x\b|ms\b|µs\b|s\b|MB\b|of \d)")


@dataclass(frozen=True)
class Origin:
    """Where figures come from.

    Attributes:
        command: what made them; several commands stand behind each other with a semicolon.
        on: the device and the versions; empty if the command is repeated here.
        date: the day of the measurement, as ``2026-11-23``.
    """

    command: str
    on: str = ""
    date: str = ""

    @property
    def repeatable(self) -> bool:
        return not self.on and not self.date


@dataclass(frozen=True)
class Shown:
    """A block of code, a table or a picture of a page: the number of its first line, its origin, language and text."""

    line: int
    origin: Origin | None
    language: str
    text: str


def blocks(page: str) -> Iterator[Shown]:
    """The fenced blocks of a page."""
    return (_shown(page, match, match["language"]) for match in BLOCK.finditer(page))


def figures(page: str) -> Iterator[Shown]:
    """The tables of a page that hold figures, and its pictures, without what is in blocks of code."""
    prose = BLOCK.sub(lambda match: re.sub(r"[^\n]+", "", match[0]), page)
    table, picture = FIGURES
    yield from (_shown(prose, match, table) for match in TABLE.finditer(prose) if FIGURE.search(match["text"]))
    yield from (_shown(prose, match, picture) for match in PICTURE.finditer(prose))


def _shown(page: str, match: re.Match[str], language: str) -> Shown:
    origin = read_origin(match["facts"]) if match["facts"] else None
    return Shown(page.count("\n", 0, match.start("text")) + 1, origin, language, match["text"])


def read_origin(facts: str) -> Origin:
    """What a comment says after ``made by:``."""
    command, *rest = (" ".join(part.split()) for part in FACT.split(facts))
    found = dict(zip(rest[::2], rest[1::2], strict=True))
    return Origin(command, found.get("on", ""), found.get("date", ""))


def brought_up_to_date(page: str, printed: Callable[[str], str]) -> str:
    """A page whose repeatable blocks hold what their commands print.

    Args:
        page: the text of the page.
        printed: returns the output of a command.

    Raises:
        ValueError: the lines that a block shows are not in the output.
    """

    can_talk = transcript.can_be_made()

    def renewed(match: re.Match[str]) -> str:
        origin = read_origin(match["facts"]) if match["facts"] else None
        if origin is None or not origin.repeatable or (origin.command == transcript.COMMAND and not can_talk):
            return match[0]
        begin, end = (place - match.start() for place in match.span("text"))
        return match[0][:begin] + choose(match["text"], printed(origin.command)) + match[0][end:]

    return BLOCK.sub(renewed, page)


def choose(shown: str, output: str) -> str:
    """The lines of an output that a block shows: all of them, or with ``…`` those in the places of its lines.

    Lines in front of the first ``…`` are the output's first ones, and lines behind the last ``…`` its last ones. Other
    passages are found by the words of their first line, and are as long as they were.
    """
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    passages = [passage.splitlines() for passage in re.split(rf"^{LEFT_OUT}\n", shown, flags=re.MULTILINE)]
    if len(passages) == 1:
        return "\n".join(lines) + "\n"
    chosen: list[str] = []
    place = 0
    for number, passage in enumerate(passages):
        if number:
            chosen.append(LEFT_OUT)
        if not passage:
            continue
        if number == len(passages) - 1:
            place = max(place, len(lines) - len(passage))
        elif number:
            place = next((at for at in range(place, len(lines)) if words(lines[at]) == words(passage[0])), -1)
        if place < 0:
            raise ValueError(f"the output has no line like {passage[0]!r}: choose the lines of the block again")
        chosen += lines[place : place + len(passage)]
        place += len(passage)
    return "\n".join(chosen) + "\n"


def words(line: str) -> str:
    """A line without its figures, their units and its bars."""
    without = re.sub(r"[-+<±]?\d\S*(?: (?:[mµn]?s|[kMGT]?B(?:/s)?|[GT]FLOP/s))?", "", line)
    return " ".join(re.findall(r"[\w/.:]+", without))


@contextlib.contextmanager
def recorded_runs() -> Iterator[Callable[[str], str]]:
    """A temporary folder with the recorded RUNs, and the function that returns what a command prints there."""
    with tempfile.TemporaryDirectory() as name:
        for archive in sorted(RECORDED.glob("*.zip")):
            with ZipFile(archive) as opened:
                opened.extractall(Path(name, "runs", archive.stem))
        yield lambda command: run_command(command, Path(name))


def run_command(command: str, folder: Path) -> str:
    """What ``inductor-bench …`` or ``scripts/transcript`` prints in a folder.

    Raises:
        ValueError: the command is another program, or fails.
    """
    from inductor_bench.cli.main import main

    if command == transcript.COMMAND:
        return transcript.transcript(folder)
    program, *rest = shlex.split(command)
    if program != "inductor-bench":
        raise ValueError(f"{command!r} cannot be repeated here: say `on` which device it ran, and the `date`")
    if rest[0] == "report":
        rest.append("--no-plots")  # no block shows plots, and they take seconds
    printed, before, columns = io.StringIO(), Path.cwd(), os.environ.get("COLUMNS")
    os.chdir(folder)
    os.environ["COLUMNS"] = WIDTH
    try:
        with contextlib.redirect_stdout(printed):
            code = main(rest)
    finally:
        os.chdir(before)
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    if code:
        raise ValueError(f"{command!r} ended with exit code {code}")
    return printed.getvalue()
