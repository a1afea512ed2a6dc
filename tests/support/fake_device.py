"""A fake device for kernel sessions. It answers requests like a worker, from a table of times."""

from __future__ import annotations

import itertools
import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from inductor_bench.autotune.methods import CpuSpace
from inductor_bench.autotune.pipeline import Pipeline
from inductor_bench.autotune.tuner import Tuner
from inductor_bench.autotune.tuning_workers import CompilePool
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.process import ProcessResult
from inductor_bench.launch.worker import WorkerLostError
from inductor_bench.messages.job_requests import Answer, WorkerRequest
from inductor_bench.messages.kernel_requests import (
    Begun,
    Build,
    Checked,
    CompareOutputs,
    CompiledResources,
    Drop,
    Load,
    Numbered,
    Preparation,
    Prepare,
    Prepared,
    RecordedFacts,
    Sample,
    Times,
    Variant,
    VariantChange,
    VariantFacts,
    Vary,
)
from inductor_bench.records.retune import Config, Tuning

SEGFAULT = ProcessResult(None, "SIGSEGV", False, 1.0, Path("log"))


TOO_LATE = ProcessResult(None, None, True, 9.0, Path("log"))


@dataclass
class Device:
    """Determines the answers of workers.

    Attributes:
        time_of: returns the seconds of a configuration.
        trouble: maps the ``value`` of a configuration to the failing request (``vary``, ``check`` or ``sample``) and
            the failure: ``refuse``, ``crash``, ``hang`` or, for ``check``, ``differ``.
    """

    time_of: Callable[[Config], float]
    trouble: dict[Any, tuple[str, str]] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    noise: random.Random = field(default_factory=lambda: random.Random(7))
    asked: Counter[type[Any]] = field(default_factory=Counter)
    binary_of: Callable[[Config], Any] = lambda config: None
    racing: dict[int, Any] = field(default_factory=dict)

    def worker(self, number: int = 0) -> Any:
        """The steps to a worker that checks and times; a new one after a loss."""
        if number not in self.racing or not self.racing[number].alive:
            self.racing[number] = self.start(f"race-{number}" if number else "race")
        return self.racing[number]
        yield

    def close(self) -> None:
        for session in self.racing.values():
            session.close()

    def start(self, name: str) -> Any:
        self.sessions.append(Session(self))
        return self.sessions[-1]


