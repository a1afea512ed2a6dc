"""Measures the modules of a program, each in its turn at the device, and surveys the machine beside them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from ...devices.protocol import CPU
from ...devices.table import common_device, device_of
from ...errors import InductorBenchError
from ...launch.executors import cores_of_this_process, most_timing_workers
from ...launch.process import WAKE_S
from ...launch.worker import CORES_OF_THE_PROGRAM, WorkerPool
from ...records.request import BreakdownRequest
from ...records.traced import OperatorCall, OperatorCost
from ...source.labels import ModuleLabel
from ...source.module_reader import read_module
from ...store.folder import RunFolder
from ...store.lock import LOADS_BESIDE, TURN, DeviceTurn
from .module_profiling import ModuleMeasurement, Profiling
from .program_run import CapturedProgram, FoundModule, labelled
from .survey import Survey, count_costs, take_survey

T = TypeVar("T")

# Does work beside other work.


class Aside:
    """Does one piece of work after the other, beside what the caller does meanwhile.

    It is a context manager, which waits at its end for what is left, and raises the first error.

    Args:
        is_beside: whether the caller goes on meanwhile. If not, each piece is done at once.
    """

    def __init__(self, is_beside: bool) -> None:
        self._threads = ThreadPoolExecutor(1) if is_beside else None
        self._left: list[Future[None]] = []

    def __enter__(self) -> Aside:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=True)
        if kind is None:
            for one in self._left:
                one.result()

    def do(self, work: Callable[[], None]) -> None:
        """Does a piece of work; it may be done later, in another thread."""
        if self._threads is None:
            work()
        else:
            self._left.append(self._threads.submit(work))


def are_measured_beside(modules: Sequence[FoundModule]) -> bool:
    """Whether what one module's run left can be read while the next one runs: a run on a CPU needs all cores."""
    if cores_of_this_process() <= CORES_OF_THE_PROGRAM:
        return False
    with contextlib.suppress(InductorBenchError):
        return not any(device_of(read_module(module.text).device).runs_on_host for module in modules)
    return False


class Ahead(Generic[T]):
    """Pieces of work that are begun in their order, some of them at once.

    Args:
        works: the pieces.
        at_once: how many of them are under way at once; of one each is done when its end is waited for.

    Attributes:
        results: for each piece what waits for its end, and returns or raises what it did.
    """

    def __init__(self, works: Sequence[Callable[[], T]], at_once: int) -> None:
        self._threads = ThreadPoolExecutor(at_once) if at_once > 1 else None
        self._futures = [self._threads.submit(work) for work in works] if self._threads else []
        self.results: list[Callable[[], T]] = [partial(_result_of, one) for one in self._futures] or list(works)

    def close(self, *, waits: bool = False) -> None:
        """Begins no further piece, and may wait for the end of those that are under way."""
        if self._threads is not None:
            self._threads.shutdown(wait=waits, cancel_futures=True)


def _result_of(future: Future[T]) -> T:
    while not future.done():  # many short waits: a signal may reach another thread while this process is stopped
        wait([future], WAKE_S)
    return future.result()


# The measurements of a program's modules, which may begin before the program's process is gone.


