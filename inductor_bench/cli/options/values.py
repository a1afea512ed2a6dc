"""The options for the values of tensors in kernel files, shared by the verbs that write such files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ... import units
from ...errors import UsageError
from ...workflows.options import DRAWN, RECORDED, VALUES_LIMIT_BYTES

F = TypeVar("F", bound=Callable[..., Any])


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
