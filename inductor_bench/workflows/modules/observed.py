"""Reads what the processes of a program observed, from the folder of the capture."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ...errors import InductorBenchError
from ...messages.capture import Observation
from ...messages.steps import DONE, PROFILING, TIMING, ObservedSteps, ObservedTouches
from ...store.files import read_json
from ...store.formats import codec

STEPS = ".steps.json"
TOUCHES = ".touches.json"
PYTHON_STARTED = "python.started"

PATIENCE_S = 10.0
"""Seconds that a program goes on after its steps are measured, before the user is told of ``--stop``."""

SETTLE_S = 1.0
"""Seconds for the other ranks to say that they are done, after the last one that is known did."""


def read_observations(folder: Path) -> dict[str, list[Observation]]:
    """The observations of modules by the real paths of the modules."""
    found: dict[str, list[Observation]] = {}
    for file in sorted(folder.glob("*-*.json"), key=_order):
        if file.name.endswith(".trace.json"):
            continue
        seen = codec.decode(Observation, read_json(file))
        found.setdefault(os.path.realpath(seen.path), []).append(seen)
    return found


def _order(file: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in file.name.split(".")[0].split("-"))


def read_steps(folder: Path) -> tuple[ObservedSteps, ...]:
    """The observed steps of each process that ran a compiled graph, by rank.

    Raises:
        InductorBenchError: a file is damaged.
    """
    found = [codec.decode(ObservedSteps, read_json(file)) for file in folder.glob(f"*{STEPS}")]
    return tuple(sorted(found, key=lambda steps: (steps.rank or 0, steps.pid)))


def read_touches(folder: Path) -> dict[int, ObservedTouches]:
    """The graph calls of one step of each process, by its id. A damaged file counts as missing."""
    found = {}
    for file in folder.glob(f"*{TOUCHES}"):
        with suppress(InductorBenchError, ValueError):
            found[int(file.name.removesuffix(TOUCHES))] = codec.decode(ObservedTouches, read_json(file))
    return found


def started_python(folder: Path) -> bool:
    """Whether a Python process of the program read the capture's configuration."""
    return (folder / PYTHON_STARTED).exists()


class StepWatch:
    """Looks, while the program runs, whether its steps are measured.

    Args:
        folder: the folder of the observations.
        stops: whether the program is ended then.
        tell: called once where the program goes on for :data:`PATIENCE_S` seconds without need.
    """

    def __init__(self, folder: Path, stops: bool, tell: Callable[[], None]) -> None:
        self._folder, self._stops, self._tell = folder, stops, tell
        self._done_s: float | None = None
        self._told = False

    def is_finished(self) -> bool:
        """Whether the program can be ended now."""
        if self._told or not self._is_measured():
            return False
        now_s = time.monotonic()
        self._done_s = self._done_s or now_s
        if self._stops:
            return now_s - self._done_s >= SETTLE_S
        if now_s - self._done_s >= PATIENCE_S:
            self._told = True
            self._tell()
        return False

    def _is_measured(self) -> bool:
        try:
            states = [steps.state for steps in read_steps(self._folder)]
        except InductorBenchError:
            return False
        return DONE in states and not {TIMING, PROFILING} & set(states)
