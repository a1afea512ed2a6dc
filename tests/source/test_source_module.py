"""Reading compiled modules recorded on an H200 (torch 2.11) and on a CPU (torch 2.13)."""

from __future__ import annotations

import ast
import gzip
import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from breakdown_runs import H200
from source_data import CPU, GPU, cpu_sample, gpu_sample, module_of, text_of
from wrapper_text import module_text

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.base import Category
from inductor_bench.records.code import ModuleSource
from inductor_bench.source.calls import find_kernel_key, format_types, lookup_key
from inductor_bench.source.generated_text import find_statement, has_profile_mark, read_comment
from inductor_bench.source.module_reader import read_module

MIXNET = GPU / "mixnet_l_train"


def targets(module: ModuleSource) -> list[str]:
    return [call.target for call in module.calls]


def operators(module: ModuleSource) -> list[str | None]:
    return [call.operator for call in module.calls]


def test_mixnet_forward_has_every_kernel_and_call() -> None:
    module = module_of(MIXNET / "forward.py")
    assert (module.role, module.graph_number, module.device) == ("forward", 0, "cuda")
    assert len(module.kernels) == 245
    assert sum(call.kernel is not None for call in module.calls) == 630
    assert Counter(operators(module)) == {None: 630, "aten.convolution": 155, "aten.addmm": 1}
    assert all(call.aten_ops for call in module.calls)
    assert len(module.inputs) == 480 and module.has_harness
    assert not (module.dynamic or module.unbacked or module.frozen or module.cpp_wrapper)


def test_mixnet_backward_has_every_kernel_and_call() -> None:
    module = module_of(MIXNET / "backward.py")
    assert (module.role, len(module.kernels), len(module.inputs)) == ("backward", 276, 613)
    assert Counter(operators(module)) == {None: 532, "aten.convolution_backward": 155, "aten.mm": 2}
    categories = Counter(kernel.category for kernel in module.kernels)
    assert categories == {Category.POINTWISE: 168, Category.REDUCTION: 93, Category.PERSISTENT_REDUCTION: 15}


def test_largest_module_is_read_in_time() -> None:
    text = text_of(MIXNET / "backward.py")
    start = time.process_time()
    read_module(text)
    assert time.process_time() - start < 3.0


def test_calls_are_in_the_order_in_which_the_trace_saw_them() -> None:
    events = json.loads(gzip.decompress((MIXNET / "forward.trace.json.gz").read_bytes()))["traceEvents"]
    seen = [event["name"] for event in sorted(_host_ops(events), key=lambda event: float(event["ts"]))]
    module = module_of(MIXNET / "forward.py")
    expected = [call.kernel or (call.operator or "").replace(".", "::") for call in module.calls]
    assert seen == expected * 3  # the recorded trace holds three iterations


def _host_ops(events: list[dict[str, object]]) -> list[dict[str, object]]:
    names = {"aten::convolution", "aten::addmm"}
    ops = [event for event in events if event.get("cat") == "cpu_op"]
    return [event for event in ops if event["name"] in names or str(event["name"]).startswith("triton_")]


@pytest.mark.parametrize(
    ("module", "trace"),
    [
        (GPU / "flex/module_0.py", GPU / "flex/trace_0.json.gz"),
        (GPU / "tem/module_0.py", GPU / "tem/trace_0.json.gz"),
        (GPU / "scan_combo/module_0.py", GPU / "scan_combo/trace_0.json.gz"),
        (CPU / "forward.py", CPU / "compiled_module_profile.json.gz"),
        *(
            (GPU / f"samples/{name}/module_{number}.py", GPU / f"samples/{name}/trace_{number}.json.gz")
            for name, number in [
                *((name, 0) for name in ("foreach", "combo", "combo_fixed", "user", "partition", "multi")),
                *((name, 0) for name in ("cooperative", "scan", "attention", "dynamic")),
                ("attention", 1),
            ]
        ),
    ],
    ids=lambda path: f"{path.parent.name}-{path.name}",
)
def test_every_call_is_in_the_trace_and_in_order(module: Path, trace: Path) -> None:
    source = module_of(module)
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    seen = [re.sub(r"^graph_\d+_", "", name) for name in _outermost(events)]
    cpp = [kernel for kernel in source.kernels if kernel.language == "cpp"]
    silent = {kernel.name for kernel in cpp if not has_profile_mark(kernel.source)}
    calls = [call for call in source.calls if call.kernel not in silent]
    expected = [{call.kernel or (call.operator or "").replace(".", "::"), *call.alternatives} for call in calls]
    known = set().union(*expected)
    seen = [name for name in seen if name in known]
    iterations = len(seen) // len(expected)
    assert iterations > 1
    # What the harness itself does after the last iteration (copying its timings) may bear the same names.
    for place, name in enumerate(seen[: iterations * len(expected)]):
        assert name in expected[place % len(expected)]


