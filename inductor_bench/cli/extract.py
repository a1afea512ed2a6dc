"""The verb ``extract``: writes each kernel as a standalone file."""

from __future__ import annotations

from typing import Any

import click

from ..errors import EXIT_FAILURE, EXIT_OK, UsageError
from ..records.request import ExtractRequest
from ..report.formats import View
from ..report.table_documents import EXTRACTION_FORMATS
from .presentation import add_format_option, add_request_options, complete_path, make_console, make_request, show


@click.command("extract", no_args_is_help=True)
@click.argument("targets", metavar="SOURCE...", nargs=-1, required=True, shell_complete=complete_path)
@add_request_options(ExtractRequest)
@add_format_option(EXTRACTION_FORMATS)
@click.option("-v", "--verbose", is_flag=True, help="Show what the worker prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
def command(**values: Any) -> int:
    """Write every kernel as a separate file, with the arguments that it had.

    Each file runs with plain `python FILE`, without this tool.

    SOURCE is a RUN folder, one or more compiled modules, a log that lists them, or a TORCH_TRACE folder. A RUN knows
    the arguments that the kernels really had; a module is run once to see them.

    Exit code: 0, 1 if a kernel has no file (its row says why; the others are written), 2 for a request that cannot
    be carried out as typed.
    """
    from ..workflows.extract import run_extract

    request = make_request(ExtractRequest, values)
    if request.listing == (request.output is not None):
        raise UsageError("give either -o DIR or --list", "inductor-bench extract SOURCE -o kernels", "missing-option")
    with make_console(values, EXTRACTION_FORMATS.get(values["format"])) as console:
        outcome = run_extract(request, console)
        show(EXTRACTION_FORMATS.get(values["format"]), outcome, View(columns=console.columns), console)
    lost = [kernel for kernel in outcome.kernels if kernel.reason]
    return EXIT_FAILURE if lost or outcome.failures else EXIT_OK
