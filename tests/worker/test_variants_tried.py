"""Real programs that run their variants in turn: compiled once by Dynamo, compared, timed, and safe from failures."""

from __future__ import annotations

import functools
import json
import subprocess
from collections import Counter

import breakdown_runs as runs
import forking_python
import pytest

from inductor_bench.messages.observed import (
    JOURNAL,
    TRIED,
    VARIANTS,
    ProgramVariant,
    TriedVariants,
    VariantsRequest,
    VariantSwitch,
)
from inductor_bench.records.evidence import DONE
from inductor_bench.records.optimization import COMPILE, DYNAMO, FUNCTION, INDUCTOR, MEMORY_FORMAT, OPTIMIZER, TORCH
from inductor_bench.records.run import OPTIMIZER_STEPS, PATTERN
from inductor_bench.store import codec

pytestmark = pytest.mark.slow

PROGRAM = str(runs.PROGRAMS / "varied.py")

BUG = "cpp.inject_relu_bug_TESTING_ONLY"
SAME, WRONG, BROKEN, PLACEBO, FOREACH = range(1, 6)

VARIED = (
    ProgramVariant("same", (VariantSwitch(INDUCTOR, "max_fusion_size", 32),)),
    ProgramVariant("wrong", (VariantSwitch(INDUCTOR, BUG, "accuracy"),)),
    ProgramVariant("broken", (VariantSwitch(INDUCTOR, BUG, "compile_error"),)),
    ProgramVariant("placebo", is_placebo=True),
    ProgramVariant("foreach", (VariantSwitch(OPTIMIZER, "foreach", True),)),
)


@functools.cache
def try_variants(kind: str, *variants: ProgramVariant, alternates: bool = True, losses: int = 0) -> TriedVariants:
    """What a process of ``varied.py`` found; all share the compiled kernels."""
    request = VariantsRequest(variants, alternates, timed_s=0.01, least=8, most=8, checks=alternates, losses=losses)
    folder = runs.scratch() / f"variants-{kind}-{'-'.join(one.slug for one in variants)}-{losses}"
    folder.mkdir()
    (folder / "request.json").write_text(json.dumps(codec.encode(request)))
    ended = run(
        kind,
        INDUCTOR_BENCH_CAPTURE=str(folder),
        INDUCTOR_BENCH_OBSERVE="steps",
        **{VARIANTS: str(folder / "request.json")},
    )
    (path,) = folder.glob(f"*{TRIED}")
    found = codec.decode(TriedVariants, json.loads(path.read_text()))
    OUTPUT[id(found)] = ended
    return found


OUTPUT: dict[int, subprocess.CompletedProcess[str]] = {}
"""The program of each answer."""


def run(kind: str, **variables: str) -> subprocess.CompletedProcess[str]:
    cache = str(runs.scratch() / "variants-cache")
    return forking_python.run([PROGRAM, kind, "160"], TORCHINDUCTOR_CACHE_DIR=cache, **variables)


def timed(found: TriedVariants) -> Counter[int]:
    return Counter(one.variant for one in found.samples)


def test_variants_take_turns_and_each_is_timed_that_computes_what_the_original_does() -> None:
    found = try_variants("accumulate", *VARIED)
    assert (found.state, found.source, found.device, found.error) == (DONE, OPTIMIZER_STEPS, "cpu", "")
    assert timed(found)[SAME] == timed(found)[PLACEBO] == timed(found)[FOREACH] == 8
    assert timed(found)[0] >= 8 and timed(found)[WRONG] == timed(found)[BROKEN] == 0
    assert found.load is not None and found.load.runs == len(found.samples) and found.load.cpu_time_s > 0
    places = [one.place for one in found.samples]
    assert places == sorted(set(places)) and all(one.time_s > 0 for one in found.samples)


def test_outputs_and_gradients_of_each_compiled_callable_are_compared() -> None:
    found = try_variants("accumulate", *VARIED)
    assert {check.graph for check in found.checks} == {"0/0", "1/0"}
    assert {check.variant for check in found.checks} == {SAME, WRONG, PLACEBO}
    assert all(check.is_compared and check.gradients for check in found.checks)
    assert {check.variant for check in found.checks if check.reason} == {WRONG}


def test_a_variant_that_does_not_compile_is_a_row_with_its_reason() -> None:
    found = try_variants("accumulate", *VARIED)
    failures = {state.variant: state.failure for state in found.variants if state.failure}
    assert list(failures) == [BROKEN] and "CompileError" in failures[BROKEN]
    assert found.variants[FOREACH].applied == ("foreach=True",) and found.variants[FOREACH].graphs == 0
    assert found.variants[PLACEBO].graphs == 2 and found.variants[PLACEBO].compile_s > 0


def test_dynamo_compiles_the_program_as_often_as_without_variants() -> None:
    varied, alone = OUTPUT[id(try_variants("accumulate", *VARIED))], run("accumulate")
    assert varied.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1] != "dynamo 0 0 0"


OWN = (
    ProgramVariant("loss", (VariantSwitch(FUNCTION, f"{PROGRAM}:33:eager_loss", True),)),
    ProgramVariant("compiled", (VariantSwitch(OPTIMIZER, "compiled", True),)),
    ProgramVariant("missing", (VariantSwitch(FUNCTION, f"{PROGRAM}:33:other", True),)),
)