def _outermost(events: list[dict[str, Any]]) -> list[str]:
    ops = [event for event in events if event.get("cat") == "cpu_op"]
    names, end = [], float("-inf")
    for event in sorted(ops, key=lambda event: (float(event["ts"]), -float(event["dur"]))):
        if float(event["ts"]) >= end:
            names.append(event["name"])
            end = float(event["ts"]) + float(event["dur"])
    return names


def test_call_comments_not_definition_comments_give_the_origins() -> None:
    module = module_of(MIXNET / "forward.py")
    ops_of = {}
    for call in module.calls:
        if call.kernel:
            ops_of.setdefault(call.kernel, set()).add((call.source_nodes, call.aten_ops))
    shared = {name: seen for name, seen in ops_of.items() if len(seen) > 1}
    assert len(shared) > 50  # one kernel, called for several places of the model
    lines = text_of(MIXNET / "forward.py").splitlines()
    call = module.calls[100]
    above = next(line for line in reversed(lines[: call.line - 1]) if "Source Nodes: [" in line)
    assert above.split("Original ATen: [")[1].rstrip("]").split(", ") == list(call.aten_ops)


def test_kernel_facts_come_from_its_own_text() -> None:
    kernel = module_of(MIXNET / "forward.py").kernels[1]
    assert kernel.name == kernel.event_name == "triton_poi_fused__to_copy_1"
    assert kernel.kernel_hash == "c4iyiklmlsp55xtufmcfqxs6qq77a57lhf4zxvfum54jlx4tg3sq"
    assert kernel.moved_bytes == 115605504
    assert kernel.source.startswith("\nimport triton\n") and kernel.source.rstrip().endswith('GB/s")')
    text = text_of(MIXNET / "forward.py").splitlines()
    assert text[kernel.line - 1].startswith("triton_poi_fused__to_copy_1 = async_compile.triton(")


def test_kernels_that_only_pad_matrices_for_products_name_the_sides() -> None:
    """GPT-2's vocabulary of 50257 words, in a step of training (torch 2.11)."""
    padding = {}
    for number in range(2):
        text = gzip.decompress((GPU / f"programs/graphs/{number}.py.gz").read_bytes()).decode()
        padding |= {kernel.name: kernel.padded_sides for kernel in read_module(text).kernels if kernel.padded_sides}
    copies = ("triton_poi_fused__to_copy_mm_t_18", "triton_poi_fused_mm_0", "triton_poi_fused_mm_t_2")
    assert padding == dict.fromkeys((*copies, "triton_poi_fused_mm_3"), ((50257, 50264),))


PAD = (
    '%{} : Tensor "bf16[{}][264, 1]cuda:0" = '
    "call_function[target=torch.ops.aten.constant_pad_nd.default](args = (%{}, [0, 7, 1, 0]), kwargs = {{}})"
)
NEGATE = "%b : [num_users=1] = call_function[target=torch.ops.aten.neg.default](args = (%a,), kwargs = {})"


@pytest.mark.parametrize(
    ("lines", "sides"),
    [
        ([PAD.format("constant_pad_nd_default", "8, 264", "a")], ((257, 264),)),
        ([PAD.format("constant_pad_nd", "8, 264", "a")], ()),  # the program's own padding
        ([PAD.format("constant_pad_nd_default_1", "s0, 264", "a")], ()),
        ([NEGATE], ()),
        ([NEGATE, PAD.format("constant_pad_nd_default", "8, 264", "b")], ()),
    ],
)
def test_padding_counts_if_a_kernel_does_nothing_else(lines: list[str], sides: tuple[tuple[int, int], ...]) -> None:
    assert read_comment(["# Graph fragment:", *(f"#   {line}" for line in lines)]).padded_sides == sides