class ModuleMeasurements:
    """The runs of modules by themselves, and the survey of the machine.

    On an accelerator, if there are cores, they are begun at once: processes start and load modules beside each other.
    None of them uses the device before :meth:`let_go`, but to load kernels.

    Args:
        captured: the program.
        pool: the workers.
        folder: the RUN.
        request: what is broken down.
        calls: the library calls whose costs will be asked for, as far as they are known.
    """

    def __init__(
        self,
        captured: CapturedProgram,
        pool: WorkerPool,
        folder: RunFolder,
        request: BreakdownRequest,
        calls: Sequence[OperatorCall] = (),
    ) -> None:
        self._captured, self._pool, self._folder = captured, pool, folder
        self.modules = labelled(captured.modules)
        self.is_elsewhere = request.trace is not None
        self.is_beside = are_measured_beside(captured.modules)
        self.at_once = most_timing_workers(cores_of_this_process()) if self.is_beside and not self.is_elsewhere else 1
        self._turn, variables = DeviceTurn(pool.folder / "device-turn"), {}
        if self.at_once > 1 and TURN not in pool.environment:  # a batch has turns of its own, for all of its models
            self._turn.take()
            variables = {TURN: str(pool.folder / "device-turn"), LOADS_BESIDE: "1"}
        of_request = request.repeat, request.trace, request.recorded_bytes
        self.profiling = Profiling(pool, folder, *of_request, variables)
        self._measured = Ahead([partial(self.profiling.profile, *one) for one in self.modules], self.at_once)
        self._surveyed: Ahead[Survey] | None = None
        if self.at_once > 1 and captured.modules:
            log, device = folder.logs / "survey.log", self.device
            peaks = "cached" if self._runs_module else "known"  # it measures them in its turn, as modules are
            take = partial(take_survey, pool, calls, device=device, peaks=peaks, log=log, variables=variables)
            self._surveyed = Ahead([take], 2)
        self._calls = tuple(calls)

    @property
    def device(self) -> str:
        """The type of the device for texts and peaks: the CPU only if nothing runs elsewhere."""
        of_modules = []
        for module, _ in self.modules:
            with contextlib.suppress(InductorBenchError):
                of_modules.append(read_module(module.text).device)
        return common_device([*of_modules, *(one.device for one in self._captured.steps)]).type or CPU.type

    @property
    def _runs_module(self) -> bool:
        return any(self.profiling.describe(*one) for one in self.modules)

    def need_device(self) -> bool:
        """Whether a module has to run by itself, or the device's peaks have to be measured."""
        if self._runs_module:
            return True
        self.let_go()  # nothing is timed
        begun = self._begun_survey()
        return begun is None or begun.peaks is None

    def are_of(self, captured: CapturedProgram) -> bool:
        """Whether they are those of this program."""
        mine = self._captured
        return (mine.modules, mine.steps, mine.touches) == (captured.modules, captured.steps, captured.touches)

    def let_go(self) -> None:
        """Lets the modules use the device, because the program does so no more. May be called again."""
        self._turn.give_up()

    def close(self, *, waits: bool = False) -> None:
        """Begins nothing more, and may wait for the end of what is under way."""
        self.let_go()
        for one in (self._measured, self._surveyed):
            if one is not None:
                one.close(waits=waits)

    def __iter__(self) -> Iterator[tuple[FoundModule, ModuleLabel, Callable[[], ModuleMeasurement]]]:
        """Each module with what waits for its measurement."""
        for (module, label), measure in zip(self.modules, self._measured.results, strict=True):
            yield module, label, measure

    def _begun_survey(self) -> Survey | None:
        begun = self._surveyed.results[0]() if self._surveyed is not None else None
        is_whole = begun is not None and begun.failure is None and len(begun.costs) == len(self._calls)
        return begun if is_whole else None

    def survey(self, calls: Sequence[OperatorCall], *, peaks: bool) -> Survey:
        """The survey with the costs of these calls.

        Args:
            calls: the calls.
            peaks: whether the device's peaks are wanted.
        """
        begun = self._begun_survey()
        if begun is None or (peaks and begun.peaks is None):
            log, wanted = self._folder.logs / "survey.log", "cached" if peaks else "none"
            return take_survey(self._pool, calls, device=self.device, peaks=wanted, log=log)
        costs = dict(zip(self._calls, begun.costs, strict=True))
        missing = [call for call in calls if call not in costs]
        more = Survey()
        if missing:
            more = count_costs(self._pool, missing, log=self._folder.logs / "costs.log")
            costs |= dict(zip(missing, more.costs, strict=False))
        found = tuple(costs.get(call, OperatorCost()) for call in calls)
        again = {f"{name}, {len(missing)} more calls": time_s for name, time_s in more.phases_s.items()}
        phases_s = {**begun.phases_s, **again}
        of_device = begun.peaks if peaks else None
        return replace(begun, costs=found, peaks=of_device, failure=more.failure, phases_s=phases_s)
