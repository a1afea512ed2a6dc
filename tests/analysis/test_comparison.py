"""Two runs side by side: each injected change is found, named and sized, and equal programs are silent."""

from __future__ import annotations

import random
from dataclasses import replace

import compared_runs as pairs
import pytest
import run_builder as build
import step_runs as steps
from inline import change

from inductor_bench.analysis.comparison_pairs import judge_difference
from inductor_bench.analysis.comparison_run import compare_runs
from inductor_bench.analysis.comparison_sides import compute_text_similarity
from inductor_bench.analysis.comparison_words import list_next_commands, list_notes, name_main_parts, write_headline
from inductor_bench.analysis.limits import Slowdown, describe_limit
from inductor_bench.errors import InductorBenchError
from inductor_bench.records import comparison as records
from inductor_bench.records.base import Category, Failure
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.comparison import EnvironmentDifference, KernelChange, PartChange, RunComparison
from inductor_bench.records.module import Kernel, ShapeGroup
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.run import (
    COPY,
    EAGER,
    IDLE,
    LAUNCHING,
    OPTIMIZER,
    SYNCHRONISING,
    Environment,
    Part,
    Run,
    SummedOperator,
)
from inductor_bench.report.comparison_document import make_comparison_document
from inductor_bench.report.formats import View
from inductor_bench.report.terminal import render_text
from inductor_bench.store import codec

GELU = "triton_poi_fused_gelu_mul_sigmoid_tanh_1"
NORM = "triton_red_fused_layer_norm_0"
MM = "nvjet_sm90_tst_64x8"


def compare(a: Run, b: Run) -> RunComparison:
    """The comparison, whose parts add up, and which its JSON holds."""
    found = compare_runs([a], [b], ("runs/a", "runs/b"))
    assert sum(part.delta_s for part in found.parts) == pytest.approx(found.step.delta_s, rel=1e-9, abs=1e-12)
    assert sum(part.a_s for part in found.parts) == pytest.approx(found.step.a_s)
    assert sum(part.b_s for part in found.parts) == pytest.approx(found.step.b_s)
    for kernel in found.kernels:
        assert sum(kernel.seconds.values()) == pytest.approx(kernel.delta_s, abs=1e-12)
    assert codec.decode(RunComparison, codec.encode(found)) == found
    return found


def part(found: RunComparison, cause: str, label: str = "") -> PartChange:
    return next(one for one in found.parts if (one.cause, one.label) == (cause, label))


def kernel(found: RunComparison, name: str) -> KernelChange:
    return next(one for one in found.kernels if name in {side.name for side in (*one.a, *one.b)})


def words(found: RunComparison) -> str:
    return " ".join([write_headline(found), *list_notes(found)])


def test_the_same_program_twice_is_silent() -> None:
    found = compare(pairs.run(), pairs.run())
    assert found.comparable and found.step.delta_s == 0
    assert {one.cause for one in found.kernels} == {records.UNCHANGED}
    assert not {one.verdict for one in (*found.parts, *found.kernels)} & {records.SLOWER, records.FASTER}
    assert "All 4 kernels have the same code in both, and no config differs." in words(found)
    assert found.environment_differences == ()


@pytest.mark.parametrize("seed", range(20))
def test_noise_and_clocks_are_no_regression(seed: int) -> None:
    draw = random.Random(seed)
    clock = draw.uniform(0.97, 1.03)
    rows = [
        change(row, time_s=row.time_s * factor, samples_s=tuple(sample * factor for sample in row.samples_s))
        for row in pairs.kernels()
        for factor in [clock * draw.uniform(0.99, 1.01)]
    ]
    others = [replace(one, time_s=one.time_s * draw.uniform(0.96, 1.04)) for one in pairs.parts()]
    found = compare(pairs.run(), pairs.run(rows, others))
    assert found.verdict in (records.UNDECIDED, records.SAME)
    assert not {one.verdict for one in found.kernels} & {records.SLOWER, records.FASTER}
    assert {one.cause for one in found.kernels} == {records.UNCHANGED}


def test_a_config_made_worse_is_found_and_named_chance() -> None:
    rows = pairs.changed(GELU, time_s=1.8e-3, config=pairs.OTHER_CONFIG, samples_s=(1.8e-3,) * 12)
    found = compare(pairs.run(), pairs.run(rows))
    worse = kernel(found, GELU)
    assert (worse.cause, worse.verdict) == (records.CONFIG, records.SLOWER)
    assert part(found, records.CONFIG).delta_s == pytest.approx(0.6e-3)
    assert "XBLOCK 512, num_warps 4 → XBLOCK 1024, num_warps 8: 1.20 ms → 1.80 ms a call" in worse.detail
    assert "chance" in worse.detail
    assert found.verdict == records.SLOWER and name_main_parts(found)[0].cause == records.CONFIG
    assert "1 has another config, +0.600 ms" in words(found)
    assert list_next_commands(found)[0].command == f"inductor-bench kernel runs/b/kernels/{GELU}.py --autotune"


def test_a_config_of_another_version_may_be_its_choice() -> None:
    rows = pairs.changed(GELU, time_s=1.8e-3, config=pairs.OTHER_CONFIG)
    newer = change(build.GPU, torch="2.15.0")
    found = compare(pairs.run(), pairs.run(rows, environment=newer))
    assert "another compiler's choice, or chance" in kernel(found, GELU).detail
    assert [(row.name, row.a, row.b) for row in found.environment_differences] == [("torch", "2.11.0", "2.15.0")]


def test_several_runs_of_a_side_prove_the_luck_and_measure_the_noise() -> None:
    lucky = pairs.run(pairs.changed(GELU, time_s=1.8e-3, config=pairs.OTHER_CONFIG))
    usual = pairs.run(longer=1.001)
    found = compare_runs([pairs.run(), usual], [lucky, pairs.run(longer=0.999)])
    assert "runs of the same side differ in this config, too" in kernel(found, GELU).detail
    assert found.step.noise_source == "measured, by 2 and 2 runs" and found.a.runs == 2
    assert found.verdict == records.UNDECIDED
    assert sum(one.delta_s for one in found.parts) == pytest.approx(found.step.delta_s)
    slower = [pairs.run(longer=1.2), pairs.run(longer=1.201)]
    assert compare_runs([pairs.run(), usual], slower).verdict == records.UNDECIDED
    purpose = [EnvironmentDifference("X", "", "1")]
    assert compare_runs([pairs.run(), usual], slower, changed=purpose).verdict == records.SLOWER


