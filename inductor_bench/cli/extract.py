"""The verb ``extract``: every kernel as a file of its own."""

from __future__ import annotations

import itertools
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import units
from ..errors import EXIT_FAILURE, EXIT_OK, UsageError
from ..records.category import Category
from ..report.text import names
from .output.console import PLAIN_WIDTH, Console
from .output.presentation import record_text
from .values import take_values, values_options

if TYPE_CHECKING:
    from ..records.code.extraction import ExtractedKernel
    from ..workflows.extract.run import ExtractOutcome

NAME_WIDTH = 56
SHOWN_NAMES = 4
SHOWN_REASONS = 8


@click.command("extract", no_args_is_help=True)
@click.argument("targets", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="The folder to write.")
@click.option("--list", "listing", is_flag=True, help="Show what there is and write nothing.")
@click.option("--kernel", "glob", metavar="GLOB", help="Only kernels whose name fits, for example 'triton_red_*'.")
@click.option("--category", type=click.Choice([category.value for category in Category]), help="Only this category.")
@click.option("--top", metavar="N", type=click.IntRange(min=1), help="Only the N that take most time in the model.")
@click.option("--static", is_flag=True, help="Read the arguments from the module's text; run nothing.")
@values_options
@click.option("--timeout", "timeout_s", metavar="SECONDS", type=click.FloatRange(min=0, min_open=True))
@click.option("--python", metavar="PATH", help="The interpreter to run the modules under.")
@click.option("--format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show what the worker prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the result.")
def command(glob: str | None, category: str | None, top: int | None, listing: bool, **values: Any) -> int:
    """Write every kernel as a file of its own, with the arguments that it had.

    Each runs with plain `python FILE`, without this tool.

    SOURCE is a RUN folder, one or more compiled modules, a log that lists them, or a TORCH_TRACE folder. A RUN knows
    the arguments that the kernels really had; a module is run once to see them.

    Exit code: 0, 1 where a kernel has no file (its row says why; the others are written), 2 for a request that cannot
    be carried out as typed.
    """
    from ..workflows.extract.run import ExtractOptions, run_extract
    from ..workflows.extract.selection import Selection

    form, verbose, quiet = values.pop("format"), values.pop("verbose"), values.pop("quiet")
    output = values.pop("output")
    if listing == (output is not None):
        raise UsageError("give either -o DIR or --list", "inductor-bench extract SOURCE -o kernels")
    with Console(quiet=quiet, verbose=verbose) as console:
        selection = Selection(glob, Category(category) if category else None, top)
        outcome = run_extract(ExtractOptions(output=output, selection=selection, **take_values(values)), console)
        console.result(record_text(outcome) if form == "json" else "\n".join(_lines(outcome)) + "\n")
    lost = [kernel for kernel in outcome.kernels if kernel.reason]
    return EXIT_FAILURE if lost or outcome.failures else EXIT_OK


def _lines(outcome: ExtractOutcome) -> Iterator[str]:
    if outcome.folder is None:
        yield from _table(outcome.kernels)
    yield from _totals(outcome)
    yield from _list_reasons("No file for", [(one.name, one.reason) for one in outcome.kernels if one.reason])
    beyond = "Not all values are recorded (--values-limit SIZE says how much is) for"
    yield from _list_reasons(beyond, [(one.name, one.note) for one in outcome.kernels if one.note])
    if outcome.notes or outcome.failures:
        yield ""
    yield from (_wrapped(f"note: {note}", "      ") for note in outcome.notes)
    for failure in outcome.failures:
        yield _wrapped(f"failed: {failure.message}", "        ")
        if failure.hint:
            yield _wrapped(f"        {failure.hint}", "        ")
    if outcome.folder is not None:
        yield from _written(outcome.folder, outcome.kernels)


def _table(kernels: Sequence[ExtractedKernel]) -> Iterator[str]:
    timed = any(kernel.time_s is not None for kernel in kernels)
    yield f"{'kernel':<{NAME_WIDTH}}  {'category':<24}{'calls':>6}{'time' if timed else '':>11}".rstrip()
    for kernel in kernels:
        time = f"{units.seconds(kernel.time_s):>11}" if timed else ""
        yield f"{_short(kernel.name):<{NAME_WIDTH}}  {kernel.category.title:<24}{units.count(kernel.calls):>6}{time}"
    yield ""


def _totals(outcome: ExtractOutcome) -> Iterator[str]:
    from ..workflows.extract.run import count_by_category

    for category, (total, written) in count_by_category(outcome.kernels).items():
        made = f"{total:5d}" if outcome.folder is None else f"{written:5d} of {total}"
        yield f"{category.title:<24}{made}"
    if not outcome.kernels:
        yield "There are no kernels in it."


def _list_reasons(title: str, reasons: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The names under a title, those of one reason together."""
    if not reasons:
        return
    alike: dict[str, list[str]] = {}
    for name, reason in reasons:
        alike.setdefault(reason, []).append(_short(name))
    yield ""
    yield f"{title} {_kernels(len(reasons))}:"
    for reason, those in itertools.islice(alike.items(), SHOWN_REASONS):
        others = f" and {len(those) - SHOWN_NAMES} more" if len(those) > SHOWN_NAMES else ""
        yield _wrapped(f"  {', '.join(those[:SHOWN_NAMES])}{others}: {reason}", "    ")
    unsaid = sum(len(those) for those in itertools.islice(alike.values(), SHOWN_REASONS, None))
    if unsaid:
        yield f"  and {unsaid} more; --format json has every reason"


def _written(folder: Path, kernels: Sequence[ExtractedKernel]) -> Iterator[str]:
    from ..workflows.modules.values import SUFFIX

    values = {folder / kernel.values for kernel in kernels if kernel.values}
    files = {kernel.file: kernel.time_s or 0.0 for kernel in kernels if kernel.file}
    yield ""
    if values:
        amount = units.size(sum(file.stat().st_size for file in values))
        yield f"Values   {amount} beside {len(values)} of the files, as {SUFFIX}"
    yield f"Written  {len(files)} file{'' if len(files) == 1 else 's'} in {folder}/, and kernels.json, which lists them"
    if files:
        dearest = max(files, key=lambda file: files[file])
        yield f"Next     python {shlex.quote(str(folder / dearest))}"


def _kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def _wrapped(text: str, indent: str) -> str:
    return textwrap.fill(
        names.clean(text), PLAIN_WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _short(name: str) -> str:
    plain = names.clean(name)
    return plain if len(plain) <= NAME_WIDTH else plain[: NAME_WIDTH // 2 - 1] + "…" + plain[-NAME_WIDTH // 2 :]
