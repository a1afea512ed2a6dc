"""Tunes many kernels: workers time the kernels that are ready, while a pool compiles the candidates of the others.

Each kernel advances on its own. Its candidates go to the compile pool; once all of them are back, a worker checks and
times them, and the search names the next ones. Several workers share a device: while one of them times, which takes the
device for itself, the others load and check. A kernel stays with the worker that has loaded it. This process waits for
all workers at once, so none waits for another without need. Kernels that the host itself runs are the exception,
because a busy machine would change their times. They are timed only if nothing else runs, and their candidates are
compiled only if none of them is timed.
"""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..devices.table import find_device
from ..errors import InductorBenchError
from ..launch.worker import WorkerLostError, WorkerSession
from ..records.retune import Tuning
from .tuner import Tuner, TuningSteps
from .tuning_workers import BUDGET_SPENT, CompileJob, CompileOutcome, CompilePool, Waiting

# The unfinished kernels of a pipeline, the workers that time them, and the state of all kernels for a report.


@dataclass(eq=False)
class Slot:
    """A worker that times, and the kernel that uses it now."""

    # returns the worker once it is ready; a new worker after the last was lost
    worker: Callable[[], Waiting[WorkerSession]]
    name: Hashable | None = None  # the key of the kernel; ``None`` while no kernel uses the worker
    asked: WorkerSession | None = None  # the worker, from a request to its answer
    readying: Waiting[WorkerSession] | None = None  # the steps that get the worker ready, until they are done


@dataclass
class PipelineKernel:
    """One kernel in the pipeline: its tuner, its search and its jobs."""

    tuner: Tuner  # its tuner
    search: TuningSteps | None = None  # its search; ``None`` while the pool lists its configurations
    outstanding: set[int] = field(default_factory=set)  # the keys of its jobs that are not done
    outcomes: list[CompileOutcome] = field(default_factory=list)  # the outcomes of the other jobs since its last timing
    begun: bool = False  # whether the search has begun
    slot: Slot | None = None  # the worker that has loaded it, if any

    @property
    def runs_on_host(self) -> bool:
        """Whether its device is known to be the host."""
        return self.tuner.timing.is_known and find_device(self.tuner.device).runs_on_host


@dataclass(frozen=True)
class PipelineState:
    """The state of the kernels, for a report to the user."""

    timed: Hashable | None  # a kernel that is opened or timed now; ``None`` while there is none
    done: int  # number of kernels that are tuned or have failed
    kernels: int  # number of all kernels
    candidates: int  # number of candidates so far
    compiling: int  # number of jobs in the compile pools


TuningOutcome = Tuning | InductorBenchError | WorkerLostError

OPENED_AHEAD = 4
"""Number of library calls that one worker has open at once: while one is timed, the choices of the others compile."""

OPENED_BY_EACH = 2
"""Number of library calls that each of several workers has open at once."""