def test_a_busy_machine_is_named_and_its_slowness_is_noise() -> None:
    waiting = MachineLoad(10, 2, time_s=2.0, cpu_time_s=1.0, waited_s=1.5)

    def disturbed(one: Run) -> Run:
        assert one.program is not None
        ranks = tuple(replace(rank, device="cpu") for rank in one.program.ranks)
        one = replace(one, program=replace(one.program, ranks=ranks))
        return pairs.each_module(one, lambda module: change(module, device="cpu", wall_load=waiting))

    threads = change(build.GPU, threads=1)
    found = compare(disturbed(pairs.run()), disturbed(pairs.run(longer=1.5, environment=threads)))
    assert found.verdict == records.UNDECIDED
    assert "the machine was busy during B: a process waited for a core for 60% of its time" in found.notes


@pytest.mark.parametrize(("used_s", "verdict"), [(0.02, records.SLOWER), (0.5, records.UNDECIDED)])
def test_a_side_of_one_run_beside_other_processes_decides_nothing(used_s: float, verdict: str) -> None:
    """A process that never waits for a core is slower, too, if another one runs beside it."""
    load = MachineLoad(10, 2, time_s=0.5, cpu_time_s=0.5, waited_s=0.0, others_s=used_s)
    parts = [one for one in pairs.parts() if one.kind != IDLE]

    def on_cpu(others: list[Part]) -> Run:
        one = host(pairs.run(others=others))
        assert one.program is not None
        ranks = tuple(replace(rank, device="cpu", load=load) for rank in one.program.ranks)
        return replace(one, program=replace(one.program, ranks=ranks))

    slow = on_cpu([replace(one, time_s=one.time_s * 2, calls=one.calls * 2) for one in parts])
    found = compare_runs([on_cpu(parts), on_cpu(parts)], [slow])
    assert found.verdict == verdict, words(found)
    assert ("other processes used 50%" in " ".join(found.notes)) == (verdict == records.UNDECIDED)


def test_runs_that_other_processes_disturbed_are_left_out_if_each_side_has_others() -> None:
    busy = MachineLoad(10, 2, time_s=2.0, cpu_time_s=1.0, waited_s=1.5, others_s=3.0)

    def on_cpu(one: Run, load: MachineLoad | None = None) -> Run:
        assert one.program is not None
        ranks = tuple(replace(rank, device="cpu", load=load) for rank in one.program.ranks)
        one = replace(one, program=replace(one.program, ranks=ranks))
        return pairs.each_module(one, lambda module: change(module, device="cpu"))

    quiet, slow = on_cpu(pairs.run()), on_cpu(pairs.run(longer=9.0), busy)
    found = compare_runs([quiet, slow], [quiet, quiet, slow])
    assert (found.a.runs, found.b.runs) == (1, 2) and found.step.a_s == pytest.approx(found.step.b_s)
    assert [note.partition(" of B")[0] for note in found.notes if "do not count" in note][-1] == "1 of 3 runs"
    kept = compare_runs([slow, slow], [quiet, slow])
    assert (kept.a.runs, kept.b.runs) == (2, 2), "a side without quiet runs"


def test_an_operator_that_one_run_of_a_side_lists_keeps_its_calls() -> None:
    listed = pairs.run(others=[*pairs.parts(), Part(EAGER, "aten::item", 1, 0.4e-3, 0, source=steps.line(9))])
    found = compare_runs([pairs.run(), pairs.run()], [listed, pairs.run()])
    item = part(found, EAGER, "aten::item")
    assert (item.a_calls, item.b_calls) == (0, 1) and item.delta_s == pytest.approx(0.2e-3)


def test_a_broken_fusion_is_found() -> None:
    pieces = (
        pairs.triton("triton_poi_fused_gelu_mul_1", 0.9e-3, ("gelu", "mul")),
        pairs.triton("triton_poi_fused_sigmoid_tanh_2", 0.8e-3, ("sigmoid", "tanh")),
    )
    found = compare(pairs.run(), pairs.run(pairs.replaced(GELU, *pieces)))
    split = kernel(found, GELU)
    assert (split.cause, split.verdict, len(split.a), len(split.b)) == (records.SPLIT, records.SLOWER, 1, 2)
    assert part(found, records.SPLIT).delta_s == pytest.approx(0.5e-3)
    assert "1 kernel of A, 2 of B for aten.gelu, aten.mul, aten.sigmoid and aten.tanh" in split.detail
    back = compare(pairs.run(pairs.replaced(GELU, *pieces)), pairs.run())
    assert kernel(back, GELU).cause == records.MERGED and part(back, records.MERGED).verdict == records.FASTER


def test_one_operator_split_off_is_a_broken_fusion_and_no_changed_code() -> None:
    pieces = (
        pairs.triton("triton_poi_fused_gelu_mul_sigmoid_1", 1.1e-3, ("gelu", "mul", "sigmoid")),
        pairs.triton("triton_poi_fused_tanh_2", 0.6e-3, ("tanh",)),
    )
    found = compare(pairs.run(), pairs.run(pairs.replaced(GELU, *pieces)))
    assert kernel(found, GELU).cause == records.SPLIT and part(found, records.SPLIT).delta_s == pytest.approx(0.5e-3)
    assert not [one for one in found.kernels if one.cause in (records.ADDED, records.REMOVED)]


def test_a_kernel_that_only_loses_its_epilogue_is_a_broken_fusion() -> None:
    """The rest of it is of the same family, which alone would make it the counterpart of the whole."""
    name, nodes = "triton_per_fused_layer_norm_0", ("layer_norm",)
    whole = pairs.replaced("triton_poi_fused_relu_2", pairs.triton(name, 0.5e-3, nodes, family_id="norm"))
    parts = (
        pairs.triton(name, 0.3e-3, nodes, family_id="norm", kernel_id="other"),
        pairs.triton("triton_poi_fused_layer_norm_1", 0.4e-3, nodes),
        pairs.triton("triton_poi_fused_layer_norm_2", 0.1e-3, nodes),
    )
    found = compare(pairs.run(whole), pairs.run(pairs.replaced("triton_poi_fused_relu_2", *parts)))
    split = part(found, records.SPLIT)
    assert (split.kernels, split.verdict) == (1, records.SLOWER) and split.delta_s == pytest.approx(0.3e-3)
    assert {one.cause for one in found.kernels} == {records.UNCHANGED, records.SPLIT}
    merged = compare(pairs.run(pairs.replaced("triton_poi_fused_relu_2", *parts)), pairs.run(whole))
    assert part(merged, records.MERGED).verdict == records.FASTER
    # A kernel beside one that takes as long as before is new, whatever nodes it computes again.
    again = (change(parts[0], time_s=0.5e-3), parts[1])
    new = compare(pairs.run(whole), pairs.run(pairs.replaced("triton_poi_fused_relu_2", *again)))
    assert part(new, records.ADDED).delta_s == pytest.approx(0.4e-3)


