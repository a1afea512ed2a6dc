"""The verb ``compare``: says how much slower B is than A, and why."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..analysis.comparison_words import exceeds_limit
from ..analysis.limits import compute_slowdown, judge_limit
from ..analysis.statistics import EFFECT
from ..errors import EXIT_FAILURE, UsageError
from ..records.comparison import NOT_COMPARABLE, SAME, UNDECIDED, BatchComparison, RunComparison, StepProof
from ..records.request import CompareRequest
from ..records.request_fields import names_program
from ..report.comparison_document import BATCH_FORMATS, FORMATS
from ..report.formats import View, show_as_json, show_as_markdown, show_as_page
from ..store.files import write_text
from ..store.folder import BATCH, PAGE
from ..store.run_files import refuse_other_file
from .breakdown import ARGUMENTS, ProgramCommand, find_target
from .console import Console
from .presentation import (
    add_fail_above_option,
    add_format_option,
    add_request_options,
    add_top_option,
    complete_path,
    find_limit_exit_code,
    list_given_options,
    make_console,
    make_request,
    place_view,
    show,
    take_view,
)

if TYPE_CHECKING:
    from ..workflows.compare import Compared

HELP = """Say how much slower B is than A, and why.

A and B are two programs, two RUN folders, two zipped RUNs, or two batches. The difference of their steps is divided
into parts that add up to it: changed code, changed configs, fusions, library calls, numbers of calls, eager operators,
copies, idle time, and noise.

\b
inductor-bench compare before.py after.py            # is my change faster?
inductor-bench compare train.py --env TORCHINDUCTOR_MAX_AUTOTUNE=1
inductor-bench compare train.py --python old/bin/python --python new/bin/python
inductor-bench compare runs/train-1 runs/train-2 --fail-above 5%
inductor-bench compare runs/compare-train            # the same processes again

Programs run in turn (A B B A). First their steps are timed in whole processes until it is decided whether B is faster,
or the --budget is over; with --runs 0 that is all. Then a run of each is profiled, as `breakdown` does, to say where
the difference comes from. With one TARGET, A runs under the first --python, B under the second; only B has the
variables of --env. With neither option, A and B are the same, and the difference is noise.

