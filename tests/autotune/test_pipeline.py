"""The pipeline on a pretended device: what goes on at the same time, what never does, and who comes first."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from fake_device import SIX, Device, Line, Session, times_of

from inductor_bench.autotune.compile_pool import CompileJob, CompilePool
from inductor_bench.autotune.pipeline import OPENED_AHEAD, Pipeline
from inductor_bench.autotune.tuner import Tuner
from inductor_bench.devices.nvidia.device import NVIDIA
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.kernels import Ask, Build, Change, Facts, Load, RecordedFacts, TellFacts
from inductor_bench.messages.request import Request
from inductor_bench.messages.times import Prepare, Sample
from inductor_bench.records.tuning import Tuning

POLLS = 5


@dataclass(frozen=True)
class OnGpu(Line):
    device = NVIDIA.type


class LateSession(Session):
    """A session whose answers come only after it was asked for them some times."""

    left = 0

    def post(self, request: Request[Any], timeout_s: float | None = None) -> None:
        super().post(request, timeout_s)
        self.left = POLLS
        self.device.log.append(("begin", self.name, request))  # type: ignore[attr-defined]

    def is_answered(self) -> bool:
        self.left -= 1
        return self.left <= 0

    def collect(self) -> Any:
        self.device.log.append(("end", self.name, self.posted))  # type: ignore[attr-defined]
        return super().collect()

    def do_tellfacts(self, request: TellFacts) -> Facts:
        if self.device.listing_fails:  # type: ignore[attr-defined]
            raise InductorBenchError("there is no Triton")
        return Facts("triton", NVIDIA.type, RecordedFacts("k", "0", "pointwise"))


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
    device: LateDevice, kernels: dict[str, Line], find: Callable[[Facts, Ask], Any] | None = None, **tuner: Any
) -> Iterator[Pipeline]:
    pool, numbers = CompilePool(device.start, 2, 30.0, 30.0), itertools.count(1)
    tuners: dict[Any, Tuner] = {
        name: Tuner(
            f"{name}.py", find or (lambda *_, space=each: space), device.worker, numbers, timeout_s=30.0, **tuner
        )
        for name, each in kernels.items()
    }
    try:
        yield Pipeline(tuners, "max", lambda _: pool, lambda: False)
    finally:
        pool.end()
        device.worker().close()


GPU = OnGpu(SIX.now, SIX.axes)


def test_on_a_gpu_candidates_are_built_while_others_are_timed() -> None:
    device = LateDevice(times_of)
    with pipeline(device, dict.fromkeys("abcd", GPU), listing_device=NVIDIA.type) as made:
        outcomes = dict(made.run())
    assert all(isinstance(one, Tuning) and one.best_config == {"value": 4} for one in outcomes.values())
    assert device.overlaps(Build, Sample) and device.overlaps(Build, Prepare)
    loads = [request.file for event, name, request in device.log if event == "begin" and isinstance(request, Load)]
    assert sorted(file for file in loads if loads.count(file) > 2) == [], "once by the pool, and once to be timed"


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
    def find(facts: Facts, ask: Ask) -> Any:
        raise InductorBenchError("nothing of it can be varied")

    device = LateDevice(times_of)
    with pipeline(device, {"k": GPU}, find, listing_device=NVIDIA.type) as made:
        (outcome,) = dict(made.run()).values()
    assert isinstance(outcome, InductorBenchError) and "nothing of it" in outcome.message


def test_the_worker_gets_ready_while_the_pool_lists() -> None:
    device = LateDevice(times_of)
    seen: list[int] = []
    with pipeline(device, {"k": GPU}, listing_device=NVIDIA.type) as made:
        assert len(dict(made.run(lambda: seen.append(len(device.log))))) == 1
    assert seen == [1], "the first request to the pool is on its way"


def test_files_that_came_first_are_compiled_first() -> None:
    device = Device(times_of)
    pool = CompilePool(device.start, 1, 30.0, 30.0)

    def jobs(file: str, *numbers: int) -> list[CompileJob]:
        return [CompileJob((file, number), file, lambda at, number=number: build(at, number)) for number in numbers]

    def build(at: int, number: int) -> Build:
        return Build(at, Change({"value": number}))

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
