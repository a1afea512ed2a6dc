"""Reads what a program's processes wrote: how far their steps are, what they compiled, or why they compiled nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ... import units
from ...analysis.findings.finding import plural
from ...devices.table import find_device
from ...errors import InductorBenchError
from ...launch.process import WAKE_S
from ...launch.worker import CORES_OF_THE_PROGRAM, count_cores_of_this_process
from ...messages.observed import COMPILE_USE, OBJECTS, PYTHON_ENDED, UNCOMPILED, CompiledObjects, CompileUse
from ...records.code import CompiledFunction, is_of_torch
from ...records.evidence import DONE, FAILED, PROFILING, SAMPLING, TIMING, ObservedSteps, ObservedTouches
from ...source.compile_log import ObjectName, SkippedFrame
from ...source.structured_trace import Compilation
from ...store import codec
from ...store.files import read_json

STEPS = ".steps.json"
TOUCHES = ".touches.json"

PATIENCE_S = 10.0
"""Seconds for which a program goes on after its steps are measured, before the user is told about ``--stop``."""

NEWS_S = 15.0
"""Seconds from one line about the running program to the next."""

SETTLE_S = 1.0
"""Seconds that the other ranks have to finish after the first one; on few cores, seconds from the profile to the end of
the window."""

WINDOW_S = 0.5
"""Seconds for which the early answer waits until all steps of the window are timed, if the program leaves cores free.
Then the answer counts the steps that are timed so far."""

SAMPLED_S, SAMPLED_TO_STOP_S = 6.0, 12.0
"""Seconds in which the host may be sampled: on few cores the answer waits so many seconds, and ``--stop`` waits longer.
A program that makes no more steps ends no sampling."""

ASK_S = 0.05
"""Seconds between two checks, if the program leaves cores free."""

ENDED = frozenset({DONE, FAILED})
"""The states of an observation that is over."""

TIMED = ENDED | {SAMPLING}
"""The states in which the times of the steps are known."""


def read_steps(folder: Path) -> tuple[ObservedSteps, ...]:
    """Returns the observed steps of each process that ran a compiled graph, by rank.

    Raises:
        InductorBenchError: a file is damaged.
    """
    return _sort_processes(_read(file) for file in folder.glob(f"*{STEPS}"))


def _read(file: Path) -> ObservedSteps:
    return codec.decode(ObservedSteps, read_json(file))


def _sort_processes(found: Iterable[ObservedSteps]) -> tuple[ObservedSteps, ...]:
    return tuple(sorted(found, key=lambda steps: (steps.rank or 0, steps.pid)))


def read_touches(folder: Path) -> dict[int, ObservedTouches]:
    """Returns the graph calls of one step of each process, by its id. A damaged file counts as missing."""
    found = {}
    for file in folder.glob(f"*{TOUCHES}"):
        with suppress(InductorBenchError, ValueError):
            found[int(file.name.removesuffix(TOUCHES))] = codec.decode(ObservedTouches, read_json(file))
    return found


def describe_phase(steps: Sequence[ObservedSteps]) -> dict[str, float]:
    """Says for how many seconds the slowest process waited for the profiler, by what the profiler did."""
    slowest = max((one.phases_s for one in steps), key=lambda phases: sum(phases.values()), default={})
    return {f"in the program: {name}": time_s for name, time_s in slowest.items()}


class StepWatch:
    """Checks, while the program runs, whether its steps are measured.

    Args:
        folder: the folder of the observations.
        stops: whether the program is ended when its steps are measured.
        tell: called once if the program goes on for :data:`PATIENCE_S` seconds after its steps are measured.
        prepare: called before the answer, if the program leaves cores free: when the only process has steps, when all
            processes are profiled, and when all have a new trace.
        answer: called once when the steps are measured, while the program still runs.
        end: called once when the Python of all processes with steps has ended, while a process is torn down.
    """

    def __init__(
        self,
        folder: Path,
        stops: bool,
        tell: Callable[[], None],
        prepare: Callable[[], None] = lambda: None,
        answer: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        self._folder, self._stops, self._tell = folder, stops, tell
        self._prepare, self._answer, self._end = prepare, answer, end
        self._profiled_s: float | None = None
        self._done_s: float | None = None
        self._sampled_s: float | None = None
        self.is_answered = self._told = self._has_ended = False
        self._prepared: object = None  # how far the processes were at the last call of ``prepare``
        self._known: dict[Path, tuple[tuple[int, int, int], ObservedSteps]] = {}

    @property
    def steps(self) -> tuple[ObservedSteps, ...]:
        """Returns the steps that were read at the last check."""
        return tuple(steps for _, steps in self._known.values())

    @property
    def ask_s(self) -> float:
        """Seconds between two looks."""
        return WAKE_S if _has_few_cores() else ASK_S

    def is_finished(self) -> bool:
        """Whether the program can be ended now."""
        pids = [file.name.removesuffix(STEPS) for file in self._folder.glob(f"*{STEPS}")]
        has_graphs = bool(pids)
        # Asked before the steps are read: they are final then.
        is_at_end = has_graphs and all((self._folder / f"{pid}{PYTHON_ENDED}").exists() for pid in pids)
        steps = self._read_steps(self._folder if has_graphs else self._folder / UNCOMPILED)
        if not self.is_answered:
            self._look_for_answer(steps)
        if is_at_end:
            if not self._has_ended:
                self._has_ended = True
                self._end()
            return False
        if self._told:
            return False
        now_s = time.monotonic()
        states = self._states(steps, now_s, SAMPLED_TO_STOP_S)
        if DONE not in states or {TIMING, PROFILING} & states:
            self._done_s = None
            return False
        self._done_s = self._done_s or now_s
        if self._stops:
            return now_s - self._done_s >= (SETTLE_S if has_graphs else PATIENCE_S)  # without any it may still compile
        if now_s - self._done_s >= PATIENCE_S:
            self._told = True
            self._tell()
        return False

    def _look_for_answer(self, steps: Sequence[ObservedSteps]) -> None:
        now_s = time.monotonic()
        if self._is_answerable(steps, self._states(steps, now_s, SAMPLED_S), now_s):
            self.is_answered = True
            self._answer()
            return
        if not steps or _has_few_cores():
            return
        traces = tuple((one.trace, one.lines_trace) for one in steps)
        are_profiled = all(one.trace or one.state == PROFILING for one in steps)
        # While one rank makes steps, another may still compile, and what was compiled would be read again.
        may_have_compiled_all = are_profiled or len(steps) == 1
        come_so_far = traces, are_profiled
        are_equal = len({tuple(map(bool, pair)) for pair in traces}) == 1
        if may_have_compiled_all and are_equal and come_so_far != self._prepared:
            self._prepared = come_so_far
            if not find_device(steps[0].device).runs_on_host:
                self._prepare()

    def _states(self, steps: Sequence[ObservedSteps], now_s: float, most_s: float) -> Set[str]:
        """Returns the states of all processes.

        If the host is sampled, the steps still count as timed, for ``most_s`` seconds at most.
        """
        found = {one.state for one in steps}
        if SAMPLING not in found:
            self._sampled_s = None
            return found
        self._sampled_s = self._sampled_s or now_s
        return found - {SAMPLING} | {TIMING if now_s - self._sampled_s < most_s else DONE}

    def _is_answerable(self, steps: Sequence[ObservedSteps], states: Set[str], now_s: float) -> bool:
        """Whether all ranks are measured, or are profiled and not finished for a while: long steps fill a long window.

        On few cores the answer would disturb that window, and the samples after it.
        """
        if PROFILING in states or not any(one.state == DONE or one.trace for one in steps):
            self._profiled_s = None
            return False
        self._profiled_s = self._profiled_s or now_s
        if _has_few_cores():
            return TIMING not in states and (states <= ENDED or now_s - self._profiled_s >= SETTLE_S)
        return {one.state for one in steps} <= TIMED or now_s - self._profiled_s >= WINDOW_S

    def _read_steps(self, folder: Path) -> tuple[ObservedSteps, ...]:
        """Reads the steps. Only files that were written since the last check are read."""
        found = []
        try:
            for file in folder.glob(f"*{STEPS}"):
                status = file.stat()
                version = status.st_ino, status.st_mtime_ns, status.st_size
                if file not in self._known or self._known[file][0] != version:
                    self._known[file] = version, _read(file)
                found.append(self._known[file][1])
        except (InductorBenchError, OSError):
            return ()
        return _sort_processes(found)


def describe_news(steps: Sequence[ObservedSteps], compiled: int) -> str:
    """Says how far a program is: ``4 graphs compiled, at least 8 steps, now timed``; empty if nothing is known yet."""
    furthest = max(steps, key=lambda one: one.steps, default=None)
    count = furthest.steps if furthest is not None else 0
    known = [f"{plural(compiled, 'graph')} compiled"] if compiled else []
    known += [f"at least {plural(count, 'step')}"] if count else []  # the file is not written at each step
    if furthest is not None and furthest.first_step_time_s is not None:
        known.append(f"the first step took {units.seconds(furthest.first_step_time_s)} with its compilation")
    doing = {TIMING: "now timed", PROFILING: "now profiled", SAMPLING: "now sampled"}
    return ", ".join([*known, *(word for state, word in doing.items() if furthest and furthest.state == state)])


class ProgressReporter:
    """Reports how far a program is, at most once in :data:`NEWS_S` seconds, and only if there is news.

    Args:
        read: returns the news in words; it is called when a report is due.
        tell: is called with the words.
        clock: returns the time in seconds.
    """

    def __init__(
        self, read: Callable[[], str], tell: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read, self._tell, self._clock = read, tell, clock
        self._next_s, self._said = clock() + NEWS_S, ""

    def look(self) -> None:
        """Reports the news, if a report is due."""
        if self._clock() < self._next_s:
            return
        self._next_s = self._clock() + NEWS_S
        if (words := self._read()) and words != self._said:
            self._said = words
            self._tell(words)


def _has_few_cores() -> bool:
    return count_cores_of_this_process() <= CORES_OF_THE_PROGRAM


MANY_GUARDS = 100
"""The smallest number of a function's guards that is recorded."""


