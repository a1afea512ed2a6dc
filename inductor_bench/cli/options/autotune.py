"""The options for autotuning the most expensive kernels of a run, shared by the verbs that measure models."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

import click

from ...errors import UsageError
from ...records.tuning import BY_DEFAULT
from ...workflows.options import METHODS, RetuneOptions
from .limits import SECONDS

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
