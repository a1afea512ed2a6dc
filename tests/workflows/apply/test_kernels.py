"""What each pinned kernel saves: kernels with several names, and names of several kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from inductor_bench.launch.process import ProcessResult
from inductor_bench.messages.observed import (
    APPLY,
    COMPARE,
    PINNED,
    ComparedStep,
    ComparedSteps,
    PinnedProcess,
    Pins,
    PinState,
)
from inductor_bench.records.base import Category
from inductor_bench.records.edit import EditPin
from inductor_bench.records.evidence import DONE, TIMING, ObservedSteps
from inductor_bench.records.request import ApplyRequest
from inductor_bench.records.retune import RetuneRow, Saving, TritonPin
from inductor_bench.store.folder import RunFolder
from inductor_bench.trace.program_trace import StepDurations
from inductor_bench.worker.capture.pin_comparison import is_tuned
from inductor_bench.workflows import apply, proof
from inductor_bench.workflows.pins import PinnedRun, Unpinned, join_states
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.proof import (
    ROUNDS,
    ProofPlan,
    _judge,
    compute_kernel_savings,
    describe_kernels,
    describe_steps,
)


def process(**names: str) -> PinnedProcess:
    """A process with kernels; the names of their launches are separated by spaces."""
    pairs = [(kernel_id, name) for kernel_id, own in names.items() for name in own.split(" ")]
    return PinnedProcess(1, tuple(PinState(one, one, PINNED, event_name=name) for one, name in pairs))


def savings(flags: Sequence[bool], steps: Sequence[Mapping[str, float]], *states: PinnedProcess) -> dict[str, float]:
    """What each kernel saves, by its id."""
    samples = [(flag, StepDurations(9.0, dict(step))) for flag, step in zip(flags, steps, strict=True)]
    return {name: saving.saving_s for name, saving in compute_kernel_savings(states, samples).items()}


IN_TURN = (False, True, True, False)


def test_the_saving_of_a_kernel_has_its_times_and_an_interval_from_pairs_of_steps() -> None:
    times = (4.0, 3.0, 2.0, 9.0) * 4
    samples = [(flag, StepDurations(9.0, {"a": own})) for flag, own in zip(IN_TURN * 4, times, strict=True)]
    found = compute_kernel_savings([process(p="a")], samples)["p"]
    assert (found.own_s, found.tuned_s, found.saving_s, found.pairs) == (6.5, 2.5, 4.0, 8)
    assert (found.low_s, found.high_s) == (1.0, 7.0), "of eight differences, 1 and 7 in turn"
    assert compute_kernel_savings([process(p="a")], samples[:1]) == {}, "nothing to compare with"
    of_processes = compute_kernel_savings([process(p="a")], samples[:4], _judge)["p"]
    assert (of_processes.saving_s, of_processes.low_s, of_processes.high_s, of_processes.pairs) == (4.0, 1.0, 7.0, 2)


def test_no_saving_is_reported_for_kernels_with_different_numbers() -> None:
    """A template in place of a library call shifts the numbers of the kernels after it."""
    own = {"triton_per_5": 3.0, "triton_poi_7": 2.0, "triton_poi_9": 1.0, "gemm": 3.0}
    tuned = {"triton_per_5": 2.5, "triton_poi_7": 2.0, "triton_poi_10": 1.0, "triton_tem_6": 2.5}
    steps = (own, tuned)
    every = process(p="triton_per_5", q="triton_poi_9", r="triton_poi_7", s="gemm")
    assert savings((False, True), steps, every) == {"p": 0.5}
    shared = process(p="triton_per_5", q="triton_per_5 triton_poi_9", r="triton_poi_7")
    assert savings((False, True), steps, shared) == {}
    assert savings((False, True), steps, process(p="triton_per_5 triton_poi_11", q="triton_poi_9")) == {"p": 0.5}


def test_a_kernel_saves_what_all_its_names_save() -> None:
    """A kernel has another number in each graph."""
    own, tuned = (
        {"triton_poi_0": 1.0, "triton_poi_3": 3.0, "triton_red_0": 4.0},
        dict.fromkeys(("triton_poi_0", "triton_poi_3", "triton_red_0"), 0.5),
    )
    states = process(p="triton_poi_0 triton_poi_3"), process(r="triton_red_0")
    assert savings((False, True), (own, tuned), *states) == {"p": 3.0, "r": 3.5}


def test_of_kernels_that_share_a_name_no_saving_is_said() -> None:
    steps = {"triton_poi_0": 1.0, "triton_poi_1": 2.0}, {"triton_poi_0": 0.5, "triton_poi_1": 0.5}
    assert savings((False, True), steps, process(p="triton_poi_0", q="triton_poi_0 triton_poi_1")) == {}


def test_a_kernel_that_no_profile_shows_has_no_saving() -> None:
    steps = {"": 1.0, "triton_poi_1": 2.0}, {"": 0.5, "triton_poi_1": 0.5}
    assert savings((False, True), steps, process(p="triton_poi_0", c="")) == {}


def test_a_kernel_of_the_program_gets_its_times_and_a_twin_none() -> None:
    pin = TritonPin("key", (), "triton_poi_0", "p", {"XBLOCK": 1})
    pinned = PinnedRun(Pins(APPLY, "digest", "2.11", "3.6", (pin,)), {}, {})
    saving = Saving(6.5, 2.5, 4.0, 1.0, 7.0, 8, "saves")
    states = join_states([process(p="triton_poi_0")])
    (kernel,) = describe_kernels(pinned, states, (), {"p": saving})
    assert (kernel.own_s, kernel.tuned_s, kernel.saving_s, kernel.low_s, kernel.high_s) == (6.5, 2.5, 4.0, 1.0, 7.0)
    row = RetuneRow("twin", "t", Category.POINTWISE, ("forward",), 1.0, 1e-3, None, "max")
    shared = replace(pinned, twins={"p": [row]})
    assert [one.own_s for one in describe_kernels(shared, states, (), {"p": saving})] == [None, None]


def test_the_profiled_steps_of_a_comparison_say_what_each_kernel_of_a_group_saves(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One of two edits carries the saving; both ways of a proof show it, each with an interval."""
    edits = tuple(EditPin(f"triton_poi_{one}", one, "", "triton", "", f"{one}.py") for one in ("0", "1"))
    pinned = PinnedRun(Pins(COMPARE, "digest", "2.11", "3.6", edits=edits), {}, {})
    states = [process(**{"0": "triton_poi_0", "1": "triton_poi_1"})]

    def durations(flag: bool) -> StepDurations:
        return StepDurations(9e-3, {"triton_poi_0": 2e-3 if flag else 5e-3, "triton_poi_1": 4e-3})

    flags = [is_tuned(place) for place in range(21)]
    monkeypatch.setattr(proof, "_read_durations", lambda _: [durations(flag) for flag in flags[1:]])
    steps = tuple(ComparedStep(flag, 9e-3) for flag in flags)
    in_steps = describe_steps(pinned, ComparedSteps(1, "cuda", DONE, steps=steps, profiled=tuple(flags)), states)

    early = describe_steps(pinned, ComparedSteps(1, "cuda", TIMING, steps=steps, profiled=tuple(flags)), states)
    assert early.ended_early and not in_steps.ended_early and len(early.notes) > len(in_steps.notes)

    observed = iter(ObservedSteps(1, "cuda", DONE, step_times_s=(9e-3,) * 5, trace=str(flag)) for flag in ROUNDS)
    ended = ProcessResult(0, None, False, 1.0, tmp_path / "log")
    monkeypatch.setattr(proof, "run_to_end", lambda *_: (ended, tmp_path))
    monkeypatch.setattr(proof, "read_steps", lambda _: [next(observed)])
    monkeypatch.setattr(proof, "read_states", lambda _: states)
    monkeypatch.setattr(proof, "_read_steps_durations", lambda one: [durations(one.trace == "True")] * 3)
    plan = ProofPlan(RunFolder(tmp_path / "run"), ["python"], {}, replays=True)
    in_processes = proof.verify(pinned, plan, Silent())
    for found in (in_steps, in_processes):
        times = {one.edit: (one.own_s, one.tuned_s, one.saving_s, one.low_s, one.high_s) for one in found.kernels}
        assert times == {"0.py": (5e-3, 2e-3, *[pytest.approx(3e-3)] * 3), "1.py": (4e-3, 4e-3, 0.0, 0.0, 0.0)}
        assert found.device is not None and found.device.pairs == (9 if found is in_steps else 2)


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