def read_objects(folder: Path) -> dict[Compilation, ObjectName]:
    """Returns the objects that each process compiled. A damaged file counts as missing."""
    found: dict[Compilation, ObjectName] = {}
    for file in folder.glob(f"*{OBJECTS}"):
        with suppress(InductorBenchError):
            process = codec.decode(CompiledObjects, read_json(file))
            found |= {
                (process.pid, one.frame, one.compilation): ObjectName(one.name, one.alike, one.wrapped, one.forward_of)
                for one in process.objects
            }
    return found


def keep_recorded_functions(functions: Iterable[CompiledFunction]) -> tuple[CompiledFunction, ...]:
    """Returns the functions that were compiled again, reached Dynamo's limit, or have many guards."""
    return tuple(one for one in functions if one.recompilations or one.reached_limit or one.guards >= MANY_GUARDS)


INDUCTOR = "inductor"
FORCE_EAGER = "force_eager"


def read_uses(folder: Path) -> tuple[CompileUse, ...]:
    """Returns which calls of ``torch.compile`` each process without a compiled graph made.

    A damaged file counts as missing.
    """
    found = []
    for file in sorted(folder.glob(f"*{COMPILE_USE}")):
        with suppress(InductorBenchError):
            found.append(codec.decode(CompileUse, read_json(file)))
    return tuple(found)


