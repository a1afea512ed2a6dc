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
    LONG_WINDOW_STEPS,
    WINDOW_STEPS,
    Action,
    Follower,
    Leader,
    Schedule,
    StepCoordinator,
    WindowLimits,
    make_coordinator,
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

    def cross(self, count: int = 1, *, noisy: bool = False, other_profiler: bool = False) -> list[Action]:
        for _ in range(count):
            self.number += 1
            now_s = self.number * self.step_s
            actions = self.schedule.cross(self.number, self.first, now_s, noisy=noisy, other_profiler=other_profiler)
            self.done += [(self.number, action) for action in actions]
        return [action for _, action in self.done]


def places(program: Program) -> dict[Action, int]:
    """The last boundary of each action."""
    return {action: number for number, action in program.done}


def test_steps_are_profiled_as_soon_as_two_are_quiet_and_a_window_follows() -> None:
    program = Program()
    program.cross(2, noisy=True)
    program.cross(120)
    assert program.done == [
        *[(4, A.SETTLED), (4, A.PREPARE), (5, A.RECORD), (16, A.EXPORT), (17, A.STACKS), (18, A.FINISH)],
        *[(19, A.OPEN), (69, A.CLOSE)],
    ]
    assert program.schedule.state == DONE


def test_seven_quiet_steps_are_enough_for_a_profile() -> None:
    program = Program(step_s=0.1)
    program.cross(noisy=True)
    program.cross(7)
    assert program.done[-1] == (8, A.EXPORT)


def test_steps_before_the_first_boundary_of_a_pattern_were_quiet() -> None:
    program = Program()
    program.schedule.note_quiet_steps()
    program.cross(2)
    assert program.done == [(2, A.SETTLED), (2, A.PREPARE)]


def test_long_steps_are_timed_five_times_and_profiled_three_times_and_one() -> None:
    program = Program(step_s=1.0)
    program.cross(40)
    at = places(program)
    assert at[A.CLOSE] - at[A.OPEN] == WINDOW_STEPS[0] and at[A.EXPORT] - at[A.RECORD] == 4


def test_a_profile_goes_on_for_kinds_of_steps_unless_the_user_or_a_plan_says_how_many() -> None:
    program = Program()
    while program.schedule.state != DONE:
        if 0 < program.schedule.wants_kinds(program.number + 1) < 20:
            program.schedule.profile_more()
        program.cross()
    at = places(program)
    assert at[A.EXPORT] - at[A.RECORD] == 20 and at[A.STACKS] == at[A.EXPORT] + 1
    for limits, agreement in ((WindowLimits(steps=5), None), (None, Leader(Path("unused")))):
        asked = Program(limits=limits, agreement=agreement)
        asked.schedule.state, asked.schedule._profile = PROFILING, 3
        assert not any(map(asked.schedule.wants_kinds, range(30)))


def test_steps_of_several_kinds_have_the_longer_window_even_if_the_host_is_sampled() -> None:
    for limits, most in ((WindowLimits(samples=True), LONG_WINDOW_STEPS), (WindowLimits(steps=5), 5)):
        program = Program(limits=limits)
        program.schedule.lengthen(for_kinds=True)
        program.cross(400)
        at = places(program)
        assert at[A.CLOSE] - at[A.OPEN] == most


def test_without_a_profile_all_is_measured_at_the_end_of_the_window() -> None:
    program = Program(limits=WindowLimits(steps=5, profiles=False))
    program.cross(40)
    assert program.done == [(3, A.SETTLED), (3, A.OPEN), (8, A.CLOSE)] and program.schedule.state == DONE


def test_without_stacks_the_profile_ends_with_its_steps() -> None:
    program = Program(limits=WindowLimits(steps=5, stacks=False))
    program.cross(40)
    at = places(program)
    assert at[A.EXPORT] == at[A.FINISH] and A.STACKS not in at and program.schedule.state == DONE


def test_a_profiler_that_leaves_something_behind_comes_after_the_window() -> None:
    program = Program()
    program.schedule.put_window_first()
    program.cross(100)
    at = places(program)
    assert at[A.OPEN] < at[A.CLOSE] == at[A.PREPARE] < at[A.RECORD] < at[A.EXPORT] < at[A.STACKS] < at[A.FINISH]
    assert program.schedule.state == DONE


def test_a_window_may_be_longer_than_that_of_a_breakdown() -> None:
    for program, steps in ((Program(), 50), (Program(limits=WindowLimits(most_steps=80, window_s=1e9)), 80)):
        program.cross(120)
        assert places(program)[A.CLOSE] - places(program)[A.OPEN] == steps


