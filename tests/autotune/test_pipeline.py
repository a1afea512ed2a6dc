"""The pipeline on a pretended device: what goes on at the same time, what never does, and who comes first."""

from __future__ import annotations

import itertools
import os
import select
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from fake_device import SEGFAULT, SIX, Device, Line, Session, finds, times_of

from inductor_bench.autotune import pipeline as pipeline_module
from inductor_bench.autotune import tuning_workers
from inductor_bench.autotune.pipeline import OPENED_AHEAD, Pipeline, PipelineState
from inductor_bench.autotune.tuner import Tuner
from inductor_bench.autotune.tuning_workers import CompileJob, CompilePool, ask_worker
from inductor_bench.devices.nvidia import NVIDIA
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.worker import WorkerLostError
from inductor_bench.messages.job_requests import GetReady, WorkerRequest
from inductor_bench.messages.kernel_requests import (
    Build,
    Load,
    Prepare,
    RecordedFacts,
    Sample,
    TellFacts,
    VariantChange,
    VariantFacts,
)
from inductor_bench.records.retune import Tuning

POLLS = 5


@dataclass(frozen=True)
class OnGpu(Line):
    device = NVIDIA.type


class LateSession(Session):
    """A session whose answers come only after it was asked for them some times."""

    left = 0

    def post(self, request: WorkerRequest[Any], timeout_s: float | None = None) -> None:
        super().post(request, timeout_s)
        self.left = POLLS * (4 if isinstance(request, Prepare | Sample) else 1)
        self.device.log.append(("begin", self.name, request))  # type: ignore[attr-defined]

    def is_answered(self) -> bool:
        self.left -= 1
        return self.left <= 0

    def collect(self) -> Any:
        self.device.log.append(("end", self.name, self.posted))  # type: ignore[attr-defined]
        return super().collect()

    def do_getready(self, request: GetReady) -> None: ...

    def do_tellfacts(self, request: TellFacts) -> VariantFacts:
        if self.device.listing_fails:  # type: ignore[attr-defined]
            raise InductorBenchError("there is no Triton")
        return VariantFacts("triton", NVIDIA.type, RecordedFacts("k", "0", "pointwise"))


@dataclass
class LateDevice(Device):
    """Keeps the beginnings and ends of all requests in ``log``."""

    log: list[tuple[str, str, Any]] = field(default_factory=list)
    listing_fails: bool = False

    def start(self, name: str) -> Any:
        session = LateSession(self)
        session.name = name  # type: ignore[attr-defined]
        self.sessions.append(session)
        return session

    def overlaps(self, kind: type[Any], other: type[Any]) -> bool:
        """Whether a request of one kind was answered while one of the other kind was."""
        running: list[Any] = []
        for event, _, request in self.log:
            if event == "end":
                running.remove(request)
                continue
            running.append(request)
            if any(isinstance(one, kind) for one in running) and any(isinstance(one, other) for one in running):
                return True
        return False


@contextmanager
def pipeline(
    device: LateDevice,
    kernels: dict[str, Line],
    find: Callable[[VariantFacts], Any] | None = None,
    workers: int = 1,
    worker: Callable[[int], Any] | None = None,
    left_s: Callable[[], float | None] = lambda: None,
    **tuner: Any,
) -> Iterator[Pipeline]:
    pool, numbers = CompilePool(device.start, 2, 30.0, 30.0), itertools.count(1)
    tuners: dict[Any, Tuner] = {
        name: Tuner(f"{name}.py", find or finds(each), numbers, timeout_s=30.0, **tuner)
        for name, each in kernels.items()
    }
    try:
        each = [partial(worker or device.worker, number) for number in range(workers)]
        yield Pipeline(tuners, "max", lambda _: pool, each, left_s)
    finally:
        pool.end()
        device.close()


GPU = OnGpu(SIX.now, SIX.axes)