def test_changed_code_is_paired_by_its_origin() -> None:
    other = pairs.triton("triton_red_fused_layer_norm_0", 1.6e-3, ("layer_norm", "mean", "var"), kernel_id="f" * 16)
    found = compare(pairs.run(), pairs.run(pairs.replaced(NORM, other)))
    assert (kernel(found, NORM).cause, kernel(found, NORM).verdict) == (records.CODE, records.SLOWER)
    assert part(found, records.CODE).delta_s == pytest.approx(0.8e-3)
    files = f"runs/a/kernels/{NORM}.py --compare runs/b/kernels/{NORM}.py"
    assert list_next_commands(found)[0].command == f"inductor-bench kernel {files}"
    assert "1 of the 4 kernels of B differs from those in A" in words(found)
    assert list_next_commands(replace(found, a=replace(found.a, name="a.zip"))) == []
    newer = EnvironmentDifference("torch", "2.13", "2.15")
    assert list_next_commands(replace(found, environment_differences=(newer,))) == []
    python = EnvironmentDifference("interpreter", "old", "new python")
    there = list_next_commands(replace(found, environment_differences=(newer, python)))
    assert there[0].command == f"inductor-bench kernel {files} --other-python 'new python'"


def test_the_text_of_kernels_is_compared() -> None:
    assert compute_text_similarity("a\nb\nc\nd", "a\nb\nc\ne") == 0.75
    other = pairs.triton("triton_red_fused_layer_norm_0", 1.6e-3, ("layer_norm", "mean", "var"), kernel_id="f" * 16)
    texts = {("forward", NORM): "a\nb\nc\nd"}, {("forward", NORM): "a\nb\nc\ne"}
    found = compare_runs([pairs.run()], [pairs.run(pairs.replaced(NORM, other))], texts=texts)
    assert "75% of the lines are equal" in kernel(found, NORM).detail


def test_another_kernel_of_the_library_and_a_template_are_named() -> None:
    other = pairs.library("cutlass_80_simt_sgemm", "aten.mm", 3.0e-3)
    found = compare(pairs.run(), pairs.run(pairs.replaced(MM, other)))
    assert (kernel(found, MM).cause, kernel(found, MM).verdict) == (records.LIBRARY, records.SLOWER)
    assert "aten.mm: another kernel of the library" in kernel(found, MM).detail
    template = replace(pairs.triton("triton_tem_fused_mm_0", 1.5e-3, ("mm",)), category=Category.TEMPLATE)
    found = compare(pairs.run(), pairs.run(pairs.replaced(MM, template)))
    assert (kernel(found, MM).cause, kernel(found, MM).verdict) == (records.LIBRARY, records.FASTER)
    assert kernel(found, MM).detail == "aten.mm: a library → template (Triton)"


def test_tf32_off_is_named() -> None:
    other = pairs.library("cutlass_80_simt_sgemm", "aten.mm", 6.0e-3)
    found = compare(pairs.run(tf32=True), pairs.run(pairs.replaced(MM, other)))
    assert kernel(found, MM).cause == records.PRECISION and "TF32" in kernel(found, MM).detail
    assert part(found, records.PRECISION).delta_s == pytest.approx(4.0e-3)
    assert "1 of the 4 kernels of B differs" in words(found)
    assert [(row.name, row.a, row.b) for row in found.environment_differences] == [
        ("float32 products in", "TF32", "float32")
    ]


def test_products_of_a_processor_in_bfloat16_are_named() -> None:
    half = pairs.run(pairs.changed(MM, dtype="bfloat16", flops=1e9), bf16=True)
    found = compare(half, pairs.run(pairs.changed(MM, dtype="float32", flops=1e9, time_s=6e-3)))
    assert (kernel(found, MM).cause, kernel(found, MM).verdict) == (records.PRECISION, records.SLOWER)
    assert kernel(found, MM).detail.endswith("float32 products in bfloat16 → float32")
    assert [(row.name, row.a, row.b) for row in found.environment_differences] == [
        ("float32 products in", "bfloat16", "float32")
    ]
    other = pairs.run(pairs.changed(MM, dtype="bfloat16", flops=1e9, time_s=6e-3))
    assert kernel(compare(half, other), MM).cause != records.PRECISION, "autocast computes it in bfloat16, too"


def test_equal_kernels_on_another_machine_are_no_noise() -> None:
    driver = change(build.GPU, driver="580.1")
    found = compare(pairs.run(), pairs.run(longer=1.2, environment=driver))
    assert found.verdict == records.SLOWER and kernel(found, MM).verdict == records.SLOWER
    assert part(found, records.UNCHANGED).detail.startswith("not the generated code: driver none → 580.1")
    assert "in kernels whose code, config and calls are the same: not the generated code: driver" in words(found)
    alike = compare(pairs.run(), pairs.run(longer=1.2))
    assert alike.verdict == kernel(alike, MM).verdict == records.UNDECIDED
    assert part(alike, records.UNCHANGED).detail == "clocks and noise"


def test_other_calls_are_divided_from_the_time_of_a_call() -> None:
    rows = pairs.changed(MM, calls=4, time_s=4.4e-3)
    found = compare(pairs.run(), pairs.run(rows))
    assert kernel(found, MM).cause == records.CALLS and kernel(found, MM).detail == "2 → 4 calls"
    assert kernel(found, MM).seconds == pytest.approx({records.CALLS: 2.0e-3, records.UNCHANGED: 0.4e-3})


def test_further_calls_of_another_shape_take_their_own_time() -> None:
    small = (ShapeGroup("f32[512,512] f32[512,512]", 2, 2.0e-3), ShapeGroup("f32[8,8] f32[8,8]", 1, 0.1e-3))
    found = compare(pairs.run(), pairs.run(pairs.changed(MM, calls=3, time_s=2.1e-3, shapes=small)))
    assert kernel(found, MM).seconds == pytest.approx({records.CALLS: 0.1e-3, records.UNCHANGED: 0.0}, abs=1e-12)


def test_new_and_removed_kernels_are_named() -> None:
    extra = pairs.triton("triton_poi_fused_cos_3", 0.7e-3, ("cos",))
    found = compare(pairs.run(), pairs.run([*pairs.kernels(), extra]))
    assert (kernel(found, "triton_poi_fused_cos_3").cause, part(found, records.ADDED).verdict) == (
        "new kernel",
        "slower",
    )
    assert part(compare(pairs.run([*pairs.kernels(), extra]), pairs.run()), records.REMOVED).verdict == records.FASTER


