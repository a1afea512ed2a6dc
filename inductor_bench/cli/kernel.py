"""The verb ``kernel``: times, checks and autotunes standalone kernel files."""

from __future__ import annotations

from typing import Any

import click

from ..analysis.limits import compute_slowdown_of_kernels, judge_limit
from ..errors import EXIT_FAILURE, EXIT_OK, UsageError
from ..records.edit import REFUSED
from ..records.request import KernelRequest
from ..report.edit_document import CHECKED, WRITTEN
from ..report.formats import View
from ..report.kernel_document import COMPARED, MEASURED
from .console import Console
from .presentation import (
    AutotuneCommand,
    add_fail_above_option,
    add_format_option,
    add_request_options,
    complete_path,
    find_limit_exit_code,
    make_console,
    make_request,
    show,
)

_IN_TURN = "add --compare OTHER, or give a file that --edit wrote"


@click.command("kernel", cls=AutotuneCommand, no_args_is_help=True)
@click.argument("targets", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_path)
@add_request_options(KernelRequest)
@add_fail_above_option("OTHER of --compare, or an edited FILE, is slower by more than this")
@add_format_option(MEASURED)
@click.option("-v", "--verbose", is_flag=True, help="Show what the workers print.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
def command(fail_above: float | None, **values: Any) -> int:
    """Time standalone kernel files, and retune them.

    FILE is a file that `extract` or `breakdown` wrote, a folder of them, or RUN#NAME, where NAME may be a glob.

    \b
    inductor-bench kernel runs/train-1/kernels/triton_poi_fused_relu_0.py
    inductor-bench kernel 'runs/train-1#cpp_fused_*' --autotune
    inductor-bench kernel original.py --compare edited.py
    inductor-bench kernel triton_red_fused_mean_3.py --configs
    inductor-bench kernel runs/train-1#triton_red_fused_mean_3 --edit mine.py
    inductor-bench kernel runs/train-1#aten_mm_out_0..triton_poi_fused_relu_1 --edit mine.py
    inductor-bench kernel mine.py --check

    --edit writes the source of a RUN's kernel as a file to edit. For a library call, or for FIRST..LAST, it writes one
    kernel that replaces these calls. If FILE is such an edit, it is checked, and then timed in turn with the original;
    --compare RUN#NAME takes the original and its launches from a RUN.

    Exit code: 0, 1 if a kernel could not be measured or retuned (the others are), differs in its outputs from its
    reference or from OTHER, or is an edit that is refused, 2 for a request that cannot be carried out as typed, 130 if
    it was interrupted (what was measured until then is shown). With --fail-above, for --compare and edits: 0 only if
    the whole interval of the slowdown is at most the limit, 4 if the whole interval is above it, else 5 (undecided).
    """
    from ..workflows.kernel import KernelsInterrupted, run_kernel
    from ..workflows.kernels.edit_files import is_edit_file, run_edit

    request, form = make_request(KernelRequest, values), values["format"]
    if request.other and (request.configs or request.save):
        refused = "--configs" if request.configs else "--save"
        raise UsageError(
            f"{refused} is for kernels by themselves, not for --compare", "leave out one of them", "conflicting-options"
        )
    if request.edit is not None:
        with make_console(values, WRITTEN.get(form)) as console:
            show(WRITTEN.get(form), run_edit(request), View(columns=console.columns), console)
        return EXIT_OK
    if any(map(is_edit_file, request.targets)):
        with make_console(values, CHECKED.get(form)) as console:
            return _check(request, console, form, fail_above)
    if fail_above is not None and not request.other:
        raise UsageError(
            "--fail-above limits how much slower OTHER of --compare or an edited kernel is", _IN_TURN, "missing-option"
        )
    if request.proof_s is not None and not request.other:
        raise UsageError("--proof-time is for two kernels that are timed in turn", _IN_TURN, "missing-option")
    with make_console(values, MEASURED.get(form)) as console:
        if request.other:
            return _compare(request, console, form, fail_above)
        try:
            outcome = run_kernel(request, console)
        except KernelsInterrupted as stop:
            show(MEASURED.get(form), stop.outcome, View(columns=console.columns), console)
            raise KeyboardInterrupt("interrupted; what was measured until then is shown") from stop
        show(MEASURED.get(form), outcome, View(columns=console.columns), console)
    wrong = any(kernel.checked is False for kernel in outcome.kernels)
    return EXIT_FAILURE if outcome.failures or wrong else EXIT_OK


def _check(request: KernelRequest, console: Console, form: str, limit: float | None) -> int:
    from ..workflows.kernels.edit_check import run_check

    verdict = run_check(request, console)
    show(CHECKED.get(form), verdict, View(columns=console.columns, limit=limit), console)
    if verdict.verdict == REFUSED:
        return EXIT_FAILURE
    return (
        find_limit_exit_code([judge_limit(compute_slowdown_of_kernels(verdict.pair), limit)])
        if limit is not None
        else EXIT_OK
    )


def _compare(request: KernelRequest, console: Console, form: str, limit: float | None) -> int:
    from ..workflows.kernels.kernel_comparison import run_comparison

    comparison = run_comparison(request, console)
    show(COMPARED.get(form), comparison, View(columns=console.columns, limit=limit), console)
    wrong = any(kernel.checked is False for kernel in (comparison.first, comparison.second))
    if wrong or comparison.failures or comparison.alike is False:
        return EXIT_FAILURE
    pair = comparison.as_they_stand
    if limit is None:
        return EXIT_OK
    return find_limit_exit_code([judge_limit(compute_slowdown_of_kernels(pair), limit)]) if pair.ratio else EXIT_FAILURE
