"""The option ``--timeout`` of all verbs that start processes, and the type of all options in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

SECONDS = click.FloatRange(min=0, min_open=True)


def timeout_option(text: str | None = None) -> Callable[[F], F]:
    """Adds ``--timeout SECONDS`` as ``timeout_s``; ``text`` says in the verb's help what it limits."""
    return click.option("--timeout", "timeout_s", metavar="SECONDS", type=SECONDS, help=text)