def test_on_a_gpu_candidates_are_built_while_others_are_timed() -> None:
    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("abcd", GPU), listing_device=NVIDIA.type) as made:
        outcomes = dict(made.run())
    assert all(isinstance(one, Tuning) and one.best_config == {"value": 4} for one in outcomes.values())
    assert device.overlaps(Build, Sample) and device.overlaps(Build, Prepare)
    loads = [request.file for event, name, request in device.log if event == "begin" and isinstance(request, Load)]
    assert sorted(file for file in loads if loads.count(file) > 3) == [], "by the pool's workers, and to be timed"


def test_on_a_cpu_nothing_is_built_while_a_kernel_is_timed() -> None:
    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("abcd", SIX)) as made:
        assert len(dict(made.run())) == 4
    for kind in (Sample, Prepare):
        assert not device.overlaps(Build, kind)
    first = next(index for index, (_, _, request) in enumerate(device.log) if isinstance(request, Sample))
    built = [request for event, _, request in device.log[:first] if event == "end" and isinstance(request, Build)]
    assert len(built) == 24, "the candidates of all kernels are built side by side"


def test_a_kernel_of_the_host_is_timed_while_no_pool_is_busy() -> None:
    device = LateDevice(times_of)
    with pipeline(device, {"gpu": GPU, "cpu": SIX, "second": GPU}) as made:
        assert len(dict(made.run())) == 3
    loads = [request for _, name, request in device.log if isinstance(request, Load) and name == "race"]
    host = next(request.number for request in loads if request.file == "cpu.py")
    building, alone = 0, []
    for event, _, request in device.log:
        building += (event == "begin") - (event == "end") if isinstance(request, Build) else 0
        if event == "begin" and isinstance(request, Sample) and host in request.order:
            alone.append(building == 0)
    assert alone and all(alone)


def test_who_can_win_most_is_timed_first() -> None:
    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("cab", GPU), listing_device=NVIDIA.type) as made:
        assert list(dict(made.run())) == ["c", "a", "b"]
    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("cab", GPU)) as made:
        for lane in made._lanes.values():
            lane.tuner.opens_last = True
        assert list(dict(made.run())) == ["c", "a", "b"]
    loads = [request.file for _, name, request in device.log if isinstance(request, Load) and name == "race"]
    opened = list(dict.fromkeys(loads))
    assert opened[:3] == ["c.py", "a.py", "b.py"], "library calls open ahead, so that their choices compile"


def test_library_calls_open_once_the_other_kernels_are_done() -> None:
    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("kabcdef", GPU)) as made:
        for name, lane in made._lanes.items():
            lane.tuner.opens_last = name != "k"
        assert list(dict(made.run())) == list("kabcdef")
    files = [
        (event, request.file) if isinstance(request, Load) else (event, request)
        for event, name, request in device.log
        if event == "begin" and name == "race"
    ]
    loads = [place for place, (_, what) in enumerate(files) if isinstance(what, str)]
    names = [str(files[place][1])[0] for place in loads]
    first_library_call = loads[names.index("a")]
    assert any(isinstance(what, Sample) for _, what in files[:first_library_call]), "the kernel is timed first"
    timed = next(place for place, (_, what) in enumerate(files[first_library_call:]) if isinstance(what, Sample))
    opened = [name for place, name in zip(loads, names, strict=True) if place < first_library_call + timed]
    assert [name for name in opened if name != "k"] == list("abcd"), f"{OPENED_AHEAD} at once"


def test_where_the_pool_cannot_list_the_worker_that_times_does() -> None:
    device = LateDevice(times_of, listing_fails=True)
    with pipeline(device, {"k": GPU}, listing_device=NVIDIA.type) as made:
        (outcome,) = dict(made.run()).values()
    assert isinstance(outcome, Tuning) and outcome.best_config == {"value": 4}


def test_what_has_no_variants_is_told_by_the_worker_that_times() -> None:
    def find(facts: VariantFacts) -> Any:
        yield from ()
        raise InductorBenchError("nothing of it can be varied")

    device = LateDevice(times_of)
    with pipeline(device, {"k": GPU}, find, listing_device=NVIDIA.type) as made:
        (outcome,) = dict(made.run()).values()
    assert isinstance(outcome, InductorBenchError) and "nothing of it" in outcome.message


