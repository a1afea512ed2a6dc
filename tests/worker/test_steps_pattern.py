"""The repeating pattern of compiled calls, and which events of a program are the ends of its steps."""

from __future__ import annotations

import _thread
import random
import threading
from collections.abc import Callable, Iterable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from inductor_bench.records.evidence import PROFILING, TIMING, WAITING
from inductor_bench.records.run import MARKS, OPTIMIZER_STEPS, PATTERN
from inductor_bench.worker.capture import boundaries, step_measurement
from inductor_bench.worker.capture.boundaries import (
    NUMBERS_ONLY,
    ODD_CALLS,
    OUTER_PATIENCE,
    PATIENCE,
    Boundaries,
    Graph,
    LongerLoop,
    OuterLoop,
    Pattern,
    find_period,
)
from inductor_bench.worker.capture.step_observer import AWAY_S, PatternThread


def begins(pattern: Pattern, calls: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The calls at which a cycle begins, as (index of the call, number of the cycle)."""
    found = [(index, pattern.call(*call)) for index, call in enumerate(calls)]
    return [(index, number) for index, number in found if number is not None]


@pytest.mark.parametrize(
    ("calls", "period"),
    [
        ("AAA", 1),
        ("AA", None),
        ("ABABAB", 2),
        ("ABCABCAB", None),
        ("PABABABAB", 2),
        ("AAABAAAB", None),
        ("AAABAAABAAAB", 4),
        ("ABACABACABAC", 4),
        ("", None),
    ],
)
def test_the_smallest_period_that_explains_most_calls(calls: str, period: int | None) -> None:
    assert find_period([(ord(call), 0) for call in calls]) == period


def test_blocks_that_share_a_graph_are_told_apart_by_their_parameters() -> None:
    step = [(0, 100), (0, 200), (0, 300), (0, 400)]
    assert begins(Pattern(), step * 5) == [(12, 3), (16, 4)]


def test_a_cycle_begins_at_the_call_that_was_first_of_all() -> None:
    pattern = Pattern()
    assert begins(pattern, [(1, 0), (2, 0), (3, 0)]) == []
    pattern.forget()  # the first step compiled until here
    assert begins(pattern, [(2, 0), (3, 0), *[(1, 0), (2, 0), (3, 0)] * 4])[0][0] == 2 + 9
    assert pattern.first_cycle_end_s is not None


def test_another_call_interrupts_a_cycle_and_the_count_goes_on() -> None:
    pattern = Pattern()
    assert begins(pattern, [(0, 0)] * 5) == [(3, 3), (4, 4)] and not pattern.is_odd
    assert begins(pattern, [(1, 0), (0, 0), (0, 0)]) == [(1, 5), (2, 6)]
    assert pattern.is_odd, "the step that was interrupted is not like the others"


def test_a_cycle_that_does_not_come_again_is_given_up() -> None:
    pattern = Pattern()
    begins(pattern, [(0, 0)] * 5)
    assert begins(pattern, [(1, number) for number in range(ODD_CALLS + 1)]) == [] and not pattern.is_found
    assert begins(pattern, [(2, 0)] * 4) and pattern.graphs == {2}


def test_calls_without_an_order_lose_what_looked_like_a_cycle() -> None:
    pattern = Pattern()
    assert begins(pattern, [(0, 0)] * 4)
    begins(pattern, [(1, 0), (0, 0), (2, 0), (0, 0), (3, 0)])
    assert pattern.is_found, "two runs of one call are an exception"
    begins(pattern, [(0, 0), (4, 0)])
    assert not pattern.is_found


def requests(count: int, *, seed: int = 0, sizes: int = 2, address: int = 64) -> list[tuple[int, int]]:
    """Calls of one function, of which each request calls the graph for its size, in any order."""
    chosen = random.Random(seed)
    return [(min(chosen.randrange(4), sizes - 1), address) for _ in range(count)]


@pytest.mark.parametrize("sizes", [2, 3, 4])
@pytest.mark.parametrize("seed", range(5))
def test_each_call_of_one_function_is_a_step_if_its_graphs_have_no_order(seed: int, sizes: int) -> None:
    pattern = Pattern()
    begins(pattern, requests(400, seed=seed, sizes=sizes))
    assert pattern.takes_each_call
    assert len(begins(pattern, requests(50, seed=seed + 9, sizes=sizes))) == 50


@pytest.mark.parametrize(
    "calls",
    [
        [(0, 64), *[(1, 64)] * 24] * 30,  # a prompt and its tokens
        [one for count in (9, 3, 24, 7, 12) * 6 for one in ((0, 64), *[(1, 64)] * count)],  # until a stop token
        [(0, 64), (1, 64)] * 200,  # real and fake images
        [(number, 64 * (1 + number % 2)) for number, _ in requests(400, sizes=4)],  # two networks
        requests(400, address=0),  # without parameters
        [one for count in (20, 0, 20, 20, 0, 20, 20, 20) * 10 for one in ((0, 64), *[(1, 64)] * count)],  # or no token
        [*([(0, 64), *[(1, 64)] * 20] * 20), *[(2, 64)] * 3, *([(0, 64), *[(1, 64)] * 20] * 20)],  # once other calls
    ],
)
def test_calls_with_an_order_or_of_several_functions_keep_their_cycles(calls: list[tuple[int, int]]) -> None:
    pattern = Pattern()
    begins(pattern, calls)
    assert not pattern.takes_each_call


@pytest.mark.parametrize("trains", [False, True])
def test_a_pattern_of_other_functions_ends_steps_of_a_call_each(trains: bool) -> None:
    pattern = Pattern()
    begins(pattern, requests(200))
    assert pattern.takes_each_call
    pattern.trains = trains
    loop = [(2, 100), (3, 200), (4, 64 if trains else 300)]
    begins(pattern, loop * 20)
    assert not pattern.takes_each_call and len(begins(pattern, loop * 10)) == 10


def test_a_call_of_a_program_that_trains_is_no_step() -> None:
    pattern = Pattern()
    pattern.trains = True
    begins(pattern, requests(400))
    assert not pattern.takes_each_call


def test_the_steps_begin_anew_once_each_call_is_one() -> None:
    seen, pattern = Crossed(), Pattern()
    seen.boundaries = Boundaries(seen.numbers.append, seen.restart, pattern)
    seen.boundaries.iteration(1)
    seen.boundaries.cycle(1)
    seen.boundaries.iteration(2)
    assert seen.boundaries.is_outer and seen.restarts == 1
    seen.boundaries.leave_loop()
    assert not seen.boundaries.is_outer and seen.restarts == 2
    seen.boundaries.cycle(2)
    assert seen.numbers[-1] == 2


def test_the_loop_around_a_cycle_is_found_after_three_iterations() -> None:
    pattern, begun = Pattern(), []
    for index, call in enumerate(REQUEST * 7):
        pattern.call(*call)
        if pattern.begins_outer:
            begun.append(index)
    assert begun == [number * len(REQUEST) for number in (3, 4, 5, 6)]
    longer = [(0, 0), *[(1, 0)] * 30]
    assert [pattern.call(*call) is None and pattern.begins_outer for call in longer].count(True) == 1


def test_the_iterations_of_the_loop_around_a_cycle_become_the_steps() -> None:
    seen, pattern = Crossed(), Pattern()
    seen.boundaries = Boundaries(seen.numbers.append, seen.restart, pattern)

    def call(number: int, address: int) -> None:
        cycle = pattern.call(number, address)
        if pattern.begins_outer:
            seen.boundaries.iteration(pattern.outer.begun)
        if cycle is not None:
            seen.boundaries.cycle(cycle)

    for one in REQUEST * 3:
        call(*one)
    assert len(seen.numbers) > 20 and seen.restarts == 0 and seen.boundaries.may_be_inner
    for one in REQUEST * 4:
        call(*one)
    assert (seen.numbers, seen.restarts) == ([1, 2, 3, 4], 1)
    assert not seen.boundaries.may_be_inner and seen.boundaries.loop is None
    for _ in range(OUTER_PATIENCE + 10):
        call(1, 0)
    assert seen.restarts == 2, "the loop around them is over: the cycles are the steps again"


def test_other_calls_that_never_repeat_cost_few_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(boundaries, "find_period", lambda keys: searched.append(len(keys)))
    loop = OuterLoop({})
    assert not any(loop.note(((number, 0),)) for number in range(5000))
    assert len(searched) < 80, "each search costs the program time in proportion to its length"


def test_an_iteration_of_seconds_is_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(boundaries.time, "perf_counter", lambda: now_s)
    seen, pattern = Crossed(), Pattern()
    seen.boundaries = Boundaries(seen.numbers.append, seen.restart, pattern)
    for one in REQUEST * 6:
        now_s += 1.0
        cycle = pattern.call(*one)
        if cycle is not None:
            seen.boundaries.cycle(cycle)
        if pattern.begins_outer:
            seen.boundaries.iteration(pattern.outer.begun)
    assert seen.restarts == 0 and seen.boundaries.loop is not None


def test_parameters_that_move_are_ignored_after_a_while() -> None:
    calls = [(number % 2, number) for number in range(NUMBERS_ONLY + 60)]
    pattern = Pattern()
    assert begins(pattern, calls) and pattern.graphs == {0, 1}


REQUEST = [(0, 0), *[(1, 0)] * 12]
"""A call of a graph, and twelve of another."""


def test_a_loop_around_the_cycle_is_noticed_with_the_number_of_cycles_in_it() -> None:
    pattern = Pattern()
    begins(pattern, REQUEST)
    assert pattern.is_found and pattern.loop is None, "one request is no loop"
    begins(pattern, REQUEST)
    assert pattern.loop == LongerLoop(1, 12, 12)
    begins(pattern, [(0, 0), *[(1, 0)] * 7, *REQUEST, *REQUEST])
    assert pattern.loop == LongerLoop(4, 7, 12)


def test_a_loop_around_a_cycle_of_several_calls() -> None:
    pattern = Pattern()
    begins(pattern, [(0, 0), (9, 0), *[(1, 0), (2, 0)] * 20] * 5)
    assert pattern.loop == LongerLoop(4, 20, 20)


def test_a_phase_of_a_program_is_no_loop() -> None:
    pattern = Pattern()
    begins(pattern, [(0, 0)] * 20)
    pattern.forget()  # the next graph compiles
    begins(pattern, [(1, 0)] * 20)
    begins(pattern, [(0, 0)] * 20)
    assert pattern.loop is None
    begins(pattern, [(1, 0)] * 20)
    assert pattern.loop == LongerLoop(1, 20, 20), "the second phase came again"


def test_marked_steps_are_no_part_of_a_loop() -> None:
    pattern = Pattern()
    boundaries = Boundaries(lambda number: None, lambda: None, pattern)
    begins(pattern, REQUEST * 3)
    boundaries.cycle(1)
    assert boundaries.loop is not None and step_measurement.describe_longer_loop(boundaries.loop)
    boundaries.event(MARKS, 0)
    assert boundaries.loop is None and step_measurement.describe_longer_loop(boundaries.loop) == ()


def test_a_program_of_an_inner_loop_is_not_told_to_run_more_steps() -> None:
    for state in (WAITING, TIMING, PROFILING):
        note = step_measurement.explain_unprofiled(state, 500, 1, other_profiler=False, loop=LongerLoop(2, 3, 3))
        assert "other compiled calls" in note and "run more steps" not in note


class Crossed:
    """A listener of boundaries."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.restarts = 0
        self.boundaries = Boundaries(self.numbers.append, self.restart, Pattern())

    def restart(self) -> None:
        self.restarts += 1
        self.numbers.clear()


def test_marks_come_before_optimizer_steps_and_these_before_the_pattern() -> None:
    seen = Crossed()
    for number in range(3):
        seen.boundaries.cycle(number)
    assert (seen.boundaries.source, seen.boundaries.first, seen.numbers) == (PATTERN, 0, [0, 1, 2])
    seen.boundaries.event(OPTIMIZER_STEPS, 7)
    seen.boundaries.cycle(3)
    assert (seen.boundaries.source, seen.boundaries.first, seen.numbers) == (OPTIMIZER_STEPS, 1, [1])
    seen.boundaries.event(MARKS, 0)
    seen.boundaries.event(OPTIMIZER_STEPS, 7)
    seen.boundaries.event(MARKS, 0)
    assert (seen.boundaries.source, seen.numbers, seen.restarts) == (MARKS, [1, 2], 2)
    assert not seen.boundaries.searches_pattern


def test_two_optimizers_make_one_step_and_one_that_ends_is_replaced() -> None:
    seen = Crossed()
    for _ in range(3):
        seen.boundaries.event(OPTIMIZER_STEPS, 1)
        seen.boundaries.event(OPTIMIZER_STEPS, 2)
    assert seen.numbers == [1, 2, 3]
    for _ in range(PATIENCE + 2):
        seen.boundaries.event(OPTIMIZER_STEPS, 2)
    assert seen.restarts == 2 and seen.numbers[-1] == PATIENCE + 5


def test_the_calls_of_a_second_python_thread_are_no_part_of_the_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = [0.0]
    monkeypatch.setattr("inductor_bench.worker.capture.step_observer.time.perf_counter", lambda: now_s[0])
    thread = PatternThread()
    said: list[bool] = []

    def call() -> None:
        said.append(thread.is_other())

    def elsewhere(start: Callable[[Callable[[], None]], object]) -> bool:
        done = threading.Event()

        def work() -> None:
            call()
            done.set()

        start(work)
        assert done.wait(10)
        return said[-1]

    def in_python(work: Callable[[], None]) -> None:
        threading.Thread(target=work).start()

    assert not thread.is_other()
    assert not elsewhere(lambda work: _thread.start_new_thread(work, ())), "as a thread of autograd"
    assert elsewhere(in_python) and not thread.is_other()
    now_s[0] += 2 * AWAY_S
    assert not elsewhere(in_python), "the first thread has called nothing for long"
    assert thread.is_other()


def test_a_fake_parameter_has_no_address() -> None:
    """torch calls the parts of a model under DDP with fake tensors while it compiles the next part."""
    parameter = torch.nn.Parameter(torch.ones(2))
    with FakeTensorMode() as mode:
        inputs = [parameter, mode.from_tensor(parameter)]
    assert [Graph(0, 1, place).address(inputs) for place in (0, 1, None)] == [parameter.data_ptr(), 0, 0]
