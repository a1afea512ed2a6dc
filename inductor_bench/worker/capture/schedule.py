"""Decides at each boundary what the observation does: wait until compilation has settled, time, profile, end.

It has no clock and calls no torch: the caller passes in what it needs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path

from ...records.evidence import DONE, PROFILING, TIMING, WAITING

# The plan of an observation, by numbers of boundaries. The processes of a distributed program follow one plan.
#
# Collectives tie the ranks together: a rank that profiles slows all others. The rank with the lowest ``LOCAL_RANK``
# decides, at least :data:`LEAD` boundaries ahead, because the ranks are not at the same boundary at the same time.


LEAD = 3
"""The number of boundaries between a decision and its effect if other processes follow the decision."""


@dataclass(frozen=True)
class StepPlan:
    """Numbers of boundaries; ``None`` is not decided yet."""

    begin: int | None = None  # the begin of a timed window before the profile
    end: int | None = None  # its end
    profile: int | None = None  # the begin of the profiler's warm-up, which takes one step, or none after ``--skip``
    profiled: int = 0  # the number of whole steps after the warm-up that are recorded


class StepCoordinator:
    """The plan of a process that decides and follows it alone."""

    decides = True
    lead = 0

    def __init__(self) -> None:
        self._plan = StepPlan()

    def read(self) -> StepPlan:
        return self._plan

    def decide(self, plan: StepPlan) -> None:
        self._plan = plan


class Leader(StepCoordinator):
    """The plan of a process that other processes follow."""

    lead = LEAD

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def decide(self, plan: StepPlan) -> None:
        super().decide(plan)
        temporary = self._path.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(plan)), encoding="utf-8")
        temporary.replace(self._path)


class Follower(StepCoordinator):
    """The plan of a process that follows another. The file is read again only after it was replaced."""

    decides = False
    lead = LEAD

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._version = 0

    def read(self) -> StepPlan:
        try:
            version = os.stat(self._path).st_ino
            if version != self._version:
                self._plan = StepPlan(**json.loads(self._path.read_text(encoding="utf-8")))
                self._version = version
        except OSError:
            pass  # the leader has not decided anything yet
        return self._plan


def make_coordinator(environment: Mapping[str, str], folder: Path) -> StepCoordinator:
    """The coordinator of this process, by the variables that launchers of distributed programs set."""
    rank, ranks = environment.get("LOCAL_RANK", ""), environment.get("LOCAL_WORLD_SIZE", "")
    if not rank.isdigit() or not ranks.isdigit() or int(ranks) < 2:
        return StepCoordinator()
    return (Follower if int(rank) else Leader)(folder / "plan.json")


QUIET_STEPS = 2
"""Whole steps without compilation and without a recording of a CUDA graph, after which compilation has settled."""

WINDOW_STEPS = (5, 50)
"""Minimum and maximum number of steps in the timed window."""

WINDOW_S = 0.5
"""Minimum time of the window in seconds, unless it has its maximum number of steps."""

LONG_WINDOW_STEPS, LONG_WINDOW_S = 200, 2.0
"""The window's maximum number of steps and minimum time for steps of several kinds, and on an accelerator, whose host
may become faster for seconds after the last compilation."""

PROFILED_STEPS = (3, 10)
PROFILED_S = 0.15
"""Minimum and maximum number of profiled steps, and their minimum time in seconds."""

ATTEMPTS = 3
"""Maximum number of profiles that begin; a profile in which the program compiles is discarded."""


class Action(Enum):
    """What the caller does at a boundary. They come in this order if several fall on one boundary."""

    VOID = "the steps that were timed until now do not count: the program compiled, or began its own profiler"
    CLOSE = "the window ends here"
    DISCARD = "the profile that runs is discarded"
    SETTLED = "compilation has settled: the profile or the window is next"
    PREPARE = "the profiler's warm-up begins"
    RECORD = "the profiler begins to record"
    EXPORT = "the profiled steps end here"
    STACKS = "a step with Python stacks begins"
    FINISH = "the profile is over: the step with Python stacks ends here, if there is one"
    OPEN = "the timed window begins here"


@dataclass(frozen=True)
class WindowLimits:
    """The window of one observation."""

    skip: int | None = None  # the number of steps before it, which the user may choose
    # the number of its steps, which the user may choose; one more is profiled then
    steps: int | None = None
    profiles: bool = True  # whether steps are profiled
    stacks: bool = True  # whether a step with Python stacks follows the profiled steps
    samples: bool = False  # whether the host is sampled in steps after all others
    most_steps: int = WINDOW_STEPS[1]  # the maximum number of its steps if the user chose none
    window_s: float = WINDOW_S  # its minimum time in seconds; ``most_steps`` or ``steps`` may end it earlier


class Schedule:
    """The state of an observation: ``state`` as in ``records.evidence``.

    The steps are profiled as soon as compilation has settled, so that a program of few steps has a profile, and the
    window follows. The window comes first if the user chose its first step, or if the profiler slows the steps after
    the profile: :meth:`put_window_first`.
    """

    def __init__(self, limits: WindowLimits, coordinator: StepCoordinator) -> None:
        self.state = WAITING
        self.begin = 0
        self.attempts = 0
        self.step_s = 0.0
        """The mean time of a step on the host, as far as it is known."""
        self._limits = limits
        self._coordinator = coordinator
        self._times_first = limits.skip is not None or not limits.profiles
        self._warm_up = 1 if limits.skip is None else 0  # a program of few steps has none to spare
        self._quiet = -1  # the step before the first boundary is never whole
        self._crossed_s = self._begin_s = 0.0
        # Before these numbers of boundaries, and this time, a process that decides keeps the window open.
        self._least_end, self._most_end, self._least_end_s = 0, 0, 0.0
        self._profile: int | None = None
        self._is_profiled = not limits.profiles

    @property
    def profiled_from(self) -> int | None:
        """The number of the step at which the profile began; ``None`` before it did."""
        return self._profile

    def lengthen(self, *, for_kinds: bool = False) -> None:
        """Uses the longer window, unless the user or a comparison chose another.

        If the host is sampled after the window, the steps between the samples make it longer. But they are of the
        profiled kinds only, so that steps ``for_kinds`` need the longer window all the same.
        """
        is_default = (self._limits.most_steps, self._limits.window_s) == (WINDOW_STEPS[1], WINDOW_S)
        if is_default and (for_kinds or not self._limits.samples):
            self._limits = replace(self._limits, most_steps=LONG_WINDOW_STEPS, window_s=LONG_WINDOW_S)

    def put_window_first(self) -> None:
        """Puts the window before the profile."""
        self._times_first = True

    def note_quiet_steps(self) -> None:
        """Notes that steps without compilation, which no boundary counted, came before the first boundary."""
        self._quiet = max(self._quiet, 0)

    def restart(self) -> None:
        """Forgets what was measured, because other events are the boundaries from now on, or the program compiled."""
        self.state, self._quiet, self._profile = WAITING, -1, None
        self._least_end, self._most_end = 0, 0
        self._is_profiled = not self._limits.profiles
        if self._coordinator.decides:
            self._coordinator.decide(StepPlan())

    def postpone(self) -> None:
        """Plans the profile again, because the program's own profiler began."""
        self._profile = None
        if self._coordinator.decides:
            self._coordinator.decide(replace(self._coordinator.read(), profile=None))

    def skip_profile(self) -> bool:
        """Leaves the profile out, because the profiler cannot record. Returns whether the window is still to come."""
        self._is_profiled = True
        return not self._times_first

    def is_within_window(self, number: int, now_s: float) -> bool:
        """Whether nothing is to be decided at this boundary of the window; cheaper than :meth:`cross`."""
        return number < self._least_end or (number < self._most_end and now_s < self._least_end_s)

    def wants_kinds(self, number: int) -> int:
        """The number of steps that are profiled at the end of a step, if further steps may follow for other kinds.

        It is 0 if none may: the user chose how many, other processes follow the plan, or the profile does not end here.
        """
        if self.state != PROFILING or self._profile is None or self._is_profiled:
            return 0
        steps = number - self._profile - self._warm_up
        is_free = self._limits.steps is None and not self._coordinator.lead
        return steps if is_free and steps == self._coordinator.read().profiled else 0

    def profile_more(self) -> None:
        """Adds a step to the profile."""
        plan = self._coordinator.read()
        self._coordinator.decide(replace(plan, profiled=plan.profiled + 1))

    def cross(self, number: int, first: int, now_s: float, *, noisy: bool, other_profiler: bool) -> list[Action]:
        """Crosses a boundary.

        Args:
            number: the number of the step that begins here.
            first: the number of the first boundary.
            now_s: the time.
            noisy: whether the program compiled or recorded a CUDA graph since the last boundary.
            other_profiler: whether the program's own profiler is running.
        """
        actions: list[Action] = []
        self._quiet = 0 if noisy else self._quiet + 1
        last_s, self._crossed_s = self._crossed_s, now_s
        if self.state == WAITING and last_s and not noisy:
            self.step_s = now_s - last_s
        if self.state == TIMING:
            actions += self._time(number, now_s, noisy or other_profiler)
        if self.state == WAITING:
            actions += self._wait(number, first, now_s, other_profiler)
        if self.state == PROFILING:
            actions += self._record(number, now_s, noisy, other_profiler)
        return actions

    def _wait(self, number: int, first: int, now_s: float, other_profiler: bool) -> list[Action]:
        if not self._times_first:
            return self._wait_for_profile(number, first, other_profiler)
        plan = self._coordinator.read()
        if plan.begin is None and self._coordinator.decides and not other_profiler and self._is_ready(number, first):
            plan = replace(plan, begin=number + self._coordinator.lead)
            self._coordinator.decide(plan)
        if plan.begin is None or number < plan.begin:
            return []
        return [Action.SETTLED, *self._open(number, now_s)]

    def _wait_for_profile(self, number: int, first: int, other_profiler: bool) -> list[Action]:
        plan = self._coordinator.read()
        if plan.profile is None and self._coordinator.decides and not self._is_ready(number, first):
            return []
        begun = self._prepare(number, plan, other_profiler)
        if not begun:
            return []
        self.state = PROFILING
        return [Action.SETTLED, *begun]

    def _is_ready(self, number: int, first: int) -> bool:
        if self._limits.skip is not None:
            return number >= first + self._limits.skip
        return self._quiet >= QUIET_STEPS

    def _open(self, number: int, now_s: float) -> list[Action]:
        self.state, self.begin, self._begin_s = TIMING, number, now_s
        if self._coordinator.decides or not self._times_first:
            steps = self._limits.steps
            least, most = (steps, steps) if steps else (WINDOW_STEPS[0], self._limits.most_steps)
            first = number - (self._coordinator.lead if self._times_first else 0)
            self._least_end, self._most_end = first + least, first + most
            self._least_end_s = now_s + self._limits.window_s
        return [Action.OPEN]

    def _time(self, number: int, now_s: float, disturbed: bool) -> list[Action]:
        coordinator, lasts = self._coordinator, self._limits.skip is not None or self.attempts >= ATTEMPTS
        if disturbed and coordinator.decides and not lasts:
            self.restart()
            self._quiet = 0
            return [Action.VOID]
        if not coordinator.decides and self._is_replanned(coordinator.read()):
            self.restart()
            return [Action.VOID]
        if not self._has_ended(number, now_s):
            return []
        self.step_s = (now_s - self._begin_s) / (number - self.begin)
        self.state = DONE if self._is_profiled else PROFILING
        return [Action.CLOSE]

    def _is_replanned(self, plan: StepPlan) -> bool:
        """Whether the process that decides has begun anew."""
        if self._times_first:
            return plan.begin != self.begin and (plan.begin is None or plan.begin > self.begin)
        return plan.profile != self._profile and (plan.profile is None or plan.profile > (self._profile or 0))

    def _has_ended(self, number: int, now_s: float) -> bool:
        """Whether the window ends here. Ranks agree on the end of the window only if a profile follows."""
        if not self._times_first:
            return not self.is_within_window(number, now_s)
        plan = self._coordinator.read()
        if plan.end is None and self._coordinator.decides and not self.is_within_window(number, now_s):
            plan = replace(plan, end=number + self._coordinator.lead)
            self._coordinator.decide(plan)
        return plan.end is not None and number >= plan.end

    def _record(self, number: int, now_s: float, noisy: bool, other_profiler: bool) -> list[Action]:
        plan = self._coordinator.read()
        if self._profile is None or (plan.profile or 0) > self._profile:
            discard = [] if self._profile is None else [Action.DISCARD]
            return discard + self._prepare(number, plan, other_profiler)
        if number == self._profile and self._warm_up:
            return []  # the warm-up began here
        if noisy and self._coordinator.decides and self.attempts < ATTEMPTS:
            self.postpone()
            if self._times_first:
                return [Action.DISCARD]
            self.restart()
            self._quiet = 0
            return [Action.DISCARD, Action.VOID]
        if self._is_profiled:
            return self._open(number, now_s)  # the step after the profile, in which the device waited, is left out
        place = number - self._profile - self._warm_up
        if place == 0 and self._warm_up:
            return [Action.RECORD]
        if place == plan.profiled and not self._limits.stacks:
            return [Action.EXPORT, *self._end_profile()]
        if place == plan.profiled:
            return [Action.EXPORT]
        if place == 1 + plan.profiled:
            return [Action.STACKS]
        if place > 1 + plan.profiled:
            return self._end_profile()
        return []

    def _end_profile(self) -> list[Action]:
        self._is_profiled = True
        if self._times_first:
            self.state = DONE
        return [Action.FINISH]

    def _prepare(self, number: int, plan: StepPlan, other_profiler: bool) -> list[Action]:
        if plan.profile is None and self._coordinator.decides and not other_profiler:
            plan = replace(plan, profile=number + self._coordinator.lead, profiled=self._profiled_steps())
            self._coordinator.decide(plan)
        if plan.profile is None or number < plan.profile:
            self._profile = None
            return []
        if other_profiler:
            self.postpone()
            return []
        self._profile = number
        self.attempts += 1
        return [Action.PREPARE] if self._warm_up else [Action.PREPARE, Action.RECORD]

    def _profiled_steps(self) -> int:
        """Returns the wanted number of steps and one more: work from before the profile may run in the first step."""
        least, most = PROFILED_STEPS
        by_time = math.ceil(PROFILED_S / max(self.step_s, 1e-6))
        return 1 + (self._limits.steps or min(most, max(least, by_time)))
