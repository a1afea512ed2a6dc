"""The verb ``batch``: measures each model of a list in a separate RUN, and summarizes all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_FAILURE, EXIT_OK
from ..records.batch_record import FAILED, MEASURED, PARTIAL, RUNNING, UNOPTIMIZED, WAITING, Batch
from ..records.request import BatchRequest, ModelRequest
from ..records.request_fields import write_list_help_lines
from ..report.batch.batch_document import FORMATS
from .presentation import (
    AutotuneCommand,
    add_format_option,
    add_request_options,
    add_top_option,
    make_console,
    make_request,
    show_batch,
    take_view,
)

if TYPE_CHECKING:
    from ..store.redaction import Redaction

HELP = f"""Run breakdown for every model of a list, and rank the kernels by their time in all models.

\b
LIST has a model on each line, `NAME`, `NAME BATCH` or `NAME,BATCH`, or is YAML with `models:`. NAME is
{write_list_help_lines(20)}
  file.py:factory     as for `breakdown`; scripts are accepted, too

The same command continues a batch that was interrupted or killed: it measures what is missing or failed.

Exit code: 0, 1 if a model failed (the others are measured and shown), 2 for a request that cannot be carried
out as typed, 130 after Ctrl-C.
"""


@click.command("batch", cls=AutotuneCommand, no_args_is_help=True, help=HELP)
@click.argument("source", metavar="LIST", type=click.Path(path_type=Path))
@add_request_options(BatchRequest)
@add_format_option(FORMATS)
@add_top_option("How many families and kernels to show.")
@add_request_options(BatchRequest, late=True)
@click.option("-v", "--verbose", is_flag=True, help="Show what the models' processes print.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
def command(**values: Any) -> int:
    request = make_request(BatchRequest, values)
    name, view = take_view(values)
    form = FORMATS.get(name)
    with make_console(values, form) as console:
        from ..workflows.batch import find_secrets, plan_batch, run_batch
        from ..workflows.batch_state import report_batch

        if request.listing:
            requests = plan_batch(request)
            hidden = find_secrets(request, requests)
            console.result("".join(f"{_write_line(model, hidden)}\n" for model in requests))
            return EXIT_OK
        outcome = run_batch(request, console)
        report = report_batch(outcome.folder.path)
        show_batch(report, console, form, view)
        if report.problem is not None:
            raise report.problem
    return exit_code(outcome.batch)


def exit_code(batch: Batch) -> int:
    """Returns 1 if a model failed, in part or as a whole, or is not yet measured; otherwise 0."""
    return EXIT_FAILURE if batch.count(FAILED, PARTIAL, WAITING, RUNNING, MEASURED, UNOPTIMIZED) else EXIT_OK


def _write_line(request: ModelRequest, hidden: Redaction) -> str:
    from ..records.batch_record import BatchModel
    from ..workflows.batch_state import list_breakdown_words

    options = list_breakdown_words(BatchModel(request))
    return f"{request.name:<40}  {' '.join([request.target, *options, *hidden.words(request.arguments)])}"
