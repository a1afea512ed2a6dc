"""Renders the kernels that an extraction found and wrote as plain text; its table of formats."""

from __future__ import annotations

import itertools
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from .. import units
from ..records.base import Failure
from ..records.category import Category
from ..records.extraction import ExtractedKernel
from .renderer import Format, Formats, View, json_row
from .text import names

WIDTH = 100
NAME_WIDTH = 56
SHOWN_NAMES = 4
SHOWN_REASONS = 8


class Extraction(Protocol):
    """The result of an extraction. ``folder`` is ``None`` where kernels were only listed."""

    @property
    def kernels(self) -> Sequence[ExtractedKernel]: ...
    @property
    def folder(self) -> Path | None: ...
    @property
    def notes(self) -> Sequence[str]: ...
    @property
    def failures(self) -> Sequence[Failure]: ...


def extraction_lines(outcome: Extraction) -> Iterator[str]:
    if outcome.folder is None:
        yield from _table(outcome.kernels)
    yield from _totals(outcome)
    yield from _list_reasons("No file for", [(one.name, one.reason) for one in outcome.kernels if one.reason])
    beyond = "Not all values are recorded (--values-limit SIZE says how much is) for"
    yield from _list_reasons(beyond, [(one.name, one.note) for one in outcome.kernels if one.note])
    if outcome.notes or outcome.failures:
        yield ""
    yield from (_wrap(f"note: {note}", "      ") for note in outcome.notes)
    for failure in outcome.failures:
        yield _wrap(f"failed: {failure.message}", "        ")
        if failure.hint:
            yield _wrap(f"        {failure.hint}", "        ")
    if outcome.folder is not None:
        yield from _written(outcome.folder, outcome.kernels)


def _table(kernels: Sequence[ExtractedKernel]) -> Iterator[str]:
    timed = any(kernel.time_s is not None for kernel in kernels)
    yield f"{'kernel':<{NAME_WIDTH}}  {'category':<24}{'calls':>6}{'time' if timed else '':>11}".rstrip()
    for kernel in kernels:
        time = f"{units.seconds(kernel.time_s):>11}" if timed else ""
        yield f"{_short(kernel.name):<{NAME_WIDTH}}  {kernel.category.title:<24}{units.count(kernel.calls):>6}{time}"
    yield ""


def _totals(outcome: Extraction) -> Iterator[str]:
    for category, (total, written) in _count_by_category(outcome.kernels).items():
        made = f"{total:5d}" if outcome.folder is None else f"{written:5d} of {total}"
        yield f"{category.title:<24}{made}"
    if not outcome.kernels:
        yield "There are no kernels in it."


def _list_reasons(title: str, reasons: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Lists names below a title, grouped by reason.

    Args:
        title: the first line.
        reasons: pairs of name and reason.
    """
    if not reasons:
        return
    alike: dict[str, list[str]] = {}
    for name, reason in reasons:
        alike.setdefault(reason, []).append(_short(name))
    yield ""
    yield f"{title} {_kernel_count(len(reasons))}:"
    for reason, kernels in itertools.islice(alike.items(), SHOWN_REASONS):
        others = f" and {len(kernels) - SHOWN_NAMES} more" if len(kernels) > SHOWN_NAMES else ""
        yield _wrap(f"  {', '.join(kernels[:SHOWN_NAMES])}{others}: {reason}", "    ")
    remaining = sum(len(kernels) for kernels in itertools.islice(alike.values(), SHOWN_REASONS, None))
    if remaining:
        yield f"  and {remaining} more; --format json has every reason"


def _written(folder: Path, kernels: Sequence[ExtractedKernel]) -> Iterator[str]:
    values = {folder / kernel.values for kernel in kernels if kernel.values}
    files = {kernel.file: kernel.time_s or 0.0 for kernel in kernels if kernel.file}
    yield ""
    if values:
        amount = units.size(sum(file.stat().st_size for file in values))
        yield f"Values   {amount} beside {len(values)} of the files, as {next(iter(values)).suffix}"
    yield f"Written  {len(files)} file{'' if len(files) == 1 else 's'} in {folder}/, and kernels.json, which lists them"
    if files:
        costliest = max(files, key=lambda file: files[file])
        yield f"Next     python {shlex.quote(str(folder / costliest))}"


def _kernel_count(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def _wrap(text: str, indent: str) -> str:
    return textwrap.fill(
        names.clean(text), WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _short(name: str) -> str:
    plain = names.clean(name)
    return plain if len(plain) <= NAME_WIDTH else plain[: NAME_WIDTH // 2 - 1] + "…" + plain[-NAME_WIDTH // 2 :]


def _count_by_category(kernels: Sequence[ExtractedKernel]) -> dict[Category, tuple[int, int]]:
    """Counts the kernels of each category: ``(all, with a file)``."""
    counts: dict[Category, tuple[int, int]] = {}
    for kernel in kernels:
        total, written = counts.get(kernel.category, (0, 0))
        counts[kernel.category] = (total + 1, written + (kernel.file is not None))
    return counts


def _text(outcome: Extraction, view: View) -> str:
    return "\n".join(extraction_lines(outcome)) + "\n"


FORMATS: Formats[Extraction] = Formats((Format("table", _text), json_row()))