def test_the_window_of_an_accelerator_is_longer_unless_it_was_chosen() -> None:
    for limits, steps in (
        (WindowLimits(), 200),
        (WindowLimits(steps=7), 7),
        (WindowLimits(most_steps=80, window_s=1e9), 80),
    ):
        program = Program(limits=limits)
        program.schedule.lengthen()
        program.cross(300)
        assert places(program)[A.CLOSE] - places(program)[A.OPEN] == steps
    long = Program(step_s=0.1)
    long.schedule.lengthen()
    long.cross(100)
    assert places(long)[A.CLOSE] - places(long)[A.OPEN] == 20, "two seconds"


def test_the_users_numbers_hold_whatever_compiles() -> None:
    program = Program(limits=WindowLimits(skip=2, steps=3))
    program.cross(20, noisy=True)
    at = places(program)
    assert at[A.OPEN] == 3 and at[A.CLOSE] == 6
    quiet = Program(limits=WindowLimits(skip=0, steps=1))
    quiet.cross(3)
    assert quiet.done == [(1, A.SETTLED), (1, A.OPEN), (2, A.CLOSE), (2, A.PREPARE), (2, A.RECORD)]


def test_a_program_that_compiles_in_each_step_never_settles() -> None:
    program = Program()
    assert program.cross(500, noisy=True) == [] and program.schedule.state == WAITING
    why = step_measurement.explain_unprofiled(WAITING, 500, 500, other_profiler=False)
    assert "step 500 of 500 still compiled" in why and "--skip" not in why


def test_a_program_of_few_quiet_steps_is_told_how_many_it_needs() -> None:
    why = step_measurement.explain_unprofiled(TIMING, 4, 2, other_profiler=False)
    assert why == "a profile needs 7 steps after the last step that compiles, and there were 2; run 5 more steps"


def test_compilation_in_the_window_begins_all_anew() -> None:
    program = Program()
    program.cross(30)
    assert program.schedule.state == TIMING
    program.cross(noisy=True)
    assert program.cross(2)[-3:] == [A.VOID, A.SETTLED, A.PREPARE] and program.done[-1][0] == 33


def test_a_profile_in_which_the_program_compiles_is_repeated_some_times() -> None:
    program = Program(step_s=0.2)
    program.cross(5)
    assert program.schedule.state == PROFILING
    for _ in range(ATTEMPTS - 1):
        program.cross(noisy=True)
        program.cross(3)
    program.cross(30, noisy=True)
    actions = [action for _, action in program.done]
    assert actions.count(A.PREPARE) == ATTEMPTS and actions.count(A.DISCARD) == ATTEMPTS - 1
    assert program.schedule.state == DONE


def test_the_programs_own_profiler_is_waited_for() -> None:
    program = Program()
    assert program.cross(200, other_profiler=True) == []
    program.cross(30)
    assert program.cross(5, other_profiler=True)[-1] == A.VOID
    program.cross(2)
    assert program.schedule.state == PROFILING
    program.schedule.postpone()  # as if the program begins a profiler within the profile
    program.cross(5, other_profiler=True)
    assert program.cross(80)[-1] == A.CLOSE
    note = step_measurement.explain_unprofiled(WAITING, 200, 1, other_profiler=True)
    assert "own profiler" in note


def test_ranks_follow_one_plan_although_one_is_behind(tmp_path: Path) -> None:
    leader = Program(agreement=Leader(tmp_path / "plan.json"))
    follower = Program(agreement=Follower(tmp_path / "plan.json"), step_s=0.02)
    follower.cross(2)
    for _ in range(120):
        leader.cross()
        follower.cross()
    profile = [A.SETTLED, A.PREPARE, A.RECORD, A.EXPORT, A.STACKS, A.FINISH, A.OPEN]
    assert [action for _, action in leader.done[:7]] == profile
    assert leader.done[:7] == follower.done[:7] and {leader.schedule.state, follower.schedule.state} == {DONE}
    assert leader.done[0] == (3 + LEAD, A.SETTLED)


def test_a_rank_that_compiled_alone_follows_the_rank_that_decides(tmp_path: Path) -> None:
    leader, follower = (Program(agreement=kind(tmp_path / "plan.json"), step_s=0.2) for kind in (Leader, Follower))
    for number in range(60):
        leader.cross(noisy=number == 8)
        follower.cross()
    recorded = [[number for number, action in rank.done if action is A.RECORD] for rank in (leader, follower)]
    assert recorded[0][-1] == recorded[1][-1] > 8
    assert {leader.schedule.state, follower.schedule.state} == {DONE}


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
    assert type(make_coordinator(variables, tmp_path)) is kind


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
