"""Retuning on a pretended device: who wins, who pays for what, and what is said of it."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from fake_device import SIX, TIMES, Device, Line, Session, times_of, tune, tune_all

from inductor_bench.autotune import tuner
from inductor_bench.autotune.methods import FEW, NEGLIGIBLE, Pruning, TuningPriority, find_least
from inductor_bench.autotune.pipeline import PipelineState
from inductor_bench.autotune.tuning_workers import BudgetSpentError, Candidate, leave_out_hopeless
from inductor_bench.devices.nvidia import NVIDIA
from inductor_bench.devices.protocol import CPU
from inductor_bench.errors import InductorBenchError
from inductor_bench.launch.worker import WorkerLostError
from inductor_bench.messages.job_requests import WorkerRequest
from inductor_bench.messages.kernel_requests import Binary, Build, Drop, Load, Numbered, Prepare, Sample, Variant
from inductor_bench.records.retune import Config, Tuning


def rows(tuning: Tuning) -> dict[Any, tuple[str, str]]:
    return {row.config["value"]: (row.status, row.reason) for row in tuning.candidates}


def test_the_fastest_wins() -> None:
    tuning = tune(Device(times_of))
    assert (tuning.best_config, tuning.verdict, tuning.tried) == ({"value": 4}, "faster", 5)
    assert tuning.speedup == pytest.approx(100 / 60, rel=0.01)
    assert tuning.ratio is not None and tuning.ratio.low < 0.6 < tuning.ratio.high + 0.003
    found = rows(tuning)
    assert found[4][0] == "best" and found[0] == ("default", "")
    assert found[3][0] == "slower" and found[3][1].endswith("x the time of the best config")
    assert all(row.median_s == statistics.median(row.samples_s) for row in tuning.candidates)
    assert all(row.samples == len(row.samples_s) for row in tuning.candidates)


def test_nothing_wins_if_nothing_is_faster() -> None:
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
    with pytest.raises(InductorBenchError, match="the kernel as it is cannot be timed"):
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


def after(device: Device, request: type[Any], count: int = 1) -> Callable[[], bool]:
    """A budget that is spent once the device has answered so many requests."""
    return lambda: device.asked[request] >= count


def test_after_the_budget_nothing_more_is_built() -> None:
    device = Device(times_of)
    tuning = tune(device, is_over=after(device, Build, 3))
    found = rows(tuning)
    untried = [value for value, row in found.items() if row == ("untried", "the budget was spent")]
    assert untried == [4, 5] and tuning.tried == 3, "what is being built is waited for no longer"
    for request, why in ((Load, "untried, the budget was spent"), (Drop, "the budget was spent")):
        device = Device(times_of)
        with pytest.raises(InductorBenchError, match=why) as none:
            tune(device, method="coordesc", is_over=after(device, request, request is Load))
        assert "--budget" in none.value.hint


def test_the_best_so_far_is_raced_in_a_final_after_the_budget() -> None:
    device = Device(valley)
    tuning = tune(device, GRID, "coordesc", is_over=after(device, Sample))
    assert (tuning.verdict, tuning.best_config["value"], tuning.tried) == ("faster", 2, 7)


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
    assert tuning.tried < 20
    single = tune(Device(valley), GRID, "max")
    assert single.best_config == {"value": 2, "y": 0, "z": 0} and single.tried == 7
    every = tune(Device(valley), GRID, "exhaustive")
    assert (every.best_config["value"], every.best_config["y"], every.tried) == (2, 3, 31)


def test_ratios_are_to_the_default_or_not_told() -> None:
    tuning = tune(Device(valley), GRID, "coordesc")
    told = [row for row in tuning.candidates if row.ratio is not None]
    assert {row.status for row in told} == {"best", "finalist"}
    for row in told:
        assert row.ratio is not None and row.ratio.median == pytest.approx(valley(row.config) / 100e-6, rel=0.02)
    slower = [row for row in tuning.candidates if row.status == "slower"]
    for row in slower:
        assert float(row.reason.removesuffix("x the time of the best config")) == pytest.approx(
            valley(row.config) / 65e-6, rel=0.03
        )
    assert len(slower) > 5


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
    def interrupt(state: PipelineState) -> None:
        if state.timed is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_all(Device(times_of), {"k": SIX}, report=interrupt)


def test_candidates_are_built_side_by_side_and_a_file_is_loaded_once_by_each_worker() -> None:
    device = Device(times_of)
    tune(device)
    assert len(device.sessions) == 3 and device.asked[Load] == 3
    assert device.asked[Build] == 6 and (device.asked[Prepare], device.asked[Variant]) == (1, 5)
    device = Device(valley)
    tune(device, GRID, "coordesc")
    assert len(device.sessions) == 3, "those that build rest between the waves"


def test_kernels_are_tuned_side_by_side_and_one_that_fails_costs_no_other() -> None:
    states: list[PipelineState] = []
    device = Device(times_of)
    broken = Line({"value": None}, {"value": (None, *TIMES)})
    device.trouble["default"] = ("sample", "refuse")
    outcomes = tune_all(device, {"broken": broken}, "max")
    assert isinstance(outcomes["broken"], InductorBenchError)
    del device.trouble["default"]
    kernels = {"first": SIX, "none": Line({"value": 0}, {}), "second": SIX}
    outcomes = tune_all(device, kernels, report=states.append)
    assert [outcomes[name].best_config["value"] for name in ("first", "second")] == [4, 4]  # type: ignore[union-attr]
    assert "has nothing else to try" in str(outcomes["none"])
    opened = next(state for state in states if state.timed == "second")
    assert opened == PipelineState("second", 0, 3, 7, 6), "it is opened while candidates of the first are built"
    built = [state.compiling for state in states if state.timed is None]
    assert built[0] > built[-1] and all(state.compiling == 0 for state in states if state.timed == "first")
    assert {state.done for state in states if state.timed == "second"} == {0, 2}


def test_what_compiles_to_the_same_is_timed_once() -> None:
    device = Device(times_of)
    device.binary_of = lambda config: Binary(str(config["value"] // 2), 0, 0)
    found = rows(tune(device))
    assert found[1] == ("duplicate", "compiles to the same binary as no. 1"), "the default is the first to be built"
    assert found[3] == ("duplicate", "compiles to the same binary as no. 3")
    assert found[4][0] == "best" and found[5][0] == "duplicate"
    assert device.asked[Variant] == 2


def test_the_winner_is_found_again_after_a_crash() -> None:
    """The worker that knew the finalists is lost in the final; they are loaded into another."""
    device = Device(times_of, {5: ("sample", "crash")})
    tuning = tune(device)
    assert tuning.best_config == {"value": 4} and rows(tuning)[5][0] == "crashed"
    assert all(row.registers == 16 for row in tuning.candidates if row.status in ("best", "finalist"))


def test_proposals() -> None:
    space = Line({"a": 1, "b": 2}, {"a": (1, 3), "b": (2, 4)})
    assert space.listed_by_max_autotune() == space.neighbours(space.now) == [{"a": 3, "b": 2}, {"a": 1, "b": 4}]
    assert list(space.nearest_first(space.now)) == [{"a": 1, "b": 4}, {"a": 3, "b": 2}, {"a": 3, "b": 4}]


@dataclass(frozen=True)
class Unbuilt(Line):
    """A kernel whose candidates need no building, such as the threads of a library call."""

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        return None


def test_a_budget_holds_even_if_nothing_is_built() -> None:
    one = Unbuilt({"value": 0}, {"value": tuple(TIMES)})
    device = Device(times_of)
    assert tune(device, one).best_config == {"value": 4} and device.asked[Build] == 0
    device = Device(times_of)
    with pytest.raises(BudgetSpentError):
        tune(device, one, is_over=lambda: True)
    assert device.asked[Sample] == 0


def test_of_many_kernels_one_that_is_not_timed_gives_way_at_the_end_of_the_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def after(kind: type[WorkerRequest[Any]], **more: Any) -> tuple[Device, Tuning]:
        device = Device(times_of)
        return device, tune(device, is_over=lambda: device.asked[kind] > 0, **more)

    many = Pruning(TuningPriority(1.0), 0.0)
    monkeypatch.setattr(tuner, "find_device", lambda device: NVIDIA)
    with pytest.raises(BudgetSpentError, match="the budget was spent"):
        after(Build, pruning=many)
    for more in ({"may_give_way": lambda: False}, {"pruning": None}):
        device, tuning = after(Build, **{"pruning": many, **more})
        assert device.asked[Sample] and tuning.cut_short == "budget"
    device, tuning = after(Sample, pruning=many)
    assert tuning.best_config == {"value": 4} and tuning.cut_short == "budget", "what is begun is brought to its end"
    monkeypatch.setattr(tuner, "find_device", lambda device: CPU)
    device, tuning = after(Build, pruning=many)
    assert device.asked[Sample] and tuning.cut_short == "budget", "a host times nothing while it compiles"


class Unlisted(Line):
    """Max-autotune lists no config but that of the file."""

    def listed_by_max_autotune(self) -> list[Config]:
        return []


def test_a_search_ends_for_want_of_gain_only_if_something_was_timed_and_something_is_left_to_try() -> None:
    little_left = Pruning(TuningPriority(100e-6, 20e-6), 10e-6)
    unlisted = Unlisted({"value": 0}, {"value": (0, 4)})
    assert tune(Device(times_of), unlisted, "coordesc", pruning=little_left).best_config == {"value": 4}
    slower = Line({"value": 0}, {"value": (0, 1, 3)})
    assert tune(Device(times_of), slower, "max", pruning=little_left).cut_short == "", "its method is at its end"
    assert tune(Device(times_of), slower, "exhaustive", pruning=little_left).cut_short == "gain"


@dataclass(frozen=True)
class Templates(Line):
    """A library call: the value 0 is the call itself, and each other value a choice of one of two templates."""

    def compile_request(self, config: Config) -> Numbered[Any] | None:
        return None

    def family(self, config: Config) -> str:
        return "" if config["value"] == 0 else "even" if config["value"] % 2 == 0 else "odd"


def test_the_rest_of_a_template_is_left_out_if_its_first_choices_are_hopeless() -> None:
    call = Templates({"value": 0}, {"value": (0, 1, 2, 3, 4, 5, 6, 7)})
    times = {0: 1e-4, 1: 5e-2, 2: 2e-4, 3: 3e-3, 4: 1.1e-4, 5: 2.1e-3, 6: 8e-5, 7: 9e-5}
    device = Device(lambda config: times[config["value"]])
    tuning = tune(device, call)
    assert tuning.best_config == {"value": 6} and device.asked[Variant] == 5
    found = {one.config.get("value"): (one.status, one.reason) for one in tuning.candidates}
    reason = "2 configs of its template take over 20x as long as the best config"
    assert found[5] == found[7] == ("untried", reason)
    refused = Device(lambda config: times[config["value"]], {3: ("vary", "refuse")})
    assert tune(refused, call).tried == 6, "one choice says too little"
    times[3] = 1.9e-3
    assert tune(Device(lambda config: times[config["value"]]), call).tried == 7


def test_a_template_that_holds_the_best_is_not_hopeless() -> None:
    best, slow, later = (Candidate({}, number, family="a") for number in range(3))
    best.relative_time, slow.relative_time = 0.9, 30.0
    leave_out_hopeless([later], [best, slow, replace(slow), later], 0.9)
    assert later.status == ""
    leave_out_hopeless([later], [slow, replace(slow), later], 0.9)
    assert later.status == "untried"


def test_each_sample_has_the_whole_limit() -> None:
    """Whoever is slow is dropped by the race, not called hung because the others took their turn before.

    The session starts the limit anew with each part of an answer.
    """
    limits: list[float | None] = []
    device = Device(times_of)

    class Timed(Session):
        def post(self, request: WorkerRequest[Any], timeout_s: float | None = None) -> None:
            if isinstance(request, Sample):
                limits.append(timeout_s)
            super().post(request, timeout_s)

    device.start = lambda name: device.sessions.append(Timed(device)) or device.sessions[-1]  # type: ignore[method-assign, func-returns-value]
    tune(device)
    assert set(limits) == {30.0}


# What kernels can win, in which order they are tuned, and when a search is no longer worth its time.


def test_a_kernel_can_win_what_its_roof_leaves_and_half_its_time_without_a_roof() -> None:
    assert TuningPriority(1e-3, 2e-4).largest_gain_s == pytest.approx(2.3e-4)
    assert TuningPriority(1e-3).largest_gain_s == pytest.approx(5.3e-4)
    assert TuningPriority(1e-3, 2e-3).largest_gain_s == 1e-3, "no more than its time"
    assert TuningPriority(1e-3, 2e-4).left_s(0.9) == pytest.approx(1.3e-4)
    assert TuningPriority(1e-3, 2e-4).left_s(0.5) == pytest.approx(2.5e-5), "faster than its roof, which is not exact"


def test_a_library_call_comes_before_a_kernel_that_can_win_a_thousandth_of_it() -> None:
    call = TuningPriority(1e-2, is_library_call=True)
    assert TuningPriority(1e-3).rank > call.rank > TuningPriority(1e-5).rank


def test_of_many_kernels_those_are_left_that_can_win_next_to_nothing_together() -> None:
    large, small = [TuningPriority(1e-3)] * FEW, [TuningPriority(1e-6)] * 40
    least_s = find_least([*large, *small, TuningPriority(1.0, is_library_call=True)])
    assert small[0].largest_gain_s < least_s <= large[0].largest_gain_s
    left_s = sum(stake.largest_gain_s for stake in small)
    assert left_s <= NEGLIGIBLE * sum(stake.largest_gain_s for stake in [*large, *small])
    assert find_least(small[:FEW]) == 0.0, "few kernels are all tuned to the end"


def test_a_search_ends_if_little_is_left_or_little_was_gained() -> None:
    ends = Pruning(TuningPriority(1e-3, 2e-4), least_s=5e-5).ends
    assert not ends(1.0, 0.96) and not ends(0.9, 0.895), "little was gained, and much is left"
    assert not ends(1.0, 1.0), "nothing was gained, and the neighbours of the default may gain much"
    assert ends(0.88, 0.86), "little was gained, and little is left"
    assert not ends(1.0, 0.86), "much was gained"
    assert ends(1.0, 0.80), "next to nothing is left"
    ends = Pruning(TuningPriority(1e-3, 1e-4), least_s=5e-5).ends
    assert ends(1.0, 1.0) and not ends(1.0, 0.999), "neighbours of a default that nothing beats gain less often"
    assert not Pruning(TuningPriority(1e-3, 2e-4), 0.0).ends(1.0, 0.5), "one of few kernels is tuned to the end"
