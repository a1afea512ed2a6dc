"""The verb ``modes``: runs a program in several modes of ``torch.compile`` and compares them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import EXIT_FAILURE, EXIT_OK, StoppedInFolder
from ..records.comparison import NOT_TIMED, SWITCHES, ModeComparison, ModelModes, ModesByModel
from ..records.request import ModesRequest
from ..records.request_fields import LIBRARIES, join_by_or
from ..report.formats import View, show_as_page
from ..report.modes_document import FORMATS
from ..report.table_documents import LIST_FORMATS
from ..store.files import write_text
from ..store.folder import PAGE
from .breakdown import ProgramCommand, find_target
from .console import Console
from .presentation import (
    add_format_option,
    add_request_options,
    complete_path,
    make_console,
    make_request,
    place_view,
    show,
    show_program,
)

if TYPE_CHECKING:
    from ..workflows.modes import ModesOutcome

_SWITCHES = "\n".join(f"  {switch.name:<20}{switch.help}" for switch in SWITCHES.values())

HELP = f"""Say which mode of torch.compile is fastest for a program, and when its compilation has paid off.

TARGET is a script, FILE.py:FACTORY, a {join_by_or(LIBRARIES)} model by its name, or a command after --; or a list of
models as `batch` takes it (.txt, .yaml): the modes are compared for each model in turn.

The program runs several times in each mode, in processes in turn; a script is ended once its steps are measured. The
tool replaces the settings that a script passes to torch.compile. The same command continues after an interruption.

There is a row for eager, one for each mode of torch.compile, and one for each --with, --env and --option. --with
takes several settings with commas between them (max-autotune,tf32,OMP_NUM_THREADS=8), or one of these:

\b
{_SWITCHES}

Exit code: 0, 1 if a row failed (the others are compared and shown), 2 for a request that cannot be carried out
as typed, 130 after Ctrl-C, which shows the rows that were measured until then.
"""


@click.command("modes", cls=ProgramCommand, no_args_is_help=True, help=HELP)
@click.argument("targets", metavar="[TARGET]", nargs=-1, shell_complete=complete_path)
@add_request_options(ModesRequest)
@add_format_option(FORMATS)
@click.option("-v", "--verbose", is_flag=True, help="Show what the program prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
@click.pass_context
def command(context: click.Context, /, **values: Any) -> int:
    form = values["format"]
    request = make_request(ModesRequest, values, **find_target(context, values))
    with make_console(values, FORMATS.get(form)) as console:
        from ..workflows.modes import choose_folder, is_list, run_list, run_modes

        program = request.program
        if is_list(program):
            try:
                found = run_list(request, console)
            except StoppedInFolder as stop:
                _show_list(stop.found, choose_folder(program), form, console)
                raise
            _show_list(found, choose_folder(program), form, console)
            return max(map(find_exit_code_of_model, found.models), default=EXIT_OK)
        try:
            outcome = run_modes(request, console)
        except StoppedInFolder as stop:
            _show(stop.found, form, console)
            raise
        if not outcome.measured:
            console.remark(f"measured {outcome.comparison.created}; nothing was run; --force measures again")
        _show(outcome, form, console)
    return exit_code(outcome.comparison)


def _show(outcome: ModesOutcome, form: str, console: Console) -> None:
    show_program(outcome.comparison, FORMATS, outcome.folder, form, View(), console)


def _show_list(found: ModesByModel, place: Path, form: str, console: Console) -> None:
    write_text(place / PAGE, show_as_page(LIST_FORMATS, found))
    show(LIST_FORMATS.get(form), found, place_view(View(), place, console), console)


def find_exit_code_of_model(model: ModelModes) -> int:
    """As :func:`exit_code`, for a model of a list."""
    return exit_code(model.comparison) if model.comparison is not None else EXIT_FAILURE


def exit_code(comparison: ModeComparison) -> int:
    """Returns 1 if a row failed; a row that cannot be timed for this program has not failed."""
    failed = [row for row in comparison.rows if row.failure is not None and row.failure.kind != NOT_TIMED]
    return EXIT_FAILURE if failed else EXIT_OK