def test_an_eager_operator_and_an_item_are_found_with_their_lines() -> None:
    added = [
        *pairs.parts(),
        Part(EAGER, "aten::sin", 1, 0.5e-3, 0, source=steps.line(31)),
        Part(COPY, "device to host", 1, 5e-6, 0, source=steps.line(44)),
    ]
    waiting = [replace(one, time_s=0.9e-3) if one.label == SYNCHRONISING else one for one in added]
    found = compare(pairs.run(), pairs.run(others=waiting))
    sine, copy = part(found, EAGER, "aten::sin"), part(found, COPY, "device to host")
    assert (sine.verdict, sine.detail) == (records.SLOWER, "0 → 1 calls, in B at project/train.py:31")
    assert copy.detail == "0 → 1 calls, in B at project/train.py:44"
    idle = part(found, IDLE, SYNCHRONISING)
    assert idle.delta_s == pytest.approx(0.8e-3) and idle.verdict == records.SLOWER
    assert "idle: synchronising +0.800 ms" in words(found)


def test_a_wait_for_the_device_is_the_reason_of_the_idle_time_after_it() -> None:
    """Unchanged kernels are faster, as on a GPU that pauses; that hides a part of the difference and is no noise."""
    busy = [one for one in pairs.parts() if one.kind != IDLE]
    waiting = [
        *busy,
        Part(IDLE, LAUNCHING, 10, 0.6e-3, 0),
        Part(IDLE, SYNCHRONISING, 1, 5e-6, 0, source=steps.line(44)),
    ]
    rows = [change(row, time_s=row.time_s * 0.95) for row in pairs.kernels()]
    found = compare(pairs.run(others=busy), pairs.run(rows, waiting))
    assert (found.verdict, part(found, IDLE, LAUNCHING).verdict) == (records.SLOWER, records.SLOWER)
    assert part(found, IDLE, SYNCHRONISING).verdict == records.UNDECIDED
    assert (
        "B waits for the device at project/train.py:44. After this wait the device waits for the host's next launches: "
        "idle +0.605 ms in all."
    ) in words(found)
    again = compare(pairs.run(others=waiting), pairs.run(rows, waiting))
    assert "B waits" not in words(again)


@pytest.mark.parametrize(("b_s", "verdict"), [(3e-3, "undecided"), (15e-3, "slower")])
def test_the_pace_of_a_host_is_no_verdict_between_single_runs(b_s: float, verdict: str) -> None:
    others = [replace(one, time_s=3e-3) if one.label == LAUNCHING else one for one in pairs.parts()]
    slow = [replace(one, time_s=one.time_s + b_s) if one.label == LAUNCHING else one for one in others]
    first, second = pairs.run(others=others), pairs.run(others=slow)
    assert compare(first, second).verdict == verdict
    several = [[pairs.run(others=rows, longer=factor) for factor in (1, 1.01, 0.99)] for rows in (others, slow)]
    assert compare_runs(*several).verdict == records.SLOWER, "runs in turn measure it"


def test_a_slow_host_hides_no_change_of_the_devices_work() -> None:
    others = [replace(one, time_s=4e-3) if one.label == LAUNCHING else one for one in pairs.parts()]
    rows = changed_kernel(1.46)
    found = compare(pairs.run(others=others), pairs.run(rows, others))
    assert part(found, records.CODE).verdict == records.SLOWER
    doubled = [replace(one, time_s=2 * one.time_s) if one.label == "aten::embedding" else one for one in others]
    found = compare(pairs.run(others=others), pairs.run(others=doubled))
    assert part(found, EAGER, "aten::embedding").verdict == records.SLOWER


def test_a_faster_clock_makes_no_part_faster_for_sure() -> None:
    """Everything on the device takes 8% less time in B, whose step is longer for its idle time."""
    idle = [replace(one, time_s=1.5e-3) if one.label == LAUNCHING else one for one in pairs.parts()]
    fast = [one if one.kind == IDLE else replace(one, time_s=one.time_s * 0.92) for one in idle]
    rows = [change(row, time_s=row.time_s * 0.92) for row in pairs.kernels()]
    first = [pairs.run(longer=factor) for factor in (1, 1.002, 0.998)]
    second = [pairs.run(rows, fast, longer=factor) for factor in (1, 1.002, 0.998)]
    found = compare_runs(first, second)
    assert found.verdict == records.SLOWER
    assert not [one for one in found.parts if one.verdict == records.FASTER]


def changed_kernel(longer: float) -> list[Kernel]:
    name = "triton_poi_fused_gelu_mul_sigmoid_tanh_1"
    return pairs.changed(name, time_s=1.2e-3 * longer, kernel_id="other", family_id="other")


def test_an_operator_about_the_limit_of_the_ledger_is_not_new() -> None:
    small = Part(EAGER, "aten::add", 2, 0.015e-3, 0)
    others = [replace(one, calls=4) if one.label.startswith("other") else one for one in pairs.parts()]
    found = compare(pairs.run(), pairs.run(others=[*others, small]))
    assert not [one for one in found.parts if one.label == "aten::add"]
    assert part(found, EAGER, "other eager operators").detail == ""


def test_without_a_step_graphs_are_compared_by_their_iterations() -> None:
    found = compare(pairs.without_step(pairs.run()), pairs.run())
    assert found.step.currency == records.ITERATION and found.step.a_s == pytest.approx(6e-3)
    assert any("no step was profiled in A" in note for note in found.notes)


@pytest.mark.parametrize(
    ("b", "reason"),
    [
        (pairs.each_module(pairs.run(), lambda module: replace(module, device="cpu")), "A ran on cuda, B on cpu"),
        (pairs.run(request=BreakdownRequest("train.py", "script", batch_size=8)), "the batch size is the default in A"),
        (pairs.run(request=BreakdownRequest("train.py", "script", training=False)), ""),
    ],
)
def test_what_must_not_be_compared_says_why(b: Run, reason: str) -> None:
    found = compare(pairs.run(), b)
    assert found.comparable == (not reason)
    if reason:
        assert found.verdict == records.NOT_COMPARABLE and reason in write_headline(found) and found.parts
        assert {one.verdict for one in (*found.parts, *found.kernels)} == {records.UNDECIDED}


