"""The verb ``compare``: says how much slower B is than A, and why."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import EXIT_FAILURE, EXIT_OK
from ..records.comparisons.run import NOT_COMPARABLE, SLOWER, RunComparison
from ..report.comparison.formats import FORMATS
from ..report.renderer import View
from .output.console import Console
from .output.presentation import format_option, place_view, show, top_option


def read_percent(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Reads ``5%`` or ``5`` as a share of 1."""
    if value is None:
        return None
    try:
        share = float(value.removesuffix("%")) / 100
    except ValueError:
        share = float("nan")
    if not 0 <= share < float("inf"):
        raise click.BadParameter(f"{value!r} is no percentage such as 5%", context, parameter)
    return share


def exit_code(comparison: RunComparison, fail_above: float | None) -> int:
    """Returns 1 where B is surely slower by more than the limit, and where a limit is given but nothing can be said."""
    if fail_above is None:
        return EXIT_OK
    step = comparison.step
    too_slow = comparison.verdict == SLOWER and step.delta_s > fail_above * step.a_s
    return EXIT_FAILURE if too_slow or comparison.verdict == NOT_COMPARABLE else EXIT_OK


@click.command("compare", no_args_is_help=True)
@click.argument("targets", metavar="A B", nargs=-1)
@click.option(
    "--fail-above", metavar="PERCENT", callback=read_percent, help="Exit with 1 where B is slower by more than that."
)
@format_option(FORMATS)
@top_option("How many kernels.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the result.")
def command(targets: tuple[str, ...], fail_above: float | None, format: str, top: int, quiet: bool) -> int:
    """Say how much slower B is than A, and why.

    A and B are two RUN folders or two zipped RUNs. Their graphs and kernels are paired, and the difference of their
    steps is divided into parts that add up to it: changed code, changed configs, fusions, library calls, calls, eager
    operators, copies, idle time, noise.

    \b
    inductor-bench compare runs/train-1 runs/train-2
    inductor-bench compare runs/train-1 runs/train-2 --fail-above 5%
    """
    from ..workflows.compare.run import CompareOptions, compare_records

    form = FORMATS.get(format)
    with Console(quiet=quiet) as console:
        comparison = compare_records(Path(targets[0]), Path(targets[1]), CompareOptions())
        show(form, comparison, place_view(View(top=top), Path(), console), console)
    return exit_code(comparison, fail_above)