def test_workers_get_ready_while_the_pool_lists() -> None:
    device = LateDevice(times_of)

    def worker(number: int) -> Any:
        session = yield from device.worker(number)
        if number not in ready:
            ready.add(number)
            yield from ask_worker(session, GetReady(), 30.0)
        return session

    ready: set[int] = set()
    with pipeline(device, dict.fromkeys("ab", GPU), listing_device=NVIDIA.type, worker=worker, workers=2) as made:
        assert len(dict(made.run())) == 2
    begun = [(name, type(request)) for event, name, request in device.log if event == "begin"]
    assert ("race", GetReady) in begun[:4] and ("race-1", GetReady) in begun[:4]
    assert device.overlaps(GetReady, GetReady)
    started = [request for event, _, request in device.log if event == "begin"]
    assert any(isinstance(request, Load) for request in started[:4]), "the pool loads the first file meanwhile"


@pytest.mark.parametrize("failure", [InductorBenchError("no profiler"), WorkerLostError("crashed", SEGFAULT)])
def test_a_worker_that_cannot_get_ready_is_asked_all_the_same(failure: Exception) -> None:
    device = LateDevice(times_of)
    failures = [failure]

    def worker(number: int) -> Any:
        session = yield from device.worker(number)
        if failures:
            session.close() if isinstance(failure, WorkerLostError) else None
            raise failures.pop()
        return session

    with pipeline(device, {"k": GPU}, listing_device=NVIDIA.type, worker=worker) as made:
        (outcome,) = dict(made.run()).values()
    assert isinstance(outcome, Tuning) and outcome.best_config == {"value": 4}


def test_a_further_worker_that_cannot_work_costs_no_kernel() -> None:
    device = LateDevice(times_of)

    def worker(number: int) -> Any:
        session = yield from device.worker(number)
        if number == 1:
            session.close()
            raise WorkerLostError("crashed", SEGFAULT)
        if number == 2:
            raise InductorBenchError("the device serves one process only")
        return session

    names = [f"k{number}" for number in range(12)]
    with pipeline(device, dict.fromkeys(names, GPU), listing_device=NVIDIA.type, worker=worker, workers=3) as made:
        outcomes = dict(made.run())
    assert len(outcomes) == 12 and all(isinstance(one, Tuning) for one in outcomes.values())


def test_kernels_that_fail_at_once_are_told() -> None:
    def pool(device: str) -> CompilePool:
        raise InductorBenchError("the architecture is unknown")

    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("ab", GPU), listing_device=NVIDIA.type) as made:
        made._compile_pool = pool
        outcomes = dict(made.run())
    assert sorted(outcomes) == ["a", "b"] and all(isinstance(one, InductorBenchError) for one in outcomes.values())


def test_at_the_end_no_worker_owes_an_answer() -> None:
    device = LateDevice(times_of)
    with pipeline(device, {"k": GPU}, listing_device=NVIDIA.type, workers=2) as made:
        made._report = lambda state: made._fail_device(NVIDIA.type, InductorBenchError("no compiler"))
        assert len(dict(made.run())) == 1
        asked = [slot.asked for slot in made._slots if slot.asked is not None]
        assert not any(session.alive for session in asked)


def test_several_workers_time_at_once_and_each_keeps_its_kernels() -> None:
    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("abcdef", GPU), listing_device=NVIDIA.type, workers=3) as made:
        outcomes = dict(made.run())
    assert all(isinstance(one, Tuning) and one.best_config == {"value": 4} for one in outcomes.values())
    assert device.overlaps(Sample, Prepare) and device.overlaps(Sample, Sample)
    loads = [(name, request) for event, name, request in device.log if event == "begin" and isinstance(request, Load)]
    timed = [(name, request.file) for name, request in loads if name.startswith("race")]
    assert sorted(file for _, file in timed) == [f"{name}.py" for name in "abcdef"], "each is loaded once to be timed"
    assert {name for name, _ in timed} == {"race", "race-1", "race-2"}


