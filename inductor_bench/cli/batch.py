"""The verb ``batch``: measures each model of a list in a RUN of its own, and summarizes all of them."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..devices.table import DEVICES
from ..errors import EXIT_FAILURE, EXIT_OK, UsageError
from ..records.batch import FAILED, MEASURED, PARTIAL, RUNNING, WAITING, Batch, ModelRequest
from ..records.model_sources import LIBRARIES, list_help_lines
from ..report.batch_document import FORMATS
from ..workflows.options import AMP, MODES
from .options import AutotuneCommand, autotune_options, take_autotune, take_values, timeout_option, values_options
from .output.batch import show_batch
from .output.console import Console
from .output.presentation import format_option, redact_option, take_view, top_option

if TYPE_CHECKING:
    from ..store.redaction import Redaction
    from ..workflows.batch import BatchOptions

OVERRIDES = (
    "training",
    "batch_size",
    "amp",
    "mode",
    "dynamic",
    "device",
    "seed",
    "live",
    "repeat",
    "values",
    "timeout_s",
)
"""The options that set fields of ``ModelRequest``."""


def _read_shard(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", value)
    index, count = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    if not 1 <= index <= count:
        raise click.BadParameter(f"{value!r} is not I/N, from 1/N to N/N", context, parameter)
    return index, count


def _read_devices(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name for part in (value or "").split(",") if (name := part.strip()))


HELP = f"""Break every model of a list down, and say which kernels matter over all of them.

\b
LIST has a model on each line, `NAME`, `NAME BATCH` or `NAME,BATCH`, or is YAML with `models:`. NAME is
{list_help_lines(20)}
  file.py:factory     as `breakdown` takes it, and so are scripts

The same command continues a batch that was interrupted or killed: only what is missing or failed is done.

Exit code: 0, 1 where a model failed (the others are measured and shown), 2 for a request that cannot be carried
out as typed, 130 after Ctrl-C.
"""


@click.command("batch", cls=AutotuneCommand, no_args_is_help=True, help=HELP)
@click.argument("source", metavar="LIST", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="BATCH", type=click.Path(path_type=Path), help="The folder; batches/NAME.")
@click.option("--list", "listing", is_flag=True, help="Show the models that would be measured; run nothing.")
@click.option("--filter", "filters", metavar="GLOB", multiple=True, help="Only these: a glob or a part of the name.")
@click.option("--exclude", "excludes", metavar="GLOB", multiple=True, help="Not these.")
@click.option("--shard", metavar="I/N", callback=_read_shard, help="Every N-th model, beginning with the I-th.")
@click.option("--source", "bare", type=click.Choice(list(LIBRARIES)), help="Of bare names.")
@click.option(
    "--resume/--no-resume", default=True, help="Continue the batch in the folder (the default), or refuse to."
)
@click.option("--force", is_flag=True, help="Measure again what the folder has already.")
@click.option("--retries", metavar="N", type=click.IntRange(min=0), default=0, help="Try a model that failed again.")
@click.option("--devices", metavar="0,1,…", callback=_read_devices, help="These GPUs; all where not given.")
@click.option("--jobs", metavar="N", type=click.IntRange(min=1), help="The most models at once.")
@click.option(
    "--overlap/--no-overlap",
    default=None,
    help="Compile a model while another is timed on its GPU; where there are cores for it if not said.",
)
@click.option(
    "--executor", type=click.Choice(["local", "ray"]), default="local", help="This machine, or a Ray cluster."
)
@click.option("--address", metavar="HOST:PORT", help="Of the Ray cluster; Ray looks for one where not given.")
@timeout_option("Of a model.")
@click.option("--training/--inference", default=None, help="With a loss and a backward pass, or without gradients.")
@click.option("--batch-size", type=click.IntRange(min=1), help="Instead of those in the list.")
@click.option("--mode", type=click.Choice(list(MODES)), help="The mode of torch.compile.")
@click.option("--dynamic/--no-dynamic", default=None, help="The dynamic argument of torch.compile.")
@click.option("--amp", metavar="DTYPE", type=click.Choice(list(AMP)), help="Autocast to float16 or bfloat16.")
@click.option("--device", type=click.Choice(list(DEVICES)), help="The best there is where not given.")
@click.option("--seed", type=int, help="Of random weights and inputs.")
@click.option("--live", is_flag=True, default=None, help="Profile inside the programs.")
@click.option("--repeat", metavar="N", type=click.IntRange(min=1), help="Profiled iterations.")
@values_options
@click.option("--python", metavar="PATH", help="The interpreter to run the models under, with another torch.")
@autotune_options
@redact_option
@format_option(FORMATS)
@top_option("Families and kernels.")
@click.option("--plots/--no-plots", default=True, help="Draw the plots (the default) or not.")
@click.option("-v", "--verbose", is_flag=True, help="Show what the models' processes print.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the result.")
def command(listing: bool, plots: bool, **values: Any) -> int:
    name, view = take_view(values)
    form = FORMATS.get(name)
    with Console(quiet=values.pop("quiet"), verbose=values.pop("verbose")) as console:
        retune = take_autotune(values, view.top)
        options = _make_options({**values, "retune": retune}, plots)
        from ..workflows.batch import find_secrets, plan_batch, run_batch
        from ..workflows.batch_state import report_batch

        if listing:
            requests = plan_batch(options)
            hidden = find_secrets(options, requests)
            console.result("".join(f"{_line(request, hidden)}\n" for request in requests))
            return EXIT_OK
        outcome = run_batch(options, console)
        report = report_batch(outcome.folder.path)
        show_batch(report, console, form, view)
        if report.problem is not None:
            raise report.problem
    return exit_code(outcome.batch)


def exit_code(batch: Batch) -> int:
    """Returns 1 where a model failed, in part or as a whole, or is not yet measured; otherwise 0."""
    return EXIT_FAILURE if batch.count(FAILED, PARTIAL, WAITING, RUNNING, MEASURED) else EXIT_OK


def _make_options(values: dict[str, Any], plots: bool) -> BatchOptions:
    from ..workflows.batch import BatchOptions
    from ..workflows.options import DRAWN

    given = take_values(values)
    words = [] if plots else ["--no-plots"]
    if given.get("values_limit_bytes") is not None:
        words += ["--values-limit", str(given.pop("values_limit_bytes"))]
    if (python := given.pop("python")) is not None:
        if given["executor"] == "local" and shutil.which(python) is None:
            raise UsageError(f"--python {python} is not a program that can be run", "give an interpreter's path")
        words += ["--python", python]
    overrides = {name: given.pop(name) for name in OVERRIDES}
    overrides["amp"] = AMP[overrides["amp"]] if overrides["amp"] else None
    overrides["values"] = overrides["values"] if overrides["values"] != DRAWN else None
    return BatchOptions(overrides=overrides, words=tuple(words), **given)


def _line(request: ModelRequest, hidden: Redaction) -> str:
    from ..records.batch import BatchModel
    from ..workflows.batch_state import breakdown_words

    return f"{request.name:<40}  {' '.join([*breakdown_words(BatchModel(request)), *hidden.words(request.arguments)])}"