class Pipeline:
    """Tunes kernels, the first of them first if several are ready.

    Args:
        tuners: the tuners, by any keys.
        method: the name of a method, for their searches.
        compile_pool: returns the compile pool of a device type; its failure fails all kernels of that device.
        workers: functions that return the timing workers; see :class:`Slot`.
        left_s: the seconds that are left of the budget; ``None`` without one.
        report: called before each timing, and before each wait.
    """

    def __init__(
        self,
        tuners: Mapping[Hashable, Tuner],
        method: str,
        compile_pool: Callable[[str], CompilePool],
        workers: Sequence[Callable[[], Waiting[WorkerSession]]],
        left_s: Callable[[], float | None],
        report: Callable[[PipelineState], None] = lambda state: None,
    ) -> None:
        self._method, self._compile_pool, self._left_s, self._report = method, compile_pool, left_s, report
        self._slots = [Slot(worker) for worker in workers]
        self._lanes = {name: PipelineKernel(tuner) for name, tuner in tuners.items()}
        self._unfinished = dict(self._lanes)
        self._finished: list[tuple[Hashable, TuningOutcome]] = []
        self._pools: dict[str, CompilePool] = {}
        self._owners: dict[int, Hashable] = {}
        self._held: list[tuple[Hashable, list[CompileJob]]] = []

    def run(self) -> Iterator[tuple[Hashable, TuningOutcome]]:
        """Tunes all kernels. Yields the key of each with its tuning or its error, as soon as it is known."""
        try:
            yield from self._run()
        finally:
            for slot in self._slots:
                if slot.asked is not None:  # a worker that still gets ready, or whose kernel has failed
                    slot.asked.abort()

    def _run(self) -> Iterator[tuple[Hashable, TuningOutcome]]:
        for name, lane in self._lanes.items():
            if lane.tuner.listing_device is not None:
                self._submit(name, [lane.tuner.list_job()])
            else:
                lane.search = lane.tuner.search(self._method)
        yield from self._take_finished()
        for slot in tuple(self._slots) if self._unfinished and not self._is_over else ():
            slot.readying = slot.worker()
            self._get_ready(slot)
        while self._unfinished:
            if self._is_over:
                self._give_up_jobs()
            if not self._begin_timings():
                if self._held and not self._host_is_timed:
                    held, self._held = self._held, []
                    for owner, jobs in held:
                        self._submit(owner, jobs)
                elif self._unfinished:
                    self._report(self._state())
                    self._wait()
            yield from self._take_finished()

    @property
    def _is_over(self) -> bool:
        """Whether the budget is spent."""
        left_s = self._left_s()
        return left_s is not None and left_s <= 0

    def _take_finished(self) -> list[tuple[Hashable, TuningOutcome]]:
        finished, self._finished = self._finished, []
        return finished

    def _state(self) -> PipelineState:
        timed = next((slot.name for slot in self._slots if slot.name is not None), None)
        candidates = sum(len(lane.tuner.candidates) for lane in self._lanes.values())
        done = len(self._lanes) - len(self._unfinished)
        return PipelineState(timed, done, len(self._lanes), candidates, len(self._owners))

    # The workers that time

    def _begin_timings(self) -> bool:
        """Opens or times kernels by the workers that are free; returns whether there was any."""
        begun = False
        for slot in self._slots:
            while slot.asked is None and (name := self._next_to_time(slot)) is not None:
                lane = self._lanes[name]
                slot.name, lane.slot = name, slot
                lane.tuner.timing.worker = slot.worker
                self._report(self._state())
                self._advance(name)
                begun = True
        return begun

    def _next_to_time(self, slot: Slot) -> Hashable | None:
        """The first kernel that this worker may open or time now; ``None`` if there is none."""
        if self._host_is_timed:
            return None
        lanes = {
            name: lane
            for name, lane in self._unfinished.items()
            if lane.search is not None and not lane.outstanding and not self._is_held(name) and not self._is_timed(name)
        }
        unopened = [name for name, lane in lanes.items() if not lane.begun]
        if unopened and all(lane.tuner.opens_last for lane in self._unfinished.values()):
            opened = sum(lane.begun and lane.slot is slot for lane in self._unfinished.values())
            if opened < (OPENED_AHEAD if len(self._slots) == 1 else OPENED_BY_EACH):
                return unopened[0]
        for name, lane in lanes.items():
            may_open = not lane.begun and not lane.tuner.opens_last
            may_be_timed = lane.begun and lane.slot in (None, slot) and (not lane.runs_on_host or self._is_quiet)
            if may_open or may_be_timed:
                return name
        return None

    @property
    def _is_quiet(self) -> bool:
        """Whether no pool and no worker that times is at work."""
        return not any(pool.is_busy for pool in self._pools.values()) and all(s.asked is None for s in self._slots)

    @property
    def _host_is_timed(self) -> bool:
        return any(slot.name is not None and self._lanes[slot.name].runs_on_host for slot in self._slots)

    def _is_timed(self, name: Hashable) -> bool:
        return any(slot.name == name for slot in self._slots)

    def _is_held(self, name: Hashable) -> bool:
        return any(owner == name for owner, _ in self._held)

    def _advance(self, name: Hashable) -> None:
        """Continues a search with the outcomes of its jobs, or with an answer of its worker."""
        lane = self._lanes[name]
        assert lane.search is not None
        is_answer = lane.slot is not None and lane.slot.asked is not None
        if lane.slot is not None:
            lane.slot.asked = None
        outcomes, lane.outcomes = lane.outcomes, []
        try:
            step = lane.search.send(None if is_answer or not lane.begun else outcomes)
        except StopIteration as end:
            self._finish(name, end.value)
        except (InductorBenchError, WorkerLostError) as error:
            self._finish(name, error)
        else:
            lane.begun = True
            if isinstance(step, list):
                self._take_jobs(name, step)
            else:
                assert lane.slot is not None
                lane.slot.asked = step

    def _take_jobs(self, name: Hashable, jobs: list[CompileJob]) -> None:
        """Takes the jobs of a kernel, and frees its worker for another kernel."""
        lane = self._lanes[name]
        if lane.slot is not None:
            lane.slot.name = None
        if lane.runs_on_host and jobs:
            self._held.append((name, jobs))
        else:
            self._submit(name, jobs)

    def _finish(self, name: Hashable, outcome: TuningOutcome) -> None:
        for slot in self._slots:
            if slot.name == name and slot.asked is None:
                slot.name = None
        if self._unfinished.pop(name, None) is not None:
            self._finished.append((name, outcome))

    def _get_ready(self, slot: Slot) -> None:
        """Takes the next step of a worker that gets ready."""
        assert slot.readying is not None
        slot.asked = None
        try:
            slot.asked = next(slot.readying)
        except StopIteration:
            slot.readying = None
        except (InductorBenchError, WorkerLostError):
            slot.readying = None
            if slot is not self._slots[0]:
                self._slots.remove(slot)

    def _take_answer(self, slot: Slot) -> None:
        """Takes the answer of a worker, which is there."""
        if slot.readying is not None:
            self._get_ready(slot)
        elif slot.name in self._unfinished:
            self._advance(slot.name)
        elif slot.asked is not None:  # its kernel has failed meanwhile
            with contextlib.suppress(InductorBenchError, WorkerLostError):
                slot.asked.collect()
            slot.asked = slot.name = None

    # The compile pools

    def _submit(self, name: Hashable, jobs: list[CompileJob]) -> None:
        lane = self._lanes[name]
        lane.outstanding.update(job.key for job in jobs)
        self._owners.update((job.key, name) for job in jobs)
        if jobs and self._is_over:
            self._give_up_jobs()
        elif jobs:
            device = lane.tuner.device
            try:
                if device not in self._pools:
                    self._pools[device] = self._compile_pool(device)
                self._take(self._pools[device].submit(jobs))
            except (InductorBenchError, WorkerLostError) as error:
                self._fail_device(device, error)

    def _wait(self) -> None:
        """Waits until a pool or a worker that times has an answer, or the budget ends; takes all answers there are."""
        asked = [slot.asked for slot in self._slots if slot.asked is not None]
        sessions = [worker.session for pool in self._pools.values() for worker in pool.busy] + asked
        limits = [each.left_s for each in sessions if each.left_s is not None]
        left_s = self._left_s()
        if left_s is not None and left_s > 0:
            limits.append(left_s)
        if sessions:  # if none is left, the workers of a pool have died
            select.select(sessions, [], [], min(limits, default=None))
        for slot in tuple(self._slots):
            if slot.asked is not None and slot.asked.is_answered():
                self._take_answer(slot)
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
        """Stops waiting for all jobs. A running job continues, but its outcome is ignored."""
        for key in list(self._owners):
            self._take([CompileOutcome(key, "untried", BUDGET_SPENT)])
        for device, pool in self._pools.items():
            for _ in pool.give_up():
                pass
            if pool.is_busy and find_device(device).runs_on_host:
                pool.end()

    def _fail_device(self, device: str, error: InductorBenchError | WorkerLostError) -> None:
        for name, lane in self._lanes.items():
            if lane.tuner.device == device:
                self._finish(name, error)
                lane.outstanding.clear()
        self._owners = {key: name for key, name in self._owners.items() if name in self._unfinished}
