"""Retuning on a pretended device: who wins, who pays for what, and what is said of it."""

from __future__ import annotations

import itertools
import os
import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.process import ProcessResult
from inductor_bench.launch.session import WorkerLostError
from inductor_bench.records.tuning import Config, Tuning
from inductor_bench.workflows import tuning as tuning_module
from inductor_bench.workflows.tuning import Tuner, all_combinations, single_changes

SEGFAULT = ProcessResult(None, "SIGSEGV", False, 1.0, Path("log"))
TOO_LATE = ProcessResult(None, None, True, 9.0, Path("log"))


@dataclass
class Device:
    """What requests to workers come to: ``time_of`` a configuration, and what goes wrong with it, by its ``value``.

    ``trouble`` maps a value to the request that fails (``vary``, ``check`` or ``sample``) and how: ``refuse``,
    ``crash``, ``hang`` or, for ``check``, ``differ``.
    """

    time_of: Callable[[Config], float]
    trouble: dict[Any, tuple[str, str]] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    noise: random.Random = field(default_factory=lambda: random.Random(7))
    asked: Counter[str] = field(default_factory=Counter)

    def start(self, name: str) -> Any:
        self.sessions.append(Session(self))
        return self.sessions[-1]


class Session:
    """Stands in for ``WorkerSession``: it answers at once."""

    def __init__(self, device: Device) -> None:
        self.device, self.alive, self.part, self.left_s = device, True, None, 30.0
        self.configs: dict[int, Config] = {}
        self.posted: dict[str, Any] = {}
        self._ready, self._end = os.pipe()
        os.write(self._end, b"an answer")

    def ask(self, request: dict[str, Any], timeout_s: float | None = None) -> Any:
        self.post(request, timeout_s)
        return self.collect()

    def post(self, request: dict[str, Any], timeout_s: float | None = None) -> None:
        assert self.alive and timeout_s is not None
        self.posted, self.part = dict(request), None

    def fileno(self) -> int:
        return self._ready

    def collect(self) -> Any:
        request = self.posted
        self.device.asked[request["do"]] += 1
        return getattr(self, f"do_{request.pop('do')}")(**request)

    def close(self) -> None:
        if self.alive:
            self.alive = False
            os.close(self._ready)
            os.close(self._end)

    abort = close

    def do_load(self, number: int, file: str) -> dict[str, Any]:
        self.configs[number] = {"value": None}
        self._stumble("load", number)
        return {}

    def do_vary(self, number: int, of: int, change: dict[str, Any]) -> None:
        assert of in self.configs
        self.configs[number] = change["config"]
        self._stumble("vary", number)

    def do_check(self, number: int, against: int) -> str:
        assert against == 0
        return self._stumble("check", number)

    def do_sample(self, order: list[int], state: str) -> list[float]:
        times = []
        for number in order:
            self.part = number
            self._stumble("sample", number)
            time = self.device.time_of(self.configs[number]) if number else self.device.time_of({"value": 0})
            times.append(time * self.device.noise.gauss(1, 0.002))
        return times

    def _stumble(self, step: str, number: int) -> str:
        value = self.configs[number]["value"] if number else "default"
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
class Line:
    """A kernel with one knob, or several."""

    now: Config
    axes: dict[str, tuple[Any, ...]]
    unfit: tuple[Any, ...] = ()

    def change(self, config: Config) -> dict[str, Any]:
        if config["value"] in self.unfit:
            raise InductorBenchError("it cannot be written so")
        return {"config": config}


