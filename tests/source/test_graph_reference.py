"""Plain PyTorch of the graph above a Triton kernel."""

from __future__ import annotations

from source_data import GPU, cpu_sample, gpu_sample, text_of

from inductor_bench.source.edited import (
    Parameter,
    convert_to_float64,
    find_fragment_above,
    widen_launch,
    widen_source,
    write_reference,
)

MODULE = """import torch

# Source node to ATen node mapping:
#   mean => mean
# Graph fragment:
#   %primals_1 : Tensor "bf16[8, 4][4, 1]cuda:0" = PlaceHolder[target=primals_1]
#   %mm : Tensor "f32[8, 4][4, 1]cuda:0" = PlaceHolder[target=mm]
#   %buf2 : Tensor "f32[8, 1][1, 8]cuda:0" = PlaceHolder[target=buf2]
#   %convert_element_type : Tensor "f32[8, 4][4, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.prims.\
convert_element_type.default](args = (%primals_1, torch.float32), kwargs = {})
#   %add : Tensor "f32[8, 4][4, 1]cuda:0"[num_users=2] = call_function[target=torch.ops.aten.add.Tensor](args = \
(%convert_element_type, %mm), kwargs = {alpha: 2})
#   %var_mean : [num_users=2] = call_function[target=torch.ops.aten.var_mean.correction](args = (%add, [1]), kwargs = \
{correction: 0, keepdim: True})
#   %full : Tensor "f32[][]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.full.default](args = ([], 1), \
kwargs = {dtype: torch.float32, layout: torch.strided, device: cuda:0, pin_memory: False})
#   %mul : Tensor "f32[8, 1][1, 1]cuda:0"[num_users=1] = call_function[target=torch.ops.aten.mul.Tensor](args = \
(%getitem, %full), kwargs = {})
#   return %getitem_1,%buf2,%mul
triton_0 = async_compile.triton('triton_0', '')
"""
LINE = MODULE.splitlines().index("triton_0 = async_compile.triton('triton_0', '')") + 1
PARAMETERS = (
    Parameter("in_out_ptr0", "buf3", 8),
    Parameter("in_ptr0", "primals_1", 32, is_read=True),
    Parameter("in_ptr1", "buf1", 32, is_read=True),
    Parameter("xnumel"),
)


def test_a_graph_becomes_a_function_of_the_kernels_parameters() -> None:
    text = write_reference(find_fragment_above(MODULE.splitlines(), LINE), PARAMETERS)
    lines = [line.strip() for line in text.splitlines()]
    assert lines[0] == "def reference(in_out_ptr0, in_ptr0, in_ptr1, xnumel):"
    assert "primals_1 = in_ptr0.reshape((8, 4))" in lines
    assert "mm = in_ptr1.reshape((8, 4))" in lines, "the variable has another name, and the order tells it"
    assert "add = torch.ops.aten.add.Tensor(convert_element_type, mm, alpha=2)" in lines
    assert "getitem = var_mean[0]" in lines
    assert "full = torch.ops.aten.full.default([], 1, dtype=torch.float32)" in lines
    assert lines[-1] == "return [getitem_1, mul]"
    assert "torch.float64" in convert_to_float64(text)
    assert "torch.float32" not in convert_to_float64(text)


def test_a_graph_whose_inputs_or_results_are_unknown_has_no_function() -> None:
    fragment = find_fragment_above(MODULE.splitlines(), LINE)
    assert write_reference(fragment, PARAMETERS[:2]) == ""
    assert write_reference([line for line in fragment if "return" not in line], PARAMETERS) == ""
    assert write_reference([line for line in fragment if "%add :" not in line], PARAMETERS) == ""
    assert find_fragment_above(MODULE.splitlines(), 1) == ()


def test_a_recorded_kernel_has_the_graph_above_it() -> None:
    module = gpu_sample("dynamic")
    lines = text_of(GPU / "samples" / "dynamic" / "module_0.py").splitlines()
    fragment = find_fragment_above(lines, module.kernels[0].line)
    assert any("call_function" in line for line in fragment)
    assert "return" in fragment[-1]


# C++ kernels in float64, from those in float32.


VECTORS = """
auto a = at::vec::Vectorized<float>::loadu(in_ptr0 + x0, static_cast<int64_t>(16));
auto b = at::vec::VecMask<float,1>(a > at::vec::Vectorized<float>(static_cast<float>(0.5)));
auto c = decltype(a)::blendv(a, a, b.template cast<float,1>());
float d = at::vec::vec_reduce_all<float, 1>([](at::vec::Vectorized<float>& x, at::vec::Vectorized<float>& y)
                                            { return x + y; }, c);
"""


def test_a_vector_becomes_two_and_each_float_a_double() -> None:
    text = widen_source(VECTORS)
    assert "float" not in text
    assert "at::vec::VectorizedN<double,2>::loadu(in_ptr0 + x0, static_cast<int64_t>(16))" in text
    assert "VecMask<double,2>" in text
    assert "cast<double,2>()" in text
    assert "vec_reduce_all<double,2>([](at::vec::Vectorized<double>& x" in text


def test_a_kernel_with_narrower_types_has_none() -> None:
    assert widen_source(VECTORS + "const c10::BFloat16* in_ptr1;") == ""
    sources = [kernel.source for kernel in cpu_sample("opt").kernels if kernel.language == "cpp"]
    assert all(widen_source(source) for source in sources)


def test_a_launch_has_storages_of_twice_the_size_where_it_held_floats() -> None:
    view = {"storage": 0, "offset": 3, "shape": [2], "stride": [1], "dtype": "float32", "itemsize": 4}
    launch = {
        "storages": [{"size_bytes": 40, "dtype": "float32"}, {"size_bytes": 8, "dtype": "int64"}],
        "arguments": [{"kind": "tensor", "tensor": view}, {"kind": "int", "integer": 3}],
        "mutated": [0],
    }
    made = widen_launch(launch)
    assert made["storages"] == [{"size_bytes": 80, "dtype": "float64"}, {"size_bytes": 8, "dtype": "int64"}]
    assert made["arguments"][0]["tensor"] == {**view, "dtype": "float64", "itemsize": 8}
    assert made["arguments"][1] == launch["arguments"][1]
    assert made["mutated"] == [0]
