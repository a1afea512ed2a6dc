"""The verb ``apply``: runs a program with the configs that a RUN's retunes found, and proves what they save."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import EXIT_OK, UsageError
from ..report.formats import View
from ..report.run.retune_document import APPLIED_FORMATS as FORMATS
from ..report.run.retune_document import states_document
from ..report.terminal import document_text
from .breakdown import ARGUMENTS, ProgramCommand
from .options import ResultFolder, timeout_option
from .output.console import Console
from .output.presentation import format_option, show


@click.command("apply", cls=ProgramCommand, no_args_is_help=True)
@click.argument("run", metavar="[RUN]", required=False, type=ResultFolder())
@click.option("--known", is_flag=True, help="In the place of RUN: all tunings that are known for this machine.")
@click.option("--verify", is_flag=True, help="Run the program's steps with the configs and without in turn.")
@click.option("--stop", is_flag=True, help="With --verify: end the program once its steps are compared.")
@timeout_option("With --verify: the limit of each run of the program.")
@click.option("--python", metavar="PATH", help="The program's interpreter, where the command does not tell.")
@format_option(FORMATS)
@click.option("-v", "--verbose", is_flag=True, help="With --verify: show what the program prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the program's output, or the result.")
@click.pass_context
def command(
    context: click.Context,
    run: Path | None,
    known: bool,
    verify: bool,
    stop: bool,
    timeout_s: float | None,
    python: str | None,
    format: str,
    verbose: bool,
    quiet: bool,
) -> int:
    """Put the configs that a RUN's retunes found into a program.

    \b
    inductor-bench apply RUN                             writes RUN/tuned
    inductor-bench apply RUN -- python train.py          any program, unchanged
    inductor-bench apply RUN --verify -- python train.py and what it saves
    inductor-bench apply --known -- python train.py      with the tunings of all RUNs so far

    RUN/tuned has the configs in the form that Inductor reads, a module with one line to add, and a page about them.
    Another torch, Triton or device than the RUN's is refused.

    Exit code: that of the program; 0 or 1 without one, and with --verify; 2 for a request that cannot be carried out.
    """
    from ..workflows.apply import ApplyOptions, run_apply

    words: tuple[str, ...] = context.meta.get(ARGUMENTS, ())
    if known == (run is not None):
        raise UsageError("give either a RUN or --known", "inductor-bench apply --known -- python train.py")
    if known and not words:
        raise UsageError("--known needs a program", "inductor-bench apply --known -- python train.py")
    if (verify or stop or timeout_s) and not words:
        example = f"inductor-bench apply {run or '--known'} --verify -- python train.py"
        raise UsageError("--verify, --stop and --timeout need a program", example)
    if stop and not verify:
        raise UsageError("--stop needs --verify: without it nothing is measured", "leave out --stop")
    with Console(quiet=quiet, verbose=verbose) as console:
        outcome = run_apply(ApplyOptions(run, words, verify, stop, timeout_s, python), console)
        if outcome.exit_code is None:
            show(FORMATS.get(format), outcome, View(columns=console.columns), console)
            if outcome.interrupted:
                raise KeyboardInterrupt("interrupted; the processes that were compared until then are shown")
        else:
            for line in document_text(states_document(outcome.kernels), console.columns).splitlines():
                console.note(line)  # stdout is the program's
    return EXIT_OK if outcome.exit_code is None else outcome.exit_code
