"""The verb ``kernel``: times, checks and autotunes standalone kernel files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..errors import EXIT_FAILURE, EXIT_OK, UsageError
from ..records.tuning import BY_DEFAULT
from ..report.compiled_document import COMPILED
from ..report.formats import View
from ..report.kernel_document import COMPARED, MEASURED
from ..workflows.options import METHODS, METHODS_HELP
from .options import OPTION, SECONDS, AutotuneCommand, complete_path, timeout_option
from .output.console import Console
from .output.presentation import format_option, show

if TYPE_CHECKING:
    from ..workflows.options import KernelOptions

TARGET_OPTIONS = {
    *("targets", "target", "autotune", "budget_s", "timeout_s", "python"),
    *("format", "verbose", "quiet", "help"),
}


@click.command("kernel", cls=AutotuneCommand, no_args_is_help=True)
@click.argument("targets", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_path)
@click.option(
    OPTION,
    is_flag=False,
    flag_value=BY_DEFAULT,
    type=click.Choice(METHODS),
    help=f"Retune: {METHODS_HELP}. With --compare, both kernels.",
)
@click.option("--configs", is_flag=True, help="Time every config that Inductor chooses from; none wins.")
@click.option("--budget", "budget_s", metavar="SECONDS", type=SECONDS, help="Build no more candidates after that.")
@click.option(
    "--state",
    type=click.Choice(["cold", "warm"]),
    default="cold",
    show_default=True,
    help="What candidates are compared by: times with their data out of the caches, or in them.",
)
@click.option("--save", metavar="PATH", type=click.Path(path_type=Path), help="Write the winner as a standalone file.")
@click.option("--compare", "other", metavar="OTHER", help="Time FILE and OTHER in turn: as they stand, in one config.")
@click.option("--other-python", metavar="PATH", help="The interpreter to run OTHER under, as one with another torch.")
@click.option(
    "--target",
    metavar="ARCH",
    help="Compile all candidates for a GPU such as sm_90, which need not be here; time none.",
)
@click.option("--ncu", is_flag=True, help="Let Nsight Compute count each kernel's DRAM bytes, occupancy and stalls.")
@click.option("--force", is_flag=True, help="Measure on a GPU that another job uses, too.")
@click.option("--check/--no-check", default=True, show_default=True, help="Compare outputs with the reference first.")
@timeout_option("For each step of one kernel.")
@click.option("--python", metavar="PATH", help="The interpreter to run the kernels under.")
@format_option(MEASURED)
@click.option("-v", "--verbose", is_flag=True, help="Show what the workers print.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the result.")
def command(**values: Any) -> int:
    """Time standalone kernel files, and retune them.

    FILE is a file that `extract` or `breakdown` wrote, a folder of them, or RUN#NAME, where NAME may be a glob.

    \b
    inductor-bench kernel runs/train-1/kernels/triton_poi_fused_relu_0.py
    inductor-bench kernel 'runs/train-1#cpp_fused_*' --autotune
    inductor-bench kernel original.py --compare edited.py
    inductor-bench kernel triton_red_fused_mean_3.py --configs
    inductor-bench kernel 'runs/train-1#triton_red_*' --target sm_90 --autotune

    Exit code: 0, 1 where a kernel could not be measured or retuned (the others are) or computes something else than
    its reference or than the other, 2 for a request that cannot be carried out as typed, 130 where it was interrupted
    (what was measured until then is shown).
    """
    from ..workflows.kernel import KernelsInterrupted, run_kernel
    from ..workflows.options import KernelOptions

    form, verbose, quiet = values.pop("format"), values.pop("verbose"), values.pop("quiet")
    if values["target"]:
        _refuse_other_options(click.get_current_context())
        return _compile(values, Console(quiet=quiet, verbose=verbose), form)
    del values["target"]
    other, other_python = values.pop("other"), values.pop("other_python")
    if other_python and not other:
        raise UsageError("--other-python is for --compare", "add --compare OTHER")
    if other and (values["configs"] or values["save"]):
        refused = "--configs" if values["configs"] else "--save"
        raise UsageError(f"{refused} is for kernels by themselves, not for --compare", "leave one of them out")
    with Console(quiet=quiet, verbose=verbose) as console:
        if other:
            return _compare(KernelOptions(**values), other, other_python, console, form)
        try:
            outcome = run_kernel(KernelOptions(**values), console)
        except KernelsInterrupted as stop:
            show(MEASURED.get(form), stop.outcome, View(columns=console.columns), console)
            raise KeyboardInterrupt("interrupted; what was measured until then is shown") from stop
        show(MEASURED.get(form), outcome, View(columns=console.columns), console)
    wrong = any(kernel.checked is False for kernel in outcome.kernels)
    return EXIT_FAILURE if outcome.failures or wrong else EXIT_OK


def _refuse_other_options(context: click.Context) -> None:
    """Refuses the options that do not apply with ``--target``, which compiles without timing."""
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in TARGET_OPTIONS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise UsageError(f"{parameter.opts[0]} makes no sense with --target, which times nothing", "leave it out")


def _compile(values: dict[str, Any], console: Console, form: str) -> int:
    from ..workflows.cross_compile import TargetOptions, compile_for_target, compiles

    options = TargetOptions(**{name: value for name, value in values.items() if name in TARGET_OPTIONS})
    with console:
        outcome = compile_for_target(options, console)
        show(COMPILED.get(form), outcome, View(columns=console.columns), console)
    return EXIT_FAILURE if outcome.failures or not all(map(compiles, outcome.kernels)) else EXIT_OK


def _compare(options: KernelOptions, other: str, python: str | None, console: Console, form: str) -> int:
    from ..workflows.kernel_comparison import run_comparison

    comparison = run_comparison(options, other, console, python)
    show(COMPARED.get(form), comparison, View(columns=console.columns), console)
    wrong = any(kernel.checked is False for kernel in (comparison.first, comparison.second))
    return EXIT_FAILURE if wrong or comparison.failures or comparison.alike is False else EXIT_OK
