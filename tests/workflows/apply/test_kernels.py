"""What each pinned kernel saves: kernels with several names, and names of several kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from inductor_bench.messages.observed import APPLY, PINNED, PinnedProcess, Pins, PinState
from inductor_bench.records.base import Category
from inductor_bench.records.request import ApplyRequest
from inductor_bench.records.retune import RetuneRow, TritonPin
from inductor_bench.trace.program_trace import StepDurations
from inductor_bench.workflows import apply
from inductor_bench.workflows.pins import PinnedRun, Unpinned
from inductor_bench.workflows.proof import compute_savings_by_kernel, compute_savings_by_name, own_times_by_name


def process(**names: str) -> PinnedProcess:
    """A process with kernels; the names of their launches are separated by spaces."""
    pairs = [(kernel_id, name) for kernel_id, own in names.items() for name in own.split(" ")]
    return PinnedProcess(1, tuple(PinState(one, one, PINNED, event_name=name) for one, name in pairs))


def test_a_saving_is_the_difference_of_the_medians() -> None:
    steps = [StepDurations(5.0, {"a": own, "b": 1.0}) for own in (4.0, 3.0, 2.0, 9.0)]
    found = compute_savings_by_name((False, True, True, False), steps)
    assert found == {"a": pytest.approx(4.0), "b": 0.0}
    assert own_times_by_name((False, True, True, False), steps) == {"a": 6.5, "b": 1.0}
    assert compute_savings_by_name((True,), steps) == {}, "nothing to compare with"


def test_no_saving_is_reported_for_kernels_with_different_numbers() -> None:
    """A template in place of a library call shifts the numbers of the kernels after it."""
    own = StepDurations(9.0, {"triton_per_5": 3.0, "triton_poi_7": 2.0, "triton_poi_9": 1.0, "gemm": 3.0})
    tuned = StepDurations(8.0, {"triton_per_5": 2.5, "triton_poi_7": 2.0, "triton_poi_10": 1.0, "triton_tem_6": 2.5})
    found = compute_savings_by_name((False, True), (own, tuned))
    assert {name for name, saving in found.items() if saving is not None} == {"triton_per_5"}
    assert found["triton_per_5"] == 0.5
    shared = process(p="triton_per_5", q="triton_per_5 triton_poi_9", r="triton_poi_7")
    assert compute_savings_by_kernel([shared], found) == {}
    assert compute_savings_by_kernel([process(p="triton_per_5 triton_poi_11", q="triton_poi_9")], found) == {"p": 0.5}


def test_a_kernel_saves_what_all_its_names_save() -> None:
    """A kernel has another number in each graph."""
    by_name = {"triton_poi_0": 1.0, "triton_poi_3": 2.0, "triton_red_0": 4.0}
    found = compute_savings_by_kernel([process(p="triton_poi_0 triton_poi_3"), process(r="triton_red_0")], by_name)
    assert found == {"p": 3.0, "r": 4.0}


def test_of_kernels_that_share_a_name_no_saving_is_said() -> None:
    by_name = {"triton_poi_0": 1.0, "triton_poi_1": 2.0}
    assert compute_savings_by_kernel([process(p="triton_poi_0", q="triton_poi_0 triton_poi_1")], by_name) == {}


def test_a_kernel_that_no_profile_shows_has_no_saving() -> None:
    assert compute_savings_by_kernel([process(p="triton_poi_0", c="")], {"": 1.0, "triton_poi_1": 2.0}) == {}


def test_a_program_that_says_nothing_leaves_the_reasons_that_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = RetuneRow("mm", "m", Category.EXTERN_GEMM, ("forward",), 1.0, 1e-3, None, "max")
    pin = TritonPin("key", (), "triton_poi_0", "p", {"XBLOCK": 1})
    pins = Pins(APPLY, "digest", "2.11", "3.6", (pin,), ())
    rows = {"p": row._replace(name="triton_poi_0", kernel_id="p")}
    pinned = PinnedRun(pins, {}, rows, (Unpinned(row, "another number of threads"),))
    monkeypatch.setattr(apply, "run_in_terminal", lambda command, environment: 0)
    monkeypatch.setattr(apply, "read_states", lambda work: [])
    outcome = apply._run(tmp_path, pinned, ApplyRequest(tmp_path, ("python", "train.py")))
    reasons = {kernel.name: kernel.reason for kernel in outcome.kernels}
    assert reasons == {"triton_poi_0": apply.SILENT, "mm": "another number of threads"}