def remove_unsettled(steps: Sequence[ObservedSteps]) -> tuple[ObservedSteps, ...]:
    """Returns the steps of processes without compiled graphs, without facts about compilation."""
    return tuple(
        replace(one, settling_time_s=None, settling_steps_s=0.0, compiling_steps=0, first_step_time_s=None)
        for one in steps
    )


def explain_uncompiled(uses: Sequence[CompileUse], skipped: Sequence[SkippedFrame], pids: Collection[int]) -> str:
    """Returns the reason why nothing was compiled, as a clause; empty if none was observed.

    Args:
        uses: the processes' calls of ``torch.compile``.
        skipped: the functions that Dynamo skipped.
        pids: the processes whose steps were observed; without any, all processes count.
    """
    concerned = [use for use in uses if use.pid in pids] or list(uses)
    if not concerned:
        return ""
    calls = [call for use in concerned for call in use.calls]
    if not calls:
        return "" if any(use.frames != 0 for use in concerned) else "torch.compile is never called"
    where = f"{shorten_place(calls[0].place)}{f' and {len(calls) - 1} more places' if len(calls) > 1 else ''}"
    switch = next((use.disabled_by for use in concerned if use.disabled_by), "")
    if switch:
        return f"{switch} disables torch.compile"
    if all(call.disabled for call in calls):
        return f"{calls[0].disabled} disables torch.compile at {where}"
    if any(use.stance == FORCE_EAGER for use in concerned):
        return f'torch.compiler.set_stance("{FORCE_EAGER}") leaves everything uncompiled'
    if all(call.backend != INDUCTOR for call in calls):
        return f'torch.compile has backend="{calls[0].backend}" at {where}, and not Inductor'
    if skipped:
        return _describe_skipped(skipped)
    if all(use.frames == 0 for use in concerned):
        return f"Dynamo saw no call of what torch.compile returns at {where}"
    return ""


def _describe_skipped(skipped: Sequence[SkippedFrame]) -> str:
    """Returns for example ``Dynamo skips forward (model.py:5): graph break in a loop at model.py:8: …``."""
    frame = next((one for one in skipped if not is_of_torch(one.place)), skipped[0])
    others = len(skipped) - 1
    more = f" and {others} more function{'s' * (others > 1)}" if others else ""
    words = f"Dynamo skips {frame.name} ({shorten_place(frame.place)}){more}"
    if not frame.reason and not frame.cause:
        return f"{words}: Dynamo finds no operation to compile there"
    loop = "graph break in a loop" if frame.in_loop else "graph break" if frame.cause else ""
    at = f" at {shorten_place(frame.cause)}" if frame.cause else ""
    return ": ".join(filter(None, [words, f"{loop}{at}", frame.reason]))


def shorten_place(place: str) -> str:
    """Returns the folder, file and line of a place: ``app/train.py:57``."""
    return "/".join(place.split("/")[-2:])
