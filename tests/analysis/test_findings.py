"""What a record says in words: each rule speaks on its evidence, and is silent without it."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import h200
import pytest
import run_builder as build
import step_runs
from inline import change, make
from quiet_runs import quiet, run_of, with_kernel
from recorded_runs import recorded_runs

from inductor_bench import units
from inductor_bench.analysis.findings.finding import SHARED, Finding, Rule, RunEvidence, shorten_paths
from inductor_bench.analysis.findings.first_line import write_first_line
from inductor_bench.analysis.findings.next_commands import next_commands
from inductor_bench.analysis.findings.rule_table import RULES, list_findings
from inductor_bench.analysis.statistics import summarize
from inductor_bench.cli import breakdown, modes
from inductor_bench.records.base import Category, Failure
from inductor_bench.records.code import SourceLine
from inductor_bench.records.module import Kernel, ModuleRecord, ShapeGroup
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.records.retune import FASTER, Config, MeasuredKernel, Retune, Tuning
from inductor_bench.records.run import EAGER, Capture, Part, Run


def kinds(run: Run) -> list[str]:
    return [finding.kind for finding in list_findings(run)]


def the(run: Run, kind: str) -> Finding:
    found = [finding for finding in list_findings(run) if finding.kind == kind]
    assert len(found) == 1, f"{kind}: {found}"
    return found[0]


def test_a_healthy_run_has_nothing_but_good_news() -> None:
    assert kinds(run_of(quiet())) == ["fine"]
    assert the(run_of(quiet()), "fine").text == "no significant launch gaps, no graph breaks, no recompilations"


def test_a_trace_that_does_not_hold_all_modules_shows_no_absence_of_graph_breaks() -> None:
    run = run_of(quiet())
    partial = replace(run, capture=replace(run.capture, disagreement="2 printed, 1 in the structured trace"))
    assert the(partial, "fine").text == "no significant launch gaps"


def test_an_empty_run_has_no_findings() -> None:
    assert list_findings(build.empty()) == ()


def test_launch_bound_names_the_busy_share_the_launches_and_the_cuda_graph() -> None:
    found = the(build.densenet(), "launch-bound")
    assert found.text.startswith("inference is launch-bound: the GPU works 33% of 4.10 ms in 240 launches; ")
    assert "as one CUDA graph 1.40 ms (2.9x): try mode='reduce-overhead'" in found.text
    assert found.modules == ("inference",) and found.gain_s == pytest.approx(2.7e-3)


def test_a_launch_bound_graph_gets_no_advice_about_faster_kernels() -> None:
    run = build.densenet()
    assert "library-below-limit" not in kinds(run)
    busier = change(run.modules[0], busy_share=0.95)
    assert "library-below-limit" in kinds(replace(run, modules=(busier,)))


def test_a_cuda_graph_that_takes_as_long_is_not_recommended() -> None:
    module = change(build.densenet().modules[0], graph_time_s=4.05e-3)
    text = the(run_of(module), "launch-bound").text
    assert "reduce-overhead" not in text and "larger batch" in text


def test_a_program_that_uses_cuda_graphs_is_not_told_to() -> None:
    run = replace(build.densenet(), request=BreakdownRequest("x", "timm", mode="reduce-overhead"))
    assert "; the program replays CUDA graphs (mode='reduce-overhead')" in the(run, "launch-bound").text


def test_a_graph_that_is_compiled_for_cuda_graphs_is_not_launch_bound() -> None:
    run = run_of(change(build.densenet().modules[0], cuda_graphs=True, graph_time_s=1e-3))
    assert not {"launch-bound", "cuda-graph", "gaps"} & set(kinds(run))
    first = write_first_line(run)
    assert first is not None and "timed without the CUDA graphs that the program asks for" in first.text
    assert "reduce-overhead" not in " ".join(finding.text for finding in list_findings(run))


def test_many_launch_bound_graphs_share_a_sentence() -> None:
    one = build.densenet().modules[0]
    many = [change(one, label=f"forward-{i}", slug=f"f{i}", wall_time_s=(i + 1) * 1e-3) for i in range(5)]
    found = the(run_of(*many), "launch-bound")
    assert found.text.startswith(
        "all 5 graphs are launch-bound: the GPU works 33% of 5.00 ms (forward-4), 33% of 4.00 ms"
    )
    assert "(forward-3) and 3 more; as one CUDA graph 1.40 ms instead of 5.00 ms (forward-4) and 3 more:" in found.text
    assert len(found.modules) == 5
    text = the(run_of(*many, quiet()), "launch-bound").text
    assert text.startswith("5 of 6 graphs are launch-bound")
    assert the(run_of(*many[:2]), "launch-bound").text.startswith("forward-1 and forward-0 are launch-bound")


def test_graphs_weigh_what_the_program_called_them() -> None:
    rare, often = (
        replace(build.densenet().modules[0], label=x, slug=x, program_calls=n) for x, n in (("a", 1), ("b", 9))
    )
    found = the(run_of(rare, often, quiet()), "launch-bound")
    assert found.text.startswith("b and a are launch-bound") and found.gain_s == pytest.approx(10 * 2.7e-3)


def test_a_busy_graph_that_a_cuda_graph_makes_faster() -> None:
    found = the(run_of(quiet(graph_time_s=4.8e-3)), "cuda-graph")
    assert found.text == (
        "as one CUDA graph 4.80 ms instead of 5.10 ms (forward), 0.300 ms less (5.9%): try mode='reduce-overhead'"
    )
    assert "fine" in kinds(run_of(quiet(graph_time_s=4.8e-3)))
    assert "no launch gaps" not in the(run_of(quiet(graph_time_s=4.8e-3)), "fine").text


def test_long_waits_are_not_called_launch_overhead() -> None:
    module = quiet(busy_share=0.2, launches=5.0)
    assert "synchronisation" in the(run_of(module), "host-bound").text


def test_smaller_gaps_are_said_with_their_number() -> None:
    text = the(run_of(quiet(busy_share=0.8)), "gaps").text
    assert "idle for 20% of 5.10 ms: 148 gaps, the longest 52.0 µs" in text
    assert "fine" in kinds(run_of(quiet(busy_share=0.8))) and "no launch gaps" not in str(
        list_findings(run_of(quiet(busy_share=0.8)))
    )


def test_a_cpu_graph_is_judged_by_its_host_share() -> None:
    found = the(build.cpu(), "host-share")
    assert found.modules == ("forward",)
    assert "31% of 5.90 ms" in found.text


def test_one_thread_of_many() -> None:
    module = replace(build.cpu().modules[1], threads=1)
    assert "1 thread of 16 CPUs" in the(run_of(module, environment=build.GPU), "threads").text


def test_graph_breaks_and_recompilations_come_from_the_capture() -> None:
    assert the(build.cpu(), "graph-breaks").text == "1 graph break: step.py:31: print"
    assert "mark_dynamic" in the(build.cpu(), "recompiles").text
    assert "print" in the(run_of(quiet(), capture=Capture(1, 2, "1 printed, 2 in the trace")), "capture").text


TORCH = "/opt/venv/lib/python3.12/site-packages/torch/optim/optimizer.py:80: "


@pytest.mark.parametrize(
    ("capture", "kind", "text"),
    [
        (
            {
                "graph_breaks": (
                    TORCH + "Call to `torch._dynamo.graph_break()`: User-inserted graph break. Message: None",
                )
            },
            "graph-breaks",
            "1 graph break, in torch's code: optim/optimizer.py:80: "
            "Call to `torch._dynamo.graph_break()` (User-inserted graph break)",
        ),
        (
            {"recompiles": ("/tmp/exp/m.py:7 forward: 0/0: GLOBAL_STATE changed: grad_mode",)},
            "recompiles",
            "1 recompilation: exp/m.py:7 forward: gradients are recorded in one call and not in the other",
        ),
        (
            {"recompiles": ("/a/b/c.py:3 f: tensor 'x' size mismatch at index 0. expected 8, actual 16",) * 3},
            "recompiles",
            "3 recompilations: b/c.py:3 f: x has 16 rows instead of the compiled 8 (3 times); dynamic=True or "
            "torch._dynamo.mark_dynamic compiles once for all sizes",
        ),
        (
            {"recompiles": ("/a/b/c.py:67 inner: tensor 'fn._modules['0']._parameters['bias']' size mismatch",)},
            "recompiles",
            "the same code was compiled for 1 more object: b/c.py:67 inner: tensor 'fn.0.bias' size mismatch. "
            "These do not count as recompilations",
        ),
    ],
)
def test_what_dynamo_says_is_shortened(capture: dict[str, tuple[str, ...]], kind: str, text: str) -> None:
    run = run_of(quiet(), capture=Capture(1, 1, **capture))  # type: ignore[arg-type]
    assert the(run, kind).text == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("# transformers/models/bert/modeling_bert.py:12", "# bert/modeling_bert.py:12"),
        ("(/a/b/c.py:3, '/d/e/f.py:4')", "(b/c.py:3, 'e/f.py:4')"),
        ("x=/tmp/(a)/b/c.py:3", "x=b/c.py:3"),
        ("http://host/a/b:3 and file:///a/b/c.py:3", "http://host/a/b:3 and file:///a/b/c.py:3"),
    ],
)
def test_a_path_is_shortened_from_its_own_beginning(text: str, shown: str) -> None:
    assert shorten_paths(text) == shown


def test_paths_keep_their_last_two_parts() -> None:
    assert shorten_paths("at /a/b/c.py:3 and d.py:4, /e.py:5") == "at b/c.py:3 and d.py:4, /e.py:5"


def test_generated_kernels_far_below_the_memory_limit_with_their_gain() -> None:
    run = build.mixnet()
    found = the(run, "below-memory-limit")
    kernels = {(m.slug, k.name): k for m in run.modules for k in m.kernels}
    slow = [kernels[place] for place in found.kernels]
    assert {place.slug for place in found.kernels} == set(found.modules) == {"forward", "backward"}
    assert all(k.roof.peak_share is not None and k.roof.peak_share < 0.7 and k.name.startswith("triton") for k in slow)
    gains = [kernel.roof.gain_limit_s or 0.0 for kernel in slow]
    assert gains == sorted(gains, reverse=True) and found.gain_s == pytest.approx(sum(gains))
    assert f"{len(slow)} generated kernels reach less than 70% of the DRAM bandwidth" in found.text
    assert f"({sum(gains) / 61.625e-3:.1%}) less, an upper bound; mode='max-autotune" in found.text
    asked = replace(run, request=replace(run.request, mode="max-autotune-no-cudagraphs"))
    found_in = replace(run, modules=tuple(replace(module, max_autotune=True) for module in run.modules))
    for tuned in (asked, found_in):
        text = the(tuned, "below-memory-limit").text
        assert "mode=" not in text and text.endswith(
            "max-autotune chose their configs, and --autotune coordesc tries more"
        )
        assert all("max-autotune'" not in each.text for each in list_findings(tuned)), "no advice to do what is done"


def test_what_a_cut_off_leaves_out_is_counted_with_what_it_could_save() -> None:
    run = recorded_runs()["bert"]
    found = the(run, "below-memory-limit")
    rows = [row for row in RunEvidence(run).rows if row.kernel.name.startswith("triton")]
    far = [row for row in rows if row.kernel.roof.bound == "memory" and (row.kernel.roof.peak_share or 1.0) < 0.7]
    gains = [row.cost.gain_limit_s or 0.0 for row in far if row.place not in found.kernels]
    whole_s = run.program.step_time_s if run.program else 0.0
    assert len(found.kernels) == len(far) - 8 and len(gains) == 8 and max(gains) < 0.0005 * whole_s
    assert found.text.endswith(
        "tunes them. 8 more kernels are left out, because each could save less than 0.05% of a step: "
        f"{units.seconds(sum(gains))} ({sum(gains) / whole_s:.1%}) together"
    )


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("below-compute-limit", {"bound": "compute", "peak_share": 0.4, "gain_limit_s": 0.6e-3}),
        ("library-below-limit", {"category": Category.EXTERN_GEMM, "bound": "compute", "peak_share": 0.1}),
    ],
)
def test_one_kernel_that_a_cut_off_leaves_out_is_told(kind: str, fields: dict[str, object]) -> None:
    run = with_kernel(**{"gain_limit_s": 0.6e-3, **fields})
    assert "eft out" not in the(run, kind).text
    (module,) = run.modules
    small = change(module.kernels[-1], name="small", gain_limit_s=1e-7)
    both = replace(run, modules=(replace(module, kernels=(*module.kernels, small)),))
    text = the(both, kind).text
    assert text.endswith(". 1 more kernel is left out, because it could save less than 0.05% of the whole time")
    assert [place.name for place in the(both, kind).kernels] == [module.kernels[-1].name]


def test_library_kernels_are_spoken_of_apart_and_nothing_is_promised() -> None:
    fields = {"category": Category.EXTERN_CONV, "bound": "cache", "peak_share": 0.01, "gain_limit_s": 0.99e-3}
    found = the(with_kernel(**fields), "library-below-limit")
    assert found.text == (
        "library convolutions take 1.00 ms (16.4%) in 1 kernel at 1% of its roof; Inductor does not tune them: try "
        "torch.backends.cudnn.benchmark=True, channels_last or mode='max-autotune'"
    )
    tuned = with_kernel(**fields)
    (module,) = tuned.modules
    other = replace(quiet(), slug="other")
    tuned = replace(tuned, modules=(replace(module, max_autotune=True), other))
    text = the(tuned, "library-below-limit").text
    assert text.endswith("1% of its roof; try torch.backends.cudnn.benchmark=True or channels_last"), (
        "only the graph of the calls counts"
    )
    assert "below-memory-limit" not in kinds(with_kernel(**{**fields, "bound": "memory"}))
    assert "library-below-limit" not in kinds(with_kernel(**{**fields, "peak_share": 0.5}))
    # What only rearranges tensors is spoken of elsewhere.
    copy = {**fields, "name": "at::native::direct_copy_kernel_cuda(T&)"}
    assert "library-below-limit" not in kinds(with_kernel(**copy)) and "layout-copies" in kinds(with_kernel(**copy))


@pytest.mark.parametrize(
    "fields",
    [
        {"bound": "memory", "peak_share": 0.9, "gain_limit_s": 0.1e-3},  # close to the limit
        {"bound": "memory", "peak_share": 0.3, "gain_limit_s": 0.02e-3},  # not worth the work
        {"bound": "memory", "peak_share": None, "gain_limit_s": None},  # not known
        {"bound": "cache", "peak_share": 0.3, "gain_limit_s": 0.7e-3},  # not a question of memory
    ],
)
def test_kernels_that_are_not_worth_a_word(fields: dict[str, object]) -> None:
    assert "below-memory-limit" not in kinds(with_kernel(**fields))
    assert "below-memory-limit" in kinds(with_kernel(bound="memory", peak_share=0.3, gain_limit_s=0.7e-3))


def test_layout_copies_within_library_calls() -> None:
    found = the(build.mixnet(), "layout-copies")
    assert found.modules == ("backward",) and "aten.convolution calls spend 9.09 ms (14.8%)" in found.text
    assert "direct_copy_kernel" in found.kernels[0].name


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"spills": 64}, "spills", "1 kernel spills registers to memory (up to 64 a thread): 1.00 ms (16.4%)"),
        ({"category": Category.OTHER}, "other", "1 kernel could not be put into a category: 1.00 ms (16.4%)"),
        ({"grid": (16, 2, 1)}, "few-blocks", "1 generated kernel starts 32 blocks on 132 multiprocessors"),
        ({"grid": (1, 1, 1)}, "few-blocks", "1 generated kernel starts 1 block on 132 multiprocessors"),
        (
            {"category": Category.EXTERN_ATEN, "operator": "aten.sort", "time_s": 2e-3},
            "hotspot",
            "aten.sort takes 2.00 ms (32.8%) in 1 library kernel",
        ),
        ({"samples_s": (1e-3, 2e-3, 1e-3, 2e-3, 1e-3)}, "unsteady-kernels", "a different time in each iteration"),
        (
            {"category": Category.COPY, "name": "Memcpy DtoD (Device -> Device)"},
            "copies",
            "copies within the device take 1.00 ms (16.4%)",
        ),
        ({"category": Category.COPY, "name": "Memcpy HtoD (Pageable -> Device)"}, "pageable-copies", "pin"),
        ({"category": Category.EXTERN_GEMM, "name": "ampere_sgemm_128x64_nn"}, "full-float32", "matmul_precision"),
    ],
)
def test_a_kernel_of_this_kind_is_named(fields: dict[str, object], kind: str, words: str) -> None:
    found = the(with_kernel(**fields), kind)
    assert words in found.text
    assert found.kernels == (("forward", fields.get("name", "odd")),)
    assert kind not in kinds(with_kernel())


def test_a_kernel_is_beyond_a_peak_if_no_share_of_it_is_known() -> None:
    served = {"bound": "memory", "peak_share": 0.95, "bandwidth": 1.58 * build.H200.memory_bandwidth}
    assert "beyond-peaks" not in kinds(with_kernel(time_s=4e-3, **served)), "the cache serves a part of its bytes"
    assert build.H200.cache_bandwidth
    faster = {"bound": "cache", "peak_share": None, "bandwidth": 1.2 * build.H200.cache_bandwidth}
    assert "by up to 20%" in the(with_kernel(time_s=4e-3, **faster), "beyond-peaks").text


def test_copies_into_padded_matrices_are_summed_up_with_the_sides() -> None:
    run = with_kernel(padded_sides=((50257, 50264), (2047, 2048)))
    found = the(run, "padded-products")
    assert found.text == (
        "1 generated kernel only copies matrices into larger ones (50257 to 50264 and 2047 to 2048), 1.00 ms (16.4%): "
        "Inductor pads them for the matrix products that follow. A size of 50264 or 2048 in the model, such as "
        "a padded "
        "vocabulary, needs no copies"
    )
    assert found.gain_s == pytest.approx(1e-3) and found.kernels == (("forward", "odd"),)


def test_a_copy_before_a_product_is_told_apart_from_other_copies() -> None:
    seed = {"category": Category.COPY, "name": "Memcpy DtoD (Device -> Device)", "operator": "aten.addmm", "calls": 12}
    run = with_kernel(**seed)
    found = the(run, "copied-addends")
    assert found.text == (
        "aten.addmm calls first copy their addend into their output, 12 times per "
        "iteration, 1.00 ms "
        "(16.4%): cuBLAS adds to the output; try mode='max-autotune-no-cudagraphs': its matrix products in "
        "Triton read the "
        "addend in place"
    )
    assert found.gain_s == pytest.approx(1e-3) and "copies" not in kinds(run)
    tuned = replace(run, request=replace(run.request, mode="max-autotune"))
    assert the(tuned, "copied-addends").text.endswith("cuBLAS adds to the output")


def test_a_broadcast_bias_is_copied_by_a_kernel_and_a_matrix_by_an_inner_operator() -> None:
    whole, inner = (
        ShapeGroup("bf16[64] bf16[1,32] bf16[32,64] bf16[1,64]", 3, 1e-3),
        ShapeGroup("copy_ bf16[1]", 3, 1e-3),
    )
    copy = {
        "category": Category.EXTERN_GEMM,
        "name": "void at::native::elementwise_kernel<128, 4, direct_copy_kernel_cuda(T&)>",
        "operator": "aten.addmm",
        "shapes": (whole,),
    }
    run = with_kernel(**copy)
    assert the(run, "copied-addends").kernels[0].name == copy["name"] and "layout-copies" not in kinds(run)
    for fields in ({"shapes": (inner,)}, {"shapes": (whole, inner)}, {"shapes": ()}, {"operator": "aten.baddbmm"}):
        run = with_kernel(**{**copy, **fields})
        assert "copied-addends" not in kinds(run) and "layout-copies" in kinds(run)


def test_float32_products_that_use_tf32_get_no_advice() -> None:
    run = with_kernel(category=Category.EXTERN_GEMM, name="ampere_sgemm_128x64_nn")
    assert "full-float32" in kinds(run)
    assert "full-float32" not in kinds(replace(run, modules=(replace(run.modules[0], tf32=True),)))


HALF = build.kernel("nvjet_tst", Category.EXTERN_GEMM, 1, 1e-3, dtype="bfloat16")


def test_float32_products_beside_half_ones_are_not_told_to_autocast() -> None:
    lines = (SourceLine("model.py", 7, "forward", "scores = queries @ keys"),)
    run = with_kernel(category=Category.EXTERN_GEMM, name="ampere_sgemm_128x64_nn", source_lines=lines)
    assert the(run, "full-float32").text.endswith("allows TF32, autocast half precision"), "there are no half ones"
    run = replace(run, modules=(replace(run.modules[0], kernels=(*run.modules[0].kernels, HALF)),))
    text = "(model.py:7), beside others in bfloat16: torch.set_float32_matmul_precision('high') allows TF32"
    assert the(run, "full-float32").text.endswith(text)


@pytest.mark.parametrize("category", [Category.TEMPLATE, Category.EXTERN_CONV, Category.EXTERN_ATTENTION])
def test_any_half_product_shows_that_half_precision_is_in_use(category: Category) -> None:
    run = with_kernel(category=Category.EXTERN_GEMM, name="ampere_sgemm_128x64_nn")
    half = build.kernel("half", category, 1, 1e-3, dtype="float16")
    run = replace(run, modules=(replace(run.modules[0], kernels=(*run.modules[0].kernels, half)),))
    assert "beside others in float16" in the(run, "full-float32").text


def test_a_model_under_autocast_is_not_told_to_autocast() -> None:
    run = with_kernel(category=Category.EXTERN_GEMM, name="ampere_sgemm_128x64_nn")
    run = replace(run, request=replace(run.request, amp="bfloat16"))
    assert "autocast" not in the(run, "full-float32").text


def test_attention_without_a_fused_kernel_is_named_in_a_model_of_an_h200() -> None:
    """ALBERT under autocast: its attention is decomposed into float32 products, a quarter of the time."""
    run = h200.run_of("albert_bf16")
    assert "full-float32" not in kinds(run), "the products are the attention's"
    (found,) = [finding for finding in list_findings(run) if finding.kind == "decomposed-attention"]
    assert "no fused kernel of scaled_dot_product_attention took its arguments" in found.text
    assert "allow_fp16_bf16_reduction_math_sdp" in found.text
    (kernel,) = [kernel for kernel in run.modules[0].kernels if kernel.name == found.kernels[0].name]
    assert kernel.operator == "aten.bmm" and kernel.work.dtype == "float32"
    half = ("bfloat16", "float16")
    single = [change(one, dtype="float32") if one.work.dtype in half else one for one in run.modules[0].kernels]
    run = replace(run, modules=(replace(run.modules[0], kernels=tuple(single)),))
    assert "allow_fp16" not in the(run, "decomposed-attention").text, "no argument is in half precision"


def test_a_disturbed_iteration_does_not_make_a_kernel_unsteady() -> None:
    run = with_kernel(samples_s=(1e-3,) * 6 + (9e-3,) * 4)
    assert "unsteady-kernels" in kinds(run)
    steady = change(run.modules[0], steady_iterations=tuple(range(6)))
    assert "unsteady-kernels" not in kinds(replace(run, modules=(steady,)))


def test_many_short_launches() -> None:
    busy = change(build.densenet().modules[0], wall_time_s=1.36e-3, busy_share=0.98, graph_time_s=None)
    short = tuple(kernel for kernel in busy.kernels if kernel.time_s < 5e-6)
    run = run_of(change(busy, kernels=short, busy_time_s=0.33e-3, wall_time_s=0.34e-3))
    assert "120 of 120 launches last under 5 µs" in the(run, "short-kernels").text
    assert "short-kernels" not in kinds(build.densenet())  # the headline is that it waits for its launches
    longer = tuple(replace(kernel, time_s=kernel.time_s * 5) for kernel in short)
    assert "short-kernels" not in kinds(run_of(replace(busy, kernels=longer)))


def test_the_headline_says_if_the_time_goes_and_what_can_be_won() -> None:
    lead = write_first_line(build.mixnet())
    assert lead is not None and lead.text == (
        "GPU-bound: library kernels 63% of 61.6 ms (2 graphs, each once), generated kernels 32%, idle 5% (2.93 ms). "
        "Could save: generated kernels at their peaks 3.8% (upper bound)"
    )
    assert write_first_line(build.densenet()) == the(build.densenet(), "launch-bound")
    assert write_first_line(build.empty()) is None
    lead = write_first_line(build.cpu())
    assert lead is not None and lead.text.startswith("library calls 77% of 11.6 ms (2 graphs, each once), host ")


def test_the_headline_counts_every_generated_kernel_and_tells_measured_from_bound() -> None:
    module = quiet(graph_time_s=4.8e-3)
    lead = write_first_line(run_of(module))
    gains = sum(kernel.roof.gain_limit_s or 0.0 for kernel in module.kernels)
    assert lead is not None and lead.text.endswith(
        f"Could save: generated kernels at their peaks {gains / 5.1e-3:.1%} (upper bound), CUDA graphs 5.9% (measured)"
    )
    library = tuple(replace(kernel, category=Category.EXTERN_CONV) for kernel in module.kernels)
    lead = write_first_line(run_of(replace(module, kernels=library)))
    assert lead is not None and lead.text.endswith("Could save: CUDA graphs 5.9% (measured)")


def test_the_headline_is_about_most_of_the_program() -> None:
    waiting = replace(build.densenet().modules[0], program_calls=1)
    lead = write_first_line(run_of(waiting, quiet(program_calls=50)))
    assert lead is not None and lead.kind == "parts"
    lead = write_first_line(run_of(replace(waiting, program_calls=50), quiet(program_calls=1)))
    assert lead is not None and lead.kind == "launch-bound"


def test_shares_of_all_parts_never_exceed_the_whole() -> None:
    stretched = change(build.cpu().modules[0], wall_time_s=2.9e-3)
    found = the(run_of(stretched), "busy-over-wall")
    assert "forward 4.07 ms instead of 2.90 ms" in found.text
    lead = write_first_line(run_of(stretched))
    assert lead is not None and "library calls 91% of 4.07 ms" in lead.text


def test_advice_comes_by_what_it_could_win_and_before_all_else() -> None:
    for run in (build.mixnet(), build.densenet(), build.cpu()):
        found = list_findings(run)
        levels = [("advice", "caution", "note", "fine").index(finding.level) for finding in found]
        gains = [finding.gain_s for finding in found if finding.level == "advice"]
        assert levels == sorted(levels) and gains == sorted(gains, reverse=True)


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"profiled_time_s": 7.9e-3}, "profiler-overhead", "from 5.10 ms to 7.90 ms"),
        ({"busy_time_s": 5.4e-3}, "busy-over-wall", "forward 5.40 ms instead of 5.10 ms"),
        ({"steady_iterations": tuple(range(7))}, "outliers", "3 of 10"),
        (
            {"wall_samples_s": (5e-3, 6e-3) * 5},
            "noise",
            "(middle half: forward 5.00 ms to 6.00 ms); measure again on an idle machine",
        ),
        ({"wall_samples_s": (5e-3, 5e-3)}, "few-samples", "forward 2"),
        (
            {"method": "live", "method_reason": "it is frozen"},
            "method",
            "forward was run alone in the program's process",
        ),
        ({"method": "trace"}, "method", "forward was read from a trace"),
        ({"notes": ("odd thing",)}, "note", "forward: odd thing"),
    ],
)
def test_what_lowers_the_trust_in_a_figure_is_said(fields: dict[str, object], kind: str, words: str) -> None:
    assert words in the(run_of(quiet(**fields)), kind).text
    assert kind not in kinds(run_of(quiet()))


def test_graphs_with_the_same_reason_share_a_sentence() -> None:
    found = the(build.cpu(), "method")
    assert found.text.startswith("forward and backward were run alone in the program's process") and found.modules == (
        "forward",
        "backward",
    )


def test_missing_peaks_are_said_and_lead_to_the_doctor() -> None:
    run = build.without_peaks()
    assert "no-peaks" in kinds(run) and "no-peaks" not in kinds(build.mixnet())
    assert next_commands(run, "runs/x 1")[0].command == "inductor-bench doctor"
    read = replace(run, modules=tuple(change(module, method="trace") for module in run.modules))
    commands = [one.command for one in next_commands(read, "runs/x 1")]
    assert "inductor-bench report 'runs/x 1' --sort time --top 30" in commands
    assert "inductor-bench doctor" not in commands


def test_the_next_commands_sort_by_gain_if_there_is_one() -> None:
    for run, order in ((build.mixnet(), "gain"), (build.densenet(), "calls")):
        commands = [one.command for one in next_commands(run, "runs/m-1")]
        assert f"inductor-bench report runs/m-1 --sort {order}" in commands


def test_the_command_that_tries_the_largest_saving_comes_first() -> None:
    first, second = next_commands(build.mixnet(), "runs/m-1")[:2]
    assert first.why.startswith("tries what could save most") and "--sort gain" in second.command


def test_a_change_of_the_program_that_no_command_makes_is_proven_with_a_changed_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("inductor_bench.analysis.findings.next_commands.write_trial_command", lambda *_, **__: "")
    request = BreakdownRequest("src/train.py", kind="script", arguments=("--lr", "1"))
    first = next_commands(replace(build.mixnet(), request=request), "runs/train-1")[0]
    assert first.command == "inductor-bench compare src/train.py src/train_changed.py -- --lr 1"
    assert first.why.startswith("after you have changed a copy of the program: proves what could save most, ")
    assert not [one for one in next_commands(build.mixnet(), "runs/m-1") if " compare " in one.command]


def test_what_was_just_shown_is_not_suggested_again() -> None:
    commands = [one.command for one in next_commands(build.mixnet(), "runs/m-1", "gain")]
    assert "inductor-bench report runs/m-1 --sort gain --top 30" in commands
    assert "inductor-bench report runs/m-1 --sort gain" not in commands


def test_tuning_is_suggested_as_another_run() -> None:
    run = replace(build.mixnet(), command="inductor-bench breakdown timm:mixnet_l --training -o here --force")
    expected = "inductor-bench breakdown timm:mixnet_l --training --mode max-autotune-no-cudagraphs"
    assert next_commands(run, "here")[-1].command == expected
    script = replace(run, request=replace(run.request, kind="script"))
    assert not any("breakdown" in one.command for one in next_commands(script, "here"))


def test_a_retune_that_was_refused_here_is_not_proposed_here() -> None:
    library = build.kernel("sgemm", Category.EXTERN_GEMM, 1, 9e-3, file="kernels/aten_mm_0.py")
    kernels = [replace(kernel, file=f"kernels/{kernel.name}.py") for kernel in quiet().kernels]
    run = run_of(replace(quiet(), kernels=(library, *kernels)))
    run = replace(run, environment=change(run.environment, compute_capability="9.0"))
    assert "inductor-bench breakdown runs/m-1 --autotune --top 20" in commands(run)
    refused = replace(run, failures=(Failure("retune", "elsewhere", "there is no GPU here"),))
    assert len(commands(refused)) == 1


def test_on_a_cpu_a_retune_is_proposed_if_generated_kernels_take_a_part_of_the_step() -> None:
    run = step_runs.cpu()
    kernel = replace(run.modules[0].kernels[0], category=Category.CPP, file="kernels/one.py", step_time_s=1e-3)
    retune = "inductor-bench breakdown runs/m-1 --autotune --top 20"

    def proposed(**fields: object) -> bool:
        kernels = (replace(kernel, **fields),)  # type: ignore[arg-type]
        return retune in commands(replace(run, modules=(replace(run.modules[0], kernels=kernels),)))

    assert proposed() and not proposed(step_time_s=1e-6) and not proposed(category=Category.EXTERN_CONV)


def retuned(config: Config, category: Category = Category.EXTERN_CONV) -> Retune:
    timing = summarize([1e-3] * 9)
    tuning = Tuning("max", "cold", (), 3, 1e-3, 5e-4, 2.0, FASTER, config)
    kernel = MeasuredKernel("k", "k" * 16, "", "aten", "a GPU", {}, timing, timing, "", tuning=tuning)
    return Retune("k", "k" * 16, category, ("forward",), 1.0, 1e-3, "kernels/k.py", "max", kernel=kernel)


SEARCHED, PINNED = retuned({"cudnn_benchmark": True}), retuned({"XBLOCK": 64}, Category.POINTWISE)


@pytest.mark.parametrize(
    ("request_", "typed", "retunes", "expected"),
    [
        (
            BreakdownRequest("train.py", "script", ("--fast",)),
            "train.py -- --fast",
            (PINNED,),
            ["apply runs/m-1 --verify -- python train.py --fast"],
        ),
        (
            BreakdownRequest("train.py", "script", ("--top", "3")),
            "--python /opt/py --steps=9 train.py --autotune max --top 5 -o x -- --top 3",
            (SEARCHED,),
            ["modes train.py --python /opt/py --steps=9 --mode default --with default,cudnn-benchmark -- --top 3"],
        ),
        (
            BreakdownRequest("python train.py", "command", ("python", "train.py")),
            "--stop -- python train.py",
            (SEARCHED,),
            ["modes --mode default --with default,cudnn-benchmark -- python train.py"],
        ),
        (
            BreakdownRequest("timm:resnet50", "timm", training=False, batch_size=128, mode="max-autotune"),
            "timm:resnet50 --inference --batch-size 128 --mode max-autotune --no-plots",
            (SEARCHED, PINNED),
            [
                "modes timm:resnet50 --inference --batch-size 128 --mode max-autotune "
                "--with max-autotune,cudnn-benchmark",
                "breakdown runs/m-1 --autotune max --top 1",
            ],
        ),
        (BreakdownRequest("c.py", "module"), "c.py", (SEARCHED,), []),
    ],
)
def test_after_a_retune_the_next_command_fits_the_winners_and_the_program(
    request_: BreakdownRequest, typed: str, retunes: tuple[Retune, ...], expected: list[str]
) -> None:
    command = f"inductor-bench breakdown {typed}"
    run = replace(step_runs.transformer(), request=request_, retunes=retunes, command=command)
    impossible = Failure("verify", "invalid", "its second start failed")
    assert not [one for one in commands(replace(run, failures=(impossible,))) if "apply" in one]
    words = ("inductor-bench apply", "inductor-bench modes", "inductor-bench breakdown runs")
    assert [one for one in commands(run) if one.startswith(words)] == [f"inductor-bench {one}" for one in expected]


def test_options_that_a_command_keeps_are_those_of_both_verbs() -> None:
    verbs = [
        {name for one in verb.command.params for name in (*one.opts, *one.secondary_opts)}
        for verb in (breakdown, modes)
    ]
    assert SHARED.keys() <= verbs[0] & verbs[1]


def commands(run: Run) -> list[str]:
    return [each.command for each in next_commands(run, "runs/m-1")]


def again(command: str, **fields: object) -> str:
    run = build.run("x", [], command=command, **fields)
    return next_commands(run, "runs/x-1")[0].command


def test_a_timeout_leads_to_a_longer_one_before_the_arguments_of_the_program() -> None:
    late = (Failure("capture", "timeout", "took too long"),)
    request = BreakdownRequest("m.py", "script", timeout_s=60)
    command = "inductor-bench breakdown m.py --timeout 60 -- --timeout 3"
    assert again(command, failures=late, request=request) == (
        "inductor-bench breakdown m.py --timeout 120 -- --timeout 3"
    )
    assert again("inductor-bench breakdown m.py -o here", failures=late) == (
        "inductor-bench breakdown --force m.py -o here --timeout 1200"
    )


@pytest.mark.parametrize("kind", ["exit", "nothing-compiled", "interrupted", "unfinished"])
def test_a_program_that_failed_is_to_be_run_again(kind: str) -> None:
    failed = (Failure("capture", kind, "it went wrong"),)
    assert again("inductor-bench breakdown m.py -- -x", failures=failed) == "inductor-bench breakdown m.py -- -x"


def test_a_failed_profile_leads_to_a_live_one_only_once() -> None:
    broken = (Failure("profile", "exit", "exited with 1", subject="forward"),)
    assert again("inductor-bench breakdown m.py", failures=broken) == "inductor-bench breakdown m.py --live"
    live = BreakdownRequest("m.py", "script", live=True)
    assert "--live" not in again("inductor-bench breakdown m.py", failures=broken, request=live)


def test_a_graph_that_is_replayed_in_the_step_is_not_to_be_profiled_live() -> None:
    broken = (Failure("profile", "exit", "exited with 1", subject="decode"),)
    replayed = replace(step_runs.decode(), command="inductor-bench breakdown m.py", failures=broken)
    assert not any("--live" in one.command for one in next_commands(replayed, "runs/x-1"))
    launched = (replace(broken[0], subject="Block.forward"),)
    run = replace(step_runs.transformer(), command="inductor-bench breakdown m.py", failures=launched)
    assert next_commands(run, "runs/x-1")[0].command == "inductor-bench breakdown m.py --live"


def eager(capture: Capture) -> Run:
    parts = [Part(EAGER, "aten::mm", 1, 1e-3, 0.0)]
    return build.run("x", [], program=step_runs.program(parts, step_s=2e-3), capture=capture)


def test_a_step_whose_modules_could_not_be_measured_is_not_called_uncompiled() -> None:
    first = write_first_line(eager(Capture(structured=2)))
    assert first is not None and "nothing is compiled" not in first.text
    first = write_first_line(eager(Capture()))
    assert first is not None and "; nothing is compiled. The step: " in first.text


def test_a_step_without_a_compiled_graph_says_why_in_its_first_line() -> None:
    run = eager(Capture(uncompiled="torch.compile is never called"))
    first = write_first_line(run)
    assert first is not None and "; nothing is compiled: torch.compile is never called. The step: " in first.text
    assert "inductor-bench doctor" not in [one.command for one in next_commands(run, "runs/x-1")]


@pytest.mark.parametrize("command", ["", "inductor_bench.breakdown(...)", "inductor-bench breakdown 'unbalanced"])
def test_a_command_that_cannot_be_read_is_not_repeated(command: str) -> None:
    broken = (Failure("profile", "exit", "exited with 1"),)
    assert again(command, failures=broken) == "inductor-bench doctor"


def test_findings_name_kernels_of_the_record_only() -> None:
    for run in (build.mixnet(), build.densenet(), build.cpu(), build.hostile()):
        known = {(module.slug, kernel.name) for module in run.modules for kernel in module.kernels}
        for finding in list_findings(run):
            assert set(finding.kernels) <= known and {place.slug for place in finding.kernels} <= set(finding.modules)


def test_unknown_times_do_not_stop_the_rules() -> None:
    bare = Kernel("k", "id", Category.POINTWISE, 0, 0.0, (), 0.0, None)
    empty = make(ModuleRecord, "forward", "forward", "forward", None, "cuda", method="trace", kernels=(bare,))
    assert kinds(run_of(empty)) == ["method", "fine"]


@cache
def evidence_of_each() -> tuple[RunEvidence, ...]:
    makes = (build.mixnet, build.densenet, build.cpu, build.hostile, build.empty, build.without_peaks)
    return tuple(RunEvidence(make()) for make in makes)


@pytest.mark.parametrize("row", RULES, ids=lambda row: row.kinds[0])
def test_a_rule_reports_only_the_kinds_of_its_row(row: Rule) -> None:
    assert {finding.kind for evidence in evidence_of_each() for finding in row.find(evidence)} <= set(row.kinds)


def test_no_two_rows_report_the_same_kind() -> None:
    kinds = [kind for row in RULES for kind in row.kinds]
    assert len(kinds) == len(set(kinds))
