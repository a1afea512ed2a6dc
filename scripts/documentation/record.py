"""The page of all records, made from their dataclasses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from inductor_bench.records.base import Category
from inductor_bench.records.batch_record import Batch
from inductor_bench.records.comparison import BatchComparison, ModeComparison, ModesByModel, RunComparison, TimedPair
from inductor_bench.records.edit import EditVerdict, WrittenEdit
from inductor_bench.records.module import ExtractedKernel, ExtractOutcome
from inductor_bench.records.optimization import Optimization
from inductor_bench.records.run import DoctorReport, KernelOutcome, Run
from inductor_bench.records.summary import ErrorReport, Summary, ToolAnswer
from inductor_bench.report.document_summary import name_schema_file
from inductor_bench.workflows.apply import ApplyOutcome

from .fields import Field, about, fields_of, kinds_in, type_words
from .markdown import bullet, escaped, link, page, paragraph

INTRODUCTION = """ This page describes, field by field, what the tool writes as JSON. Times are seconds, sizes are
bytes, rates are per second, shares are from 0 to 1. A field is `null` if it could not be measured or does not apply.
The failures or the notes of the record say why. Infinite numbers and NaN are `null`, too.

You can read records of older versions. They lack the fields that were added later: treat a missing field as unknown.
Ignore fields that you do not know. `format` rises if a field changes its meaning.

`--format json` prints the record with two more keys. `schema` names the kind of the record and the version of its
schema, for example `run/1`. `summary` has what the screen says: its first line, findings, and what to type next. The
schemas are JSON Schemas (2020-12). They are also in the folder `schemas` of the installed package:
`inductor_bench.schema("run")` returns one. The number rises if a key is removed or changes its meaning. A new key does
not change the number.

A name in parentheses leads to the fields of an object. The values of a category are
"""


class Document(NamedTuple):
    """A file or an output of the tool: its heading, where it comes from, and its dataclass."""

    heading: str
    origin: str
    root: Any
    is_list: bool = False  # whether the file has a list of such objects


DOCUMENTS = (
    Document(
        "A summary",
        "the key `summary` in the output of `--format json`. It has what the screen says. `--brief --format json` "
        "prints it alone.",
        Summary,
    ),
    Document("A run", "`record.json` in a RUN folder; `--format json` of `breakdown` and `report` prints it.", Run),
    Document("A batch", "`batch.json` in the folder of a batch. Each of its models has a RUN folder.", Batch),
    Document("A comparison of two runs", "`inductor-bench compare A B --format json` prints it.", RunComparison),
    Document("A comparison of two batches", "The same command prints it for two batches.", BatchComparison),
    Document("A comparison of modes", "`modes.json` in the folder of `inductor-bench modes`.", ModeComparison),
    Document("Modes of a list", "`inductor-bench modes LIST --format json` prints it.", ModesByModel),
    Document("A search of optimize", "`optimization.json` in the folder of `inductor-bench optimize`.", Optimization),
    Document("Timed kernels", "`inductor-bench kernel FILE --format json` prints it.", KernelOutcome),
    Document(
        "A checked edit", "`inductor-bench kernel FILE --check --format json` prints it for an edit.", EditVerdict
    ),
    Document("A written edit", "`inductor-bench kernel RUN#NAME --edit FILE --format json` prints it.", WrittenEdit),
    Document("Two kernels", "`inductor-bench kernel FILE --compare OTHER --format json` prints it.", TimedPair),
    Document(
        "An extraction", "`kernels.json` beside the kernels' files: a list of these objects.", ExtractedKernel, True
    ),
    Document("Extracted kernels", "`inductor-bench extract SOURCE --format json` prints it.", ExtractOutcome),
    Document("Applied configs", "`inductor-bench apply RUN --verify --format json` prints it.", ApplyOutcome),
    Document(
        "An error",
        "With `--format json` an error is this object: on stderr and, without a result, on stdout.",
        ErrorReport,
    ),
    Document("An answer to an agent", "The tools of `inductor-bench mcp` answer with this object.", ToolAnswer),
    Document("A diagnosis", "`inductor-bench doctor --format json` prints it.", DoctorReport),
)


def record_page() -> str:
    """The text of ``docs/record.md``."""
    categories = ", ".join(f"`{category.value}`" for category in Category)
    *before, last = INTRODUCTION.strip().split("\n\n")
    blocks = [*map(paragraph, before), paragraph(f"{last} {categories}.")]
    blocks.append("\n".join(bullet(f"{link(one.heading)}: {one.origin}") for one in DOCUMENTS))
    shown: set[Any] = set()
    for document in DOCUMENTS:
        blocks += document_blocks(document, shown)
    return page("The record", blocks)


def document_blocks(document: Document, shown: set[Any]) -> Iterator[str]:
    """A document's origin, and the objects in it that no earlier document has."""
    yield f"## {document.heading}"
    schema = f"{name_schema_file(document.root)}.json"
    said = f"{document.origin} The fields: {link(document.root.__name__)}."
    yield paragraph(f"{said} The schema: [`{schema}`](../inductor_bench/schemas/{schema}).")
    for kind in kinds_in(document.root):
        if kind not in shown:
            shown.add(kind)
            yield f"### {kind.__name__}"
            yield from (paragraph(escaped(in_markdown(block))) for block in about(kind).split("\n\n"))
            yield "\n".join(bullet(field_words(field)) for field in fields_of(kind))


def field_words(field: Field) -> str:
    """``name`` (type; unit): meaning."""
    what = "; ".join(filter(None, [type_words(field.hint), field.unit]))
    return f"`{field.name}` ({what}): {escaped(in_markdown(field.meaning))}"


def in_markdown(text: str) -> str:
    """The words of a docstring in the form of Markdown, with JSON's names of constants."""
    names = {"None": "null", "True": "true", "False": "false"}
    return re.sub(r"``([^`]*)``", lambda found: f"`{names.get(found[1], found[1])}`", text)
