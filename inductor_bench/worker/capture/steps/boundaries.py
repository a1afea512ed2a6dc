"""Decides which events of a program end its steps: its marks, else its optimizer steps, else its pattern of calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol

from inductor_bench.records.program import MARKS, OPTIMIZER_STEPS, PATTERN

from .pattern import LongerLoop, Pattern

PRIORITY = {"": 0, PATTERN: 1, OPTIMIZER_STEPS: 2, MARKS: 3}

PATIENCE = 64
"""Events of another origin without one of the anchor, after which the other becomes the anchor. It is far above the
number of steps that one optimizer makes between two of another."""

Origin = tuple[int, int]
"""What made an event, and the thread that made it."""


class Boundaries:
    """Turns events into boundaries. A boundary has the number of the step that begins there; the first step is 0.

    All boundaries are events of one origin, the anchor: two optimizers that take turns make one step, and so do a
    profiler's mark and the program's own.

    Args:
        cross: called at each boundary with its number.
        restart: called when another kind of event or another origin takes over, before its first boundary.
        pattern: the pattern whose cycles are the boundaries where no other event is.
    """

    def __init__(self, cross: Callable[[int], None], restart: Callable[[], None], pattern: Pattern) -> None:
        self.source = ""
        self.first = 1
        """The number of the first boundary: a mark and an optimizer end the first step, a pattern begins it."""
        self.searches_pattern = True
        """Whether the program has neither marks nor optimizer steps until now."""
        self._cross = cross
        self._restart = restart
        self._pattern = pattern
        self._anchor: Origin | None = None
        self._counts: dict[Origin, int] = {}
        self._others: dict[Origin, int] = {}

    @property
    def loop(self) -> LongerLoop | None:
        """The loop that a step is a part of, where the pattern of calls tells; else ``None``."""
        return self._pattern.loop if self.source == PATTERN else None

    def event(self, source: str, origin: int) -> None:
        """A mark or an optimizer step."""
        who = (origin, threading.get_ident())
        if who != self._anchor or source != self.source:
            if PRIORITY[source] < PRIORITY[self.source] or not self._takes_over(source, who):
                return
        elif self._others:
            self._others.clear()
        number = self._counts.get(who, 0) + 1
        self._counts[who] = number
        self._cross(number)

    def _takes_over(self, source: str, who: Origin) -> bool:
        if source == self.source:
            self._counts[who] = self._counts.get(who, 0) + 1
            self._others[who] = self._others.get(who, 0) + 1
            if self._others[who] <= PATIENCE:
                return False
            self._counts[who] -= 1
        self.source, self.first, self._anchor, self.searches_pattern = source, 1, who, False
        self._others.clear()
        self._restart()
        return True

    def cycle(self, number: int) -> None:
        """The beginning of a cycle of calls."""
        if not self.source:
            self.source, self.first = PATTERN, 0
        if self.source == PATTERN:
            self._cross(number)


class StepMeasurement(Protocol):
    """What is measured at the boundaries of steps; see ``measurement.Measurement``."""

    is_noisy: bool
    is_recording: bool
    is_ours: bool
    excluded_s: float

    @property
    def is_complete(self) -> bool: ...
    def note_compiler(self) -> None: ...
    def note_compilation(self) -> None: ...
    def restart(self) -> None: ...
    def call_graph(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any: ...
    def pass_within_window(self, number: int, arrived_s: float) -> bool: ...
    def cross(
        self, number: int, boundaries: Boundaries, arrived_s: float, *, busy: bool, cycle_s: float | None
    ) -> None: ...
    def give_way(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def finish(self, boundaries: Boundaries) -> None: ...
