"""The verb ``apply``: runs a program with the configs of a RUN's retunes and with edited kernels, and proves it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from ..analysis.limits import Slowdown, compute_slowdown_of_proof, judge_limit
from ..analysis.optimization.search_results import write_program_command
from ..errors import EXIT_FAILURE, EXIT_OK, UsageError
from ..records.request import ApplyRequest
from ..records.retune import Verification
from ..report.formats import View
from ..report.run.proof_document import APPLIED_FORMATS as FORMATS
from ..report.run.proof_document import make_states_document
from ..report.terminal import render_text
from ..store.folder import OptimizationFolder
from .breakdown import ARGUMENTS, ProgramCommand
from .console import Console
from .presentation import (
    ResultFolder,
    add_fail_above_option,
    add_format_option,
    add_request_options,
    find_limit_exit_code,
    make_console,
    make_request,
    show,
)


@click.command("apply", cls=ProgramCommand, no_args_is_help=True)
@click.argument("run", metavar="[RUN]", required=False, type=ResultFolder())
@click.option("--known", is_flag=True, help="Instead of RUN: all tunings that are known for this machine.")
@add_request_options(ApplyRequest)
@add_fail_above_option("the step with the configs and edits is longer by more than this")
@add_format_option(FORMATS)
@click.option("-v", "--verbose", is_flag=True, help="With --verify: show what the program prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the program's output, or the result.")
@click.pass_context
def command(context: click.Context, /, run: Path | None, known: bool, fail_above: float | None, **values: Any) -> int:
    """Put the configs that a RUN's retunes found, and edited kernels, into a program.

    \b
    inductor-bench apply RUN                               writes RUN/tuned
    inductor-bench apply RUN -- python train.py            runs any program with the configs
    inductor-bench apply RUN --verify -- python train.py   measures what they save
    inductor-bench apply RUN --kernel mine.py --verify -- python train.py
    inductor-bench apply RUN --verify --proof-time 60 -- python train.py   decides smaller differences
    inductor-bench apply RUN/tuned -- python train.py      with what RUN/tuned holds, on another day
    inductor-bench apply --known -- python train.py        with the tunings of all RUNs so far

    An edited kernel (`inductor-bench kernel RUN#NAME --edit mine.py`) replaces Inductor's kernel. RUN/tuned gets the
    edits, the configs (also in Inductor's own form), a module with one line to add, and a page about them. The command
    refuses another torch, Triton or device than the RUN's. RUN may also be the folder RUN/optimized of a search: the
    program runs with the settings that `optimize` found.

    Exit code: the program's; 0 or 1 without a program, or with --verify; with --verify 1 also if a kernel does not run
    its edit; 2 for a request that cannot be carried out. With --fail-above: 0 only if the whole interval of the step's
    change is at most the limit, 4 if the whole interval is above it, else 5 (undecided).
    """
    from ..workflows.apply import run_apply

    request = make_request(ApplyRequest, values, run=run, command=context.meta.get(ARGUMENTS, ()))
    _check(request, known, fail_above)
    _check_kernels(request)
    if request.command and not request.verify and context.get_parameter_source("format") is ParameterSource.COMMANDLINE:
        raise UsageError(
            "--format cannot be used if apply only runs a program: stdout is for the program's own output",
            "leave out --format, or add --verify",
            "misplaced-option",
        )
    plain = Console(quiet=values["quiet"], verbose=values["verbose"])
    if run is not None and OptimizationFolder(run).exists():
        return _run_optimized(request, run, plain)
    form = FORMATS.get(values["format"])
    with make_console(values, form) if request.verify else plain as console:
        outcome = run_apply(request, console)
        if outcome.exit_code is None:
            show(form, outcome, View(columns=console.columns, limit=fail_above), console)
            if outcome.interrupted:
                raise KeyboardInterrupt("interrupted; the result has the processes that were compared until then")
            if outcome.problem is not None:
                raise outcome.problem
        else:
            for line in render_text(make_states_document(outcome.kernels), console.columns).splitlines():
                console.remark(line)  # stdout is the program's
    if outcome.exit_code is not None:
        return outcome.exit_code
    if any(one.edit and not one.runs for one in outcome.kernels):
        return EXIT_FAILURE
    return EXIT_OK if fail_above is None else find_limit_exit_code([exceeds_limit(outcome.verification, fail_above)])


def exceeds_limit(found: Verification | None, limit: float) -> str:
    """Says why the configs miss a limit (a share of the step without them): ``slower``, ``undecided`` or empty."""
    return judge_limit(compute_slowdown_of_proof(found) if found is not None else Slowdown(), limit)


def _run_optimized(request: ApplyRequest, folder: Path, console: Console) -> int:
    """Runs a program with the settings that ``optimize`` found."""
    from ..workflows.optimizing.optimized_files import run_optimized

    example = (
        f"inductor-bench apply {shlex.quote(str(folder))} -- {write_program_command(OptimizationFolder(folder).load())}"
    )
    if not request.command:
        raise UsageError(f"{folder} has settings for a program, but no program was given", example, "missing-target")
    if request.verify:
        raise UsageError(
            "--verify is for the configs of kernels: optimize has proven the settings that it found",
            example,
            "misplaced-option",
        )
    with console:
        found = run_optimized(folder, request.command)
        for words in found.refused:
            console.remark(f"without effect: {words}")
        if found.caveat:
            console.remark(f"the result was {found.caveat}; give optimize a longer --budget")
        if found.exit_code:
            seen = (
                f"steps ran with {', '.join(found.applied)}" if found.applied else "no step with the settings was seen"
            )
            console.remark(f"the program failed with exit code {found.exit_code}; {seen}")
        else:
            console.remark(f"ran with {', '.join(found.settings)}")
    return found.exit_code


def _check_kernels(request: ApplyRequest) -> None:
    """Checks that edited kernels come with their RUN, and that a folder of edits comes with a program."""
    from ..workflows.tuned import is_tuned

    hint = "give the RUN that the file was written from: inductor-bench apply RUN --kernel FILE"
    if request.run is None or OptimizationFolder(request.run).exists():
        if request.kernels:
            raise UsageError("--kernel is for the kernels of a RUN", hint, "misplaced-option")
    elif is_tuned(request.run):
        if request.kernels:
            raise UsageError(f"{request.run} holds its own edits", hint, "misplaced-option")
        if not request.command:
            example = f"inductor-bench apply {shlex.quote(str(request.run))} -- python train.py"
            raise UsageError(f"{request.run} is there already, and no program was given", example, "missing-target")


def _check(request: ApplyRequest, known: bool, fail_above: float | None) -> None:
    if known == (request.run is not None):
        raise UsageError(
            "give either a RUN or --known", "inductor-bench apply --known -- python train.py", "missing-target"
        )
    if known and not request.command:
        raise UsageError("--known needs a program", "inductor-bench apply --known -- python train.py", "missing-target")
    if (request.verify or request.stop or request.timeout_s) and not request.command:
        example = f"inductor-bench apply {request.run or '--known'} --verify -- python train.py"
        raise UsageError("--verify, --stop and --timeout need a program", example, "missing-target")
    if fail_above is not None and not request.verify:
        raise UsageError(
            "--fail-above needs --verify: without it nothing is measured", "add --verify", "missing-option"
        )
    if request.stop and not request.verify:
        raise UsageError("--stop needs --verify: without it nothing is measured", "leave out --stop", "missing-option")
