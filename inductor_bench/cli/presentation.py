"""The options that verbs share, and the functions that print a result."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

import click
from click.shell_completion import CompletionItem

from .. import units
from ..analysis.mode_conclusion import MOST_ROUNDS
from ..devices.table import DEVICES
from ..errors import EXIT_OK, EXIT_SLOWER, EXIT_UNDECIDED, UsageError
from ..records.comparison import MODES, SLOWER, UNDECIDED
from ..records.optimization import GROUPS
from ..records.request import TARGET
from ..records.request_fields import (
    ASKED,
    GIVEN,
    ONE_WORD,
    OPTION,
    PART,
    Option,
    OptionField,
    OptionGroup,
    list_option_fields,
    list_options_by_field,
)
from ..records.retune import BY_DEFAULT
from ..report.formats import Format, Formats, Result, View, show_as_page
from ..store.files import write_text
from ..store.folder import PAGE
from ..workflows.progress import METHODS, METHODS_HELP
from .console import Console

if TYPE_CHECKING:
    from ..report.batch.batch_tables import BatchView
    from ..workflows.batch_state import BatchReport


F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

AUTOTUNE = "--autotune"
MOST_S = 1e9
"""Largest number of seconds; the system's clocks do not count to arbitrary numbers."""


# The values of options that are no plain text, number or path.


class _Seconds(click.FloatRange):
    """A number of seconds above 0. ``float`` also accepts ``nan``, which a range check would not refuse."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not seconds <= MOST_S:
            self.fail(f"{value!r} is not a number of seconds up to {MOST_S:g}", param, ctx)
        return seconds


SECONDS = _Seconds(min=0, min_open=True)


def read_variables(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """Reads each ``NAME=VALUE`` as a pair."""
    pairs = []
    for value in values:
        name, equals, text = value.partition("=")
        if not name or not equals:
            raise click.BadParameter(f"{value!r} is not of the form NAME=VALUE", context, parameter)
        pairs.append((name, text))
    return tuple(pairs)


def _read_size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return units.parse_size(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


def _read_shard(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,9})/(\d{1,9})", value)
    index, count = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    if not 1 <= index <= count:
        raise click.BadParameter(f"{value!r} is not I/N, from 1/N to N/N", context, parameter)
    return index, count


def _read_names(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    return tuple(name for part in (value or "").split(",") if (name := part.strip()))


def _read_duration(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Reads a number of seconds, or one with the letter s, m or h."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,12}(?:\.\d{1,6})?)([smh]?)", value.strip())
    seconds = float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]] if found else 0.0
    if not 0 < seconds <= MOST_S:
        raise click.BadParameter(f"{value!r} is not a time such as 90, 5m or 1h", context, parameter)
    return seconds


KINDS: dict[str, dict[str, Any]] = {
    "duration": {"type": str, "callback": _read_duration},
    "seconds": {"type": SECONDS},
    "size": {"callback": _read_size},
    "file": {"type": click.Path(exists=True, dir_okay=False, path_type=Path)},
    "pairs": {"callback": read_variables},
    "shard": {"callback": _read_shard},
    "names": {"callback": _read_names},
    "rounds": {"type": click.IntRange(min=1, max=MOST_ROUNDS)},
    "method": {"type": click.Choice(METHODS), "is_flag": False, "flag_value": BY_DEFAULT},
    "type of device": {"type": click.Choice(list(DEVICES))},
    "compared mode": {"type": click.Choice(MODES)},
}
"""Click's settings for the value of an option, by ``Option.kind``."""


# Options from fields, and a request from click's values.


def add_request_options(kind: type, *, late: bool = False) -> Callable[[F], F]:
    """Adds the options of a request; with ``late`` those that stand after the options of formats in the help."""

    def add(function: F) -> F:
        for one in reversed(list_option_fields(kind)):
            if one.option.late == late and not one.option.shared:
                function = _make_click_option(one)(function)
        return function

    return add


def _make_click_option(one: OptionField) -> Callable[[F], F]:
    option, hint = one.option, one.hint
    shown = option.shown is True
    text = option.help.replace("METHODS", METHODS_HELP).replace("GROUPS", ", ".join(GROUPS))
    return click.option(
        *option.names,
        one.name,
        metavar=option.metavar,
        default=one.default if shown else None,
        show_default=shown,
        multiple=option.kind not in ONE_WORD and str(hint).startswith("tuple"),
        help=f"{text}  [default: {option.shown}]" if isinstance(option.shown, str) else text or None,
        **(KINDS[option.kind] if option.kind else _find_kind(option, hint)),
    )


