"""The difference of two tensors that ought to be equal."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from inductor_bench.worker.capture import output_comparison  # noqa: E402
from inductor_bench.worker.capture.output_comparison import compute_relative_difference, find_tolerance  # noqa: E402


def test_the_difference_is_relative_to_the_whole_tensor() -> None:
    assert compute_relative_difference(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.1])) == pytest.approx(
        0.0995, rel=1e-2
    )
    assert compute_relative_difference(torch.zeros(3), torch.zeros(3)) == 0
    assert compute_relative_difference(torch.ones(3), torch.zeros(3)) == math.inf
    assert compute_relative_difference(torch.tensor([3j]), torch.tensor([4j])) == 0.25


def test_large_tensors_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = torch.rand(7, 3), torch.rand(7, 3)
    whole = compute_relative_difference(one, other)
    monkeypatch.setattr(output_comparison, "CHUNK_ELEMENTS", 4)
    assert compute_relative_difference(one, other) == pytest.approx(whole)


def test_places_that_are_not_finite_must_be_the_same() -> None:
    one = torch.tensor([1.0, math.nan, math.inf])
    assert compute_relative_difference(one, one) == 0
    assert compute_relative_difference(one, torch.tensor([1.0, 1.0, math.inf])) == math.inf


def test_whole_numbers_differ_by_their_share() -> None:
    assert compute_relative_difference(torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5])) == 0.25
    assert find_tolerance(torch.int64) == 0 < find_tolerance(torch.complex64) == find_tolerance(torch.float32)


def test_what_is_not_finite_is_compared_by_its_kind() -> None:
    infinite = torch.tensor([1.0, math.inf, -math.inf, math.nan])
    assert compute_relative_difference(infinite, infinite.clone()) == 0
    for other in ([1.0, math.nan, -math.inf, math.nan], [1.0, -math.inf, -math.inf, math.nan]):
        assert compute_relative_difference(torch.tensor(other), infinite) == math.inf
