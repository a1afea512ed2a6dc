"""Findings about groups of kernels speak on their evidence, and keep quiet without it."""

from __future__ import annotations

import re
from dataclasses import replace

import h200
import kernel_groups as groups
import pytest
import run_builder as build
import step_runs
import tried_programs as tried
from finding_examples import PAGEABLE
from inline import change
from quiet_runs import with_kernel

from inductor_bench.analysis.findings.finding import ADVICE, NOTE, Finding
from inductor_bench.analysis.findings.first_line import _describe_program_savings
from inductor_bench.analysis.findings.next_commands import find_searched_rows, write_trial_command
from inductor_bench.analysis.findings.precision_findings import list_products_to_time
from inductor_bench.analysis.findings.rule_table import list_findings
from inductor_bench.records.base import Category
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.request_fields import COMMAND
from inductor_bench.records.run import COPYING, EAGER, IDLE, Part, Prediction, Run
from inductor_bench.records.traced import OperatorCall, TensorArguments

ALIGN2 = "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x64_64x3_nn_align2"


def of(run: Run, kind: str) -> list[Finding]:
    return [finding for finding in list_findings(run) if finding.kind == kind]


def kinds(run: Run) -> set[str]:
    return {finding.kind for finding in list_findings(run)}


def test_unaligned_products_have_the_size_the_next_one_and_what_aligned_ones_reach() -> None:
    (found,) = of(groups.unaligned(), "unaligned-products")
    assert "1 matrix product with a size that is no multiple of 8 (2730) takes" in found.text
    assert (
        "at 35% of the peak; aligned matrix products of this run reach 88%: in the model change 2730 to 2736"
        in found.text
    )
    slow = groups.product(8192, 2730, 1024, 0.35)
    assert found.gain_s == pytest.approx(slow.time_s * (1 - 0.35 / 0.88))
    assert len(found.kernels) == 1 and "2730" in found.kernels[0].name


def test_an_unaligned_product_that_is_as_fast_as_the_others_is_not_blamed() -> None:
    assert not of(groups.unaligned(share=0.8), "unaligned-products")
    assert of(groups.unaligned(share=0.8, name=ALIGN2), "unaligned-products"), "its kernel reads 2 elements at once"
    aligned = groups.run_with(groups.product(8192, 2736, 1024, 0.35), groups.product(8192, 1024, 3072, 0.88))
    assert not of(aligned, "unaligned-products"), "slow for another reason"
    alone = groups.run_with(groups.product(8192, 2730, 1024, 0.35))
    assert not of(alone, "unaligned-products"), "nothing to compare it with"


def test_the_element_decides_what_is_aligned() -> None:
    """Sixteen bytes are 4 elements of float32 and 8 of bfloat16."""
    rows = groups.product(8192, 2732, 1024, 0.35, dtype="tf32"), groups.product(8192, 1024, 3072, 0.88, dtype="tf32")
    assert not of(groups.run_with(*rows), "unaligned-products")
    odd = groups.product(8192, 2730, 1024, 0.35, dtype="tf32")
    (found,) = of(groups.run_with(odd, rows[1]), "unaligned-products")
    assert "no multiple of 4 (2730)" in found.text and "change 2730 to 2732" in found.text


def test_a_small_batch_is_advice_in_training_and_a_note_in_inference() -> None:
    (found,) = of(groups.small_batch(), "small-products")
    assert found.level == ADVICE and "with at most 4 rows" in found.text and "about 170 rows" in found.text
    (inference,) = of(groups.small_batch(label="inference"), "small-products")
    assert inference.level == NOTE and not inference.gain_s
    assert inference.level == NOTE and not inference.gain_s
    often = groups.small_batch(label="inference")
    assert often.program is not None
    parts = tuple(replace(part, calls=16.0) for part in often.program.parts)
    (one_by_one,) = of(replace(often, program=replace(often.program, parts=parts)), "small-products")
    assert one_by_one.level == ADVICE, "sixteen requests, one after the other"
    assert not of(groups.small_batch(rows=64), "small-products")