def test_flops_are_taken_from_templates_only() -> None:
    forward = module_of(MIXNET / "forward.py")
    assert any("'kernel_flop': 2408448" in kernel.source for kernel in forward.kernels)
    assert all(kernel.template_flops is None for kernel in forward.kernels)
    template = module_of(GPU / "tem" / "module_0.py").kernels[1]
    assert (template.category, template.template_flops) == (Category.TEMPLATE, 2 * 2048 * 1024 * 4096)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        ("foreach", [Category.FOREACH, Category.FOREACH]),
        ("combo", [Category.COMBO, Category.COMBO]),
        ("combo_fixed", [Category.COMBO, Category.COMBO]),  # named triton_for_*, with the foreach heuristic
        ("user", [Category.POINTWISE, Category.USER_TRITON, Category.USER_TRITON, Category.POINTWISE]),
        ("cooperative", [Category.COOPERATIVE_REDUCTION]),
        ("scan", [Category.SPLIT_SCAN]),
        ("multi", [Category.REDUCTION, Category.PERSISTENT_REDUCTION]),
        ("wrapper", [Category.PERSISTENT_REDUCTION]),
        (
            "partition",
            [
                Category.CPP,
                Category.POINTWISE,
                Category.POINTWISE,
                Category.REDUCTION,
                Category.PERSISTENT_REDUCTION,
            ],
        ),
    ],
)
def test_category_of_each_kind_of_kernel(sample: str, expected: list[Category]) -> None:
    assert [kernel.category for kernel in gpu_sample(sample).kernels] == expected


def test_flex_attention_is_a_template() -> None:
    kernels = module_of(GPU / "flex" / "module_0.py").kernels
    assert [kernel.category for kernel in kernels] == [Category.POINTWISE, Category.POINTWISE, Category.TEMPLATE]


def test_user_kernels_keep_their_own_event_name_and_get_the_hash_of_their_file() -> None:
    first, second = gpu_sample("user").kernels[1:3]
    assert (first.name, second.name) == ("add_kernel_0", "add_kernel_1")
    assert first.event_name == second.event_name == "add_kernel"
    trace = gzip.decompress((GPU / "samples/user/trace_0.json.gz").read_bytes()).decode()
    assert first.kernel_hash and second.kernel_hash
    assert f"/{first.kernel_hash}.py" in trace and f"/{second.kernel_hash}.py" in trace
    assert targets(gpu_sample("user"))[1:3] == ["add_kernel_0", "add_kernel_1"]


def test_partitions_are_read_where_they_are_called() -> None:
    module = gpu_sample("partition")
    assert targets(module) == [
        "triton_poi_fused_cos_0",
        "extern_kernels.mm",
        "triton_poi_fused__to_copy_relu_1",
        "buf3.copy_",
        "cpp_fused_sin_2",
        "buf5.copy_",
        "triton_red_fused_add_exp_relu_sum_3",
        "triton_per_fused_add_exp_relu_sum_4",
    ]
    assert module.calls[3].operator == "aten.copy_" and module.calls[3].aten_ops == ()
    assert module.device == "cuda"
    assert [call.index for call in module.calls] == list(range(8))


def test_multi_kernel_names_its_choices() -> None:
    (call,) = gpu_sample("multi").calls
    assert (call.target, call.kernel, call.operator) == ("multi_kernel_0", None, None)
    assert call.alternatives == tuple(kernel.name for kernel in gpu_sample("multi").kernels)


def test_workspace_zeroing_is_a_call_and_leaves_the_comment_to_the_kernel() -> None:
    zero, kernel = gpu_sample("scan").calls
    assert (zero.operator, zero.source_nodes) == ("aten.zero_", ())
    assert kernel.source_nodes == ("cumsum", "mul") and kernel.handle == "triton_spl_fused_cumsum_mul_0:1"


