"""Variants of a small program on a GPU in one process: CUDA graphs, fused AdamW, a placebo, wrong kernels."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from inductor_bench.messages.observed import (
    TRIED,
    VARIANTS,
    ProgramVariant,
    TriedVariants,
    VariantsRequest,
    VariantSwitch,
)
from inductor_bench.records.optimization import FUNCTION, INDUCTOR, OPTIMIZER, TORCH
from inductor_bench.store import codec
from inductor_bench.workflows.modules.compile_environment import SITE

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parent.parent.parent

GRAPHS = VariantSwitch(INDUCTOR, "triton.cudagraphs", True)
FUSED = VariantSwitch(OPTIMIZER, "fused", True)
FROM_CPP = VariantSwitch(INDUCTOR, "cpp_wrapper", True)
WRONG = VariantSwitch(INDUCTOR, "triton.inject_relu_bug_TESTING_ONLY", "accuracy")
COMPILED = VariantSwitch(OPTIMIZER, "compiled", True)
LOSS = VariantSwitch(FUNCTION, str(ROOT / "tests" / "programs" / "varied.py") + ":33:eager_loss", True)
BUDGET = VariantSwitch(TORCH, "torch._functorch.config.activation_memory_budget", 0.5)
TF32 = VariantSwitch(TORCH, "torch.backends.cuda.matmul.allow_tf32", True)


def try_variants(
    folder: Path, kind: str, *variants: ProgramVariant, steps: int = 2500, alternates: bool = True
) -> TriedVariants:
    """What a process of ``varied.py`` found; it prints a row for each variant."""
    request = folder / "request.json"
    asked = VariantsRequest(variants, alternates, timed_s=0.5, least=24, most=120, checks=alternates)
    request.write_text(json.dumps(codec.encode(asked)))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(SITE), str(ROOT)]),
        "INDUCTOR_BENCH_CAPTURE": str(folder),
        "INDUCTOR_BENCH_OBSERVE": "steps",
        VARIANTS: str(request),
    }
    program = str(ROOT / "tests" / "programs" / "varied.py")
    ended = subprocess.run(
        [sys.executable, program, kind, str(steps), "cuda"], env=environment, capture_output=True, text=True
    )
    print(ended.returncode, ended.stdout, ended.stderr[-6000:])
    (path,) = folder.glob(f"*{TRIED}")
    found = codec.decode(TriedVariants, json.loads(path.read_text()))
    print(kind, found.state, found.source, found.notes, found.error)
    for state in found.variants:
        times = [one.time_s for one in found.samples if one.variant == state.variant]
        median = f"{statistics.median(times) * 1e3:8.3f} ms" if times else "       -"
        slug = variants[state.variant - 1].slug if state.variant else "original"
        print(f"{slug:20} {median} x{len(times):<4} {state}")
    for check in found.checks:
        print("   ", check)
    return found


def test_cuda_graphs_a_placebo_and_fused_adamw_alternate(tmp_path: Path) -> None:
    found = try_variants(
        tmp_path,
        "train",
        ProgramVariant("graphs", (GRAPHS,)),
        ProgramVariant("placebo", is_placebo=True),
        ProgramVariant("fused", (FUSED,)),
        ProgramVariant("both", (GRAPHS, FUSED)),
        ProgramVariant("tf32", (TF32,)),
        ProgramVariant("wrong", (WRONG,)),
    )
    assert (found.state, found.error) == ("done", "")
    assert [state.failure for state in found.variants] == [""] * 7
    timed = {number: sum(one.variant == number for one in found.samples) for number in range(7)}
    assert all(timed[number] >= 24 for number in range(6)) and timed[6] == 0
    differing = {check.variant for check in found.checks if check.reason}
    assert differing == {6} and all(check.gradients for check in found.checks)
    assert all(state.peak_memory_bytes for state in found.variants[:6])


def test_cuda_graphs_with_accumulation_fail_or_are_right(tmp_path: Path) -> None:
    found = try_variants(tmp_path, "accumulate", ProgramVariant("graphs", (GRAPHS,)))
    timed = any(one.variant == 1 for one in found.samples)
    assert bool(found.variants[1].failure) != timed


def test_a_compiled_optimizer_a_compiled_function_and_less_memory_alternate(tmp_path: Path) -> None:
    found = try_variants(
        tmp_path,
        "eager",
        ProgramVariant("optimizer", (COMPILED,)),
        ProgramVariant("function", (LOSS,)),
        ProgramVariant("both", (COMPILED, LOSS)),
        ProgramVariant("graphs", (COMPILED, LOSS, GRAPHS)),
        ProgramVariant("budget", (BUDGET,)),
        steps=4000,
    )
    assert (found.state, found.error) == ("done", "")
    assert [state.failure for state in found.variants[:4]] == [""] * 4 and not found.variants[5].failure
    assert not [check for check in found.checks if check.reason and check.is_compared]
    assert {check.graph for check in found.checks if check.variant == 3} >= {"eager_loss", "the step of AdamW"}


def test_a_served_model_without_an_optimizer(tmp_path: Path) -> None:
    found = try_variants(tmp_path, "serve", ProgramVariant("graphs", (GRAPHS,)), ProgramVariant("tf32", (TF32,)))
    assert (found.state, found.source) == ("done", "pattern")
    assert {one.variant for one in found.samples} == {0, 1, 2}


def test_a_served_model_runs_as_cuda_graphs_from_its_start(tmp_path: Path) -> None:
    found = try_variants(tmp_path, "serve", ProgramVariant("graphs", (GRAPHS,)), alternates=False)
    assert (found.state, found.source) == ("done", "pattern")
    assert {one.variant for one in found.samples} == {1} and not found.variants[1].failure


@pytest.mark.parametrize("alternates", [True, False])
def test_launches_from_cpp_train(tmp_path: Path, alternates: bool) -> None:
    found = try_variants(tmp_path, "train", ProgramVariant("cpp", (FROM_CPP,)), alternates=alternates)
    assert (found.state, found.variants[1].failure) == ("done", "")
    assert sum(one.variant == 1 for one in found.samples) >= 24
    assert not [check for check in found.checks if check.reason]


@pytest.mark.parametrize("kind", ["replay", "replay-train"])
def test_a_program_that_replays_cuda_graphs_is_compared_without_them(tmp_path: Path, kind: str) -> None:
    variants = (
        ProgramVariant("placebo", is_placebo=True),
        ProgramVariant("tf32", (TF32,)),
        ProgramVariant("wrong", (WRONG,)),
    )
    found = try_variants(tmp_path, kind, *variants)
    assert (found.state, [state.failure for state in found.variants]) == ("done", [""] * 4)
    assert found.checks and all(check.is_compared for check in found.checks)
    assert {check.variant for check in found.checks if check.reason} == {3}
    timed = {number: sum(one.variant == number for one in found.samples) for number in range(4)}
    assert all(timed[number] >= 24 for number in range(3)) and timed[3] == 0