def test_a_kernel_of_the_host_is_timed_alone_also_with_several_workers() -> None:
    device = LateDevice(times_of)
    with pipeline(device, {"gpu": GPU, "cpu": SIX, "second": GPU, "host": SIX}, workers=2) as made:
        assert len(dict(made.run())) == 4
    files = {
        request.number: (name, request.file)
        for _, name, request in device.log
        if isinstance(request, Load) and name.startswith("race")
    }
    hosts = {number for number, (_, file) in files.items() if file in ("cpu.py", "host.py")}
    running: list[Any] = []
    seen = 0
    for event, _, request in device.log:
        if event == "end":
            running.remove(request)
            continue
        running.append(request)
        if any(isinstance(one, Sample) and hosts & set(one.order) for one in running):
            seen += 1
            assert len(running) == 1, running
    assert seen


def test_a_lost_pool_fails_the_kernels_that_are_being_timed() -> None:
    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("abcd", GPU), listing_device=NVIDIA.type, workers=2) as made:

        def report(state: PipelineState) -> None:
            busy = [session for session in device.sessions if isinstance(session.posted, Sample)]
            if busy and not failed:
                failed.append(len(busy))
                made._fail_device(NVIDIA.type, InductorBenchError("no compiler"))

        failed: list[int] = []
        made._report = report
        outcomes = dict(made.run())
    assert failed and len(outcomes) == 4
    assert all(isinstance(one, InductorBenchError) for one in outcomes.values())


def test_files_that_came_first_are_compiled_first() -> None:
    device = Device(times_of)
    pool = CompilePool(device.start, 1, 30.0, 30.0)

    def jobs(file: str, *numbers: int) -> list[CompileJob]:
        return [CompileJob((file, number), file, lambda at, number=number: build(at, number)) for number in numbers]

    def build(at: int, number: int) -> Build:
        return Build(at, VariantChange({"value": number}))

    seen = [outcome.key for outcome in pool.submit([*jobs("a", 1), *jobs("b", 1), *jobs("c", 1)])]
    while pool.is_busy:
        for outcome in pool.advance():
            seen.append(outcome.key)
            if outcome.key == ("b", 1):
                seen += [one.key for one in pool.submit(jobs("a", 2))]
    pool.end()
    assert seen == [("a", 1), ("b", 1), ("a", 2), ("c", 1)]


@pytest.mark.parametrize("count", [1, 3])
def test_a_worker_that_is_lost_costs_its_kernel_only(count: int) -> None:
    device = LateDevice(times_of, {4: ("sample", "crash")})
    with pipeline(device, dict.fromkeys("abc"[:count], GPU), listing_device=NVIDIA.type) as made:
        outcomes = dict(made.run())
    assert all(isinstance(one, Tuning) and one.best_config == {"value": 2} for one in outcomes.values())


class StuckDevice(LateDevice):
    """The candidates compile without end."""

    def start(self, name: str) -> Any:
        session = super().start(name)
        if not name.startswith("race"):
            os.read(session.fileno(), 100)  # nothing can be read until the worker answers
            session.is_answered = lambda: False
        return session


def test_a_compilation_without_end_does_not_outlast_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    def wait(sessions: list[Any], _: Any, __: Any, limit_s: float) -> None:
        if not select.select(sessions, [], [], 0)[0]:
            waits.append(limit_s)

    for module in (tuning_workers, pipeline_module):
        monkeypatch.setattr(module, "select", SimpleNamespace(select=wait))
    with pipeline(StuckDevice(times_of), {"k": SIX}, left_s=lambda: 0.3 - sum(waits)) as one:
        ((_, outcome),) = one.run()
    assert isinstance(outcome, InductorBenchError) and "the budget was spent" in str(outcome)
    assert 0.3 <= sum(waits) < 5, "each session alone would be waited for 30 s"