def test_the_reductions_of_a_workspace_are_calls_with_the_handles_of_their_buffers() -> None:
    module = read_module(
        module_text(
            """
            # [Provenance debug handles] add:4
            workspace_0 = empty_strided_cuda((32, ), (1, ), torch.float32)
            add.run(arg0_1, arg1_1, workspace_0, 256, stream=stream0)
            # [Provenance debug handles] buf3:5
            # [Provenance debug handles] buf5:6
            buf3 = workspace_0[0 * (1) * (16) : (0 + 1) * (1) * (16)].view(1, 16).sum(dim=0).view([16])
            buf5 = workspace_0[1 * (1) * (16) : (1 + 1) * (1) * (16)].view(1, 16).prod(dim=0).to(torch.bfloat16)
            buf6 = arg0_1.view(16, 16).sum(dim=0)
            # [Provenance debug handles] relu:7
            relu.run(buf5, 256, stream=stream0)
            """
        )
    )
    assert [(call.target, call.operator, call.handle) for call in module.calls] == [
        ("add", None, "add:4"),
        ("workspace_0.sum", "aten.sum", "buf3:5"),
        ("workspace_0.prod", "aten.prod", "buf5:6"),
        ("workspace_0.to", "aten.to", "buf5:6"),
        ("relu", None, "relu:7"),
    ]


def test_collectives_and_attention_are_calls_of_operators() -> None:
    assert [name for name in operators(gpu_sample("collective")) if name] == [
        "_c10d_functional.all_reduce_",
        "_c10d_functional.wait_tensor",
        "_c10d_functional.all_gather_into_tensor",
        "_c10d_functional.wait_tensor",
    ]
    forward = gpu_sample("attention")
    assert [name for name in operators(forward) if name] == [
        "aten.randint",
        "aten._scaled_dot_product_cudnn_attention",
        "aten.sort",
    ]
    assert forward.calls[-1].target == "torch.ops.aten.sort.stable"


def test_gpu_cpp_wrapper_is_read_from_its_strings() -> None:
    module = gpu_sample("wrapper")
    assert module.cpp_wrapper and module.role == "unknown" and module.device == "cuda"
    assert [(call.target, call.operator) for call in module.calls] == [
        ("aoti_torch_cuda_mm_out", "aten.mm"),
        ("triton_per_fused__softmax_exp_prepare_softmax_online_sub_0", None),
    ]
    kernel = module.kernels[0]
    assert kernel.kernel_hash == "cxk7dwdw54v3klxwacar7c7xzergkiq4bvjsi72oyrapnok73irt"
    text = text_of(GPU / "samples/wrapper/module_0.py").splitlines()
    assert text[kernel.line - 1].startswith(f"{kernel.name} = async_compile.triton(")
    assert "aoti_torch_cuda_mm_out(" in text[module.calls[0].line - 1]


def test_cpu_cpp_wrapper_is_read_from_its_strings() -> None:
    module = cpu_sample("cppw")
    assert module.cpp_wrapper and module.device == "cpu" and module.vector_lanes == 16
    assert [(call.target, call.operator, call.handle) for call in module.calls] == [
        ("aoti_torch_cpu_addmm_out", "aten.addmm", "aoti_torch_cpu_addmm_out:1"),
        ("cpp_fused__softmax_0", None, "cpp_fused__softmax_0:2"),
    ]
    assert [kernel.category for kernel in module.kernels] == [Category.CPP]


def test_cpu_training_example() -> None:
    forward = module_of(CPU / "forward.py")
    assert (forward.role, forward.device, forward.threads, forward.vector_lanes) == ("forward", "cpu", 2, 16)
    assert forward.has_harness
    assert [call.operator for call in forward.calls] == [None, "aten.convolution", None, "aten.addmm", None]
    assert all(call.handle for call in forward.calls)
    kinds = Counter(given.dtype for given in forward.inputs)
    assert kinds == {"float32": 10, "int64": 2}
    backward = module_of(CPU / "backward.py")
    assert operators(backward).count("aten.convolution_backward") == 1
    assert module_of(CPU / "inference.py").role == "inference"


def test_cpu_fallbacks_are_calls_with_their_operators() -> None:
    names = [name for name in operators(cpu_sample("fall")) if name]
    assert names == [
        "aten.scatter_reduce_",
        "aten.sort",
        "aten.topk",
        "aten.cumsum",
        "aten._scaled_dot_product_flash_attention_for_cpu",
        "aten.randint",
        "aten.bmm",
        "aten._fft_r2c",
        "aten.abs",
    ]
    scatter = next(call for call in cpu_sample("fall").calls if call.operator == "aten.scatter_reduce_")
    assert scatter.handle is None and scatter.source_nodes == ()  # it carries no comment; the one above is another's


