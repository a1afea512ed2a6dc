"""When a program's steps are timed and profiled: the state machine, with a clock of its own, and the plan of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from inductor_bench.records.evidence import DONE, PROFILING, TIMING, WAITING
from inductor_bench.worker.capture import step_measurement
from inductor_bench.worker.capture.schedule import (
    ATTEMPTS,
    LEAD,
    WINDOW_STEPS,
    Action,
    Follower,
    Leader,
    Schedule,
    StepCoordinator,
    WindowLimits,
    agreement_of,
)
from inductor_bench.worker.capture.step_observer import StepObserver

A = Action


class Program:
    """A program that crosses boundaries; each step takes ``step_s``."""

    def __init__(
        self,
        step_s: float = 0.01,
        limits: WindowLimits | None = None,
        agreement: StepCoordinator | None = None,
        first: int = 1,
    ) -> None:
        self.schedule = Schedule(limits or WindowLimits(), agreement or StepCoordinator())
        self.step_s, self.first, self.number = step_s, first, first - 1
        self.done: list[tuple[int, Action]] = []

    def cross(self, count: int = 1, *, noisy: bool = False, busy: bool = False) -> list[Action]:
        for _ in range(count):
            self.number += 1
            now_s = self.number * self.step_s
            actions = self.schedule.cross(self.number, self.first, now_s, noisy=noisy, busy=busy)
            self.done += [(self.number, action) for action in actions]
        return [action for _, action in self.done]


def test_the_window_opens_after_two_quiet_steps_and_a_profile_follows() -> None:
    program = Program()
    program.cross(2, noisy=True)
    program.cross(120)
    assert program.done == [
        (4, A.OPEN),
        (54, A.CLOSE),
        (54, A.PREPARE),
        (55, A.RECORD),
        (66, A.EXPORT),
        (67, A.STACKS),
        (68, A.FINISH),
    ]
    assert program.schedule.state == DONE


def test_long_steps_are_timed_five_times_and_profiled_three_times_and_one() -> None:
    program = Program(step_s=1.0)
    program.cross(40)
    places = {action: number for number, action in program.done}
    assert places[A.CLOSE] - places[A.OPEN] == WINDOW_STEPS[0] and places[A.EXPORT] - places[A.RECORD] == 4


def test_without_a_profile_all_is_measured_at_the_end_of_the_window() -> None:
    program = Program(limits=WindowLimits(steps=5, profiles=False))
    program.cross(40)
    assert program.done == [(3, A.OPEN), (8, A.CLOSE)] and program.schedule.state == DONE


def test_without_stacks_all_is_measured_at_the_end_of_the_profile() -> None:
    program = Program(limits=WindowLimits(steps=5, stacks=False))
    program.cross(40)
    export, finish = program.done[-2:]
    assert (export[1], finish[1]) == (A.EXPORT, A.FINISH) and export[0] == finish[0]
    assert program.schedule.state == DONE and A.STACKS not in [action for _, action in program.done]


def test_a_window_may_be_longer_than_that_of_a_breakdown() -> None:
    usual, longer = (Program(limits=limits) for limits in (WindowLimits(), WindowLimits(most_steps=80, window_s=1e9)))
    for program in (usual, longer):
        program.cross(100)
    ends = [next(number for number, action in program.done if action == A.CLOSE) for program in (usual, longer)]
    assert ends == [3 + 50, 3 + 80]


def test_the_users_numbers_hold_whatever_compiles() -> None:
    program = Program(limits=WindowLimits(skip=2, steps=3))
    program.cross(20, noisy=True)
    places = {action: number for number, action in program.done}
    assert places[A.OPEN] == 3 and places[A.CLOSE] == 6
    quiet = Program(limits=WindowLimits(skip=0, steps=1))
    quiet.cross(3)
    assert quiet.done == [(1, A.OPEN), (2, A.CLOSE), (2, A.PREPARE), (2, A.RECORD)]


def test_a_program_that_compiles_in_each_step_never_settles() -> None:
    program = Program()
    assert program.cross(500, noisy=True) == [] and program.schedule.state == WAITING
    (note,) = step_measurement.ending(WAITING, 500, 500, busy=False)
    assert "step 500 of 500 still compiled" in note and "--skip 0 --steps 1" in note


def test_compilation_makes_a_window_void() -> None:
    program = Program()
    program.cross(10)
    assert program.schedule.state == TIMING
    program.cross(noisy=True)
    assert program.cross(2)[-2:] == [A.VOID, A.OPEN] and program.done[-1][0] == 13


def test_a_profile_in_which_the_program_compiles_is_repeated_some_times() -> None:
    program = Program(step_s=0.2)
    program.cross(9)
    assert program.schedule.state == PROFILING
    for _ in range(ATTEMPTS - 1):
        program.cross(noisy=True)
        program.cross(2)
    program.cross(20, noisy=True)
    actions = [action for _, action in program.done]
    assert actions.count(A.PREPARE) == ATTEMPTS and actions.count(A.DISCARD) == ATTEMPTS - 1
    assert program.schedule.state == DONE


def test_the_programs_own_profiler_is_waited_for() -> None:
    program = Program()
    assert program.cross(200, busy=True) == []
    program.cross(30)
    assert program.cross(5, busy=True)[-1] == A.VOID
    program.cross(58)
    assert program.schedule.state == PROFILING
    program.schedule.postpone()  # as where the program begins a profiler within the profile
    program.cross(5, busy=True)
    assert program.cross(60)[-1] == A.FINISH
    assert [action for _, action in program.done].count(A.PREPARE) == 2
    (note,) = step_measurement.ending(TIMING, 200, 1, busy=True)
    assert "own profiler" in note


def test_ranks_follow_one_plan_although_one_is_behind(tmp_path: Path) -> None:
    leader = Program(agreement=Leader(tmp_path / "plan.json"))
    follower = Program(agreement=Follower(tmp_path / "plan.json"), step_s=0.5)
    follower.cross(2)
    for _ in range(120):
        leader.cross()
        follower.cross()
    assert leader.done == follower.done and leader.schedule.state == DONE
    assert leader.done[0] == (3 + LEAD, A.OPEN)


def test_a_rank_that_compiled_alone_follows_the_rank_that_decides(tmp_path: Path) -> None:
    leader, follower = (Program(agreement=kind(tmp_path / "plan.json"), step_s=0.2) for kind in (Leader, Follower))
    for number in range(40):
        leader.cross(noisy=number == 8)
        follower.cross()
    opened = [[number for number, action in rank.done if action is A.OPEN] for rank in (leader, follower)]
    assert len(opened[0]) == 2 and opened[0] == opened[1]
    assert leader.done[2:] == [one for one in follower.done if one[0] >= leader.done[2][0]]


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({}, StepCoordinator),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, StepCoordinator),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}, Leader),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, Follower),
    ],
)
def test_who_decides(variables: dict[str, str], kind: type[StepCoordinator], tmp_path: Path) -> None:
    assert type(agreement_of(variables, tmp_path)) is kind


def test_a_full_disk_costs_the_measurement_and_not_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing:
        def fail(self, error: BaseException) -> None:
            raise OSError(28, "No space left on device")

    measurement: Any = Failing()
    ended: list[bool] = []
    observer = StepObserver(lambda graphs: measurement, lambda: ended.append(True))
    observer._fail(RuntimeError("its own"))
    assert observer.is_done and ended == [True]
    assert "No space left" in capsys.readouterr().err