def test_float32_work_beside_half_precision_has_its_line() -> None:
    (found,) = of(groups.float32_loss(), "float32-island")
    assert "float32 work in a model of bfloat16 takes 0.200 ms" in found.text
    assert "aten.cross_entropy_loss" in found.text and "project/train.py:41" in found.text
    assert not of(groups.float32_loss(dtype="bfloat16"), "float32-island")
    assert not of(groups.float32_loss(dtype=""), "float32-island"), "an older record"
    loss = Part(EAGER, "aten::mse_loss", 1, 1e-3, 0, dtype="float32")
    model = groups.run_with(groups.product(8192, 4096, 4096, 0.8, dtype="tf32"), parts=(loss,))
    assert not of(model, "float32-island"), "all of the model is in float32"
    gathered = replace(loss, label="AccumulateGrad")
    assert not of(groups.run_with(groups.product(4096, 4096, 4096, 0.8), parts=(gathered,)), "float32-island")


def test_products_in_tf32_are_an_island_too() -> None:
    half = [groups.product(8192, 4096, 4096 + 64 * n, 0.8) for n in range(3)]
    (found,) = of(groups.run_with(*half, groups.product(4096, 1024, 4096, 0.3, dtype="tf32")), "float32-island")
    assert ": products " in found.text and len(found.kernels) == 1


def test_slow_attention_has_its_backend_head_size_and_mask() -> None:
    (found,) = of(groups.slow_attention(), "attention-below-limit")
    assert (
        "attention by cuDNN takes" in found.text and "at 17% of its roof, with heads of 16: try another" in found.text
    )
    assert found.text.endswith("or fewer heads of 64 or more")
    masked = "bf16[2,8,4096,64] bf16[2,8,4096,64] bf16[2,8,4096,64] bf16[2,1,4096,4096]"
    (found,) = of(groups.slow_attention(shapes=masked), "attention-below-limit")
    assert "with heads of 64 and a mask of [2, 1, 4096, 4096]" in found.text
    assert found.text.endswith("or is_causal=True if the mask is causal")
    (found,) = of(groups.slow_attention(shapes=masked.replace("2,1,4096,4096", "4096,4096")), "attention-below-limit")
    assert "a mask of [4096, 4096]" in found.text
    assert not of(groups.slow_attention(share=0.6), "attention-below-limit")
    usual = masked.rpartition(" ")[0]
    found_at = {share: bool(of(groups.slow_attention(share, usual), "attention-below-limit")) for share in (0.17, 0.05)}
    assert found_at == {0.17: False, 0.05: True}, "nothing but few queries slows it"
    assert not of(groups.slow_attention(), "library-below-limit"), "one finding says it"


def test_attention_of_several_kernels_is_one_finding() -> None:
    (found,) = of(groups.decomposed(), "decomposed-attention")
    assert "attention at project/attention.py:31 is computed as matrix products, a softmax" in found.text
    assert "3 launches" in found.text and "its matrix products in tf32" in found.text
    assert "scaled_dot_product_attention does it in one kernel" in found.text
    assert len(found.kernels) == 3, "the projection is no part of it"
    (torch,) = of(groups.decomposed(code="F.scaled_dot_product_attention(q, k, v)"), "decomposed-attention")
    assert "no fused kernel of scaled_dot_product_attention took its arguments" in torch.text
    assert not of(groups.decomposed(), "float32-island"), "the same kernels"


