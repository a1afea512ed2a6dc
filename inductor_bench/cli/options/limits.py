"""The option ``--timeout`` of all verbs that start processes, and the type of all options in seconds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


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