def test_two_models_and_other_sizes_are_not_comparable() -> None:
    a, b = (pairs.run(request=BreakdownRequest(f"timm:{name}", "timm")) for name in ("resnet18", "resnet50"))
    assert compare(a, b).reasons == ("A is timm:resnet18, B is timm:resnet50: two models",)
    larger = [change(row, kernel_id=f"{index:016x}", operator=None) for index, row in enumerate(pairs.kernels()[1:])]
    found = compare(pairs.run(pairs.kernels()[1:]), pairs.run(larger))
    assert not found.comparable and "the inputs of A and B differ in size" in found.reasons[0]
    foreign = [pairs.triton("triton_poi_fused_cos_9", 1e-3, ("cos",))]
    found = compare(pairs.run(), pairs.run(foreign, request=BreakdownRequest("other.py", "script")))
    assert "nothing in common" in found.reasons[0]
    mostly = [*pairs.kernels()[3:], pairs.triton("triton_poi_fused_cos_9", 9e-3, ("cos",))]
    found = compare(pairs.run(), pairs.run(mostly, request=BreakdownRequest("/home/me/other.py", "script")))
    assert found.reasons == (), "a tenth of the time of A is in a kernel of both"
    first, other = (pairs.run([*pairs.kernels()[3:], cosine(name)]) for name in ("a", "b"))
    first, other = (
        replace(one, request=BreakdownRequest(f"{n}.py", "script")) for n, one in (("a", first), ("b", other))
    )
    assert "A is a.py, B is b.py, and" in compare(first, other).reasons[0]
    assert compare(first, replace(other, request=BreakdownRequest("x/a.py", "script"))).comparable, (
        "one program, edited"
    )


def cosine(name: str) -> Kernel:
    return pairs.triton(f"triton_poi_fused_{name}_9", 90e-3, (name,))


def test_doubtful_records_are_named() -> None:
    broken = replace(pairs.run(), failures=(Failure("profile", "exit", "killed by signal 9", subject="backward"),))
    found = compare(pairs.run(), broken)
    assert "B is not complete: profile of backward: killed by signal 9" in found.notes
    run = pairs.run()
    assert run.program is not None
    edited = replace(run, program=replace(run.program, step_time_s=3e-3))
    found = compare(edited, pairs.run())
    assert any("add up to" in note and "edited" in note for note in found.notes)
    assert part(found, records.REST).a_s < 0 and part(found, records.REST).b_s == 0
    empty = replace(run, modules=(), program=None, failures=(Failure("capture", "exit", "it ended with 1"),))
    with pytest.raises(InductorBenchError, match="runs/b holds no measurement: it ended with 1 \\(capture\\)"):
        compare(pairs.run(), empty)


@pytest.mark.parametrize(
    ("b_s", "error_s", "verdict"),
    [(1.05, 0.02, "slower"), (0.95, 0.02, "faster"), (1.05, 0.06, "undecided"), (1.001, 0.002, "same")],
)
def test_a_verdict_needs_an_interval_and_an_effect(b_s: float, error_s: float, verdict: str) -> None:
    assert judge_difference(1.0, b_s, error_s, 0.01)[2] == verdict


def test_no_interval_holds_a_negative_time() -> None:
    assert judge_difference(1.0, 0.9, 1.2, 0.01) == (-1.0, pytest.approx(1.1), "undecided")
    assert judge_difference(-0.1, 0.0, 0.3, 0.01)[:2] == pytest.approx((-0.2, 0.4)), (
        "the rest of a step may be negative"
    )


def host(one: Run, **fields: object) -> Run:
    """The run as one of a CPU; ``fields`` are those of the program."""
    assert one.program is not None
    ranks = tuple(replace(rank, device="cpu") for rank in one.program.ranks)
    program = replace(one.program, ranks=ranks, **fields)  # type: ignore[arg-type]
    return pairs.each_module(replace(one, program=program), lambda module: replace(module, device="cpu"))


def test_what_is_absent_is_named() -> None:
    newer = change(build.GPU, torch="2.15.0", triton=None, driver="580")
    found = compare(pairs.run(), pairs.run(environment=newer))
    rows = {row.name: (row.a, row.b) for row in found.environment_differences}
    assert rows["triton"][1] == "not installed" and rows["driver"] == ("none", "580")


def test_what_a_side_does_not_know_is_no_difference_and_an_incomplete_side_is_named_first() -> None:
    found = compare(pairs.run(), pairs.run(environment=change(build.GPU, torch="", triton=None)))
    assert found.environment_differences == ()
    assert "another torch may bring other code" in words(found), "one torch is not known"
    whole = replace(build.GPU, variables={"OMP_NUM_THREADS": "2", "TORCHINDUCTOR_FX_GRAPH_CACHE": "0"})
    cut = Failure("profile", "interrupted", "interrupted by Ctrl-C or a signal when 1 of 2 graphs was measured")
    found = compare(pairs.run(environment=whole), replace(pairs.run(environment=Environment()), failures=(cut,)))
    assert found.environment_differences == ()
    lines = render_text(make_comparison_document(found, View()), 300)
    assert lines.index("B is not complete: profile: interrupted by Ctrl-C") < lines.index("What differs around")
    assert lines.count("is not complete") == 1
    assert "B does not say what it ran on: its versions, machine and variables are not compared." in lines
    assert "no difference around the program" not in lines


def test_another_torch_may_change_calls_of_libraries_and_another_triton_all_kernels() -> None:
    newer = change(build.GPU, torch="2.15.0")
    found = compare(pairs.run(), pairs.run(environment=newer))
    assert "All 3 generated kernels have the same code in both; 1 kernel of libraries has the same name" in words(found)
    assert part(found, records.UNCHANGED).detail.startswith("not the generated code: torch 2.11.0 → 2.15.0")
    compiled = change(build.GPU, torch="2.15.0", triton="9.9")
    rows = [change(row, time_s=row.time_s * 1.3) for row in pairs.kernels()]
    found = compare(pairs.run(), pairs.run(rows, environment=compiled))
    assert (found.verdict, part(found, records.UNCHANGED).verdict) == (records.SLOWER, records.SLOWER)


@pytest.mark.parametrize(("longer", "verdict"), [(1.25, "undecided"), (0.8, "undecided"), (2.0, "slower")])
def test_single_runs_on_a_cpu_differ_by_much_whatever_could_explain_it(longer: float, verdict: str) -> None:
    other = {"environment": change(build.GPU, torch="2.15.0", triton="9.9", threads=1)}
    usual = {"environment": change(build.GPU, threads=2)}
    assert compare(host(pairs.run(**usual)), host(pairs.run(longer=longer, **other))).verdict == verdict
    on_gpu = compare(pairs.run(), pairs.run(longer=longer, **other))
    assert on_gpu.verdict == ("slower" if longer > 1 else "faster"), "whose runs differ by less"
    several = [host(pairs.run(longer=longer * factor, **other)) for factor in (1, 1.01, 0.99)]
    first = [host(pairs.run(longer=factor, **usual)) for factor in (1, 1.01, 0.99)]
    assert compare_runs(first, several).verdict == on_gpu.verdict, "and their noise is measured"


