"""The verb ``extract``: every kernel as a file of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import units
from ..errors import EXIT_FAILURE, EXIT_OK, UsageError
from ..records.category import Category
from .console import Console
from .presentation import record_text

if TYPE_CHECKING:
    from ..workflows.extract import ExtractOutcome
    from ..workflows.kernel_files import ExtractedKernel

NAME_WIDTH = 56


@click.command("extract", no_args_is_help=True)
@click.argument("targets", metavar="SOURCE...", nargs=-1, required=True)
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="The folder to write.")
@click.option("--list", "listing", is_flag=True, help="Show what there is and write nothing.")
@click.option("--kernel", "glob", metavar="GLOB", help="Only kernels whose name fits, for example 'triton_red_*'.")
@click.option("--category", type=click.Choice([category.value for category in Category]), help="Only this category.")
@click.option("--top", metavar="N", type=click.IntRange(min=1), help="Only the N that take most time in the model.")
@click.option("--static", is_flag=True, help="Read the arguments from the module's text; run nothing.")
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
    from ..workflows.extract import ExtractOptions, run_extract
    from ..workflows.kernel_files import Selection

    form, verbose, quiet = values.pop("format"), values.pop("verbose"), values.pop("quiet")
    output = values.pop("output")
    if listing == (output is not None):
        raise UsageError("give either -o DIR or --list", "inductor-bench extract SOURCE -o kernels")
    with Console(quiet=quiet, verbose=verbose) as console:
        selection = Selection(glob, Category(category) if category else None, top)
        outcome = run_extract(ExtractOptions(output=output, selection=selection, **values), console)
        console.result(record_text(outcome) if form == "json" else "\n".join(_lines(outcome)) + "\n")
    lost = [kernel for kernel in outcome.kernels if kernel.reason]
    return EXIT_FAILURE if lost or outcome.failures else EXIT_OK


def _lines(outcome: ExtractOutcome) -> Iterator[str]:
    from ..workflows.extract import count_by_category

    if outcome.folder is None:
        yield from (_row(kernel) for kernel in outcome.kernels)
        yield ""
    for category, (total, written) in count_by_category(outcome.kernels).items():
        made = f"{total:5d}" if outcome.folder is None else f"{written:5d} of {total}"
        yield f"{category.title:<24}{made}"
    lost = [kernel for kernel in outcome.kernels if kernel.reason]
    if lost:
        yield ""
        yield f"{len(lost)} without a file:"
        yield from (f"  {_short(kernel.name)}: {kernel.reason}" for kernel in lost)
    for note in outcome.notes:
        yield f"note: {note}"
    for failure in outcome.failures:
        yield f"failed: {failure.message}"
    if outcome.folder is not None:
        files = {kernel.file for kernel in outcome.kernels if kernel.file}
        yield ""
        yield f"Written  {len(files)} files in {outcome.folder}/ (and kernels.json, which lists them)"
        if files:
            yield f"Next     python {outcome.folder}/{sorted(files)[0]}"


def _row(kernel: ExtractedKernel) -> str:
    time = units.seconds(kernel.time_s) if kernel.time_s is not None else ""
    return f"{_short(kernel.name):<{NAME_WIDTH}} {kernel.category.title:<22}{kernel.calls:4d} x {time:>10}"


def _short(name: str) -> str:
    plain = "".join(letter if letter.isprintable() else "?" for letter in name)
    return plain if len(plain) <= NAME_WIDTH else plain[: NAME_WIDTH // 2 - 1] + "…" + plain[-NAME_WIDTH // 2 :]