def test_attention_with_dropout_is_advice_on_a_gpu_only() -> None:
    run = groups.decomposed("weights = self.drop(scores.softmax(-1))", "aten.native_dropout")
    (found,) = of(run, "decomposed-attention")
    assert found.level == ADVICE and "does it in one kernel" in found.text
    on_cpu = replace(run, modules=tuple(replace(module, device="cpu") for module in run.modules))
    (found,) = of(on_cpu, "decomposed-attention")
    assert found.level == NOTE and not found.gain_s and found.text.endswith("attention with dropout on a CPU")
    plain = groups.decomposed()
    plain = replace(plain, modules=tuple(replace(module, device="cpu") for module in plain.modules))
    (found,) = of(plain, "decomposed-attention")
    assert found.level == ADVICE


def test_a_softmax_or_batched_products_alone_are_no_attention() -> None:
    classifier = groups.run_with(groups.softmax(), groups.product(4096, 768, 3072, 0.8))
    batched = groups.product(512, 64, 512, 0.4, batch=96), groups.product(512, 512, 64, 0.4, batch=96)
    experts = groups.product(512, 64, 128, 0.4, batch=8), groups.product(512, 128, 64, 0.4, batch=8)
    for run in (classifier, groups.run_with(*batched)):
        assert not of(run, "decomposed-attention")
    router = replace(groups.softmax(), work=replace(groups.softmax().work, moved_bytes=8 * 4096 * 4.0))
    assert not of(groups.run_with(router, *experts), "decomposed-attention"), "a router chooses among experts"


def test_attention_of_albert_is_found_in_its_record_of_an_h200() -> None:
    """24 products in float32 and 12 softmaxes: a third of the time, and no kernel of it is called attention."""
    (found,) = of(h200.run_of("albert_bf16"), "decomposed-attention")
    assert "36 launches, 15.7 ms (33.4%), its matrix products in float32" in found.text
    assert "integrations/sdpa_attention.py" in found.text and len(found.kernels) == 2


def test_copies_from_pageable_memory_have_their_line() -> None:
    program = step_runs.program([PAGEABLE], step_s=10e-3)
    run = replace(build.run("p", [], peaks=build.H200), program=program)
    (found,) = of(run, "pageable-copies")
    assert found.gain_s == pytest.approx(1.5e-3)
    assert found.text.startswith("copies to the device from pageable memory take 1.50 ms (15.0%) (project/train.py:30)")
    for other in (replace(PAGEABLE, pageable_s=0.0), replace(PAGEABLE, label="device to host")):
        quiet = replace(run, program=step_runs.program([other], step_s=10e-3))
        assert not of(quiet, "pageable-copies")


def test_the_wait_for_copies_from_pageable_memory_counts_too() -> None:
    waits = Part(IDLE, COPYING, 1, 0.5e-3, 0, source=step_runs.line(30), function="batch.to")
    program = step_runs.program([PAGEABLE, waits], step_s=10e-3)
    (found,) = of(replace(build.run("p", [], peaks=build.H200), program=program), "pageable-copies")
    assert found.gain_s == pytest.approx(2.0e-3)
    assert "and make the host wait, and keep the device idle for 0.500 ms (5.0%) of a step" in found.text


def test_a_copy_in_a_graph_is_told_once() -> None:
    pageable = with_kernel(category=Category.COPY, name="Memcpy HtoD (Pageable -> Device)")
    assert kinds(pageable) >= {"pageable-copies"} and "host-copies" not in kinds(pageable)
    pinned = with_kernel(category=Category.COPY, name="Memcpy HtoD (Pinned -> Device)")
    assert kinds(pinned) >= {"host-copies"} and "pageable-copies" not in kinds(pinned)


def on_processor(rates: dict[str, float] | None = None, **fields: object) -> Run:
    """A step of 5.90 ms on a CPU with products that take 0.8 ms; ``fields`` are those of their kernel."""
    run = build.cpu()
    forward = run.modules[0]
    kernels = [change(one, **fields) if one.name == "addmm" else one for one in forward.kernels]
    peaks = replace(run.peaks, matmul_flops=rates or {"float32": 410e9, "bfloat16": 1640e9}) if run.peaks else None
    return replace(run, modules=(replace(forward, kernels=tuple(kernels)), *run.modules[1:]), peaks=peaks)


