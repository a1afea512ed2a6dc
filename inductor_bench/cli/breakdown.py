"""The verb ``breakdown``: measures a target, writes a RUN folder and prints its summary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import EXIT_FAILURE, EXIT_INTERRUPTED, EXIT_OK
from ..records.model_sources import LIBRARIES, help_lines, listed
from ..records.run import Run
from ..report.run.run_document import FORMATS
from ..workflows.options import AMP, MODES, BreakdownOptions
from .options import (
    AutotuneCommand,
    autotune_options,
    complete_path,
    take_autotune,
    take_values,
    timeout_option,
    values_options,
)
from .output.console import Console
from .output.presentation import place_view, presentation_options, redact_option, show, take_view

ARGUMENTS = f"{__name__}.arguments"


class ProgramCommand(AutotuneCommand):
    """A command that passes all words after ``--`` on unparsed: a program's arguments, or a whole command."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" not in args:
            try:
                return super().parse_args(ctx, args)
            except click.NoSuchOption as error:
                words = f"{error.message.rstrip('.')}: a program's own options stand after --."
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
{help_lines(20)}

With --autotune, whatever of it is not there yet is retuned; an earlier run is not measured again. What the retune saves
is proven in the program; for an earlier run only where this tool runs the model (a factory or a named model).

Exit code: 0, 1 where something failed (what was measured is still shown), 2 for a request that cannot be carried
out as typed, 3 for a bug in this tool, 130 after Ctrl-C.
"""


@click.command("breakdown", cls=ProgramCommand, no_args_is_help=True, help=HELP)
@click.argument("targets", metavar="[TARGET...]", nargs=-1, shell_complete=complete_path)
@click.option("--training/--inference", default=None, help="With a loss and a backward pass, or without gradients.")
@click.option("--mode", type=click.Choice(MODES), help="The mode of torch.compile.")
@click.option("--dynamic/--no-dynamic", default=None, help="The dynamic argument of torch.compile.")
@click.option("--amp", metavar="DTYPE", type=click.Choice(list(AMP)), help="Autocast to float16 or bfloat16.")
@click.option("--device", metavar="DEVICE", help="cpu, cuda, cuda:1, …; the best there is where not given.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of random weights and inputs.")
@click.option("--batch-size", type=click.IntRange(min=1), help=f"Of a {listed(LIBRARIES)} model.")
@click.option("--live", is_flag=True, help="Profile inside the program, with the inputs that it really gets.")
@click.option(
    "--trace",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Analyse this trace of the compiled module, recorded elsewhere; nothing is run.",
)
@click.option("--steps", metavar="N", type=click.IntRange(min=1), help="Time N of the program's steps, profile N more.")
@click.option("--skip", metavar="N", type=click.IntRange(min=0), help="Begin N steps after the first, settled or not.")
@click.option("--stop", is_flag=True, help="End the program once its steps are measured.")
@click.option("--eager", is_flag=True, help="Also time the program's steps without compilation, in a second run.")
@timeout_option("The limit of each process that is started.")
@click.option("--repeat", metavar="N", type=click.IntRange(min=1), help="Profiled iterations.")
@autotune_options
@values_options
@click.option("--python", metavar="PATH", help="The interpreter to run the program under, with another torch.")
@click.option(
    "-o", "--output", metavar="RUN", type=click.Path(path_type=Path), help="The folder to write; runs/NAME-1, -2, …"
)
@click.option("--force", is_flag=True, help="Replace an earlier run in that folder.")
@redact_option
@presentation_options(FORMATS)
@click.option("--plots/--no-plots", default=True, help="Draw the plots (the default) or not.")
@click.option("-v", "--verbose", is_flag=True, help="Show what the program prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the result.")
@click.pass_context
def command(context: click.Context, /, **values: Any) -> int:
    name, view = take_view(values)
    form = FORMATS.get(name)
    with Console(quiet=values.pop("quiet"), verbose=values.pop("verbose")) as console:
        retune = take_autotune(values, view.top)
        options = make_options({**values, "retune": retune}, context.meta.get(ARGUMENTS, ()))
        from ..workflows.breakdown import run_breakdown

        outcome = run_breakdown(options, console)
        show(form, outcome.run, place_view(view, outcome.folder, console), console)
        if not form.names_folder:
            console.note(f"Written: {outcome.folder}")
    return exit_code(outcome.run)


def make_options(values: dict[str, Any], arguments: tuple[str, ...]) -> BreakdownOptions:
    """Makes the options of the workflow from click's values, which have the names of its fields."""
    amp = values.pop("amp")
    return BreakdownOptions(amp=AMP[amp] if amp else None, arguments=arguments, **take_values(values))


def exit_code(run: Run) -> int:
    """Returns the exit code for a record: 1 for any failure, even though the rest was measured and shown."""
    if any(failure.kind == "interrupted" for failure in run.failures):
        return EXIT_INTERRUPTED
    return EXIT_FAILURE if run.failures else EXIT_OK
