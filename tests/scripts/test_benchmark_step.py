"""The comparison of the tool's steps and busy time with the program's own: on made-up figures, and a small program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from scripts import benchmark_step
from scripts.benchmark_step import check_busy, check_times, command_of, printed, slowest, stopwatch

ENDS = [10.0, 20.0, 30.0, 40.0, 50.0, 95.0, 105.0]
"""The program's steps take 10 s each, only step 5 takes 45 s."""


def test_the_same_steps_are_compared_without_the_first_and_the_last() -> None:
    # The tool's window is step 1 to step 5; its own work is in the program's step 5.
    found = check_times("step", 1, [10.4, 10.1, 10.1, 10.1, 10.0], ENDS)
    assert found.reached and found.words.startswith("10100.000 ms, 1.0100 of the program's own 10000.000 ms")
    assert "the same 3 steps" in found.words


@pytest.mark.parametrize(("first", "times"), [(1, [10.0, 10.3, 10.0]), (4, [10.0, 10.0, 10.0]), (1, [10.0, 10.0])])
def test_other_times_and_too_few_steps_miss_the_target(first: int, times: list[float]) -> None:
    assert not check_times("step", first, times, ENDS).reached


def rank(number: int, busy_s: float, step_s: float = 0.09) -> dict[str, Any]:
    return {"rank": number, "step_s": step_s, "busy_s": busy_s}


def test_the_least_busy_ranks_are_compared_whichever_they_are() -> None:
    # FSDP2 on two H100s: rank 0 was awaited in the tool's process, and rank 1 in the other one.
    (found,) = check_busy([0.018257, 0.086339], [rank(0, 0.0936), rank(1, 0.0182)])
    assert found.reached
    assert found.words == "18.257 ms of the least busy of 2 ranks, 1.0031 of the profiler's 18.200 ms"
    (missed,) = check_busy([0.0193, 0.0863], [rank(0, 0.0936), rank(1, 0.0182)])
    assert not missed.reached
    (alone,) = check_busy([0.0182], [rank(0, 0.0182)])
    assert alone.words == "18.200 ms, 1.0000 of the profiler's 18.200 ms"


def test_no_busy_time_is_compared_if_a_side_has_none() -> None:
    assert not list(check_busy([None, None], [rank(0, 0.02)])), "no profile"
    assert not list(check_busy([0.02], [rank(0, 0.0)])), "a CPU"
    assert not list(check_busy([0.02], [{"rank": 0, "step_s": 0.09}])) and not list(check_busy([0.02], []))


def test_every_rank_s_line_is_kept_in_the_order_of_the_ranks() -> None:
    lines = [json.dumps(rank(number, 0.01, step_s)) for number, step_s in ((1, 0.091), (0, 0.092))]
    log = "\n".join(["Compiled module path: x.py", f"stopwatch {lines[0]}", "stopwatches", f"stopwatch {lines[1]}"])
    assert printed(log) == [rank(0, 0.01, 0.092), rank(1, 0.01, 0.091)]
    assert slowest(printed(log))["rank"] == 0


@pytest.mark.corner
def test_both_ranks_of_a_small_program_print_their_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALL", "1")
    found = stopwatch(
        command_of("distributed.py ddp"), STEPS="3", PROFILE="1", TORCHDYNAMO_DISABLE="1", PET_STANDALONE="1"
    )
    assert [one["rank"] for one in found] == [0, 1]
    assert all(one["step_s"] > 0 and one["busy_s"] == 0 for one in found)


@pytest.mark.parametrize(("rounds", "profiles"), [(0, True), (1, False)])
def test_without_rounds_the_observed_program_profiles_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rounds: int, profiles: bool
) -> None:
    given: list[dict[str, str]] = []

    def run(command: list[str], *, env: dict[str, str], **_: object) -> None:
        given.append(env)
        (tmp_path / "logs").mkdir()
        (tmp_path / "logs" / "program.log").write_text(f"stopwatch {json.dumps(rank(0, 0.01))}\n")
        one = {"rank": 0, "pid": 7, "step_times_s": [0.1] * 4, "busy_time_s": 0.01, "tied_share": 1.0, "trace": "t"}
        program = {"step_times_s": [0.1] * 4, "settled_after": 1, "parts": [{"share": 1.0}], "ranks": [one]}
        (tmp_path / "record.json").write_text(json.dumps({"program": program}))
        ends = {"device_s": [], "host_s": [0.1 * number for number in range(20)]}
        (Path(env["STEP_ENDS"]) / "7.json").write_text(json.dumps(ends))

    monkeypatch.delenv("PROFILE", raising=False)
    monkeypatch.setattr(benchmark_step.subprocess, "run", run)
    monkeypatch.setattr(benchmark_step, "profiled_times", lambda _: (6, [0.1] * 4))
    alone = [[rank(0, 0.02)]] * rounds
    checks = {check.name: check for check in benchmark_step.compare(["train.py"], tmp_path, alone)}
    assert list(checks) == ["step", "profiled", "busy", "parts", "tied"]
    assert (given[0].get("PROFILE") == "1") == profiles
    assert checks["busy"].reached == profiles, "with rounds it is compared with the process without the tool"


def test_the_cost_can_be_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(benchmark_step, "stopwatch", lambda *_, **__: [rank(0, 0.01), rank(1, 0.01, 0.2)])
    monkeypatch.setattr(benchmark_step, "compare", lambda *_: iter([benchmark_step.Check("step", True, "")]))
    timed: list[float] = []

    def cost(_: list[str], step_s: float) -> benchmark_step.Check:
        timed.append(step_s)
        return benchmark_step.Check("observed", True, "")

    monkeypatch.setattr(benchmark_step, "check_cost", cost)
    assert [check.name for check in benchmark_step.measure([], tmp_path, 2, cost=False)] == ["step"] and not timed
    assert [check.name for check in benchmark_step.measure([], tmp_path, 2)] == ["step", "observed"]
    assert timed == [0.2], "of the slowest rank"
    assert [check.name for check in benchmark_step.measure([], None, 1)] == ["observed"]
