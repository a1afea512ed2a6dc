"""The verb ``optimize``: finds the settings that make a program faster, and proves what each of them saves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_FAILURE, EXIT_OK, EXIT_UNDECIDED, StoppedInFolder
from ..records.request import OptimizeRequest
from ..records.request_fields import LIBRARIES, join_by_or
from ..report.formats import View
from ..report.optimization_document import FORMATS
from .breakdown import ProgramCommand, find_target
from .console import Console
from .presentation import (
    add_format_option,
    add_request_options,
    complete_path,
    make_console,
    make_request,
    show_program,
)

if TYPE_CHECKING:
    from ..workflows.optimize import OptimizeOutcome

HELP = f"""Find the settings that make a program faster, and prove what each of them saves.

\b
inductor-bench optimize -- python train.py
inductor-bench optimize RUN
inductor-bench optimize --budget 5m --allow tf32 --deny cudagraphs -- torchrun … train.py

TARGET is a RUN of a program, a script, FILE.py:FACTORY, a {join_by_or(LIBRARIES)} model by its name, or a command
after --.

The program is broken down first, unless TARGET is a RUN: its step says how much each setting can save at most. Then
steps with the settings that may help alternate with steps of the unchanged program. Outputs and gradients are compared.
A setting that seems faster is proven in two processes or more, and stays only if the step becomes longer without it.
The program's files are not changed. All variants train the same weights, so do not keep what the program saves in these
runs.

The result, the lines to paste and what did not help are in RUN/optimized. The same command continues after an
interruption.

Exit code: 0, also if nothing is faster, 1 if nothing could be measured, 2 for a request that cannot be carried out as
typed, 5 if two processes agree on a result, but there was no time to confirm it in new processes that start with
it, 130 after Ctrl-C, which shows what was proven until then.
"""


@click.command("optimize", cls=ProgramCommand, no_args_is_help=True, help=HELP)
@click.argument("targets", metavar="[TARGET]", nargs=-1, shell_complete=complete_path)
@add_request_options(OptimizeRequest)
@add_format_option(FORMATS)
@click.option("-v", "--verbose", is_flag=True, help="Show what the program prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
@click.pass_context
def command(context: click.Context, /, **values: Any) -> int:
    form = values["format"]
    request = make_request(OptimizeRequest, values, **find_target(context, values))
    with make_console(values, FORMATS.get(form)) as console:
        from ..workflows.optimize import run_optimize

        try:
            outcome = run_optimize(request, console)
        except StoppedInFolder as stop:
            _show(stop.found, form, console)
            raise
        if not outcome.measured:
            console.remark(f"measured {outcome.found.created}; nothing was run; --force measures again")
        _show(outcome, form, console)
    return exit_code(outcome)


def _show(outcome: OptimizeOutcome, form: str, console: Console) -> None:
    show_program(outcome.found, FORMATS, outcome.folder, form, View(), console)


def exit_code(outcome: OptimizeOutcome) -> int:
    """Returns 1 if no process measured anything, and 5 for a result that was not yet confirmed in new processes."""
    trials, ranked = outcome.found.trials, any(row.screened is not None for row in outcome.found.rows)
    if trials and not ranked and all(trial.failure is not None for trial in trials):
        return EXIT_FAILURE
    return EXIT_UNDECIDED if outcome.found.caveat else EXIT_OK
