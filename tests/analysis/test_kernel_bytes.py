"""Bytes of a launch, from real signatures."""

from __future__ import annotations

import pytest
from h200 import source_of, text_of
from source_data import CPU, module_of
from source_data import text_of as cpu_text_of

from inductor_bench.analysis.analyse import _count_kernel_bytes
from inductor_bench.analysis.call_work import (
    EagerOperator,
    EagerOperators,
    count_eager_bytes,
    count_least_bytes,
    count_touched_bytes,
    find_operators,
)
from inductor_bench.records.code import Argument, TensorView
from inductor_bench.records.run import COPY, EAGER
from inductor_bench.records.traced import DeviceEvent, GraphCall, HostOp, ProgramTrace, TensorArguments, Trace, Work
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.static_calls import read_static_launches
from inductor_bench.workflows.modules.extraction import ModuleKernels, list_candidates

CPP = """extern "C"  void  kernel(float* in_out_ptr0,
                       const half* in_ptr0,
                       const int64_t* in_ptr1,
                       float* out_ptr0,
                       const int64_t ks0)
{"""


def tensor(*shape: int, itemsize: int = 4, stride: tuple[int, ...] | None = None) -> Argument:
    return Argument("tensor", tensor=TensorView(0, 0, shape, stride or (1,) * len(shape), "", itemsize))


def number(value: int) -> Argument:
    return Argument("int", integer=value)


def test_in_out_buffers_count_twice_and_numbers_not_at_all() -> None:
    arguments = [tensor(10), tensor(4, 5, itemsize=2), tensor(3, itemsize=8), tensor(2), number(7)]
    assert count_touched_bytes("cpp", CPP, arguments) == 2 * 40 + 40 + 24 + 8


def test_an_expanded_dimension_is_stored_once() -> None:
    arguments = [tensor(8, 100, stride=(0, 1)), tensor(1), tensor(1), tensor(1), number(7)]
    assert count_touched_bytes("cpp", CPP, arguments) == 2 * 400 + 4 + 4 + 4


def test_a_call_that_does_not_fit_the_signature_counts_as_unknown() -> None:
    assert count_touched_bytes("cpp", CPP, [tensor(10)]) is None
    assert count_touched_bytes("cpp", "int main() {}", []) is None


def test_user_defined_triton_kernels_count_each_buffer_once() -> None:
    kernel = next(k for k in source_of("gpu_kinds/2_inference").kernels if k.event_name == "add_kernel")
    arguments = [tensor(1 << 20), tensor(1 << 20), tensor(1 << 20), number(1 << 20), number(1024)]
    assert kernel.moved_bytes is None
    assert count_touched_bytes("triton", kernel.source, arguments) == 3 * 4 * (1 << 20)


@pytest.mark.parametrize("name", ["gpu_kinds/3_inference", "mixnet_l_p10/forward"])
def test_what_inductor_counts_is_what_the_signature_gives(name: str) -> None:
    """Inductor's estimate equals ours if every argument is used whole, as in most pointwise kernels."""
    source = read_module(text_of(f"{name}.py"))
    kernel = next(k for k in source.kernels if k.name.startswith("triton_poi_fused") and k.moved_bytes)
    import re

    calls = re.findall(r"arg_\d+ = rand_strided\((\(.*?\)), (\(.*?\)), .*?dtype=torch\.(\w+)\)", kernel.source)
    sizes = {"float32": 4, "float16": 2, "int64": 8, "uint8": 1, "bool": 1}
    arguments = [tensor(*eval(shape), stride=eval(stride), itemsize=sizes[dtype]) for shape, stride, dtype in calls]
    assert count_touched_bytes("triton", kernel.source, arguments) == kernel.moved_bytes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The gradient of an embedding that is also the last layer: zeros and an atomic addition, then this sum.
        ("programs/graphs/1", {"triton_poi_fused__to_copy_add_mm_25": 50257 * 768 * (2 + 4 + 4)}),
        # What a user's kernel wrote is read.
        ("gpu_kinds/2_inference", dict.fromkeys(("triton_poi_fused_sin_0", "triton_poi_fused_cos_1"), 2 * 4 << 20)),
        ("programs/graphs/0", {}),
        ("gpu_kinds/0_backward", {}),
        ("mixnet_l_p10/forward", {}),
        ("mixnet_l_p10/backward", {}),
    ],
)
def test_a_buffer_that_was_changed_in_place_before_counts(name: str, expected: dict[str, int]) -> None:
    source = read_module(text_of(f"{name}.py"))
    kernels = {kernel.name: kernel for kernel in source.kernels if kernel.moved_bytes}
    found, counted = {}, 0
    for launch in read_static_launches(text_of(f"{name}.py"), source):
        kernel = kernels.get(launch.kernel)
        least = count_least_bytes(kernel.source, launch.arguments) if kernel else None
        counted += least is not None
        if kernel and least is not None and least > (kernel.moved_bytes or 0):
            found[launch.kernel] = least
    assert counted and found == expected


def test_the_record_has_the_larger_count() -> None:
    source = read_module(text_of("programs/graphs/1.py"))
    found = _count_kernel_bytes(source, read_static_launches(text_of("programs/graphs/1.py"), source))
    own = {kernel.name: kernel.moved_bytes for kernel in source.kernels if kernel.name in found}
    assert {name for name, size in own.items() if size != found[name]} == {"triton_poi_fused__to_copy_add_mm_25"}
    assert found["triton_poi_fused__to_copy_add_mm_25"] == 50257 * 768 * (2 + 4 + 4)


