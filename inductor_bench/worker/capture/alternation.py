"""The boundaries of steps for measurements that run the program's steps in several ways in turn.

Each waits until compilation has settled, agrees with the other ranks on a plan, and follows it step by step.
"""

from __future__ import annotations

import json
import os
import statistics
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...messages.observed import SETTLING, ComparedSteps, TriedVariants
from ...store import codec
from .boundaries import Boundaries, CalledGraphs
from .schedule import QUIET_STEPS, StepPlan, make_coordinator
from .step_recording import StepClock

RECENT_STEPS = 8
"""The number of steps whose mean says how many are timed."""

DIFFER = 1.5
"""Ratio of the longest to the shortest recent step from which all of them are waited for."""

Found = TypeVar("Found", ComparedSteps, TriedVariants)


class AlternatingSteps(ABC, Generic[Found]):
    """A measurement of one process, which replaces ``step_measurement.Measurement``.

    Args:
        folder: the folder of the capture.
        graphs: the graphs of the process.
        found: the message that holds what is found, as it is at the begin.
        suffix: the end of the name of its file, after the process's id.
    """

    def __init__(self, folder: Path, graphs: CalledGraphs, found: Found, suffix: str) -> None:
        self.is_noisy = self.is_odd = self.is_recording = self.is_ours = self.looks_for_outer = False
        self.excluded_s = 0.0
        self.found: Found = found
        self._path = folder / f"{os.getpid()}{suffix}"
        self._graphs = graphs
        self._clock, self._coordinator = StepClock(), make_coordinator(os.environ, folder)
        self._plan: StepPlan | None = None
        self._quiet = -1
        self._last_s = 0.0
        self._steps_s: deque[float] = deque(maxlen=RECENT_STEPS)  # since the program compiled last

    @property
    def _step_s(self) -> float:
        """The mean of the last steps, which may be of several kinds."""
        return statistics.fmean(self._steps_s)

    @property
    def _is_quiet(self) -> bool:
        """Whether enough steps without compilation are known: two, and more if these differ much."""
        steps_s = self._steps_s
        enough = len(steps_s) == RECENT_STEPS or (len(steps_s) > 1 and max(steps_s) < DIFFER * min(steps_s))
        return self._quiet >= QUIET_STEPS and enough

    @property
    @abstractmethod
    def is_complete(self) -> bool:
        """Whether nothing is left to do."""

    @abstractmethod
    def _forget(self) -> None:
        """Forgets the steps that were measured, and runs the program as it is."""

    @abstractmethod
    def _make_plan(self, begin: int) -> StepPlan:
        """Makes the plan of the steps from this boundary on; the program has settled."""

    @abstractmethod
    def _go_on(self, place: int, number: int, arrived_s: float, *, noisy: bool) -> None:
        """Does the work at the boundary where step ``place`` of the plan begins."""

    def _may_settle(self) -> bool:
        """Whether the plan can be made once the program is quiet."""
        return True

    def _is_void(self, noisy: bool) -> bool:
        """Whether the measurement has to begin again because of what was compiled."""
        return False

    def note_compiler(self) -> None:
        """Does nothing: the first step is not measured."""

    def note_compilation(self) -> None:
        """Does nothing: the first step is not measured."""

    def note_pattern(self) -> None:
        """Does nothing: these steps settle like all other steps."""

    def leave_child(self) -> None:
        """Does nothing: no thread is lost in a forked child."""

    def give_way(self) -> None:
        """Does nothing: steps under the program's own profiler are not counted anyway."""

    def call_graph(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any:
        """Calls a graph while :attr:`is_recording`."""
        return original(compiled, inputs)

    def pass_within_window(self, number: int, arrived_s: float) -> bool:
        """Returns ``False``: there is work at each boundary."""
        return False

    def restart(self) -> None:
        """Forgets the boundaries, because from now on events of another kind are the boundaries."""
        self._forget()
        self._plan, self._quiet = None, -1
        if self._coordinator.decides:
            self._coordinator.decide(StepPlan())
        self.found = replace(self.found, state=SETTLING)

    def cross_boundary(
        self, number: int, boundaries: Boundaries, arrived_s: float, *, other_profiler: bool, cycle_s: float | None
    ) -> None:
        """Crosses a boundary: the step of this number begins here."""
        if self._clock.device != self._graphs.device and self._graphs.device:
            self._clock.use_device(self._graphs.device)
        if self._clock.is_capturing_cuda_graph():
            return
        noisy, self.is_noisy, self.is_odd = self.is_noisy or self.is_odd or other_profiler, False, False
        self.found = replace(self.found, source=boundaries.source, device=self._clock.device)
        if noisy:
            self._steps_s.clear()
        elif self._last_s:
            self._steps_s.append(arrived_s - self._last_s)
        self._last_s = arrived_s
        if self._plan is None:
            self._settle(number, noisy)
        elif self._is_void(noisy) or (not self._coordinator.decides and self._coordinator.read() != self._plan):
            self.restart()
            return
        if self._plan is not None and self._plan.begin is not None and number >= self._plan.begin:
            self._go_on(number - self._plan.begin, number, arrived_s, noisy=noisy)

    def _settle(self, number: int, noisy: bool) -> None:
        """Counts the steps without compilation, and makes the plan once there is one."""
        self._quiet = self._quiet + 1 if self._may_settle() and not noisy else 0
        if self.is_complete:
            return
        plan = self._coordinator.read()
        if plan.begin is None and self._coordinator.decides and self._is_quiet:
            self._coordinator.decide(self._make_plan(number + self._coordinator.lead))
            plan = self._coordinator.read()
        if plan.begin is not None and plan.end is not None:
            self._plan = plan

    def _save(self, found: Found) -> None:
        """Writes what is found, over an earlier file. A reader sees either the whole old file or the whole new one."""
        self.found = found
        temporary = self._path.with_suffix(".part")
        temporary.write_text(json.dumps(codec.encode(found)), encoding="utf-8")
        temporary.replace(self._path)