class Silent:
    def stage(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def output(self, line: str) -> None: ...


TIMES = {0: 100e-6, 1: 120e-6, 2: 80e-6, 3: 130e-6, 4: 60e-6, 5: 90e-6}
SIX = Line({"value": 0}, {"value": tuple(TIMES)})


def tune(device: Device, variants: Line = SIX, method: str = "max", **more: Any) -> Tuning:
    tuning = Tuner("k.py", variants, device.start, 2, Silent(), **more).tune(method)
    assert not any(session.alive for session in device.sessions), "a worker is left"
    assert tuning.best_s <= tuning.default_s
    return tuning


def times_of(config: Config) -> float:
    return TIMES[config["value"]]


def rows(tuning: Tuning) -> dict[Any, tuple[str, str]]:
    return {row.config["value"]: (row.status, row.reason) for row in tuning.candidates}


def test_the_fastest_wins() -> None:
    tuning = tune(Device(times_of))
    assert (tuning.best_config, tuning.verdict, tuning.tried) == ({"value": 4}, "faster", 5)
    assert tuning.speedup == pytest.approx(100 / 60, rel=0.01)
    assert tuning.ratio is not None and tuning.ratio.low < 0.6 < tuning.ratio.high + 0.003
    found = rows(tuning)
    assert found[4][0] == "best" and found[0] == ("default", "")
    assert found[3][0] == "slower" and found[3][1].endswith("x the best")
    assert all(row.median_s == statistics.median(row.samples_s) for row in tuning.candidates)
    assert all(row.samples == len(row.samples_s) for row in tuning.candidates)


def test_nothing_wins_where_nothing_is_faster() -> None:
    tuning = tune(Device(lambda config: 100e-6 + 5e-6 * (config["value"] != 0)))
    assert tuning.best_config == {"value": 0} and tuning.speedup == 1.0 and tuning.verdict == "slower"
    assert tuning.best_s == tuning.default_s


@pytest.mark.parametrize("method", ["max", "coordesc"])
@pytest.mark.parametrize(
    ("step", "how", "status", "reason"),
    [
        ("check", "differ", "wrong", "output 0: 5 of 9 elements differ"),
        ("check", "refuse", "refused", "it does not compile here"),
        ("check", "crash", "crashed", "was killed by SIGSEGV after 1.0 s"),
        ("vary", "refuse", "refused", "it does not compile here"),
        ("vary", "crash", "crashed", "was killed by SIGSEGV after 1.0 s"),
        ("vary", "hang", "hung", "was stopped by the time limit after 9 s"),
        ("sample", "refuse", "refused", "it does not compile here"),
        ("sample", "crash", "crashed", "was killed by SIGSEGV after 1.0 s"),
        ("sample", "hang", "hung", "was stopped by the time limit after 9 s"),
    ],
)
def test_a_candidate_pays_for_itself_alone(step: str, how: str, status: str, reason: str, method: str) -> None:
    device = Device(times_of, {4: (step, how)})
    tuning = tune(device, method=method)
    assert rows(tuning)[4] == (status, reason)
    assert (tuning.best_config, tuning.verdict, tuning.tried) == ({"value": 2}, "faster", 4)


def test_all_may_fail_but_one() -> None:
    device = Device(times_of, dict.fromkeys((1, 3, 4, 5), ("sample", "crash")))
    tuning = tune(device)
    assert (tuning.best_config, tuning.tried) == ({"value": 2}, 1)


def test_where_none_is_left_the_first_reason_is_told() -> None:
    device = Device(times_of, dict.fromkeys(range(1, 6), ("vary", "refuse")))
    with pytest.raises(InductorBenchError, match="none of 5 candidates could be timed; the first: refused, it does"):
        tune(device)
    device = Device(times_of, dict.fromkeys(range(1, 6), ("sample", "crash")))
    with pytest.raises(InductorBenchError, match="the first: crashed, was killed by SIGSEGV"):
        tune(device)


@pytest.mark.parametrize("how", ["crash", "hang", "refuse"])
def test_a_default_that_cannot_be_timed_is_an_error(how: str) -> None:
    device = Device(times_of, {"default": ("sample", how)})
    with pytest.raises(InductorBenchError, match="the kernel as it stands cannot be timed"):
        tune(device)
    assert not any(session.alive for session in device.sessions)


@pytest.mark.parametrize("how", ["crash", "refuse"])
def test_a_file_that_does_not_load_leaves_no_worker_behind(how: str) -> None:
    device = Device(times_of, {"default": ("load", how)})
    with pytest.raises((InductorBenchError, WorkerLostError)):
        tune(device)
    assert not any(session.alive for session in device.sessions)


def test_what_cannot_be_written_costs_no_worker() -> None:
    device = Device(times_of)
    tuning = tune(device, Line(SIX.now, SIX.axes, unfit=(3, 4)))
    assert rows(tuning)[4] == ("refused", "it cannot be written so")
    assert tuning.best_config == {"value": 2} and tuning.tried == 3


def test_nothing_else_to_try_is_an_error() -> None:
    with pytest.raises(InductorBenchError, match="has nothing else to try"):
        tune(Device(times_of), Line({"value": 0}, {}))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each look at the clock finds a second gone."""
    seconds = itertools.count()
    monkeypatch.setattr(tuning_module.time, "monotonic", lambda: float(next(seconds)))
    yield


@pytest.mark.usefixtures("clock")
def test_after_the_budget_nothing_more_is_built() -> None:
    tuning = tune(Device(times_of), budget_s=2.5)
    found = rows(tuning)
    untried = [value for value, row in found.items() if row == ("untried", "the budget was spent")]
    assert 0 < len(untried) < 5 and tuning.tried == 5 - len(untried)
    with pytest.raises(InductorBenchError, match="untried, the budget was spent") as none:
        tune(Device(times_of), method="coordesc", budget_s=0.5)
    assert "--budget" in none.value.hint


GRID = Line({"value": 0, "y": 0, "z": 0}, {"value": (0, 1, 2, 3), "y": (0, 1, 2, 3), "z": (0, 1)})


def valley(config: Config) -> float:
    """The best is value 2, y 3, z 1; from the default no single change reaches it."""
    if "y" not in config:
        return 100e-6
    return 100e-6 * (1 - 0.1 * config["value"] * (config["value"] < 3) - 0.05 * config["y"] * (config["value"] == 2))


def test_coordinate_descent_finds_what_single_changes_do_not() -> None:
    device = Device(valley)
    tuning = tune(device, GRID, "coordesc")
    assert tuning.verdict == "faster"
    assert (tuning.best_config["value"], tuning.best_config["y"]) == (2, 3)
    assert tuning.speedup == pytest.approx(1 / 0.65, rel=0.02)
    assert tuning.tried < 12
    single = tune(Device(valley), GRID, "max")
    assert single.best_config == {"value": 2, "y": 0, "z": 0} and single.tried == 7
    every = tune(Device(valley), GRID, "exhaustive")
    assert (every.best_config["value"], every.best_config["y"], every.tried) == (2, 3, 31)


def test_ratios_are_to_the_default_or_not_told() -> None:
    tuning = tune(Device(valley), GRID, "coordesc")
    for row in tuning.candidates:
        if row.ratio is not None:
            assert row.ratio.median == pytest.approx(valley(row.config) / 100e-6, rel=0.02)
    later = [row for row in tuning.candidates if row.config["y"] == 2]
    assert later and all("x the best" in row.reason for row in later)


def test_coordinate_descent_says_how_near_the_nearest_came() -> None:
    device = Device(lambda config: 100e-6 * (1 + 0.02 * config["value"]))
    tuning = tune(device, method="coordesc")
    assert tuning.verdict == "slower" and tuning.best_config == {"value": 0}
    assert tuning.ratio is not None and tuning.ratio.median == pytest.approx(1.02, rel=0.01)


def test_a_best_that_dies_later_is_best_no_more() -> None:
    """It wins the first axis, and takes its worker down in the race of the second."""
    device = Device(valley)
    died = []

    def fragile(config: Config) -> float:
        if config.get("y"):
            device.trouble[2] = ("sample", "crash")
            died.append(config)
        return valley(config)

    device.time_of = fragile
    tuning = tune(device, GRID, "coordesc")
    assert died and tuning.best_config["value"] != 2
    assert {row.status for row in tuning.candidates if row.config["value"] == 2} <= {"crashed", "untried"}


def test_ctrl_c_leaves_no_worker() -> None:
    class Interrupting(Silent):
        def stage(self, text: str) -> None:
            if text.startswith("timing"):
                raise KeyboardInterrupt

    device = Device(times_of)
    with pytest.raises(KeyboardInterrupt):
        Tuner("k.py", SIX, device.start, 2, Interrupting()).tune("max")
    assert device.sessions and not any(session.alive for session in device.sessions)


def test_candidates_are_built_side_by_side_and_the_file_is_loaded_once_by_each_worker() -> None:
    device = Device(times_of)
    tune(device)
    assert len(device.sessions) == 3 and device.asked["load"] == 3
    assert device.asked["vary"] == 2 * 5 and device.asked["check"] == 5
    device = Device(valley)
    tune(device, GRID, "coordesc")
    assert len(device.sessions) == 3, "those that build rest between the axes"


def test_proposals() -> None:
    now, axes = {"a": 1, "b": 2}, {"a": (1, 3), "b": (2, 4)}
    assert list(single_changes(now, axes)) == [{"a": 3, "b": 2}, {"a": 1, "b": 4}]
    assert list(all_combinations(now, axes)) == [{"a": 1, "b": 4}, {"a": 3, "b": 2}, {"a": 3, "b": 4}]
