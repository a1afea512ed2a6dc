"""The verb ``extract``: writes each kernel as a standalone file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_FAILURE, EXIT_OK, UsageError
from ..records.category import Category
from ..report.extraction_document import FORMATS
from ..report.formats import View
from .options import complete_path, take_values, timeout_option, values_options
from .output.console import Console
from .output.presentation import format_option, show


@click.command("extract", no_args_is_help=True)
@click.argument("targets", metavar="SOURCE...", nargs=-1, required=True, shell_complete=complete_path)
@click.option("-o", "--output", metavar="DIR", type=click.Path(path_type=Path), help="The folder to write.")
@click.option("--list", "listing", is_flag=True, help="Show what there is and write nothing.")
@click.option("--kernel", "glob", metavar="GLOB", help="Only kernels whose name fits, for example 'triton_red_*'.")
@click.option("--category", type=click.Choice([category.value for category in Category]), help="Only this category.")
@click.option("--top", metavar="N", type=click.IntRange(min=1), help="Only the N that take most time in the model.")
@click.option("--static", is_flag=True, help="Read the arguments from the module's text; run nothing.")
@values_options
@timeout_option()
@click.option("--python", metavar="PATH", help="The interpreter to run the modules under.")
@format_option(FORMATS)
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
    from ..workflows.modules.extraction import Selection

    form, verbose, quiet = values.pop("format"), values.pop("verbose"), values.pop("quiet")
    output = values.pop("output")
    if listing == (output is not None):
        raise UsageError("give either -o DIR or --list", "inductor-bench extract SOURCE -o kernels")
    with Console(quiet=quiet, verbose=verbose) as console:
        selection = Selection(glob, Category(category) if category else None, top)
        outcome = run_extract(ExtractOptions(output=output, selection=selection, **take_values(values)), console)
        show(FORMATS.get(form), outcome, View(columns=console.columns), console)
    lost = [kernel for kernel in outcome.kernels if kernel.reason]
    return EXIT_FAILURE if lost or outcome.failures else EXIT_OK
