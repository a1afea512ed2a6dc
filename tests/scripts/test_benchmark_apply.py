"""The script that compares a program with itself: which verdicts it takes for a difference."""

from __future__ import annotations

import pytest

from inductor_bench.records.retune import Saving
from inductor_bench.store import codec
from scripts import benchmark_apply


@pytest.mark.parametrize(
    ("step", "device", "good"),
    [
        ("no difference", "no difference", True),
        ("undecided", None, True),
        ("saves", "no difference", False),
        ("no difference", "slower", False),
        (None, None, False),
    ],
)
def test_a_sure_verdict_is_a_difference(step: str | None, device: str | None, good: bool) -> None:
    def saving(verdict: str | None) -> object:
        return codec.encode(Saving(1e-3, 1e-3, 2e-6, -1e-6, 5e-6, 10, verdict)) if verdict else None

    row = benchmark_apply.row_of({"step": saving(step), "device": saving(device)})
    assert row["same"] is good
    assert step is None or f"step 1.00 ms, saves +2.00 µs (-1.00 to +5.00), {step}" in row["words"]


def test_bits_and_files_that_were_taken_are_counted() -> None:
    kernels = [{"state": "pinned", "reason": None}, {"state": "missing", "reason": "it did not run"}]
    outputs = {"difference": 1e-9, "own_difference": 0.0, "tensors": 3}
    row = benchmark_apply.row_of({"step": None, "device": None, "outputs": outputs, "kernels": kernels})
    assert (row["taken"], row["equal"], row["reasons"]) == (1, False, ["it did not run"])
    assert benchmark_apply.row_of({"step": None, "device": None, "outputs": outputs | {"tensors": 0}})["equal"] is None
