"""Tunes many kernels: one worker times the kernel that is ready, while a pool compiles the candidates of the others.

Each kernel advances on its own. Its candidates go to the compile pool; once all of them are back, the worker checks and
times them, and the search names the next ones. While the worker is busy this process serves the pool, and while no
kernel is ready it waits for the pool, so that neither waits for the other without need.

Kernels that the host itself runs are the exception: their times would be those of a busy machine. They are timed while
no pool is busy, and their candidates are compiled while none of them is timed.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..devices.table import device_of
from ..errors import InductorBenchError
from ..launch.session import WorkerLostError, WorkerSession
from ..records.tuning import Tuning
from .compile_pool import BUDGET_SPENT, CompileJob, CompileOutcome, CompilePool
from .tuner import Tuner, TuningSteps

TuningOutcome = Tuning | InductorBenchError | WorkerLostError

OPENED_AHEAD = 4
"""Number of library calls that are open at once: while one is timed, the choices of the others are compiled."""


@dataclass(frozen=True)
class PipelineState:
    """The state of the kernels, for a report to the user.

    Attributes:
        timed: the kernel that is timed now; ``None`` while all wait for their candidates.
        done: number of kernels that are tuned or have failed.
        kernels: number of all kernels.
        candidates: number of candidates so far.
        compiling: number of jobs in the compile pools.
    """

    timed: Hashable | None
    done: int
    kernels: int
    candidates: int
    compiling: int


@dataclass
class _Lane:
    """One kernel on its way.

    Attributes:
        tuner: its tuner.
        search: its search; ``None`` while the pool lists its configurations.
        outstanding: the keys of its jobs that are not done.
        outcomes: the outcomes of the other jobs since its last timing.
        begun: whether the search has begun.
    """

    tuner: Tuner
    search: TuningSteps | None = None
    outstanding: set[int] = field(default_factory=set)
    outcomes: list[CompileOutcome] = field(default_factory=list)
    begun: bool = False


class Pipeline:
    """Tunes kernels, the first of them first where several are ready.

    Args:
        tuners: the tuners, by any keys.
        method: the name of a method, for their searches.
        compile_pool: returns the compile pool of a device type; its failure fails all kernels of that device.
        is_over: whether the budget is spent.
        report: called before each timing, and before each wait for the pools.
    """

    def __init__(
        self,
        tuners: Mapping[Hashable, Tuner],
        method: str,
        compile_pool: Callable[[str], CompilePool],
        is_over: Callable[[], bool],
        report: Callable[[PipelineState], None] = lambda state: None,
    ) -> None:
        self._method, self._compile_pool, self._is_over, self._report = method, compile_pool, is_over, report
        self._lanes = {name: _Lane(tuner) for name, tuner in tuners.items()}
        self._unfinished = dict(self._lanes)
        self._finished: list[tuple[Hashable, TuningOutcome]] = []
        self._pools: dict[str, CompilePool] = {}
        self._owners: dict[int, Hashable] = {}
        self._held: list[tuple[Hashable, list[CompileJob]]] = []
        for tuner in tuners.values():
            tuner.timing.attend = self.attend

    def run(self, get_ready: Callable[[], None] = lambda: None) -> Iterator[tuple[Hashable, TuningOutcome]]:
        """Tunes all kernels. Yields the key of each with its tuning or its error, as soon as it is known.

        Args:
            get_ready: called while the pools begin; prepares the worker that times.
        """
        for name, lane in self._lanes.items():
            if lane.tuner.listing_device is not None:
                self._submit(name, [lane.tuner.list_job()])
            else:
                lane.search = lane.tuner.search(self._method)
        get_ready()
        while self._unfinished:
            if self._is_over():
                self._give_up_jobs()
            name = self._next_to_time()
            if name is not None:
                self._report(self._state(name))
                self._advance(name)
            elif self._held:
                held, self._held = self._held, []
                for owner, jobs in held:
                    self._submit(owner, jobs)
            elif self._unfinished:
                self._report(self._state(None))
                self._serve()
            yield from self._take_finished()

    def _take_finished(self) -> list[tuple[Hashable, TuningOutcome]]:
        finished, self._finished = self._finished, []
        return finished

    def _state(self, timed: Hashable | None) -> PipelineState:
        candidates = sum(len(lane.tuner.candidates) for lane in self._lanes.values())
        done = len(self._lanes) - len(self._unfinished)
        return PipelineState(timed, done, len(self._lanes), candidates, len(self._owners))

    # The worker that times

    def _next_to_time(self) -> Hashable | None:
        """The first kernel whose jobs are done, and that may be timed now; ``None`` where there is none."""
        is_quiet = not any(pool.is_busy for pool in self._pools.values())
        lanes = {
            name: lane
            for name, lane in self._unfinished.items()
            if lane.search is not None and not lane.outstanding and not self._is_held(name)
        }
        unopened = [name for name, lane in lanes.items() if not lane.begun]
        if unopened and all(lane.tuner.opens_last for lane in self._unfinished.values()):
            opened = sum(lane.begun for lane in self._unfinished.values())
            if opened < OPENED_AHEAD:
                return unopened[0]
        for name, lane in lanes.items():
            if not lane.begun and not lane.tuner.opens_last:
                return name
            if lane.begun and (is_quiet or not device_of(lane.tuner.device).runs_on_host):
                return name
        return None

    def _is_held(self, name: Hashable) -> bool:
        return any(owner == name for owner, _ in self._held)

    def _advance(self, name: Hashable) -> None:
        """Opens or times a kernel, and takes the jobs of its next candidates."""
        lane = self._lanes[name]
        assert lane.search is not None
        outcomes, lane.outcomes = lane.outcomes, []
        try:
            jobs = lane.search.send(outcomes) if lane.begun else next(lane.search)
        except StopIteration as end:
            self._finish(name, end.value)
        except (InductorBenchError, WorkerLostError) as error:
            self._finish(name, error)
        else:
            lane.begun = True
            if device_of(lane.tuner.device).runs_on_host and jobs:
                self._held.append((name, jobs))
            else:
                self._submit(name, jobs)

    def _finish(self, name: Hashable, outcome: TuningOutcome) -> None:
        if self._unfinished.pop(name, None) is not None:
            self._finished.append((name, outcome))

    def attend(self, session: WorkerSession) -> None:
        """Serves the pools until the worker that times has answered."""
        while not session.is_answered():
            self._serve(session)

    # The compile pools

    def _submit(self, name: Hashable, jobs: list[CompileJob]) -> None:
        lane = self._lanes[name]
        lane.outstanding.update(job.key for job in jobs)
        self._owners.update((job.key, name) for job in jobs)
        if jobs:
            device = lane.tuner.device
            try:
                if device not in self._pools:
                    self._pools[device] = self._compile_pool(device)
                self._take(self._pools[device].submit(jobs))
            except (InductorBenchError, WorkerLostError) as error:
                self._fail_device(device, error)

    def _serve(self, session: WorkerSession | None = None) -> None:
        """Waits until a pool or the worker that times has an answer, and takes those of the pools."""
        sessions = [worker.session for pool in self._pools.values() for worker in pool.busy]
        sessions += [session] if session is not None else []
        limits = [each.left_s for each in sessions if each.left_s is not None]
        select.select(sessions, [], [], min(limits, default=None))
        for device, pool in list(self._pools.items()):
            try:
                self._take(pool.advance())
            except (InductorBenchError, WorkerLostError) as error:
                self._fail_device(device, error)

    def _take(self, outcomes: Iterable[CompileOutcome]) -> None:
        for outcome in outcomes:
            name = self._owners.pop(outcome.key, None)
            if name is None:  # it was given up
                continue
            lane = self._lanes[name]
            lane.outstanding.discard(outcome.key)
            if lane.search is None:
                lane.tuner.take_listing(outcome)
                lane.search = lane.tuner.search(self._method)
                if lane.tuner.timing.is_known:
                    self._advance(name)  # no timing: it names the first candidates
            else:
                lane.outcomes.append(outcome)

    def _give_up_jobs(self) -> None:
        """Ends the wait for all jobs. A job that is being done goes on, and its outcome is ignored."""
        for key in list(self._owners):
            self._take([CompileOutcome(key, "untried", BUDGET_SPENT)])
        for pool in self._pools.values():
            for _ in pool.give_up():
                pass

    def _fail_device(self, device: str, error: InductorBenchError | WorkerLostError) -> None:
        for name, lane in self._lanes.items():
            if lane.tuner.device == device:
                self._finish(name, error)
                lane.outstanding.clear()
        self._owners = {key: name for key, name in self._owners.items() if name in self._unfinished}
