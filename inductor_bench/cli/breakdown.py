"""The verb ``breakdown``: measures a target, writes a RUN folder and prints its summary."""

from __future__ import annotations

import contextlib
from typing import Any

import click

from ..analysis.step_costs import is_beside_step
from ..errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from ..records.request import BreakdownRequest
from ..records.request_fields import make_target_fields, write_help_lines
from ..records.run import Run
from ..report.run.run_document import FORMATS, make_answer_document
from .console import Console
from .presentation import (
    AutotuneCommand,
    add_presentation_options,
    add_request_options,
    complete_path,
    make_console,
    make_request,
    place_view,
    show,
    take_view,
)

ARGUMENTS = f"{__name__}.arguments"


class ProgramCommand(AutotuneCommand):
    """A command that passes all words after ``--`` on unparsed: a program's arguments, or a whole command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args:
            try:
                return super().parse_args(ctx, args)
            except click.NoSuchOption as error:
                words = f"{error.message.rstrip('.')}: options of the program belong after --."
                raise click.NoSuchOption(error.option_name, words, error.possibilities, ctx) from error
        split = args.index("--")
        ctx.meta[ARGUMENTS] = tuple(args[split + 1 :])
        helps, self.no_args_is_help = self.no_args_is_help, False  # a command without options asks for no help
        try:
            return super().parse_args(ctx, args[:split])
        finally:
            self.no_args_is_help = helps

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


HELP = f"""Say where the time of a compiled model goes, kernel by kernel.

\b
TARGET is one of
{write_help_lines(20)}

With --autotune, kernels that are not retuned yet are retuned; an earlier run is not measured again. Then the program
runs with and without the faster configs, to measure what they save. For an earlier run this is possible only if its
program is a factory or a named model, which this tool runs itself.

Exit code: 0, 1 if something failed (what was measured is still shown), 2 for a request that cannot be carried
out as typed, 3 for a bug in this tool, 130 after Ctrl-C and 143 after SIGTERM (what was measured until then is shown).
"""


@click.command("breakdown", cls=ProgramCommand, no_args_is_help=True, help=HELP)
@click.argument("targets", metavar="[TARGET...]", nargs=-1, shell_complete=complete_path)
@add_request_options(BreakdownRequest)
@add_presentation_options(FORMATS)
@add_request_options(BreakdownRequest, late=True)
@click.option("-v", "--verbose", is_flag=True, help="Show what the program prints, and how long each stage took.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
@click.pass_context
def command(context: click.Context, /, **values: Any) -> int:
    request = make_request(BreakdownRequest, values, **find_target(context, values))
    name, view = take_view(values)
    form = FORMATS.get(name, brief=view.brief)
    with make_console(values, form, brief=view.brief) as console:
        from ..workflows.breakdown import StoppedBreakdown, run_breakdown

        try:
            outcome = run_breakdown(request, console, lambda run, has_ended: show_answer(run, has_ended, console))
        except StoppedBreakdown as stop:
            if stop.outcome.run.program is not None or stop.outcome.run.modules:
                show(form, stop.outcome.run, place_view(view, stop.outcome.folder, console), console)
            raise
        try:
            show(form, outcome.run, place_view(view, outcome.folder, console), console)
        except KeyboardInterrupt as stop:
            raise StoppedBreakdown(outcome) from stop
        if not form.names_folder and not form.is_data:
            console.remark(f"Written: {outcome.folder}")
    return exit_code(outcome.run)


def show_answer(run: Run, has_ended: bool, console: Console) -> None:
    """Prints the program's step on stderr before its graphs are measured; stdout has the whole result at the end."""
    if not console.shows_progress:
        return
    from ..report.terminal import print_document

    with contextlib.suppress(OSError, ValueError):  # a closed stderr must not end a measurement
        print_document(make_answer_document(run, has_ended=has_ended), console.aside())


def find_target(context: click.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the request's fields for what to measure: the targets, and the words after ``--``.

    Raises:
        UsageError: a target is an empty word.
    """
    return {**make_target_fields(values["targets"]), "arguments": context.meta.get(ARGUMENTS, ())}


def exit_code(run: Run) -> int:
    """Returns the exit code for a record: 1 for a failure, even though the rest was measured and shown.

    A module that cannot run outside the program is no failure if the program's step is explained.
    """
    if any(failure.kind == "interrupted" for failure in run.failures):
        return EXIT_INTERRUPTED
    return EXIT_OK if all(is_beside_step(run, failure) for failure in run.failures) else EXIT_FAILURE
