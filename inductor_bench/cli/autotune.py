"""The options with which the dearest kernels of a run are retuned. Shared by the verbs that measure models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..errors import UsageError
from ..workflows.options import METHODS, RetuneOptions

F = TypeVar("F", bound=Callable[..., Any])


def autotune_options(function: F) -> F:
    """Adds ``--autotune`` and ``--budget``; see :func:`take_autotune`."""
    for option in (
        click.option(
            "--budget",
            "budget_s",
            metavar="SECONDS",
            type=click.FloatRange(min=0, min_open=True),
            help="Of the retune of a model: build no more candidates after that.",
        ),
        click.option(
            "--autotune",
            is_flag=False,
            flag_value=METHODS[0],
            type=click.Choice(METHODS),
            help="Then retune the kernels that take most time, as many as --top says, like `kernel --autotune`.",
        ),
    ):
        function = option(function)
    return function


def take_autotune(values: dict[str, Any], top: int) -> RetuneOptions | None:
    """Removes the options from the parsed values and returns what they ask for."""
    method, budget_s = values.pop("autotune"), values.pop("budget_s")
    if method is None and budget_s is not None:
        raise UsageError("--budget is for a retune", "add --autotune")
    return RetuneOptions(method, top, budget_s) if method is not None else None
