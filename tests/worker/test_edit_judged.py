"""One result of an edited kernel, judged in comparison with float64, and with the original."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from inductor_bench.messages.kernel_requests import INFINITE, NAN, NUDGED, OTHER, ROUNDED, ZERO, EditCase
from inductor_bench.source.harness.common import Arguments
from inductor_bench.worker.bench.arena import Arena, change_values, find_covered_bytes
from inductor_bench.worker.bench.edit_judge import (
    _find_nearest_computed,
    agrees_up_to_rounding,
    compute_reference,
    judge_output,
    load_reference,
)

EXACT = torch.linspace(-3, 3, 4001, dtype=torch.float64)
ORIGINAL = EXACT.float()


def test_an_error_up_to_twice_the_originals_is_not_refused_and_a_larger_one_is() -> None:
    original = (EXACT * (1 + 1e-5)).float()
    for factor, reason in ((1.9, ""), (2.3, "precision"), (-1.9, "")):
        judged = judge_output((EXACT * (1 + factor * 1e-5)).float(), original, original, EXACT)
        assert judged.reason == reason
        assert judged.against == "float64"
        assert judged.original_error == pytest.approx(0.65e-5, rel=0.1)


def test_without_float64_the_last_bits_of_the_inputs_say_how_far_results_may_be_apart() -> None:
    moved = (EXACT * (1 + 1e-5)).float()
    assert judge_output((EXACT * (1 + 3e-5)).float(), ORIGINAL, moved).reason == ""
    assert judge_output((EXACT * (1 + 3e-5)).float(), ORIGINAL, ORIGINAL).reason == "precision"
    assert judge_output((EXACT * (1 + 6e-7)).float(), ORIGINAL, ORIGINAL).reason == ""


def test_results_in_a_narrower_type_are_refused() -> None:
    for narrow in (torch.float16, torch.bfloat16):
        assert judge_output(ORIGINAL.to(narrow).float(), ORIGINAL, ORIGINAL).reason == "precision"


def test_a_rounding_of_sixteen_bits_is_no_error_and_two_are() -> None:
    rounded = EXACT.to(torch.bfloat16)
    off = torch.where(rounded > 2.5, torch.nextafter(rounded, torch.tensor(9.0, dtype=torch.bfloat16)), rounded)
    assert judge_output(off, rounded, rounded).reason == ""
    twice = torch.nextafter(torch.nextafter(off, torch.tensor(9.0, dtype=torch.bfloat16)), off * 4)
    assert judge_output(twice, rounded, rounded).reason != ""


def test_infinities_and_nans_have_to_be_where_the_originals_are_if_these_are_stable() -> None:
    special = ORIGINAL.clone()
    special[7], special[9] = math.nan, math.inf
    assert judge_output(special, special, special).reason == ""
    assert judge_output(ORIGINAL, special, special).reason == "special-values"
    assert judge_output(special, ORIGINAL, ORIGINAL).reason == "special-values"
    other = special.clone()
    other[9] = -math.inf
    assert judge_output(other, special, special).reason == "special-values"
    assert judge_output(ORIGINAL, special, ORIGINAL).reason == ""


def test_sums_at_the_edge_of_a_narrow_type_may_be_infinite_or_its_largest_number() -> None:
    largest = torch.finfo(torch.float16).max
    theirs = torch.tensor([1.0, largest, -largest, math.inf, math.inf], dtype=torch.float16)
    ours = torch.tensor([1.0, math.inf, -math.inf, largest, math.inf], dtype=torch.float16)
    assert judge_output(ours, theirs, theirs).reason == ""
    for value in (-math.inf, math.nan, largest / 2):
        other = ours.clone()
        other[3] = value
        assert judge_output(other, theirs, theirs).reason == "special-values", value


def test_whole_numbers_are_equal_where_another_rounding_does_not_change_them() -> None:
    places, moved = torch.arange(9), torch.arange(9)
    moved[3] = 8
    ours = places.clone()
    ours[3] = 0
    assert judge_output(ours, places, moved).reason == ""
    assert judge_output(ours, places, places).reason == "wrong"


def test_a_reference_counts_if_it_agrees_with_the_original(tmp_path: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text("def reference(x, count):\n    return [x.sum(), x * 2, x * 2 + 1, count]\n")
    values = torch.linspace(0, 1, 30)
    computed = compute_reference(load_reference(path), Arguments([values, 3], {}, []))
    assert [each.dtype for each in computed] == [torch.float64] * 3
    results = [values * 2 + 1, values * 2, values[:7]]
    matched = _find_nearest_computed(computed, results)
    assert [
        one is not None and agrees_up_to_rounding(one, result) for one, result in zip(matched, results, strict=True)
    ] == [
        *(True, True, False),
    ]
    assert compute_reference(lambda *_: torch.zeros(2) @ torch.zeros(3), Arguments([], {}, [])) == []


def test_values_of_a_case_are_others_in_the_way_it_says() -> None:
    values = torch.linspace(-2, 2, 3000)

    def made(name: str, *, was_recorded: bool = False) -> torch.Tensor:
        return change_values(values, EditCase(name, "nan", 5), 1, was_recorded=was_recorded)

    assert not made(ZERO).any()
    assert int((made(NUDGED) != values).sum()) in (1, 2, 3)
    assert torch.equal(made(ROUNDED) * 8, (made(ROUNDED) * 8).round())
    assert int(made(NAN).isnan().sum()) in (7, 8)
    assert made(INFINITE).isinf().any()
    assert torch.equal(made(OTHER), values)
    shuffled = made(OTHER, was_recorded=True)
    assert not torch.equal(shuffled, values)
    assert torch.equal(shuffled.sort().values, values)


def test_storages_lie_between_guard_bands_at_their_alignment() -> None:
    values = {"kind": "zeros"}
    storage = {"size_bytes": 100, "dtype": "float32", "device": "cpu", "alignment": 32, "values": values}
    view = {"storage": 0, "offset": 1, "shape": [2, 3], "stride": [5, 1], "dtype": "float32", "itemsize": 4}
    launch = {
        "storages": [storage, {**storage, "size_bytes": 0, "alignment": 256}],
        "arguments": [{"kind": "tensor", "tensor": view}],
        "mutated": [0],
    }
    arena = Arena(launch)
    memory = arena.allocate("cpu")
    assert [one.data_ptr() % 256 for one in arena.storages(memory)] == [32, 0]
    assert [one.numel() for one in arena.storages(memory)] == [100, 0]
    assert min(one.numel() for one in arena.guards(memory)) >= 4096
    assert sum(one.numel() for one in (*arena.guards(memory), *arena.storages(memory))) == arena.size
    covered = find_covered_bytes(launch, [0])[0]
    assert covered.nonzero().flatten().tolist() == [*range(4, 16), *range(24, 36)]