def _find_kind(option: Option, hint: Any) -> dict[str, Any]:
    types = {hint, *get_args(hint)}
    if bool in types:
        return {} if "/" in option.names[-1] else {"is_flag": True}
    if option.choices:
        return {"type": click.Choice(list(option.choices))}
    if option.least is not None:
        return {"type": click.IntRange(min=option.least)}
    return {"type": int if int in types else click.Path(path_type=Path) if Path in types else str}


def make_request(kind: type[T], values: Mapping[str, Any], **more: Any) -> T:
    """Makes a request from click's values, which have the names of its fields and of those of its parts.

    Args:
        kind: the request.
        values: click's values; others among them are ignored, and what is ``None`` leaves the default.
        more: the values of fields that are no options.

    Raises:
        UsageError: an option was given without the one that it needs.
    """
    for one in list_given_options(kind, values):
        needs = one.option.needs
        if needs is not None and all(values.get(name) in (None, needs.refused) for name in needs.field.split()):
            raise UsageError(f"{one.option.name} {needs.message}", needs.hint, "missing-option")
    return _make(kind, {**values, **more})


def list_given_options(kind: type, values: Mapping[str, Any]) -> Iterator[OptionField]:
    """Yields the options of a request that the user typed."""
    return (one for one in list_option_fields(kind) if _is_given(one, values.get(one.name)))


def _is_given(one: OptionField, value: Any) -> bool:
    return value not in (None, ()) and not (one.option.shown is True and value == one.default)


def _make(kind: type[T], values: Mapping[str, Any]) -> T:
    made = {}
    for item in fields(kind):  # type: ignore[arg-type]
        if PART in item.metadata:
            made[item.name] = _make_part(item.metadata[PART], list_options_by_field(kind)[item.name], values)
        elif item.name in values and (values[item.name] is not None or item.default is MISSING):
            made[item.name] = _suggest_value(item.metadata.get(OPTION), values[item.name])
    return kind(**made)


def _make_part(part: OptionGroup, options: list[OptionField], values: Mapping[str, Any]) -> Any:
    if part.form == GIVEN:
        found = {one.name: (one.option, values[one.name]) for one in options if _is_given(one, values[one.name])}
        return {name: _suggest_value(*pair) for name, pair in found.items()}
    if part.form == ASKED and values.get(part.names[0]) is None:
        return None
    names = {*TARGET, *(one.name for one in options)}
    return _make(part.kind, {name: value for name, value in values.items() if name in names})


def _suggest_value(option: Option | None, value: Any) -> Any:
    """The value of a field for a value of click."""
    chosen = option.choices if option is not None else ()
    return chosen[value] if isinstance(chosen, Mapping) else value


class AutotuneCommand(click.Command):
    """A command whose ``--autotune`` takes no value if the next word is a target, as in ``--autotune RUN``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [
            f"{AUTOTUNE}={BY_DEFAULT}" if word == AUTOTUNE and _is_target(following) else word
            for word, following in pairwise([*args, ""])
        ]
        return super().parse_args(ctx, words)


def _is_target(word: str) -> bool:
    """Whether a word names a file, a folder or a model. Any other word is a method."""
    return word not in METHODS and (os.path.exists(word) or any(mark in word for mark in ".:/#"))


# The types of arguments that are paths, and how the shell completes them.


class ResultFolder(click.Path):
    """The folder of a run or a batch."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False, path_type=Path)

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        """The folder as a path.

        Raises:
            UsageError: there is no such folder.
        """
        try:
            return super().convert(value, parameter, context)
        except click.BadParameter as error:
            what = "is a file, not a folder" if os.path.isfile(value) else "does not exist, or cannot be read"
            hint = "give a folder that `breakdown` or `batch` wrote: runs/NAME"
            raise UsageError(f"{value} {what}", hint, "no-such-folder") from error