def test_float32_products_of_a_processor_that_is_faster_in_bfloat16() -> None:
    (found,) = of(on_processor(bfloat16_ratio=0.4), "full-float32")
    assert "this processor, products of their shapes took 0.40 times as long in bfloat16" in found.text
    assert "saves about 0.480 ms" in found.text and "7 bits of mantissa" in found.text
    assert "ttention" not in found.text
    assert [(one.kind, one.setting, one.value) for one in found.changes] == [
        ("setting", "torch.set_float32_matmul_precision", "'medium'")
    ]
    assert [place.name for place in found.kernels] == ["addmm"]
    assert found.gain_s == pytest.approx(0.6 * 0.8e-3)


def test_the_first_line_names_what_bfloat16_saves_and_its_products_are_not_told_of_twice() -> None:
    timed = on_processor(bfloat16_ratio=0.4)
    assert _describe_program_savings(timed) == "Could save: products in bfloat16 4.1% (timed)"
    generated = [
        change(one, gain_limit_s=0.1e-3) if one.category is Category.CPP else one for one in timed.modules[0].kernels
    ]
    both = replace(timed, modules=(replace(timed.modules[0], kernels=tuple(generated)), *timed.modules[1:]))
    assert re.search(r"bfloat16 4.1% \(timed\), .* [\d.]+% \(upper bound\)$", _describe_program_savings(both))
    assert not _describe_program_savings(on_processor())
    slow = {"time_s": 4e-3, "peak_share": 0.1, "bound": "compute"}
    faster = on_processor(bfloat16_ratio=0.4, **slow)
    assert of(faster, "full-float32") and not of(faster, "library-below-limit")
    assert of(on_processor(bfloat16_ratio=0.9, **slow), "library-below-limit")


def test_calls_are_timed_in_bfloat16_only_if_that_could_be_advised() -> None:
    def call(name: str, kind: str = "float") -> OperatorCall:
        return OperatorCall(name, TensorArguments(((8, 8),), ((8, 1),), (kind,), ("",)), "cpu")

    mm, addmm, attention = call("aten::mm"), call("aten::addmm"), call("aten::_flash_attention_for_cpu")
    run = on_processor()
    slug = run.modules[0].slug
    own = {slug: [mm, call("aten::mm", "c10::BFloat16"), call("aten::sort")]}
    assert list_products_to_time(run, own, {}) == [mm]
    in_step = {slug: {mm: 1e-4, addmm: 2e-4, attention: 1e-5}}
    assert list_products_to_time(run, own, in_step) == [attention, addmm, mm], "the shapes of the step count"
    assert not list_products_to_time(on_processor({"float32": 410e9}), own, in_step)
    assert not list_products_to_time(on_processor(time_s=0.1e-3), own, in_step)


def test_the_first_line_on_a_cpu_names_an_optimizer_and_data_that_could_save_more_than_kernels() -> None:
    run = step_runs.cpu()
    assert run.program is not None
    step_s = run.program.step_time_s
    saved = {"eager-optimizer": 0.2, "data-loading": 0.1, "synchronisations": 0.3, "eager-operators": 0.02}
    predicted = tuple(Prediction(f"{kind}:1", kind, share * step_s, 0.0) for kind, share in saved.items())
    said = _describe_program_savings(replace(run, program=replace(run.program, predictions=predicted)))
    assert said.startswith("Could save: a fused or compiled optimizer 20.0%, data loaded beside the step 10.0%")
    assert said.endswith(" (upper bounds)") and said.count("%") == 3 and "waiting" not in said


