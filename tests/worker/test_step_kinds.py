"""Which kinds of steps a program makes: by graphs and sizes, with their times, and whether the profile has them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from inductor_bench.worker.capture.step_kinds import (
    MOST_CALLS,
    MOST_SIZES,
    MOST_SUMS,
    PROFILED_KINDS_S,
    PROFILED_KINDS_STEPS,
    SEVERAL_KINDS_STEPS,
    CalledSizes,
    StepKinds,
    find_sizes,
)
from inductor_bench.worker.capture.step_recording import ClockedStep, Moment


def moment(graphs: int, sizes: int = 0) -> Moment:
    """A boundary after a step that called these graphs."""
    return Moment(0, 0.0, graphs=graphs, sizes=sizes)


def steps(*found: tuple[int, int, float]) -> list[ClockedStep]:
    """Steps by their graphs, sizes and times."""
    return [ClockedStep(n, time_s, graphs, sizes, False, time_s) for n, (graphs, sizes, time_s) in enumerate(found)]


def made(profiled: Sequence[Moment], sizes: CalledSizes | None = None, *, each_call: bool = False) -> StepKinds:
    """The kinds after these steps were profiled."""
    kinds = StepKinds(sizes or CalledSizes())
    for one in profiled:
        kinds.note(one, each_call=each_call)
        kinds.note_profiled(one, counts=True)
    return kinds


def test_the_sizes_of_a_call_are_the_integers_among_its_inputs() -> None:
    assert find_sizes([1.0, True, "4"]) is None
    one, two = find_sizes([object(), 64]), find_sizes([4, object(), 64])
    assert one is not None and one([object(), 32]) == 32
    assert two is not None and two([8, object(), 32]) == (8, 32)


def test_each_combination_of_sizes_has_a_number_and_few_are_kept() -> None:
    sizes = CalledSizes()
    assert sizes.take() == 0, "no call had a size"
    for order in ((1, 0), (0, 1)):
        for graph in order:
            sizes.note(graph, (4, 32 + graph))
        assert sizes.take() == 1, "the order of the calls does not matter"
    assert sizes.list_sizes() == {0: (), 1: (4, 32, 33)}
    numbers = []
    for size in range(2 * MOST_SIZES):
        sizes.note(0, size)
        numbers.append(sizes.take())
    assert numbers[: MOST_SIZES - 1] == list(range(2, MOST_SIZES + 1)) and set(numbers[MOST_SIZES:]) == {-1}
    for size in range(2 * MOST_CALLS):
        sizes.note(1, -size)
    assert len(sizes.list_sizes()) == MOST_SIZES + 1 and sizes.take() == -1


def test_the_sizes_of_a_warm_up_leave_room_for_those_that_follow() -> None:
    sizes = CalledSizes()
    kinds = StepKinds(sizes)

    def serve(size: int) -> Moment:
        sizes.note(0, size)
        kinds.note(one := moment(1, sizes.take()), each_call=False)
        return one

    warm = [serve(size) for size in range(200)]
    kinds.begin_profile(warm[-2:])
    again = [serve(size) for size in (198, 500, 600, 500, 600)]
    assert again[0].sizes == warm[198].sizes and len({one.sizes for one in again}) == 3
    assert {sizes.list_sizes()[one.sizes] for one in again} == {(198,), (500,), (600,)}
    assert kinds.find_repeated() == {(1, one.sizes) for one in again}
    for size in range(1000, 1000 + 2 * MOST_SIZES):
        serve(size)
    kinds.forget()
    assert sorted(serve(size).sizes for size in (700, 701, 702)) == [1, 2, 3]


def test_each_kind_has_its_share_of_the_time_its_median_and_its_90th_percentile() -> None:
    sizes = CalledSizes()
    for size in (32, 256):
        sizes.note(0, size)
        sizes.take()
    kinds = made([moment(1, 1), moment(1, 1), moment(1, 2)], sizes)
    found = kinds.divide(steps(*[(1, 1, 0.001 * n) for n in range(1, 12)], *[(1, 2, 0.1)] * 4, (2, 0, 0.034)), [])
    assert len(found.steps) == 15, "the steps of kinds that were not profiled are left out"
    long, short = found.kinds
    assert (long.sizes, long.count, long.profiled, long.among) == ((256,), 4, 1, 16)
    assert (short.sizes, short.time_s, short.p90_s, short.profiled) == ((32,), 0.006, pytest.approx(0.010), 2)
    (other,) = found.others
    assert (other.graphs, other.sizes, other.profiled) == ((1,), (), 0)
    assert [one.share for one in (long, short, other)] == pytest.approx([0.8, 0.132, 0.068])
    assert [one.profiled_places for one in (long, short, other)] == [(2,), (0, 1), ()]


def test_steps_between_samples_count_if_each_kind_was_profiled() -> None:
    kinds, whole = made([moment(1), moment(2)]), [(1, 0, 0.01), (2, 0, 0.02)] * 6
    more = steps(*[(1, 0, 0.01)] * 30, *[(2, 0, 0.02)] * 10)
    assert {one.count for one in kinds.divide(steps(*whole), more).kinds} == {36, 16}
    assert {one.count for one in kinds.divide(steps(*whole, (4, 0, 0.5)), more).kinds} == {6}


def test_steps_that_each_have_another_size_are_of_one_kind() -> None:
    kinds = made([moment(1, n) for n in range(1, 5)])
    found = kinds.divide(steps(*[(1, n, 0.01) for n in range(3, 20)]), [])
    assert len(found.steps) == 17 and (found.kinds, found.others) == ((), ())
    assert kinds.is_profiled(moment(1, 77)) and not kinds.is_profiled(moment(2, 1))


def test_sizes_that_take_the_same_time_make_no_kinds() -> None:
    for longer, count in ((1.05, 12), (1.2, 6)):
        found = made([moment(1, 1)]).divide(steps(*[(1, 1, 0.01), (1, 2, 0.01 * longer)] * 6), [])
        assert len(found.steps) == count and bool(found.others) is (count == 6)


def test_noise_makes_no_kinds_and_a_rare_size_of_one_long_step_leaves_none_out() -> None:
    """The medians of many sizes with few steps each differ by chance."""
    divided = 0
    for sizes, noise, seed in itertools.product((10, 20), (0.02, 0.1), range(25)):
        draw = random.Random(seed)
        times = [draw.gauss(1, noise) * (1.5 if draw.random() < 0.02 else 1) for _ in range(50)]
        found = made([moment(1)]).divide(steps(*((1, draw.randrange(sizes), time_s) for time_s in times)), [])
        divided += len(found.steps) < 50
    assert divided <= 3, "of 100"
    rare = [*[(1, 1, 0.01), (1, 2, 0.01), (1, 3, 0.01)] * 9, (1, 4, 0.0125)]
    assert len(made([moment(1, 1)]).divide(steps(*rare), []).steps) == 28
    noisy = [(1, n % 3, 0.01 * (1 + n % 3) * random.Random(n).gauss(1, 0.1)) for n in range(50)]
    assert len(made([moment(1, 1)]).divide(steps(*noisy), []).steps) == 17, "but sizes of other times make kinds"


def test_a_few_long_steps_of_a_busy_machine_do_not_hide_that_sizes_take_other_times() -> None:
    """As in a service on a CPU: most requests of 8192 rows take 0.37 ms, one in seven several times as long."""
    draw = random.Random(0)
    short = [(1, 1, draw.gauss(0.076, 0.01)) for _ in range(36)]
    long = [(1, 2, draw.gauss(0.37, 0.02) * (draw.uniform(1, 10) if n % 7 == 0 else 1)) for n in range(80)]
    assert len(made([moment(1, 1)]).divide(steps(*short, *long), []).steps) == 36


def test_without_a_profile_sizes_leave_no_step_out() -> None:
    found = made([]).divide(steps(*[(1, n % 2, 0.01) for n in range(10)]), [])
    assert len(found.steps) == 10 and found.kinds == ()


def test_rare_kinds_are_summed_up_together() -> None:
    many = MOST_SUMS + 5
    kinds = made([moment(1, n) for n in range(1, many + 1)])
    found = kinds.divide(steps(*[(1, n, 0.01 * n) for n in range(1, many + 1) for _ in range(4)]), [])
    assert [one.pooled for one in found.kinds] == [*[0] * MOST_SUMS, 5]
    assert (found.kinds[-1].count, found.kinds[-1].profiled, found.kinds[-1].graphs) == (20, 5, (0,))
    assert sum(one.share or 0.0 for one in found.kinds) == pytest.approx(1)
    mixed = steps(*[(n, 0, 1e-6 * n) for n in range(1, many + 3)])
    mixed[-1] = replace(mixed[-1], is_odd=True)
    *most, last = kinds.divide(mixed, []).others
    assert last.graphs == () and [one.interrupted for one in most].count(True) == 1


def test_the_profile_goes_on_until_each_repeated_kind_was_in_it() -> None:
    kinds = made([moment(1)] * 20)
    assert not kinds.wants_more(3, 0.0), "one kind"
    for _ in range(2):
        kinds.note(moment(2), each_call=False)
    assert kinds.wants_more(SEVERAL_KINDS_STEPS, 0.5) and not kinds.wants_more(0, 0.5)
    assert not kinds.wants_more(SEVERAL_KINDS_STEPS, PROFILED_KINDS_S) and not kinds.wants_more(
        PROFILED_KINDS_STEPS, 0.5
    )
    assert kinds.wants_more(4, 60.0), "a kind is missing"
    kinds.note_profiled(moment(2), counts=True)
    assert kinds.wants_more(SEVERAL_KINDS_STEPS - 1, 0.5) and not kinds.wants_more(SEVERAL_KINDS_STEPS, 0.5)
    assert not kinds.wants_more(4, PROFILED_KINDS_S), "further steps of 20 s each would take minutes"


def test_an_interrupted_profiled_step_keeps_its_place() -> None:
    """Its boundary is in the trace, so that the places of the steps after it depend on it."""
    kinds = made([moment(1), moment(2)])
    assert kinds.note_profiled(moment(1), counts=True, odd=True)
    kinds.note_profiled(moment(2), counts=True)
    found = kinds.divide(steps((1, 0, 1.0), (2, 0, 5.0), (1, 0, 1.0)), ()).kinds
    assert {one.graphs: one.profiled_places for one in found} == {(0,): (0,), (1,): (1, 3)}


def test_steps_between_samples_count_only_if_all_kinds_were_profiled() -> None:
    """They are of profiled kinds only, and would change the mix of the steps whose mean is the step."""
    kinds, window = made([moment(1), moment(2)]), steps((1, 0, 1.0), (2, 0, 5.0), (1, 0, 1.0), (2, 0, 5.0))
    further = steps(*[(1, 0, 1.0)] * 6)
    assert len(kinds.divide(window, further).steps) == 10
    found = kinds.divide([*window, *steps((4, 0, 3.0))], further)
    assert len(found.steps) == sum(one.count for one in found.kinds) == 4


def test_an_evaluation_is_no_kind_to_profile_but_a_size_of_a_service_is() -> None:
    for each_call in (False, True):
        kinds = made([moment(1)] * 4, each_call=each_call)
        kinds.begin_profile([moment(1)] * 3)
        kinds.note(moment(2), each_call=each_call)
        assert kinds.note_profiled(moment(2), counts=True) is not each_call
        assert (kinds.find_repeated() == {(1, 0), (2, 0)}) is each_call