def test_a_function_and_an_optimizer_are_compiled_for_one_variant_each_and_compared() -> None:
    found = try_variants("eager", *OWN)
    assert (found.state, found.error) == (DONE, "")
    assert [state.failure for state in found.variants[:3]] == ["", "", ""]
    assert "no function other" in found.variants[3].failure
    assert timed(found)[1] == timed(found)[2] == 8 and timed(found)[3] == 0
    checks = {(check.variant, check.graph): check for check in found.checks}
    assert set(checks) == {(1, "eager_loss"), (2, "the step of AdamW")}
    assert all(check.is_compared and not check.reason for check in checks.values())
    assert checks[1, "eager_loss"].gradients == 1 and found.variants[1].graphs == 1
    assert all(state.compile_s > 0 for state in found.variants[1:3])


def test_a_compiled_function_holds_from_the_start_of_a_process() -> None:
    both = ProgramVariant("both", (*OWN[0].switches, *OWN[1].switches))
    found = try_variants("eager", both, alternates=False, losses=4)
    assert (found.state, found.error) == (DONE, "") and found.variants[1].failure == ""
    assert timed(found)[1] == 8 and found.variants[1].graphs >= 3 and len(found.digests) == 4


def test_a_program_without_an_optimizer_takes_turns_by_its_pattern_of_calls() -> None:
    tf32 = ProgramVariant("tf32", (VariantSwitch(TORCH, "torch.backends.cuda.matmul.allow_tf32", True),))
    bf16 = ProgramVariant("bf16", (VariantSwitch(TORCH, "torch.set_float32_matmul_precision", "medium"),))
    for one in (tf32, bf16):
        found = try_variants("serve", ProgramVariant("placebo", is_placebo=True), one)
        assert (found.state, found.source) == (DONE, PATTERN)
        assert timed(found)[1] == timed(found)[2] == 8
        assert {check.reason for check in found.checks} == {""} and {check.variant for check in found.checks} == {1, 2}


@pytest.mark.parametrize("variant", [VARIED[0], ProgramVariant("original")])
def test_a_program_without_an_optimizer_is_timed_from_its_start_by_its_pattern_of_calls(
    variant: ProgramVariant,
) -> None:
    found = try_variants("serve", variant, alternates=False, losses=3)
    assert (found.state, found.source, found.digests) == (DONE, PATTERN, ())
    assert timed(found) == {1: 8}


@pytest.mark.parametrize("disabled", ["1", "0"])
def test_steps_are_timed_before_anything_is_compiled_and_left_out_once_it_is(disabled: str) -> None:
    """As in a comparison of a program that compiles nothing with the same program compiled."""
    request = VariantsRequest((ProgramVariant("a"),), False, 0.01, 8, 8, checks=False, losses=3, times_uncompiled=True)
    folder = runs.scratch() / f"variants-disabled-{disabled}"
    folder.mkdir()
    (folder / "request.json").write_text(json.dumps(codec.encode(request)))
    variables = {VARIANTS: str(folder / "request.json"), "TORCH_COMPILE_DISABLE": disabled}
    run("accumulate", INDUCTOR_BENCH_CAPTURE=str(folder), INDUCTOR_BENCH_OBSERVE="steps", **variables)
    found = {
        one.parent.name: codec.decode(TriedVariants, json.loads(one.read_text())) for one in folder.rglob(f"*{TRIED}")
    }
    (steps,) = found.values()
    assert list(found) == ["uncompiled" if disabled == "1" else folder.name]
    assert (steps.state, steps.source, timed(steps), len(steps.digests)) == (DONE, OPTIMIZER_STEPS, {1: 8}, 3)


def test_a_variant_in_whose_step_the_program_ends_is_named() -> None:
    found = try_variants("crash", ProgramVariant("foreach", (VariantSwitch(OPTIMIZER, "foreach", True),)))
    assert "ValueError: foreach is on" in found.variants[1].failure and not found.samples
    found = try_variants("die", ProgramVariant("foreach", (VariantSwitch(OPTIMIZER, "foreach", True),)))
    (journal,) = (runs.scratch() / "variants-die-foreach-0").glob(f"*{JOURNAL}")
    assert journal.read_text().split() == ["foreach", "runs"] and OUTPUT[id(found)].returncode < 0


def test_one_variant_holds_from_the_start_and_its_gradients_are_kept() -> None:
    switches = (
        VariantSwitch(INDUCTOR, "max_fusion_size", 32),
        VariantSwitch(OPTIMIZER, "fused", True),
        VariantSwitch(COMPILE, "dynamic", False),
        VariantSwitch(DYNAMO, "cache_size_limit", 9),
        VariantSwitch(MEMORY_FORMAT, "channels_last", True),
    )
    found = try_variants("train", ProgramVariant("all", switches), alternates=False, losses=3)
    assert found.state == DONE and timed(found) == {1: 8} and found.checks == ()
    assert set(found.variants[1].applied) == {
        *("max_fusion_size=32", "fused=True", "dynamic=False", "cache_size_limit=9", "channels_last=True"),
    }
    own = try_variants("train", alternates=False, losses=3)
    assert timed(own) == {0: 8} and len(own.digests) == len(found.digests) == 3
    for one, other in zip(found.digests, own.digests, strict=True):
        assert one.sums == pytest.approx(other.sums, rel=1e-4) and one.loss == pytest.approx(other.loss, rel=1e-4)