def test_a_difference_of_single_runs_that_no_part_explains_is_noise() -> None:
    others = [replace(one, label=f"{one.label} {number}") for number in range(5) for one in pairs.parts()]
    slow = [replace(one, time_s=one.time_s * 1.22) for one in others]
    slow.append(Part(EAGER, "aten::sin", 1, 0.05e-3, 0))
    found = compare(host(pairs.run(others=others)), host(pairs.run(others=slow)))
    assert [one.label for one in found.parts if one.verdict == records.SLOWER] == ["aten::sin"], "the only new calls"
    assert found.step.delta_s > 0.1 * found.step.a_s and found.verdict == records.UNDECIDED
    assert found.step.low_s is not None and found.step.low_s < 0
    assert "because the differences of the parts do not explain it" in words(found)


def test_an_edit_of_the_programs_file_is_a_cause_that_old_records_do_not_hold() -> None:
    longer = [replace(one, time_s=6e-3) if one.kind == OPTIMIZER else one for one in pairs.parts()]
    fast, slow = (host(pairs.run(others=others, program_sha256="a" * 64)) for others in (pairs.parts(), longer))
    edited = compare(replace(slow, program_sha256="b" * 64), fast)
    rows = [(row.name, row.a, row.b) for row in edited.environment_differences]
    assert rows == [("the program's file", f"sha256 {'b' * 12}", f"sha256 {'a' * 12}")]
    assert edited.verdict == records.FASTER
    for other in (slow, replace(slow, program_sha256="")):
        found = compare(other, fast)
        assert (found.verdict, found.environment_differences) == (records.UNDECIDED, ())


def test_cuda_is_no_reason_on_a_cpu() -> None:
    newer = change(build.GPU, cuda="13.2")
    found = compare(host(pairs.run()), host(pairs.run(longer=1.2, environment=newer)))
    assert part(found, records.UNCHANGED).detail == "clocks and noise"


def test_a_config_that_a_switch_changes_is_not_only_chance() -> None:
    rows = pairs.changed(GELU, time_s=1.8e-3, config=pairs.OTHER_CONFIG)
    tuned = change(build.GPU, variables={"TORCHINDUCTOR_MAX_AUTOTUNE": "1"})
    found = compare(pairs.run(), pairs.run(rows, environment=tuned))
    assert kernel(found, GELU).detail.endswith("; by TORCHINDUCTOR_MAX_AUTOTUNE, or chance")
    assert "the autotuner's choice, changed by TORCHINDUCTOR_MAX_AUTOTUNE, or by chance." in words(found)


def test_an_unknown_config_and_configs_in_another_order_are_no_other_config() -> None:
    found = compare(pairs.run(), pairs.run(pairs.changed(GELU, config={})))
    assert kernel(found, GELU).cause == records.UNCHANGED
    other = pairs.run(pairs.changed(GELU, config=pairs.OTHER_CONFIG))
    found = compare_runs([pairs.run(), other], [other, pairs.run()])
    assert kernel(found, GELU).cause == records.UNCHANGED


def test_a_kernel_that_one_run_of_a_side_numbers_otherwise_is_one_kernel() -> None:
    renamed = [replace(row, name=row.name.replace("_1", "_5")) for row in pairs.kernels()]
    found = compare_runs([pairs.run(), pairs.run(renamed)], [pairs.run(), pairs.run()])
    assert {change.cause for change in found.kernels} == {records.UNCHANGED} and len(found.kernels) == 4


def test_an_operator_of_whose_calls_some_lack_a_line_is_called_as_often() -> None:
    a, b = pairs.parts(), pairs.parts()
    a = [replace(one, calls=48) if one.label.startswith("other") else one for one in a]
    a.append(Part(EAGER, "aten::to", 1, 0.052e-3, 0, source=steps.line(56)))
    b.append(Part(EAGER, "aten::to", 43, 0.055e-3, 0))
    found = compare(pairs.run(others=a), pairs.run(others=b))
    assert not [one for one in found.parts if one.label == "aten::to"] and "numbers of calls" not in words(found)
    more = [replace(one, calls=one.calls + 42) if one.label == "aten::to" else one for one in a]
    found = compare(pairs.run(others=a), pairs.run(others=more))
    assert part(found, EAGER, "other eager operators").detail == "49 → 91 calls", "which of them, no record says"


def test_an_operator_that_one_run_lists_is_counted_once() -> None:
    listed = [replace(one, calls=5) if one.label.startswith("other") else one for one in pairs.parts()]
    listed.append(Part(EAGER, "aten::arange", 1, 0.014e-3, 0))
    found = compare_runs([pairs.run(), pairs.run(others=listed)], [pairs.run(), pairs.run()])
    others = part(found, EAGER, "other eager operators")
    assert (others.a_calls, others.b_calls) == (6, 6)


def test_idle_time_that_a_host_does_not_show_has_no_labels_and_no_verdict() -> None:
    busy = [one for one in pairs.parts() if one.kind != IDLE]
    found = compare(host(pairs.run(others=busy)), host(pairs.run(others=[*busy, Part(IDLE, "Python", 9, 3e-3, 0)])))
    idle = [one for one in found.parts if one.cause == IDLE]
    assert [one.label for one in idle] == ["unlabelled"]
    assert idle[0].verdict == found.verdict == records.UNDECIDED and idle[0].delta_s == pytest.approx(3e-3)
    waiting = [*busy, Part(IDLE, SYNCHRONISING, 1, 3e-3, 0)]
    found = compare(pairs.run(others=busy), pairs.run(others=waiting))
    assert part(found, IDLE, SYNCHRONISING).verdict == found.verdict == records.SLOWER


def test_a_graph_whose_profile_failed_removes_no_kernels() -> None:
    failed = pairs.each_module(pairs.run(), lambda module: replace(module, kernels=()))
    for found in (compare(pairs.run(), failed), compare_runs([pairs.run()] * 2, [pairs.run(), failed])):
        assert found.kernels == () and part(found, records.GRAPH_REST).delta_s == 0
        assert any(note.startswith("the kernels of forward are known for one side only") for note in found.notes)


def test_tf32_of_a_template_is_named_and_no_noise() -> None:
    def template(time_s: float, kernel_id: str) -> pairs.Rows:
        fields = {"dtype": "float32", "flops": 1e9, "kernel_id": kernel_id}
        return pairs.replaced(MM, pairs.triton("triton_tem_fused_mm_0", time_s, ("mm",), **fields))

    found = compare(pairs.run(template(2e-3, "a" * 16), tf32=True), pairs.run(template(6e-3, "b" * 16)))
    assert kernel(found, "triton_tem_fused_mm_0").cause == records.PRECISION
    found = compare(pairs.run(template(2e-3, "a" * 16), tf32=True), pairs.run(template(6e-3, "a" * 16)))
    assert kernel(found, "triton_tem_fused_mm_0").cause == records.PRECISION and found.verdict == records.SLOWER


