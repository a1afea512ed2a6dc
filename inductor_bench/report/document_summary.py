"""What a document says, as a record, so that programs read the words of the screen."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from .. import units
from ..analysis.findings.finding import ADVICE, CAUTION, FINE, hashed, without_figures
from ..analysis.findings.finding import NOTE as NOTE_LEVEL
from ..records.summary import (
    SCHEMA_VERSION,
    ErrorReport,
    Summary,
    SummaryCommand,
    SummaryFinding,
    SummaryPart,
)
from ..store.codec import encode
from . import names
from .brief import MOST_CHARACTERS
from .document import (
    BAD,
    GOOD,
    LEAD,
    WARN,
    Block,
    Commands,
    Document,
    Fold,
    Item,
    Items,
    On,
    Section,
    Sentence,
    shown_on,
)

LEVELS = {WARN: ADVICE, BAD: CAUTION, GOOD: FINE}
"""The level of an entry of a list by its tone; every other tone means a note."""


def document_summary(document: Document, folder: str = "") -> Summary:
    """The first line, the entries of lists and the commands of a document, those that a terminal shows."""
    blocks = list(_blocks(document.blocks, ""))
    leads = [block.text for _, block in blocks if isinstance(block, Sentence) and block.tone == LEAD]
    return Summary(
        headline=" ".join(leads),
        folder=folder,
        findings=tuple(with_unique_ids(_findings(blocks))),
        next_commands=named_commands(
            pair for _, block in blocks if isinstance(block, Commands) for pair in block.entries
        ),
    )


def _blocks(blocks: Iterable[Block], title: str) -> Iterator[tuple[str, Block]]:
    """The blocks within blocks, each with the title of its section."""
    for block in shown_on(blocks, On.TERMINAL):
        if isinstance(block, Section | Fold):
            yield from _blocks(block.blocks, block.title)
        else:
            yield title, block


def _findings(blocks: Iterable[tuple[str, Block]]) -> Iterator[SummaryFinding]:
    for title, block in blocks:
        if isinstance(block, Items):
            kind = "-".join(re.findall(r"[a-z]+", title.lower())) or "remarks"
            yield from (_finding(kind, item) for item in block.entries if item.on & On.TERMINAL)


def _finding(kind: str, item: Item) -> SummaryFinding:
    name = f"{kind}-{hashed(without_figures(item.text))}"
    return SummaryFinding(name, kind, LEVELS.get(item.tone, NOTE_LEVEL), item.text, item.hint)


def named_commands(entries: Iterable[tuple[str, str]]) -> tuple[SummaryCommand, ...]:
    """Commands and their purposes with ids: the verb and the options. A repeated id gets a number."""
    return tuple(with_unique_ids(SummaryCommand(_command_name(command), command, why) for command, why in entries))


Named = TypeVar("Named", SummaryPart, SummaryFinding, SummaryCommand)


def with_unique_ids(rows: Iterable[Named]) -> Iterator[Named]:
    """The rows, of which the second with the same id gets ``-2``, and so on."""
    known: set[str] = set()
    for row in rows:
        name, number = row.id, 1
        while name in known:
            number += 1
            name = f"{row.id}-{number}"
        known.add(name)
        yield replace(row, id=name)


def _command_name(command: str) -> str:
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


def schema_name(kind: type) -> str:
    """The name of the JSON of a type, with its version: ``run-comparison/1``."""
    return f"{schema_file(kind)}/{SCHEMA_VERSION}"


def schema_file(kind: type) -> str:
    """The name of the JSON of a type: ``run-comparison``."""
    return re.sub(r"(?<!^)(?=[A-Z])", "-", kind.__name__).lower()


def summarized_json(result: Any, summary: Summary, *, brief: bool = False) -> str:
    """A result as JSON text with its schema and what the screen says; if ``brief`` only that, in few characters."""
    if brief:
        return json_text(brief_data(summary), indent=None)
    return json_text({"schema": schema_name(type(result)), "summary": encode(summary), **encode(result)})


MOST_WORDS = 96
"""The most characters of where a kernel comes from, in the brief form."""

MOST_NAMED = 3
"""The most kernels that a finding of the brief form names."""

DIGITS = 4
"""The significant digits of a figure of the brief form."""

LEAST_ROWS = {"kernels": 5, "parts": 5, "failures": 3, "findings": 3}
"""The rows of each list that the brief form keeps while another list has more. The first lists are cut first."""


def brief_data(
    summary: Summary, most: int = MOST_CHARACTERS, encoded: Callable[[Summary], Any] = encode
) -> dict[str, Any]:
    """What the screen says as JSON data of at most ``most`` characters; ``left_out`` counts the rows that it lacks.

    Only the headline, the folder and the commands are never cut.

    Args:
        summary: what the screen says.
        most: the most characters.
        encoded: makes the data, with keys at their defaults or without.
    """
    data = {"schema": schema_name(Summary), **_with_few_digits(encoded(_in_few_words(summary)))}
    while len(json_text(data, indent=None)) > most:
        rows = {one: data[one] for one in LEAST_ROWS if data.get(one)}
        name = next((one for one in rows if len(rows[one]) > LEAST_ROWS[one]), next(iter(rows), None))
        if name is None:
            break
        rows[name].pop()
        left = data.setdefault("left_out", {})
        left[name] = left.get(name, 0) + 1
    return data


def _in_few_words(summary: Summary) -> Summary:
    kernels = (replace(one, origin=names.end(one.origin, MOST_WORDS)) for one in summary.kernels)
    findings = (
        replace(one, kernels=one.kernels[:MOST_NAMED], changes=tuple(dict.fromkeys(one.changes)))
        for one in summary.findings
    )
    return replace(summary, kernels=tuple(kernels), findings=tuple(findings))


def _with_few_digits(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _with_few_digits(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_with_few_digits(value) for value in data]
    return float(f"{data:.{DIGITS}g}") if isinstance(data, float) else data


_COMMAND = re.compile(r"(?:^|: )((?:inductor-bench (?:[a-z]|--help)|pip install ).*)$")


def error_report(name: str, message: str, hint: str, code: int) -> ErrorReport:
    """An error with the command that its hint names."""
    command = _COMMAND.search(hint)
    return ErrorReport(name, message, hint, command[1] if command else "", code)


def error_json(name: str, message: str, hint: str, code: int) -> str:
    """An error as one line of JSON; see :class:`~inductor_bench.records.summary.ErrorReport`."""
    report = error_report(name, message, hint, code)
    return json_text({"schema": schema_name(ErrorReport), **encode(report)}, indent=None)


def json_text(data: Any, indent: int | None = 2) -> str:
    """JSON data as text; without an ``indent`` on one line."""
    return units.printable_json(json.dumps(data, indent=indent, ensure_ascii=False, allow_nan=False))