Exit code: 0. With --fail-above: 0 only if the whole interval of B's slowdown is at most the limit, 4 if the whole
interval is above it, else 5 (undecided); 1 if the two are not comparable, or if batch B lacks a model that A ran. With
several models: the first of 1, 4 and 5 that applies to a model. Otherwise as `breakdown`.
"""


RECORD_IN_BUNDLE = "comparison.json"


@click.command("compare", cls=ProgramCommand, no_args_is_help=True, help=HELP)
@click.argument("targets", metavar="A B | TARGET", nargs=-1, shell_complete=complete_path)
@add_request_options(CompareRequest)
@add_fail_above_option("B is slower by more than this")
@click.option(
    "--bundle",
    metavar="FILE.zip",
    type=click.Path(path_type=Path),
    help="Write the report, the record and both versions of each kernel that differs.",
)
@add_format_option(FORMATS.extended_by(BATCH_FORMATS))
@add_top_option("How many kernels to show.")
@click.option("-v", "--verbose", is_flag=True, help="Show what the program prints.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the result.")
@click.pass_context
def command(context: click.Context, /, **values: Any) -> int:
    targets, limit, bundle = values["targets"], values["fail_above"], values["bundle"]
    name, view = take_view(values)
    arguments = context.meta.get(ARGUMENTS, ())
    if bundle is not None:
        refuse_other_file(bundle, RECORD_IN_BUNDLE)
    with make_console(values, FORMATS.extended_by(BATCH_FORMATS).get(name)) as console:
        if len(targets) == 2 and not arguments and all(os.path.isfile(Path(target) / BATCH) for target in targets):
            _refuse_options(values, bundle)
            return _compare_batches(targets, name, view, limit, console)
        form = FORMATS.get(name)
        compared = _compare(context, values, console, files=bundle is not None or form.shows_files)
        files = _read_kernel_texts(compared)
        if compared.folder is not None:
            write_text(
                compared.folder / PAGE, show_as_page(FORMATS, compared.comparison, View(files=files, limit=limit))
            )
        show(form, compared.comparison, place_view(replace(view, files=files, limit=limit), Path(), console), console)
        if compared.folder is not None and not form.is_data:
            console.remark(f"Written: {compared.folder}   {PAGE}, and what each process measured")
        if bundle is not None:
            _write_bundle(bundle, compared, files, limit, console)
    return exit_code([compared.comparison], limit)


def _compare(context: click.Context, values: dict[str, Any], console: Console, *, files: bool) -> Compared:
    from ..workflows.compare import PAIR, compare_folder, compare_program, compare_records

    targets, arguments = values["targets"], context.meta.get(ARGUMENTS, ())
    programs = [target for target in targets if names_program(target) and not os.path.isdir(target)]
    if len(targets) == 2 and not arguments and len(programs) < 2:
        _refuse_options(values, None)
        return compare_records(Path(targets[0]), Path(targets[1]), files=files)
    if len(targets) == 1 and not arguments and os.path.isfile(Path(targets[0]) / PAIR):
        _refuse_options(values, None)
        return compare_folder(Path(targets[0]))
    if len(targets) > 2 or not (targets or arguments):
        raise UsageError(
            f"{len(targets)} targets were given",
            "give two programs, two runs, two batches, or one program",
            "wrong-target",
        )
    fields = find_target(context, {**values, "targets": targets[:1]})
    request = make_request(CompareRequest, values, second=targets[1] if len(targets) == 2 else "", **fields)
    return compare_program(request, console, partial(_answers, limit=values["fail_above"]))


def _answers(proof: StepProof, limit: float | None) -> bool:
    """Whether the timed processes answer the question: B is faster or slower; with a limit, B keeps it or does not."""
    if limit is None or (proof.verdict == SAME and limit < EFFECT):  # no further process decides about so little
        return proof.verdict != UNDECIDED
    return judge_limit(compute_slowdown(proof), limit) != UNDECIDED


def _refuse_options(values: dict[str, Any], bundle: Path | None) -> None:
    """Refuses options for new runs if records are compared."""
    for one in list_given_options(CompareRequest, values):
        raise UsageError(
            f"{one.option.name} is for a program that this command runs, not for results",
            "give programs, not results",
            "misplaced-option",
        )
    if bundle is not None:
        raise UsageError(
            "--bundle is for two runs, not for two batches",
            "compare one model: BATCH/models/NAME of each",
            "misplaced-option",
        )


def _compare_batches(targets: tuple[str, ...], name: str, view: View, limit: float | None, console: Console) -> int:
    form = BATCH_FORMATS.get(name)
    from ..workflows.compare import compare_batches

    batch: BatchComparison = compare_batches(Path(targets[0]), Path(targets[1]), console)
    show(form, batch, place_view(view, Path(), console), console)
    if limit is not None and any(model.lost for model in batch.models):
        return EXIT_FAILURE
    return exit_code([model.comparison for model in batch.models if model.comparison is not None], limit)


def _read_kernel_texts(compared: Compared) -> dict[str, str]:
    """The files of the kernels that differ, without recorded values."""
    found = compared.kernels.items()
    return {place: data.decode("utf-8", "replace") for place, data in found if place.endswith(".py")}


def _write_bundle(path: Path, compared: Compared, files: dict[str, str], limit: float | None, console: Console) -> None:
    from ..store.run_files import write_archive

    view = View(top=len(compared.comparison.kernels), files=files, limit=limit)
    texts = {
        "comparison.md": show_as_markdown(FORMATS, compared.comparison, view),
        "comparison.html": show_as_page(FORMATS, compared.comparison, view),
        RECORD_IN_BUNDLE: show_as_json(compared.comparison) + "\n",
    }
    write_archive(
        path, {**{name: text.encode("utf-8", "backslashreplace") for name, text in texts.items()}, **compared.kernels}
    )
    console.remark(f"Written: {path}   the report, the record, {len(compared.kernels)} files of kernels")


def exit_code(comparisons: list[RunComparison], fail_above: float | None) -> int:
    """Returns 0 without a limit; else 1 if a B cannot be compared, or the code of :func:`find_limit_exit_code`."""
    found = {exceeds_limit(one, fail_above) for one in comparisons} if fail_above is not None else set()
    return EXIT_FAILURE if NOT_COMPARABLE in found else find_limit_exit_code(found)
