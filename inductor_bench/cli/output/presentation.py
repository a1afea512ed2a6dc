"""The options with which a run is shown, and showing it. Shared by the verbs that show a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from ... import units
from ...records.run import Run
from .console import Console

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Presentation:
    """How a run is shown: the ``format``, and what sorts and bounds its kernel table."""

    format: str = "table"
    sort: str = "time"
    top: int = 10


def presentation_options(function: F) -> F:
    """Adds ``--format``, ``--sort`` and ``--top``; see :func:`take_presentation`."""
    for option in (
        click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="How many kernels."),
        click.option(
            "--sort",
            type=click.Choice(["time", "gain", "calls"]),
            default="time",
            show_default=True,
            help="What the kernels are sorted by: device time, gain limit (what the whole graph would win if the "
            "kernel ran at the hardware's limit) or calls.",
        ),
        click.option(
            "--format",
            type=click.Choice(["table", "json", "csv", "md"]),
            default="table",
            show_default=True,
            help="What is printed: the summary, the record, every kernel as CSV, or Markdown.",
        ),
    ):
        function = option(function)
    return function


def redact_option(function: F) -> F:
    """Adds ``--redact``."""
    return click.option(
        "--redact",
        metavar="NAME",
        multiple=True,
        help="Keep the value of this option or variable out of what is written, as those of keys, tokens and passwords "
        "are. May be given again.",
    )(function)


def take_presentation(values: dict[str, Any]) -> Presentation:
    """Removes the presentation options from the parsed values and returns them."""
    return Presentation(format=values.pop("format"), sort=values.pop("sort"), top=values.pop("top"))


def show_run(run: Run, folder: Path, console: Console, how: Presentation) -> None:
    """Prints a run as a result."""
    if how.format == "table":
        from ...report.terminal import print_run

        print_run(run, folder, console.drawing(), sort=how.sort, top=how.top)
    elif how.format == "json":
        console.result(record_text(run))
    elif how.format == "csv":
        from ...report.run.csvs import csv_text

        console.result(csv_text(run, sort=how.sort))
    else:
        from ...report.run.markdown import markdown

        console.result(markdown(run, sort=how.sort, top=how.top))


def record_text(record: Any) -> str:
    """A record as JSON text, which says what ``record.json`` does."""
    from ...store.formats.codec import encode

    return units.printable_json(json.dumps(encode(record), indent=2, ensure_ascii=False, allow_nan=False))