def test_bfloat16_is_tried_by_a_search_that_is_allowed_to() -> None:
    run = on_processor(bfloat16_ratio=0.4)
    run = replace(run, request=replace(run.request, kind=COMMAND))
    (found,) = of(run, "full-float32")
    allowed = "inductor-bench optimize runs/serve --allow bf16"
    assert write_trial_command(run, found, "runs/serve") == allowed
    groups = [replace(tried.menu_row(slug), group=slug) for slug in ("tf32", "bf16")]
    rows = (groups[0], replace(groups[1], reason="--allow bf16 tries it"))
    search = replace(tried.optimization(tried.two_winners()), rows=rows)
    assert find_searched_rows(found, search) == rows[1:]
    assert write_trial_command(run, found, "runs/serve", search=search) == allowed
    late = replace(search, rows=(replace(rows[1], reason="no time; give a longer --budget"),))
    assert write_trial_command(run, found, "runs/serve", search=late).startswith(f"{allowed} --budget ")
    done = replace(search, rows=(replace(rows[1], reason="it is no faster"),))
    assert write_trial_command(run, found, "runs/serve", search=done) == ""


@pytest.mark.parametrize(
    ("rates", "fields"),
    [
        ({"float32": 410e9}, {}),
        ({"float32": 410e9, "bfloat16": 800e9}, {}),
        (None, {"dtype": "bfloat16"}),
        (None, {"bfloat16_ratio": None}),
        (None, {"bfloat16_ratio": 0.85}),
        (None, {"category": Category.EXTERN_CONV}),
        (None, {"category": Category.CPP}),
        (None, {"time_s": 0.1e-3}),
    ],
)
def test_float32_products_that_bfloat16_makes_no_faster(
    rates: dict[str, float] | None, fields: dict[str, object]
) -> None:
    """No native bfloat16, too little of it, autocast, no times, hardly faster, a convolution, C++, little time."""
    assert not of(on_processor(rates, **{"bfloat16_ratio": 0.4, **fields}), "full-float32")


def test_attention_in_bfloat16_counts_beside_the_products_if_these_are_faster() -> None:
    def beside(ratio: float, products: float = 0.4) -> Run:
        run = on_processor(bfloat16_ratio=products)
        flash = build.kernel("flash", Category.EXTERN_ATTENTION, 2, 0.1e-3, dtype="float32", flops=1e8)
        kernels = (*run.modules[0].kernels, replace(flash, bfloat16_ratio=ratio))
        return replace(run, modules=(replace(run.modules[0], kernels=kernels), *run.modules[1:]))

    (found,) = of(beside(2.0), "full-float32")
    assert "Fused attention is then in bfloat16, too, and takes 0.100 ms" in found.text
    assert [place.name for place in found.kernels] == ["addmm"] and found.gain_s == pytest.approx(0.38e-3)
    assert not of(beside(5.0), "full-float32")
    (found,) = of(beside(0.5), "full-float32")
    assert "is then in bfloat16, too, and takes 50.0 µs (0.4%) less: the saving includes this" in found.text
    assert [place.name for place in found.kernels] == ["addmm", "flash"] and found.gain_s == pytest.approx(0.53e-3)
    assert not of(beside(1e-3, products=1.0), "full-float32") and not of(beside(1e-3, products=1.05), "full-float32")


def test_a_busy_machine_after_the_steps_names_the_advice_that_is_left_out_for_it() -> None:
    run, load = step_runs.cpu(), MachineLoad(60, 2, 4.1, 0.5, cpu_time_s=0.4, waited_s=0.6, switches=312)
    assert run.peaks is not None
    run = replace(run, peaks=replace(run.peaks, matmul_flops={"float32": 410e9, "bfloat16": 1640e9}))
    first = run.modules[0]
    timed = tuple(replace(one, bfloat16_ratio=0.4) if one.name == "addmm" else one for one in first.kernels)
    run = replace(run, modules=(replace(first, kernels=timed), *run.modules[1:]))
    busy = replace(run, modules=tuple(change(module, wall_load=load) for module in run.modules))
    assert of(run, "full-float32") and not of(busy, "full-float32") and not of(run, "busy-step")
    (told,) = of(busy, "busy-step")
    assert "left out (full-float32). Measure again" in told.text
