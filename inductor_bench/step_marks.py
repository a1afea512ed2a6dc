"""The mark that a program sets at the end of each step, and those who listen to it."""

from __future__ import annotations

from collections.abc import Callable

listeners: list[Callable[[], None]] = []
"""Called at each mark. It is empty outside of a program that ``breakdown`` observes."""


def step() -> None:
    """Marks the end of a step of the program, for example of one iteration of a training loop or one token.

    ``inductor-bench breakdown`` then measures the steps between the marks. Without marks it takes the optimizer's
    steps, or the repeating pattern of compiled calls. Outside of an observed program this does nothing.
    """
    for listener in tuple(listeners):
        listener()
