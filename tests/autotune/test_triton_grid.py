"""Which configurations of a Triton kernel are neighbours, and which make sense at all. Needs no Triton."""

from __future__ import annotations

from typing import Any

import pytest

from inductor_bench.autotune import kernel_variants
from inductor_bench.autotune.kernel_variants import MOST_ELEMENTS, TritonVariants, is_sound, list_grid, list_neighbours
from inductor_bench.devices.nvidia import ELEMENTS_OF_THREAD
from inductor_bench.messages.kernel_requests import VariantChange

POWERS = tuple(1 << power for power in range(13))
LADDERS = {"XBLOCK": POWERS, "YBLOCK": POWERS[:11], "num_warps": POWERS[:6]}
NOW = {"XBLOCK": 32, "YBLOCK": 32, "num_warps": 4, "num_stages": 1}


def test_a_neighbour_is_one_step_away_on_one_ladder() -> None:
    assert list_neighbours(NOW, LADDERS) == [
        {**NOW, "XBLOCK": 64},
        {**NOW, "XBLOCK": 16},
        {**NOW, "YBLOCK": 64},
        {**NOW, "YBLOCK": 16},
        {**NOW, "num_warps": 8},
        {**NOW, "num_warps": 2},
    ]


def test_a_ladder_ends() -> None:
    assert list_neighbours({**NOW, "XBLOCK": 1}, {"XBLOCK": POWERS}) == [{**NOW, "XBLOCK": 2}]
    assert list_neighbours({**NOW, "XBLOCK": 4096}, {"XBLOCK": POWERS}) == [{**NOW, "XBLOCK": 2048}]
    assert list_neighbours(NOW, {"XBLOCK": (32,)}) == []


def test_pipeline_stages_are_tried_two_steps_away() -> None:
    config = {"XBLOCK": 1, "NUM_STAGES": 1, "num_warps": 4}
    assert [each["NUM_STAGES"] for each in list_neighbours(config, {"NUM_STAGES": (1, 2, 3, 4)})] == [2, 3]


def test_every_thread_of_a_grid_has_work_and_none_too_much() -> None:
    found = list_grid(NOW, LADDERS)
    assert NOW not in found and len(found) == len({tuple(each.items()) for each in found}) > 300
    for config in found:
        elements, threads = config["XBLOCK"] * config["YBLOCK"], 32 * config["num_warps"]
        assert elements <= ELEMENTS_OF_THREAD * threads and (elements >= threads or threads == 32)
        assert config["num_stages"] == 1


def test_the_nearest_of_a_grid_come_first() -> None:
    def distance(config: dict[str, Any]) -> int:
        return sum(abs(values.index(config[field]) - values.index(NOW[field])) for field, values in LADDERS.items())

    distances = [distance(config) for config in list_grid(NOW, LADDERS)]
    assert distances == sorted(distances) and distances[0] == 1


@pytest.mark.parametrize(
    ("config", "fixed", "sound"),
    [
        ({"XBLOCK": 1, "num_warps": 1}, 1, True),  # one warp is the least there is
        ({"XBLOCK": 32, "num_warps": 2}, 1, False),
        ({"XBLOCK": 32, "num_warps": 2}, 2, True),  # a persistent reduction of 2
        ({"XBLOCK": 2048, "num_warps": 1}, 1, True),
        ({"XBLOCK": 4096, "num_warps": 1}, 1, False),
        ({"XBLOCK": 1, "R0_BLOCK": 4096, "num_warps": 1}, 1, False),
        ({"XBLOCK": 4096, "num_warps": 32}, MOST_ELEMENTS // 2048, False),
        ({"num_warps": 32, "num_stages": 5}, 1, True),  # a template's blocks are not known here
    ],
)
def test_what_is_sound(config: dict[str, int], fixed: int, sound: bool) -> None:
    assert is_sound(config, fixed) is sound


def test_too_many_combinations_are_cut_far_from_the_present_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_variants, "MOST_COMBINATIONS", 100)
    found = list_grid({**NOW, "XBLOCK": 4096}, LADDERS)
    assert 0 < len(found) < 100
    assert max(each["XBLOCK"] for each in found) == 4096 and min(each["XBLOCK"] for each in found) > 1


def test_each_way_to_tune_adds_to_the_one_before_it_and_says_nothing_twice() -> None:
    other = {**NOW, "XBLOCK": 64}
    far = {"YBLOCK": 16, "XBLOCK": 256, "num_stages": 1, "num_warps": 8}
    variants = TritonVariants(NOW, default=(NOW,), max=(other, NOW, far), ladders=LADDERS)
    assert variants.listed_by_max_autotune() == [other, far]
    every = list(variants.nearest_first(NOW))
    assert every[:2] == [other, far]
    assert len(every) == len({frozenset(each.items()) for each in every}) == len(list_grid(NOW, LADDERS))
    assert not variants.same_candidate_set
    assert TritonVariants(NOW, default=(NOW, other), max=(other, NOW), ladders={}).same_candidate_set
    assert variants.axes["XBLOCK"][0] == 32 and variants.change(other) == VariantChange(other)