def test_a_file_of_a_cpp_kernel_that_was_never_measured_has_these_bytes() -> None:
    source = module_of(CPU / "forward.py")
    launches = read_static_launches(cpu_text_of(CPU / "forward.py"), source)
    found = list_candidates(ModuleKernels("graph", "model", source, launches))
    generated = [one for one in found if one.kernel is not None and one.launch is not None]
    assert generated
    for one in generated:
        assert one.kernel is not None and one.launch is not None and one.header.moved_bytes
        assert one.header.moved_bytes == count_touched_bytes("cpp", one.kernel.source, one.launch.arguments)


# The bytes of eager operators between the graph calls of a step: what a profile proves, and nothing beyond it.


MB = 1 << 20
CALLS = (GraphCall(4, 0, 1.0, 1.5, "main"), GraphCall(5, 1, 3.0, 3.5, "main"))
BANDWIDTH = 9e12


def arguments(*tensors: tuple[tuple[object, ...], tuple[object, ...], str]) -> TensorArguments:
    dims, strides, types = zip(*tensors, strict=True)
    return TensorArguments(dims, strides, types, ("",) * len(types))


def square(kind: str = "float", stride: int = 1024) -> tuple[tuple[object, ...], tuple[object, ...], str]:
    """A tensor of 4 MB of floats."""
    return (1024, 1024), (stride, 1), kind


def found(
    name: str,
    taken: TensorArguments | None,
    *,
    at_s: float = 2.0,
    call: int = -1,
    event: str = "elementwise",
    moved: int | None = None,
) -> tuple[EagerOperator, ...]:
    op = HostOp(name, at_s, 1e-5, "main", 1, -1, taken)
    kind = "kernel" if moved is None else "memcpy"
    device = DeviceEvent(event, kind, at_s + 0.1, 1e-5, 0, 7, 1, 0, at_s, moved_bytes=moved)
    trace = ProgramTrace(Trace((op,), (device,), (), ()), (), (), (), (), (), 0)
    work = Work(COPY if moved else EAGER, name, at_s + 0.1, at_s + 0.1, at_s, at_s, call=call, op=0, event=0)
    return find_operators(trace, [work], CALLS, 0.0, 10.0).operators


def step(*operators: EagerOperator) -> EagerOperators:
    return EagerOperators((4, 5), operators)


def test_an_operator_takes_its_recorded_tensors() -> None:
    (one,) = found("aten::mul", arguments(square(), ((1024,), (1,), "c10::BFloat16"), ((), (), "Scalar")))
    assert one == EagerOperator(1, 1e-5, (4 * MB, 2048))
    (expanded,) = found("aten::add", arguments(square(), square(stride=0)))
    assert expanded.tensors == (4 * MB, 4096), "an expanded row is stored once"


@pytest.mark.parametrize(("at_s", "before"), [(0.5, 0), (2.0, 1), (4.0, 2)])
def test_it_stands_before_the_next_graph_call(at_s: float, before: int) -> None:
    (one,) = found("aten::mul", arguments(square()), at_s=at_s)
    assert one.before == before


def test_what_is_not_recorded_is_not_counted() -> None:
    assert found("aten::mul", None) == ()
    lists = (((1024, 1024), (1024,)), ((1024, 1), (1,)), "TensorList")
    assert found("aten::_foreach_mul_", arguments(lists)) == (), "the element type of a list is unknown"
    assert found("aten::mul", arguments(square()), call=0) == (), "the work of a graph"
    assert found("aten::mul", arguments(square()), at_s=11.0) == (), "another step"


def test_a_table_whose_rows_are_taken_by_index_is_not_read_whole() -> None:
    index = ((8, 32), (32, 1), "long int")
    (one,) = found("aten::index_select", arguments(square(), ((), (), "Scalar"), index))
    assert one.tensors == (2048,)


def test_copies_have_the_bytes_of_the_profiler() -> None:
    (up,) = found("aten::copy_", arguments(square(), square()), event="Memcpy HtoD (Pinned -> Device)", moved=100)
    (within,) = found("aten::copy_", None, event="Memcpy DtoD (Device -> Device)", moved=100)
    assert (up.tensors, within.tensors) == ((100,), (100, 100))


def test_tensors_of_one_size_may_be_one_tensor() -> None:
    chain = step(EagerOperator(1, 1.0, (50,)), EagerOperator(1, 1.0, (50, 50)), EagerOperator(1, 1.0, (50, 70)))
    assert count_eager_bytes(chain, (), BANDWIDTH) == {1: 170}
    apart = step(EagerOperator(0, 1.0, (50,)), EagerOperator(2, 1.0, (50, 50)))
    assert count_eager_bytes(apart, (), BANDWIDTH) == {0: 50, 2: 100}


def test_tensors_that_may_be_a_graphs_memory_do_not_count() -> None:
    operators = step(EagerOperator(1, 1.0, (50, 50, 50, 70)))
    places = [(1000, 50), (1000, 50), (2000, 50), (0, 0)]
    assert count_eager_bytes(operators, places, BANDWIDTH) == {1: 120}, "one of two places is known twice"
    assert count_eager_bytes(step(EagerOperator(1, 1.0, (50,))), places, BANDWIDTH) == {}


def test_what_is_larger_than_the_time_of_its_operator_allows_is_read_in_part() -> None:
    cache_of_keys = step(EagerOperator(1, 2e-6, (1 << 32, 4096)))
    assert count_eager_bytes(cache_of_keys, (), BANDWIDTH) == {1: 4096}