class Session:
    """A fake ``WorkerSession`` that answers at once."""

    def __init__(self, device: Device) -> None:
        self.device, self.alive, self.left_s = device, True, 30.0
        self.configs: dict[int, Config] = {}
        self.posted: WorkerRequest[Any] | None = None
        self.part: Begun | None = None
        self._ready, self._end = os.pipe()
        os.write(self._end, b"an answer")

    def ask(self, request: WorkerRequest[Answer], timeout_s: float | None = None) -> Answer:
        self.post(request, timeout_s)
        answer: Answer = self.collect()
        return answer

    def post(self, request: WorkerRequest[Any], timeout_s: float | None = None) -> None:
        assert self.alive and timeout_s is not None
        self.posted, self.part = request, None

    def fileno(self) -> int:
        return self._ready

    def is_answered(self) -> bool:
        return True

    def collect(self) -> Any:
        request = self.posted
        self.device.asked[type(request)] += 1
        return getattr(self, f"do_{type(request).__name__.lower()}")(request)

    def close(self) -> None:
        if self.alive:
            self.alive = False
            os.close(self._ready)
            os.close(self._end)

    abort = close

    def do_load(self, request: Load) -> VariantFacts:
        self.configs[request.number] = {"value": None}
        self._stumble("load", request.number)
        return VariantFacts("cpp", "cpu", RecordedFacts("k", "0", "cpp"))

    def do_vary(self, request: Vary) -> CompiledResources:
        assert request.of in self.configs
        self.configs[request.number] = request.change.config
        self._stumble("vary", request.number)
        return CompiledResources(registers=16)

    def do_build(self, request: Build) -> Any:
        self.do_vary(Vary(-1, request.number, request.change))
        return self.device.binary_of(request.change.config)

    def do_compareoutputs(self, request: CompareOutputs) -> Checked:
        assert self.configs[request.against]["value"] is None
        return Checked(self._stumble("check", request.number))

    def do_prepare(self, request: Prepare) -> Preparation:
        prepared = []
        for variant in request.variants:
            self.part = Begun(variant.number)
            self.device.asked[Variant] += 1
            try:
                compiled = self.do_vary(Vary(variant.number, request.of, variant.change))
                checked = self.do_compareoutputs(CompareOutputs(variant.number, request.of))
                prepared.append(Prepared(compiled, checked.difference))
            except InductorBenchError as error:
                prepared.append(Prepared(refusal=error.message))
        return Preparation(tuple(prepared))

    def do_drop(self, request: Drop) -> None:
        for number in request.numbers:
            self.configs.pop(number, None)

    def do_sample(self, request: Sample) -> Times:
        times = []
        for number in request.order:
            self.part = Begun(number)
            self._stumble("sample", number)
            default = self.configs[number]["value"] is None
            time = self.device.time_of({"value": 0} if default else self.configs[number])
            times.append(time * self.device.noise.gauss(1, 0.002))
        return Times(tuple(times))

    def _stumble(self, step: str, number: int) -> str:
        value = "default" if self.configs[number]["value"] is None else self.configs[number]["value"]
        where, how = self.device.trouble.get(value, ("", ""))
        if where != step:
            return ""
        if how == "differ":
            return "output 0: 5 of 9 elements differ"
        if how == "refuse":
            raise InductorBenchError("it does not compile here")
        self.close()
        raise WorkerLostError("hung" if how == "hang" else "crashed", TOO_LATE if how == "hang" else SEGFAULT)


@dataclass(frozen=True)
class Line(CpuSpace):
    """The variants of a kernel with one or more tunable fields."""

    now: Config
    axes: dict[str, tuple[Any, ...]]
    unfit: tuple[Any, ...] = ()

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        return partial(Build, change=self.change(config))

    def change(self, config: Config) -> VariantChange:
        if config["value"] in self.unfit:
            raise InductorBenchError("it cannot be written so")
        return VariantChange(config)


def finds(variants: Any) -> Any:
    """Finds these variants for every kernel, and asks the worker nothing."""

    def find(facts: VariantFacts) -> Any:
        yield from ()
        return variants

    return find


class Silent:
    def stage(self, text: str) -> None: ...

    def update(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def output(self, line: str) -> None: ...


TIMES = {0: 100e-6, 1: 120e-6, 2: 80e-6, 3: 130e-6, 4: 60e-6, 5: 90e-6}


SIX = Line({"value": 0}, {"value": tuple(TIMES)})


def tune_all(
    device: Device, kernels: dict[str, Line], method: str = "max", report: Any = None, **more: Any
) -> dict[Any, Tuning | InductorBenchError | WorkerLostError]:
    over = more.pop("is_over", lambda: False)
    left_s = more.pop("left_s", lambda: 0.0 if over() else None)
    numbers = itertools.count(1)
    pool = CompilePool(device.start, 2, 30.0, 30.0)
    tuners: dict[Any, Tuner] = {
        name: Tuner(f"{name}.py", finds(each), numbers, timeout_s=30.0, is_over=over, **more)
        for name, each in kernels.items()
    }
    try:
        made = Pipeline(tuners, method, lambda _: pool, [device.worker], left_s, report or (lambda state: None))
        return dict(made.run())
    finally:
        pool.end()
        device.close()
        assert not any(session.alive for session in device.sessions), "a worker is left"


def tune(device: Device, variants: Line = SIX, method: str = "max", **more: Any) -> Tuning:
    outcome = tune_all(device, {"k": variants}, method, **more)["k"]
    if not isinstance(outcome, Tuning):
        raise outcome
    assert outcome.best_s <= outcome.default_s
    return outcome


def times_of(config: Config) -> float:
    return TIMES[config["value"]]
