"""The order of the processes: rows take turns, so that a drift of the machine cancels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...records.modes.settings import EAGER, ModeSet
from .process import Place


class Turns:
    """The order in which the processes of a comparison run: A B C, C B A, A B C, …

    A row without compilation runs in the first round as soon as a compiled row is measured, which tells how the steps
    are found: a comparison that is interrupted then has a compiled row to hold against eager.

    Args:
        rows: the settings of the rows.
        rounds: the number of processes for each row.
        knows_steps: asked before each process; whether a compiled row is measured.
    """

    def __init__(self, rows: Sequence[ModeSet], rounds: int, knows_steps: Callable[[], bool]) -> None:
        self._rows, self._rounds, self._knows_steps = rows, rounds, knows_steps

    def places(self) -> Iterator[Place]:
        """All processes in their order."""
        first = []
        for number in self._first_round():
            first.append(number)
            yield self._place(number, 0)
        for round in range(1, self._rounds):
            for number in first if round % 2 == 0 else reversed(first):
                yield self._place(number, round)

    def _first_round(self) -> Iterator[int]:
        numbers = range(len(self._rows))
        compiled = [number for number in numbers if self._rows[number].mode != EAGER]
        waiting = [number for number in numbers if self._rows[number].mode == EAGER]
        for number in compiled:
            yield number
            if self._knows_steps():
                yield from waiting
                waiting = []
        yield from waiting

    def _place(self, number: int, round: int) -> Place:
        return Place(number, self._rows[number].name, self._rows[number], round)