def test_frozen_dynamic_and_unbacked_modules_say_so() -> None:
    frozen = cpu_sample("frz")
    assert frozen.frozen and [given.name for given in frozen.inputs] == ["arg4_1"]
    assert [name for name in operators(frozen) if name] == ["mkldnn._convolution_pointwise", "mkl._mkl_linear"]
    dynamic = cpu_sample("dyn")
    assert dynamic.dynamic and not dynamic.unbacked and not dynamic.frozen
    assert [given.kind for given in dynamic.inputs] == ["tensor", "tensor", "int", "tensor", "int"]
    unbacked = cpu_sample("unb")
    assert unbacked.dynamic and unbacked.unbacked
    assert operators(unbacked) == ["aten.nonzero", None, "aten.item", None]
    assert gpu_sample("dynamic").dynamic and not gpu_sample("attention").dynamic


def test_branches_are_marked_as_conditional() -> None:
    calls = cpu_sample("cond").calls
    assert [call.conditional for call in calls] == [False, False, True, True, True, False]
    assert calls[3].operator == "aten.mm"


def test_compiled_optimizer_is_one_fused_kernel() -> None:
    module = cpu_sample("opt")
    assert module.role == "inference" and len(module.calls) == len(module.kernels) == 1
    assert len(module.inputs) == 15


def test_inputs_have_shapes_strides_and_devices() -> None:
    first = module_of(MIXNET / "forward.py").inputs[0]
    assert (first.name, first.kind, first.dtype, first.device) == ("primals_1", "tensor", "float32", "cuda:0")
    assert (first.shape, first.stride) == ((32, 3, 3, 3), (27, 9, 3, 1))


HARNESS = """
def benchmark_compiled_module(times=10, repeat=10):
    from torch._dynamo.testing import rand_strided
    _shared_storage_0 = rand_strided((64,), (1,), device='cuda:0', dtype=torch.float16)
    a = torch.as_strided(_shared_storage_0, (4, 4), (4, 1))
    b = None
    c = 7
    d = torch.cuda.default_generators[0].graphsafe_get_state()
    fn = lambda: call([a, b, c, d])
    return print_performance(fn, times=times, repeat=repeat)
"""


def test_inputs_of_older_harnesses_and_shared_storages() -> None:
    text = text_of(CPU / "inference.py")
    older = text[: text.index("def get_args(")]
    inputs = read_module(older + HARNESS).inputs
    assert [(given.name, given.kind) for given in inputs] == [
        ("a", "tensor"),
        ("b", "none"),
        ("c", "int"),
        ("d", "opaque"),
    ]
    assert (inputs[0].shape, inputs[0].dtype, inputs[0].device) == ((4, 4), "float16", "cuda:0")


def test_threads_are_read_from_the_pragma_too() -> None:
    text = text_of(CPU / "inference.py")
    assert read_module(text).threads is None
    fixed = text.replace("#pragma omp parallel\n", "#pragma omp parallel num_threads(12)\n", 1)
    assert read_module(fixed).threads == 12


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print('hello')\n", "not a compiled module"),
        ("def call(args):\n    return args\n", "not a compiled module"),
        ("V1120 12:44 not python at all {", "it is not Python"),
        ("\0", "it is not Python"),
        ("", "not a compiled module"),
    ],
)
def test_other_files_are_refused(text: str, message: str) -> None:
    with pytest.raises(InductorBenchError, match=message) as caught:
        read_module(text)
    assert "Compiled module path:" in caught.value.hint


def test_kernel_file_is_called_one() -> None:
    name = "c2apcuku3enejoo43cfytuyxvus57jcaw4bq2igcpwddhd66a7ql.py"
    path = GPU / "tem" / "kernels" / name
    text = path.read_text() if path.is_file() else text_of(path)
    with pytest.raises(InductorBenchError, match="single Triton kernel"):
        read_module(text)