def test_fewer_calls_of_slower_ones_take_no_negative_time() -> None:
    rows = pairs.changed(MM, calls=1, time_s=4e-3, config=pairs.OTHER_CONFIG)
    before = pairs.changed(MM, config=pairs.CONFIG)
    found = compare(pairs.run(before), pairs.run(rows))
    assert kernel(found, MM).seconds == pytest.approx({records.CALLS: -1e-3, records.CONFIG: 3e-3})
    assert [part(found, cause).a_s for cause in (records.CALLS, records.CONFIG)] == pytest.approx([1e-3, 1e-3])
    assert all(one.b_s >= 0 for one in found.parts)


def test_a_short_unchanged_kernel_does_not_hide_a_regression() -> None:
    def short(time_s: float, other_s: float) -> pairs.Rows:
        one = pairs.triton("triton_poi_fused_relu_2", time_s, ("relu",))
        return [one, pairs.triton("triton_poi_fused_gelu_1", other_s, ("gelu",), kernel_id=f"{other_s:.16f}"[-16:])]

    found = compare(pairs.run(short(20e-6, 4e-3)), pairs.run(short(26e-6, 5.5e-3)))
    assert found.verdict == records.SLOWER


def test_parts_that_explain_little_are_not_most_of_it() -> None:
    others = [Part(EAGER, f"aten::op{index}", 1, 0.1e-3, 0) for index in range(20)]
    found = compare(pairs.run(others=others), pairs.run(others=[replace(one, time_s=0.2e-3) for one in others]))
    assert "Its largest parts: aten.op" in words(found) and "Most of it" not in words(found)


def test_a_sure_difference_below_the_effect_is_not_called_noise() -> None:
    found = compare(pairs.run(), pairs.run())
    small = replace(found.step, delta_s=0.8e-4, low_s=0.6e-4, high_s=1e-4, verdict=records.UNDECIDED)
    assert write_headline(replace(found, step=small)).startswith("The difference is too small to count: ")


def test_a_busy_machine_makes_the_noise_of_single_runs_larger() -> None:
    waiting = MachineLoad(10, 2, time_s=2.0, cpu_time_s=1.0, waited_s=0.5)
    parts = [replace(one, time_s=one.time_s * 2, calls=one.calls * 2) for one in pairs.parts() if one.kind != IDLE]
    calm, slow = (
        host(pairs.run(others=others)) for others in ([one for one in pairs.parts() if one.kind != IDLE], parts)
    )
    assert compare(calm, slow).verdict == records.SLOWER
    busy = pairs.each_module(slow, lambda module: change(module, wall_load=waiting))
    found = compare(calm, busy)
    assert found.verdict == records.UNDECIDED and found.step.noise == pytest.approx(1 / 3)


def test_figures_that_do_not_count_decide_nothing() -> None:
    calm, load = build.cpu(), MachineLoad(20, 2, 4.1, 0.2, 0.1, 0.12, 0.0, 40)

    def twenty_times(kernel: Kernel) -> Kernel:
        return change(kernel, time_s=20 * kernel.time_s, samples_s=tuple(20 * one for one in kernel.samples_s))

    slow = pairs.each_module(
        calm,
        lambda module: change(
            module,
            wall_time_s=20 * module.times.wall_time_s,
            busy_time_s=20 * (module.times.busy_time_s or 0.0),
            wall_samples_s=tuple(20 * one for one in module.times.wall_samples_s),
            kernels=tuple(map(twenty_times, module.kernels)),
        ),
    )
    found = compare(calm, pairs.each_module(slow, lambda module: change(module, wall_load=load)))
    assert found.verdict == records.UNDECIDED and "a busy machine disturbed one of the runs" in words(found)


@pytest.mark.parametrize("on_host", [False, True])
def test_single_parts_of_equal_programs_differ_by_no_more_than_noise(on_host: bool) -> None:
    spread = 0.07 if on_host else 0.01
    draw = random.Random(3)

    def again() -> Run:
        one = pairs.run(others=[replace(part, time_s=part.time_s * draw.gauss(1, spread)) for part in pairs.parts()])
        return host(one) if on_host else one

    for _ in range(20):
        for runs in (1, 2):
            found = compare_runs([again() for _ in range(runs)], [again() for _ in range(runs)])
            assert found.verdict in (records.UNDECIDED, records.SAME)
            assert not [one for one in found.parts if one.verdict in (records.SLOWER, records.FASTER)]


def test_words_about_code_hold_for_kernels_that_are_gone_and_for_no_equal_ones() -> None:
    found = compare(pairs.run(), pairs.run(pairs.kernels()[:-1]))
    assert "1 removed kernel -0.500 ms" in words(found)
    assert "3 kernels of B have the same code in A, and 1 of A has no counterpart, and no config" in words(found)
    larger = [change(row, kernel_id=f"{index:016x}", operator=None) for index, row in enumerate(pairs.kernels()[1:])]
    found = compare(pairs.run(pairs.kernels()[1:]), pairs.run(larger))
    assert "3 of the 3 kernels of B differ from those in A." in words(found) and list_next_commands(found) == []


def test_a_step_of_no_time_is_an_edited_record() -> None:
    run = pairs.run()
    assert run.program is not None
    found = compare(pairs.run(), replace(run, program=replace(run.program, step_time_s=0.0)))
    assert any("the parts of B's step add up to more than all of it" in note for note in found.notes)


def test_kernels_of_ranks_that_the_step_is_not_of_are_not_counted() -> None:
    def with_rank_1(one: Run) -> Run:
        return replace(one, modules=(*one.modules, replace(one.modules[0], label="rank 1 forward", slug="rank-1")))

    found = compare(with_rank_1(pairs.run()), with_rank_1(pairs.run(longer=1.5)))
    assert len(found.kernels) == 4 and part(found, records.GRAPH_REST).a_s == pytest.approx(50e-6)


def test_short_operators_that_one_side_sums_up_are_not_reliably_new() -> None:
    without = [one for one in pairs.parts() if not one.label.startswith("other")]
    assert part(compare(pairs.run(others=without), pairs.run()), EAGER, "other eager operators").verdict not in (
        records.SLOWER,
        records.FASTER,
    )


