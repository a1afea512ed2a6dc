"""The kernels that an extraction found and wrote."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from .. import units
from ..analysis.findings.finding import plural
from ..records.base import Category, Failure
from ..records.kernel import ExtractedKernel
from . import names
from .document import (
    BAD,
    NOTE,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Item,
    Items,
    Row,
    Section,
    Sentence,
    Table,
    words,
)
from .formats import DEFAULT_VIEW, View, document_formats

NAME_WIDTH = 56
SHOWN_NAMES = 4
SHOWN_REASONS = 8


class Extraction(Protocol):
    """The result of an extraction. ``folder`` is ``None`` if kernels were only listed."""

    @property
    def kernels(self) -> Sequence[ExtractedKernel]: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def failures(self) -> Sequence[Failure]: ...


def extraction_document(outcome: Extraction, view: View = DEFAULT_VIEW) -> Document:
    """The list of kernels if no file was written, their numbers, why some have no file, and what to run next."""
    kernels, folder = outcome.kernels, outcome.folder
    no_file = [(one.name, one.reason) for one in kernels if one.reason]
    beyond = [(one.name, one.note) for one in kernels if one.note]
    beyond_words = "Not all values are recorded (--values-limit SIZE sets the limit) for"
    remarks = (
        *(Item(f"note: {note}", NOTE) for note in outcome.notes),
        *(Item(f"failed: {failure.message}", BAD, failure.hint) for failure in outcome.failures),
    )
    blocks: list[Block] = []
    if folder is None and kernels:
        blocks.append(Section("Kernels", (_kernel_table(kernels),), quiet=True))
    totals: Block = _totals(outcome) if kernels else Sentence("It has no kernels.")
    blocks.append(Section("By category", (totals,), quiet=True))
    blocks.append(Section(f"No file for {plural(len(no_file), 'kernel')}", tuple(_reasons(no_file))))
    blocks.append(Section(f"{beyond_words} {plural(len(beyond), 'kernel')}", tuple(_reasons(beyond))))
    blocks.append(Section("Remarks", (Items(remarks),), quiet=True))
    if folder is not None:
        blocks.append(Section("Files", tuple(_written(folder, kernels)), quiet=True))
    return Document(plural(len(kernels), "kernel"), blocks=tuple(blocks))


def _kernel_table(kernels: Sequence[ExtractedKernel]) -> Table:
    timed = any(kernel.time_s is not None for kernel in kernels)
    columns = (
        words("kernel"),
        Column("category", False),
        Column("calls"),
        *([Column("time")] if timed else []),
    )
    rows = [
        Row(
            (
                Cell(kernel.name),
                Cell(kernel.category.title),
                Cell(units.count(kernel.calls), kernel.calls),
                *([Cell(units.seconds(kernel.time_s), kernel.time_s)] if timed else []),
            )
        )
        for kernel in kernels
    ]
    return Table(columns, rows, filter="name, category")


def _totals(outcome: Extraction) -> Table:
    rows = []
    for category, (total, written) in _count_by_category(outcome.kernels).items():
        made = str(total) if outcome.folder is None else f"{written} of {total}"
        rows.append(Row((Cell(category.title), Cell(made, total))))
    return Table((Column("category", False), Column("kernels")), rows, titled=False)


def _reasons(reasons: Sequence[tuple[str, str]]) -> Iterator[Block]:
    """Names grouped by reason; ``reasons`` has pairs of name and reason."""
    alike: dict[str, list[str]] = {}
    for name, reason in reasons:
        alike.setdefault(reason, []).append(names.cut_middle(names.clean(name), NAME_WIDTH))
    items = []
    for reason, found in list(alike.items())[:SHOWN_REASONS]:
        others = f" and {len(found) - SHOWN_NAMES} more" if len(found) > SHOWN_NAMES else ""
        items.append(Item(f"{', '.join(found[:SHOWN_NAMES])}{others}: {reason}"))
    yield Items(tuple(items))
    remaining = sum(len(found) for found in list(alike.values())[SHOWN_REASONS:])
    if remaining:
        yield Sentence(f"and {remaining} more; --format json has every reason", NOTE)


def _written(folder: Path, kernels: Sequence[ExtractedKernel]) -> Iterator[Block]:
    values = {folder / kernel.values for kernel in kernels if kernel.values}
    files = {kernel.file: kernel.time_s or 0.0 for kernel in kernels if kernel.file}
    facts = []
    if values:
        amount = units.size(sum(file.stat().st_size for file in values))
        facts.append(("Values", f"{amount} next to {len(values)} of the files, as {next(iter(values)).suffix}"))
    facts.append(("Written", f"{plural(len(files), 'file')} in {folder}/, and kernels.json, which lists them"))
    yield Facts(tuple(facts))
    if files:
        costliest = max(files, key=lambda file: files[file])
        yield Commands(((f"python {shlex.quote(str(folder / costliest))}", ""),))


def _count_by_category(kernels: Sequence[ExtractedKernel]) -> dict[Category, tuple[int, int]]:
    """Counts the kernels of each category: ``(all, with a file)``."""
    counts: dict[Category, tuple[int, int]] = {}
    for kernel in kernels:
        total, written = counts.get(kernel.category, (0, 0))
        counts[kernel.category] = (total + 1, written + (kernel.file is not None))
    return counts


FORMATS = document_formats(extraction_document, of="an extraction")
