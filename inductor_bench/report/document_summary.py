"""Turns a document into few words: plain text for agents (no bars, no padding), and data that programs read."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from .. import units
from ..analysis.findings.finding import ADVICE, CAUTION, FINE, hash_text, remove_figures
from ..analysis.findings.finding import NOTE as NOTE_LEVEL
from ..records.summary import SCHEMA_VERSION, ErrorReport, Summary, SummaryCommand, SummaryFinding, SummaryPart
from ..store.codec import encode
from . import names
from .document import (
    BAD,
    GOOD,
    LEAD,
    WARN,
    Block,
    Column,
    Commands,
    Document,
    Facts,
    Fold,
    Item,
    Items,
    Row,
    Section,
    Sentence,
    ShownIn,
    Table,
    keep_shown_blocks,
    keep_shown_rows,
)

BETWEEN = " | "
"""The text between two cells."""

NOTE = "    "
"""The text before a note."""

COLUMNS = 100
"""The most characters of a line of text; rows and commands stay in one piece."""

WIDTH = 96
"""The most characters of a name, and of a note below a row."""


MOST_CHARACTERS = 8000
"""The largest number of characters of a brief form: 2,000 tokens of about four characters. A longer text loses its
notes, and then its end."""

CUT = "… more without --brief"


def render_brief(document: Document) -> str:
    """Renders a document in at most :data:`MOST_CHARACTERS`."""
    head = " · ".join(names.clean(text) for text in (document.title, *document.about) if text)
    lines = [*([head] if head else []), *_render_blocks(document.blocks)]
    if _count_characters(lines) > MOST_CHARACTERS:
        lines = [line for line in lines if not line.startswith(NOTE)]
    if _count_characters(lines) > MOST_CHARACTERS:
        while lines and _count_characters([*lines, CUT]) > MOST_CHARACTERS:
            lines.pop()
        lines.append(CUT)
    return "".join(f"{line}\n" for line in lines)


def _count_characters(lines: Iterable[str]) -> int:
    return sum(len(line) + 1 for line in lines)


def _render_blocks(blocks: Iterable[Block]) -> Iterator[str]:
    for block in keep_shown_blocks(blocks, ShownIn.BRIEF):
        yield from _RENDERERS[type(block)](block) if type(block) in _RENDERERS else ()


def _render_section(block: Section) -> Iterator[str]:
    note = f" ({names.clean(block.note)})" if block.note else ""
    if not block.quiet:
        yield f"## {names.clean(block.title)}{note}"
    yield from _render_blocks(block.blocks)


def _render_sentence(block: Sentence) -> Iterator[str]:
    yield from _wrap_text(block.text)


def _wrap_text(text: str, first: str = "") -> list[str]:
    """Wraps a text into lines. Lines after the first are indented to the first line's words; no word is cut."""
    cleaned, after = names.clean(text), " " * len(first)
    return textwrap.wrap(
        cleaned,
        COLUMNS,
        initial_indent=first,
        subsequent_indent=after,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _render_items(block: Items) -> Iterator[str]:
    for item in block.entries:
        if item.on & ShownIn.BRIEF:
            yield from _render_item(item)


def _render_item(item: Item) -> Iterator[str]:
    yield from _wrap_text(item.numbered, "- ")
    if item.hint:
        yield from _wrap_text(f"Hint: {item.hint}", "  ")
    if item.command:
        yield f"  Try: {item.command if item.command.isprintable() else names.clean(item.command)}"


def _render_table(table: Table) -> Iterator[str]:
    every, left = keep_shown_rows(table, ShownIn.BRIEF)
    places = [
        place
        for place, column in enumerate(table.columns)
        if column.on & ShownIn.BRIEF and any(row.cells[place].text for row in every)
    ]
    texts = [
        _shorten_texts(table.columns[place], [names.clean(row.cells[place].text) for row in every]) for place in places
    ]
    if table.titled:
        yield BETWEEN.join(table.columns[place].title for place in places)
    for number, row in enumerate(every):
        yield BETWEEN.join(column[number] for column in texts)
        yield from _render_notes(row, places)
    if left:
        yield names.clean(f"and {left:,} more {table.more}")


def _shorten_texts(column: Column, texts: Sequence[str]) -> Sequence[str]:
    """The texts of a column. Names of kernels stay whole, so that they can be typed, if they are not very long."""
    return column.shorten(texts, WIDTH) if column.shorten and max(map(len, texts), default=0) > WIDTH else texts


def _render_notes(row: Row, places: Sequence[int]) -> Iterator[str]:
    for note in (note for place in places for note in row.cells[place].notes if note.on & ShownIn.BRIEF):
        text = names.clean(note.text)
        yield f"{NOTE}{text if note.whole else names.cut_end(text, WIDTH)}"


def _render_facts(block: Facts) -> Iterator[str]:
    for name, text, *_ in block.rows:
        yield f"{names.clean(name)}: {'; '.join(map(names.clean, text.splitlines()))}"


def _render_commands(block: Commands) -> Iterator[str]:
    yield f"## {block.label}"
    for command, why in block.entries:
        lines = [line if line.isprintable() else names.clean(line) for line in command.splitlines()]
        yield from lines[:-1]
        yield f"{lines[-1]}{f'  # {names.clean(why)}' if why else ''}"


_RENDERERS: Mapping[type[Block], Callable[[Any], Iterator[str]]] = {
    Section: _render_section,
    Sentence: _render_sentence,
    Items: _render_items,
    Table: _render_table,
    Facts: _render_facts,
    Commands: _render_commands,
}
"""The blocks that it shows: no bars, no pictures, and nothing that is shown on demand."""


LEVELS = {WARN: ADVICE, BAD: CAUTION, GOOD: FINE}
"""The level of an entry of a list by its tone; every other tone means a note."""


def summarise_document(document: Document, folder: str = "") -> Summary:
    """Returns the first line, the list entries and the commands that a terminal shows of a document."""
    blocks = list(_find_blocks(document.blocks, ""))
    leads = [block.text for _, block in blocks if isinstance(block, Sentence) and block.tone == LEAD]
    return Summary(
        headline=" ".join(leads),
        folder=folder,
        findings=tuple(make_ids_unique(_list_findings(blocks))),
        next_commands=name_commands(
            pair for _, block in blocks if isinstance(block, Commands) for pair in block.entries
        ),
    )


def _find_blocks(blocks: Iterable[Block], title: str) -> Iterator[tuple[str, Block]]:
    """The blocks within blocks, each with the title of its section."""
    for block in keep_shown_blocks(blocks, ShownIn.TERMINAL):
        if isinstance(block, Section | Fold):
            yield from _find_blocks(block.blocks, block.title)
        else:
            yield title, block


def _list_findings(blocks: Iterable[tuple[str, Block]]) -> Iterator[SummaryFinding]:
    for title, block in blocks:
        if isinstance(block, Items):
            kind = "-".join(re.findall(r"[a-z]+", title.lower())) or "remarks"
            yield from (_make_finding(kind, item) for item in block.entries if item.on & ShownIn.TERMINAL)


def _make_finding(kind: str, item: Item) -> SummaryFinding:
    name = f"{kind}-{hash_text(remove_figures(item.text))}"
    return SummaryFinding(name, kind, LEVELS.get(item.tone, NOTE_LEVEL), item.text, item.hint)


def name_commands(entries: Iterable[tuple[str, str]]) -> tuple[SummaryCommand, ...]:
    """Commands and their purposes with ids: the verb and the options. A repeated id gets a number."""
    return tuple(make_ids_unique(SummaryCommand(_name_command(command), command, why) for command, why in entries))


Named = TypeVar("Named", SummaryPart, SummaryFinding, SummaryCommand)


def make_ids_unique(rows: Iterable[Named]) -> Iterator[Named]:
    """Makes the ids of rows unique: the second row with the same id gets ``-2``, and so on."""
    known: set[str] = set()
    for row in rows:
        name, number = row.id, 1
        while name in known:
            number += 1
            name = f"{row.id}-{number}"
        known.add(name)
        yield replace(row, id=name)


def _name_command(command: str) -> str:
    """``report-sort`` for ``inductor-bench report runs/a --sort gain``; of another program its name."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    words = words[: words.index("--")] if "--" in words else words
    place = next((number for number, word in enumerate(words) if word.endswith("inductor-bench")), None)
    if place is None:
        return re.sub(r"[^a-z]+", "-", words[0].lower()).strip("-") if words else "command"
    options = dict.fromkeys(word.partition("=")[0].lstrip("-") for word in words[place + 2 :] if word.startswith("-"))
    return "-".join([*words[place + 1 : place + 2], *options])


def name_schema(kind: type) -> str:
    """The name of the JSON of a type, with its version: ``run-comparison/1``."""
    return f"{name_schema_file(kind)}/{SCHEMA_VERSION}"


def name_schema_file(kind: type) -> str:
    """The name of the JSON of a type: ``run-comparison``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def write_summarised_json(result: Any, summary: Summary, *, brief: bool = False) -> str:
    """Writes a result as JSON text with its schema and the screen's words; if ``brief``, only the words, shortened."""
    if brief:
        return write_json(make_brief_data(summary), indent=None)
    return write_json({"schema": name_schema(type(result)), "summary": encode(summary), **encode(result)})


MOST_WORDS = 96
"""The largest number of characters of a kernel's origin in the brief form."""

MOST_NAMED = 3
"""The most kernels that a finding of the brief form names."""

MOST_APPLIED = 12
"""The most kernels of a proof in the brief form."""

DIGITS = 4
"""The significant digits of a figure of the brief form."""

LEAST_ROWS = {"kernels": 5, "parts": 5, "applied": 10, "failures": 3, "findings": 3}
"""The number of rows of each list that stay as long as another list has more. Lists are cut in this order."""


def make_brief_data(
    summary: Summary, most: int = MOST_CHARACTERS, encoded: Callable[[Summary], Any] = encode
) -> dict[str, Any]:
    """Makes JSON data of the screen's words with at most ``most`` characters; ``left_out`` counts the rows left out.

    Only the headline, the folder and the commands are never cut.

    Args:
        summary: what the screen says.
        most: the most characters.
        encoded: makes the data, with keys at their defaults or without.
    """
    data = {"schema": name_schema(Summary), **_round_digits(encoded(_shorten_summary(summary)))}
    while len(write_json(data, indent=None)) > most:
        rows = {one: data[one] for one in LEAST_ROWS if data.get(one)}
        name = next((one for one in rows if len(rows[one]) > LEAST_ROWS[one]), next(iter(rows), None))
        if name is None:
            break
        rows[name].pop()
        left = data.setdefault("left_out", {})
        left[name] = left.get(name, 0) + 1
    return data


def _shorten_summary(summary: Summary) -> Summary:
    kernels = (replace(one, origin=names.cut_end(one.origin, MOST_WORDS)) for one in summary.kernels)
    findings = (
        replace(one, kernels=one.kernels[:MOST_NAMED], changes=tuple(dict.fromkeys(one.changes)))
        for one in summary.findings
    )
    left = len(summary.applied) - MOST_APPLIED
    left_out = {**summary.left_out, "applied": left} if left > 0 else summary.left_out
    applied = summary.applied[:MOST_APPLIED]
    return replace(summary, kernels=tuple(kernels), findings=tuple(findings), applied=applied, left_out=dict(left_out))


def _round_digits(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _round_digits(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_round_digits(value) for value in data]
    return float(f"{data:.{DIGITS}g}") if isinstance(data, float) else data


_COMMAND = re.compile(r"(?:^|: )((?:inductor-bench (?:[a-z]|--help)|pip install ).*)$")


def make_error_report(name: str, message: str, hint: str, code: int) -> ErrorReport:
    """An error with the command that its hint names."""
    command = _COMMAND.search(hint)
    return ErrorReport(name, message, hint, command[1] if command else "", code)


def write_error_json(name: str, message: str, hint: str, code: int) -> str:
    """An error as one line of JSON; see :class:`~inductor_bench.records.summary.ErrorReport`."""
    report = make_error_report(name, message, hint, code)
    return write_json({"schema": name_schema(ErrorReport), **encode(report)}, indent=None)


def write_json(data: Any, indent: int | None = 2) -> str:
    """JSON data as text; without an ``indent`` on one line."""
    return units.printable_json(json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False))