def test_an_operator_of_each_run_of_one_side_is_certain_and_that_of_one_run_is_not() -> None:
    def of(time_s: float) -> Run:
        return pairs.run(others=[*pairs.parts(), Part(EAGER, "aten::mul", 1, time_s, 0)])

    found = compare_runs([pairs.run()] * 2, [of(0.05e-3), of(0.1e-3)])
    assert part(found, EAGER, "aten::mul").verdict == records.SLOWER
    found = compare_runs([pairs.run()] * 2, [of(0.1e-3), pairs.run()])
    assert part(found, EAGER, "aten::mul").verdict == records.UNDECIDED


def with_operators(*operators: SummedOperator) -> list[Part]:
    """The other parts of a step, whose record names the operators that it sums up."""
    whole = {"calls": sum(one.calls for one in operators), "time_s": sum(one.time_s for one in operators)}
    return [
        replace(one, **whole, summed=operators) if one.label == "other eager operators" else one
        for one in pairs.parts()
    ]


@pytest.mark.parametrize("is_old", [False, True])
def test_an_operator_that_one_interruption_lifts_over_the_ledgers_limit_is_not_absent_from_the_other_run(
    is_old: bool,
) -> None:
    short = SummedOperator("aten::add", 5, 0.01e-3), SummedOperator("aten::reshape", 2, 0.005e-3)
    calm = with_operators(*short)
    hit = [*with_operators(short[0]), Part(EAGER, "aten::reshape", 2, 0.83e-3, 0)]
    first, second = (host(pairs.run(others=parts)) for parts in (hit, calm))
    if is_old:
        first, second = without_operators(first), without_operators(second)
    for found in (compare(first, second), compare(second, first), compare_runs([first] * 2, [second] * 2)):
        assert "reshape" not in words(found) and "calls" not in words(found)
        assert not {one.verdict for one in found.parts} & {records.SLOWER, records.FASTER}
    if not is_old:
        assert (part(found, EAGER, "aten::reshape").a_calls, part(found, EAGER, "aten::reshape").b_calls) == (2, 2)


def without_operators(one: Run) -> Run:
    """The record as an older version wrote it."""
    assert one.program is not None
    return replace(
        one, program=replace(one.program, parts=tuple(replace(part, summed=()) for part in one.program.parts))
    )


@pytest.mark.parametrize("on_host", [False, True])
def test_an_operator_that_one_program_does_not_call_is_absent_however_short_it_is(on_host: bool) -> None:
    add = SummedOperator("aten::add", 5, 0.01e-3)
    with_sine = with_operators(add, SummedOperator("aten::sin", 2, 0.005e-3))
    runs = [pairs.run(others=parts) for parts in (with_operators(add), with_sine)]
    found = compare(*(map(host, runs) if on_host else runs))
    sine = part(found, EAGER, "aten::sin")
    assert (sine.a_calls, sine.b_calls, sine.detail) == (0, 2, "0 → 2 calls")
    assert sine.verdict == records.SAME, "its time is less than what counts"


def test_calls_that_only_some_of_the_profiled_steps_make_are_no_difference() -> None:
    """The program reads its loss in every tenth step: of few profiled steps one may be among these, or none."""
    read = Part(EAGER, "aten::_local_scalar_dense", 1 / 3, 0.4e-3, 0)
    found = compare(pairs.run(), pairs.run(others=[*pairs.parts(), read]))
    assert part(found, EAGER, read.label).verdict == records.UNDECIDED
    found = compare(pairs.run(), pairs.run(others=[*pairs.parts(), replace(read, calls=1)]))
    assert part(found, EAGER, read.label).verdict == records.SLOWER, "each of the profiled steps makes it"
    one_step = [profiled(run, 1) for run in (pairs.run(), pairs.run(others=[*pairs.parts(), replace(read, calls=1)]))]
    assert part(compare(*one_step), EAGER, read.label).verdict == records.UNDECIDED, "one step says nothing of others"
    rows = [*pairs.kernels(), change(pairs.triton("triton_poi_fused_cos_3", 0.7e-3, ("cos",)), calls=0.5)]
    assert part(compare(pairs.run(), pairs.run(rows)), records.ADDED).verdict == records.UNDECIDED


def profiled(one: Run, count: int) -> Run:
    """The run as one that profiled so many steps."""
    assert one.program is not None
    ranks = tuple(replace(rank, profiled_steps=count) for rank in one.program.ranks)
    return replace(one, program=replace(one.program, ranks=ranks))


@pytest.mark.parametrize("runs", [1, 2, 3])
def test_a_program_that_other_programs_slow_down_on_a_cpu_is_not_slower(runs: int) -> None:
    """Everything but the kernels takes three times as long in each run of B; no code and no number of calls differs."""

    def beside(factor: float) -> Run:
        return host(pairs.run(others=[replace(one, time_s=one.time_s * factor) for one in pairs.parts()]))

    found = compare_runs([beside(1 + number / 1000) for number in range(runs)], [beside(3.0) for _ in range(runs)])
    assert found.verdict == records.UNDECIDED and "the records show no other difference" in words(found)
    assert not {one.verdict for one in (*found.parts, *found.kernels)} & {records.SLOWER, records.FASTER}
    purpose = [EnvironmentDifference("X", "", "1")]
    several = compare_runs([beside(1)] * 3, [beside(3.0)] * 3, changed=purpose)
    assert several.verdict == records.SLOWER, "runs in turn measure what was changed on purpose"


def test_a_limit_that_the_interval_reaches_above_is_not_passed() -> None:
    limit = 0.02
    words = write_headline(compare(pairs.run(), pairs.run(longer=1.01)), limit)
    assert "Limit of 2%: undecided, because the interval, " in words and words.endswith(" includes the limit."), words
    found = compare(pairs.run(), pairs.run())
    sure = replace(
        found, step=replace(found.step, low_s=-1e-5, high_s=1e-5, verdict=records.SAME), verdict=records.SAME
    )
    assert "as long as A, within 1%" in write_headline(sure)
    assert write_headline(sure, limit).endswith(
        "Limit of 2%: passed, because the whole interval, -0.2% to +0.2%, is at most the limit."
    )
    assert write_headline(sure, 0.005).endswith(
        "Limit of 0.5%: undecided, because a difference of less than 1.0% does not count."
    )


def test_a_limit_says_that_nothing_is_decided_if_the_interval_alone_would_pass() -> None:
    said = describe_limit(Slowdown(-0.11, -0.04, 0.002), 0.0)
    assert said == "Limit of 0%: undecided, because nothing is decided about the difference, -11.0% to -4.0%"


def test_configs_that_one_side_does_not_know_are_not_said_to_be_equal() -> None:
    found = compare(pairs.run(pairs.changed(GELU, config={})), pairs.run())
    assert "and no known config differs." in words(found)
