"""The options that several verbs share."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from .. import units
from ..errors import UsageError
from ..records.tuning import BY_DEFAULT
from ..workflows.options import DRAWN, METHODS, RECORDED, VALUES_LIMIT_BYTES, RetuneOptions

# The option ``--timeout`` of all verbs that start processes, and the type of all options in seconds.


MOST_S = 1e9
"""Largest number of seconds; the system's clocks do not count to arbitrary numbers."""


class _Seconds(click.FloatRange):
    """A number of seconds above 0. ``float`` also reads ``nan``, which no comparison of a range refuses."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not seconds <= MOST_S:
            self.fail(f"{value!r} is not a number of seconds up to {MOST_S:g}", param, ctx)
        return seconds


SECONDS = _Seconds(min=0, min_open=True)


def timeout_option(text: str | None = None) -> Callable[[F], F]:
    """Adds ``--timeout SECONDS`` as ``timeout_s``; ``text`` says in the verb's help what it limits."""
    return click.option("--timeout", "timeout_s", metavar="SECONDS", type=SECONDS, help=text)


# The options for autotuning the most expensive kernels of a run, shared by the verbs that measure models.


F = TypeVar("F", bound=Callable[..., Any])
OPTION = "--autotune"


class AutotuneCommand(click.Command):
    """A command whose ``--autotune`` takes no value if the next word is a target, as in ``--autotune RUN``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = [
            f"{OPTION}={BY_DEFAULT}" if word == OPTION and _is_target(following) else word
            for word, following in pairwise([*args, ""])
        ]
        return super().parse_args(ctx, words)


def _is_target(word: str) -> bool:
    """Whether a word names a file, a folder or a model. Any other word is a method."""
    return word not in METHODS and (os.path.exists(word) or any(mark in word for mark in ".:/#"))


def autotune_options(function: F) -> F:
    """Adds ``--autotune``, ``--budget``, ``--remeasure`` and ``--verify``; see :func:`take_autotune`."""
    for option in (
        click.option(
            "--remeasure", is_flag=True, help="Retune also kernels that are known from the retune of another run."
        ),
        click.option(
            "--budget",
            "budget_s",
            metavar="SECONDS",
            type=SECONDS,
            help="Of the retune of a model: begin no kernel and no candidate after that.",
        ),
        click.option(
            "--verify/--no-verify",
            default=None,
            help="After a retune, run the program's steps with the winners and without, in turn (the default).",
        ),
        click.option(
            OPTION,
            is_flag=False,
            flag_value=BY_DEFAULT,
            type=click.Choice(METHODS),
            help="Then retune the kernels that take most time, as many as --top says, like `kernel --autotune`.",
        ),
    ):
        function = option(function)
    return function


def take_autotune(values: dict[str, Any], top: int) -> RetuneOptions | None:
    """Removes the autotune options from the parsed values and returns the options of the workflow.

    Args:
        values: click's parsed values by name; three entries are removed.
        top: the number of kernels to autotune.

    Returns:
        The options, or ``None`` where ``--autotune`` was not given.

    Raises:
        UsageError: an option for a retune was given without ``--autotune``.
    """
    method, budget_s, remeasure = (values.pop(name) for name in ("autotune", "budget_s", "remeasure"))
    verify = values.pop("verify")
    if method is not None:
        return RetuneOptions(method, top, budget_s, remeasure, verify is not False)
    given = {"--budget": budget_s is not None, "--remeasure": remeasure, "--verify": verify is not None}
    for option in (name for name, is_given in given.items() if is_given):
        raise UsageError(f"{option} is for a retune", "add --autotune")
    return None


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
            raise UsageError(f"{value} {what}", hint) from error


def complete_path(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Leaves a word to the shell, which completes it as a path."""
    return [CompletionItem(incomplete, type="file")]


# The options for the values of tensors in kernel files, shared by the verbs that write such files.


def values_options(function: F) -> F:
    """Adds ``--values`` and ``--values-limit``; see :func:`take_values`."""
    for option in (
        click.option(
            "--values-limit",
            metavar="SIZE",
            callback=_read_size,
            help="Of the recorded values of one kernel; what is above is drawn.  "
            f"[default: {VALUES_LIMIT_BYTES // 10**6}MB]",
        ),
        click.option(
            "--values",
            type=click.Choice([DRAWN, RECORDED]),
            default=DRAWN,
            show_default=True,
            help="What large tensors in the kernels' files hold: random numbers, or what the kernels really read, in "
            "safetensors files beside.",
        ),
    ):
        function = option(function)
    return function


def take_values(values: dict[str, Any]) -> dict[str, Any]:
    """Replaces ``values_limit`` in the parsed values by the field ``values_limit_bytes`` of the workflow's options.

    Raises:
        UsageError: a limit was given, but the values are not recorded.
    """
    limit = values.pop("values_limit")
    if limit is None:
        return values
    if values["values"] != RECORDED:
        raise UsageError("--values-limit is for recorded values, and these are drawn", "add --values recorded")
    return {**values, "values_limit_bytes": limit}


def _read_size(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    try:
        return units.parse_size(value) if value is not None else None
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from error


# The environment variables that a user types, as in ``--env NAME=VALUE``.


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