def complete_path(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Lets the shell complete a word as a path."""
    return [CompletionItem(incomplete, type="file")]


def add_format_option(formats: Formats[Any]) -> Callable[[F], F]:
    """Adds ``--format``, whose choices are the rows of a table of formats."""
    return click.option(
        "--format",
        type=click.Choice(formats.names),
        default=formats.names[0],
        show_default=True,
        help=formats.help or None,
    )


def add_fail_above_option(when: str) -> Callable[[F], F]:
    """Adds ``--fail-above``, a share of 1 or ``None``; ``when`` says what must not be slower."""
    said = (
        f"Exit with {EXIT_SLOWER} if {when}, with {EXIT_OK} if it certainly is not, and with {EXIT_UNDECIDED} if the "
        "interval of the difference includes this limit."
    )
    return click.option("--fail-above", metavar="PERCENT", callback=_read_percent, help=said)


def _read_percent(context: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """Reads ``5%`` or ``5`` as a share of 1."""
    if value is None:
        return None
    try:
        share = float(value.strip().removesuffix("%")) / 100
    except ValueError:
        share = float("nan")
    if not 0 <= share < float("inf"):
        raise click.BadParameter(f"{value!r} is no percentage such as 5%", context, parameter)
    return share


def find_limit_exit_code(found: Collection[str]) -> int:
    """Returns the exit code for the verdict of a limit; see :func:`inductor_bench.analysis.limits.judge_limit`."""
    return EXIT_SLOWER if SLOWER in found else EXIT_UNDECIDED if UNDECIDED in found else EXIT_OK


def add_top_option(help: str) -> Callable[[F], F]:
    """Adds ``--top``."""
    return click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help=help)


def add_presentation_options(formats: Formats[Any]) -> Callable[[F], F]:
    """Adds ``--format``, ``--brief``, ``--by``, ``--sort`` and ``--top``; see :func:`take_view`."""

    def add(function: F) -> F:
        sort = click.option(
            "--sort",
            type=click.Choice(["time", "gain", "calls"]),
            default="time",
            show_default=True,
            help="Sort the kernels by device time, by gain (what the step, or without a step the "
            "graph, would save if the kernel ran at the hardware's limit), or by calls.",
        )
        by = click.option(
            "--by",
            type=click.Choice(["kernel", "layer", "line"]),
            default="kernel",
            show_default=True,
            help="Divide the step's device time by kernels, by the model's modules (as a tree), "
            "or by the lines of the program.",
        )
        brief = click.option(
            "--brief",
            is_flag=True,
            help="For a run: only what to do next, in under 2,000 tokens: the step, its parts, "
            "kernels, findings with the commands that try them, and what to type; of another result: all in short "
            "lines. --format json writes this as JSON.",
        )
        return add_format_option(formats)(brief(by(sort(add_top_option("How many kernels to show.")(function)))))

    return add


def take_view(values: dict[str, Any]) -> tuple[str, View]:
    """Removes the presentation options from the parsed values and returns the format's name and the view."""
    view = View(
        sort=values.pop("sort", "time"),
        top=values.pop("top"),
        by=values.pop("by", "kernel"),
        brief=values.pop("brief", False),
    )
    return values.pop("format"), view


PROGRESS = "INDUCTOR_BENCH_PROGRESS"
"""Environment variable: the stages of a command are printed on stderr, even if it is not a terminal."""


def make_console(values: Mapping[str, Any], form: Format[Any], *, brief: bool = False) -> Console:
    """The console of a verb for click's ``--quiet`` and ``--verbose``.

    If programs read the result, and stderr is no terminal, there is no progress on it, only remarks on what the result
    does not hold; with the variable :data:`PROGRESS` there is.
    """
    verbose = bool(values.get("verbose"))
    shows = verbose or PROGRESS in os.environ or sys.stderr.isatty()
    piped = (form.is_data or brief) and not shows
    return Console(quiet=bool(values.get("quiet")), verbose=verbose, progress=not piped)


def show(form: Format[Result], result: Result, view: View, console: Console) -> None:
    """Renders a result in a format and prints it."""
    text = form.render(result, view)
    if isinstance(text, str):
        console.result(text)
        return
    from ..report.terminal import print_document

    print_document(text, console.drawing())


def place_view(view: View, folder: Path, console: Console) -> View:
    """Returns the view with the folder of the result and the width of the console."""
    return replace(view, folder=folder, columns=console.columns)


def show_program(
    found: Result, formats: Formats[Result], folder: Path, name: str, view: View, console: Console
) -> None:
    """Shows a result from several processes of a program, and writes its page. A brief view writes nothing.

    The result may be incomplete.

    Args:
        found: a comparison of modes, or a search.
        formats: its formats.
        folder: its folder.
        name: the format to show it in.
        view: how it is shown.
        console: where.
    """
    placed = place_view(view, folder, console)
    form = formats.get(name, brief=view.brief)
    if not view.brief:
        write_text(folder / PAGE, show_as_page(formats, found, placed))
    show(form, found, placed, console)
    if not form.names_folder and not form.is_data:
        console.remark(f"Written: {folder}")


def show_batch(report: BatchReport, console: Console, form: Format[BatchView], view: View) -> None:
    """Prints a batch as a result."""
    if not report.with_parquet:
        from ..store.tables import INSTALL

        console.remark(f"kernels.parquet and `query` need DuckDB ({INSTALL}); the CSV tables are there")
    show(form, report.view, place_view(view, report.folder, console), console)
