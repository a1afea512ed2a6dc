"""The environment variables that a user types, as in ``--env NAME=VALUE``."""

from __future__ import annotations

import click


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
