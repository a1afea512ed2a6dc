"""C++ kernels in float64, from those in float32."""

from __future__ import annotations

from source_data import cpu_sample

from inductor_bench.source.widened import widen_launch, widen_source

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