def test_truncated_module_is_refused() -> None:
    text = text_of(MIXNET / "forward.py")
    with pytest.raises(InductorBenchError, match="not Python"):
        read_module(text[: len(text) // 2])


# The search for one statement of a text, which parses no more than this statement.


TEXT = '''"""A file.

FACTS = 1 is no statement here... it has text before it.
"""
import os

FACTS = {
    "a": [
        1,
],
}
CODE = r"""
#include <cmath>
extern int x;
}
"""


@decorate(
    1,
)
@again
def function(x):
    return x


broken(
'''


@pytest.mark.parametrize(
    ("pattern", "lines"),
    [(r"^import", (5, 5)), (r"^FACTS = \{", (7, 11)), (r"^CODE = ", (12, 16)), (r"^@dec", (19, 24))],
)
def test_a_statement_has_the_lines_of_the_text(pattern: str, lines: tuple[int, int]) -> None:
    node = find_statement(TEXT, re.compile(pattern, re.MULTILINE))
    assert node is not None
    first = node.decorator_list[0] if isinstance(node, ast.FunctionDef) else node
    assert (first.lineno, node.end_lineno) == lines


def test_a_statement_with_many_lines_at_the_margin_is_whole() -> None:
    text = 'CODE = """\n' + "int x;\n" * 500 + '"""\n'
    node = find_statement(text, re.compile(r"^CODE = ", re.MULTILINE))
    assert node is not None and node.end_lineno == 502


def test_a_statement_that_is_missing_or_broken() -> None:
    assert find_statement(TEXT, re.compile(r"^OTHER = ", re.MULTILINE)) is None
    with pytest.raises(InductorBenchError, match="it is not Python"):
        find_statement(TEXT, re.compile(r"^broken", re.MULTILINE))
    with pytest.raises(InductorBenchError, match="hundreds of digits"):
        find_statement(f"FACTS = {'1' * 400}\n", re.compile(r"^FACTS = ", re.MULTILINE))


# Keys of Triton kernels in Inductor's lookup table, from the text of a kernel.


KEY = "054b69b18b638e096098ec9257b5dfe08389a1e2fc28280147e3d369603f6aa9"
"""What ``generate_lookup_hash_from_source_code`` of torch 2.11.0 returns for the loaded kernel."""


def reduction() -> str:
    text = gzip.decompress((H200 / "programs" / "breaks" / "6.py.gz").read_bytes()).decode()
    return read_module(text).kernels[0].source


def test_the_key_is_inductors() -> None:
    found = find_kernel_key(reduction())
    assert found is not None
    assert found.key == KEY
    assert found.name == "triton_red_fused_gelu_gelu_backward_sum_0"
    assert found.is_looked_up
    assert found.types.startswith("R0_BLOCK:constexpr,XBLOCK:constexpr,in_out_ptr0:*fp32")


def test_the_name_does_not_count_and_sizes_and_types_do() -> None:
    source = reduction()
    known = find_kernel_key(source)
    renamed = find_kernel_key(source.replace("def triton_red_fused_gelu_gelu_backward_sum_0", "def triton_red_fused_7"))
    other_size = find_kernel_key(source.replace("'r0_': 128", "'r0_': 256"))
    other_type = find_kernel_key(source.replace("'in_ptr0': '*fp32'", "'in_ptr0': '*fp16'"))
    assert known is not None and renamed is not None and other_size is not None and other_type is not None
    assert renamed.key == known.key != other_size.key
    assert other_type.key == known.key and other_type.types != known.types, "Inductor's key has no types"


def test_a_kernel_without_size_hints_has_the_key_of_none() -> None:
    text = (
        "@triton_heuristics.foreach(\n    num_warps=8,\n    triton_meta={'signature': {'in_ptr0': '*fp32'}},\n)\n"
        "@triton.jit\ndef triton_for_fused_0(in_ptr0):\n    pid = tl.program_id(0)\n"
    )
    found = find_kernel_key(text)
    assert found is not None
    assert found.key == lookup_key("None", "def anything(in_ptr0):\n    pid = tl.program_id(0)\n")
    assert found.types == format_types({"in_ptr0": "*fp32"})


def test_a_reduction_without_an_x_dimension_has_the_key_that_its_heuristics_leave() -> None:
    """They set the size hint of ``x`` to 1 before Inductor computes the key."""
    source = reduction()
    hints = re.search(r"size_hints=(\{.*?\})", source)
    with_x = find_kernel_key(source)
    without_x = find_kernel_key(source.replace("'no_x_dim': False", "'no_x_dim': True"))
    ones = find_kernel_key(source.replace(hints[1], str({**ast.literal_eval(hints[1]), "x": 1})) if hints else "")
    assert with_x is not None and without_x is not None and ones is not None
    assert without_x.key == ones.key != with_x.key


def test_text_without_a_kernel_and_text_that_is_none() -> None:
    assert find_kernel_key("x = 1\n") is None
    with pytest.raises(InductorBenchError):
        find_kernel_key("@triton_heuristics.pointwise(\ndef (:\n")
