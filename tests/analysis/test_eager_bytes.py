"""The bytes of eager operators between the graph calls of a step: what a profile proves, and nothing beyond it."""

from __future__ import annotations

import pytest

from inductor_bench.analysis.call_work import EagerOperator, EagerOperators, count_eager_bytes, find_operators
from inductor_bench.records.run import COPY, EAGER
from inductor_bench.records.traced import DeviceEvent, GraphCall, HostOp, ProgramTrace, TensorArguments, Trace, Work

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
