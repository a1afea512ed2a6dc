"""The page of all records, made from their dataclasses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from inductor_bench.records.base import Category
from inductor_bench.records.batch import Batch
from inductor_bench.records.comparison import BatchComparison, ModeComparison, ModesByModel, RunComparison, TimedPair
from inductor_bench.records.module import ExtractedKernel
from inductor_bench.records.optimization import Optimization
from inductor_bench.records.run import Run
from inductor_bench.workflows.kernel import KernelOutcome

from .fields import Field, about, fields_of, kinds_in, type_words
from .markdown import bullet, escaped, link, page, paragraph

INTRODUCTION = """
What the tool writes as JSON, field by field. Times are seconds, sizes are bytes, rates are per second, shares are from
0 to 1. `null` stands for what could not be measured or does not apply; the failures or the notes of the record give the
reason. Infinite numbers and such that are none are `null`, too.

Records of older versions can be read: they lack the fields that were added since, and a reader should take a missing
field as unknown. Unknown fields are to be ignored. `format` is raised when a field changes its meaning.

A name in parentheses leads to the fields of an object. The values of a category are
"""


class Document(NamedTuple):
    """A file or an output of the tool: its heading, where it comes from, and its dataclass."""

    heading: str
    origin: str
    root: Any


DOCUMENTS = (
    Document("A run", "`record.json` in a RUN folder; `--format json` of `breakdown` and `report` prints it.", Run),
    Document("A batch", "`batch.json` in the folder of a batch. Each of its models has a RUN folder.", Batch),
    Document("A comparison of two runs", "`inductor-bench compare A B --format json` prints it.", RunComparison),
    Document("A comparison of two batches", "The same command prints it for two batches.", BatchComparison),
    Document("A comparison of modes", "`modes.json` in the folder of `inductor-bench modes`.", ModeComparison),
    Document("Modes of a list", "`inductor-bench modes LIST --format json` prints it.", ModesByModel),
    Document("A search of optimize", "`optimization.json` in the folder of `inductor-bench optimize`.", Optimization),
    Document("Timed kernels", "`inductor-bench kernel FILE --format json` prints it.", KernelOutcome),
    Document("Two kernels", "`inductor-bench kernel FILE --compare OTHER --format json` prints it.", TimedPair),
    Document("An extraction", "`kernels.json` beside the kernels' files: a list of these objects.", ExtractedKernel),
)


def record_page() -> str:
    """The text of ``docs/record.md``."""
    categories = ", ".join(f"`{category.value}`" for category in Category)
    first, second, third = INTRODUCTION.strip().split("\n\n")
    blocks = [paragraph(first), paragraph(second), paragraph(f"{third} {categories}.")]
    blocks.append("\n".join(bullet(f"{link(one.heading)}: {one.origin}") for one in DOCUMENTS))
    shown: set[Any] = set()
    for document in DOCUMENTS:
        blocks += document_blocks(document, shown)
    return page("The record", blocks)


def document_blocks(document: Document, shown: set[Any]) -> Iterator[str]:
    """A document's origin, and the objects in it that no earlier document has."""
    yield f"## {document.heading}"
    yield paragraph(f"{document.origin} Its fields are those of {link(document.root.__name__)}.")
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
