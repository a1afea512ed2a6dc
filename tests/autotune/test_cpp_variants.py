"""Variants of C++ kernels as text: all recorded kernels, changed in every way that is offered, and changed back."""

from __future__ import annotations

import re
from typing import Any

import pytest
from source_data import CPU, cpu_sample, module_of

from inductor_bench.autotune.kernel_variants import (
    FLAGS,
    SCHEDULES,
    UnfitVariantError,
    default_config,
    list_variant_axes,
    make_variant_source,
)
from inductor_bench.records.code import ModuleSource
from inductor_bench.source.generated_text import read_threads, read_vector_lanes
from inductor_bench.source.standalone_writer import find_vector_bits

PROCESSORS, WIDTHS = 6, (256, 512)
SAMPLES = ("brk", "cond", "dyn", "fall", "frz", "opt", "unb")
MODULES = {
    **{name: module_of(CPU / f"{name}.py") for name in ("forward", "backward", "inference")},
    **{name: cpu_sample(name) for name in SAMPLES},
    **{f"{name} backward": cpu_sample(name, 1) for name in ("dyn", "fall")},
}


def kernels_of(module: ModuleSource) -> dict[str, str]:
    return {kernel.name: kernel.source for kernel in module.kernels if kernel.language == "cpp"}


KERNELS = [
    (f"{place}: {name}", source) for place, module in MODULES.items() for name, source in kernels_of(module).items()
]
every_kernel = pytest.mark.parametrize("source", [source for _, source in KERNELS], ids=[name for name, _ in KERNELS])


def kernel(place: str, part: str) -> str:
    (found,) = [source for name, source in kernels_of(MODULES[place]).items() if part in name]
    return found


def recorded(source: str, threads: int = 2) -> dict[str, Any]:
    bits = find_vector_bits(source, "avx512")
    return {"argument_types": [], "threads": threads, "literal_threads": read_threads([source]), "vector_bits": bits}


def axes_of(source: str) -> dict[str, tuple[Any, ...]]:
    return list_variant_axes(source, recorded(source), PROCESSORS, WIDTHS)


@every_kernel
def test_every_change_does_what_its_config_says_and_can_be_taken_back(source: str) -> None:
    cpp = recorded(source)
    now = default_config(source, cpp)
    assert make_variant_source(source, cpp, now) == (source, cpp)
    for name, values in axes_of(source).items():
        assert values[0] == now[name] and len(set(values)) == len(values)
        for value in values[1:]:
            text, changed = make_variant_source(source, cpp, {**now, name: value})
            assert default_config(text, changed) == {**now, name: value}
            assert (text, changed) != (source, cpp)
            back, _ = make_variant_source(text, changed, now)
            assert back == source


@every_kernel
def test_changes_combine(source: str) -> None:
    cpp = recorded(source)
    last = {**default_config(source, cpp), **{name: values[-1] for name, values in axes_of(source).items()}}
    text, changed = make_variant_source(source, cpp, last)
    assert default_config(text, changed) == last


def test_the_recorded_kernels_are_of_all_kinds() -> None:
    offered = [set(axes_of(source)) for _, source in KERNELS]
    for axis in ("threads", "schedule", "flags", "vector_bits"):
        assert 0 < sum(axis in axes for axes in offered) <= len(KERNELS), axis
    literal = [source for _, source in KERNELS if read_threads([source])]
    assert any("Welford" in source for source in literal) and any("Welford" not in source for source in literal)


@pytest.mark.parametrize("threads", [1, 3, 64])
@pytest.mark.parametrize(("place", "part"), [("forward", "batch_norm"), ("fall", "cpp_fused_sum_2")])
def test_what_is_held_for_each_thread_is_resized(place: str, part: str, threads: int) -> None:
    source = kernel(place, part)
    cpp = recorded(source)
    text, changed = make_variant_source(source, cpp, {**default_config(source, cpp), "threads": threads})
    per_thread = set(re.findall(r"\b(\w+_arr)\[tid\]", source))
    assert per_thread and read_threads([text]) == threads == changed["literal_threads"] == changed["threads"]
    for name in per_thread:
        assert set(re.findall(rf"\b{name}\[(\d+)\];", text)) == {str(threads)}
    assert set(re.findall(r"tid < (\d+)", text)) == {str(threads)}
    assert set(re.findall(r"int i = 0; i < (\d+); i\+\+", text)) == {str(threads)}


def test_arrays_by_lane_stay_as_they_are() -> None:
    source = """
#pragma omp parallel num_threads(4)
{ float sum_arr[4]; for (int i = 0; i < 4; i++)
    { sum_arr[i] = 0; }
  sum_arr[tid] += 1; float lanes_arr[4];
  for (int i = 0; i < 4; i++)
    { lanes_arr[i] = 0; }
}"""
    text, _ = make_variant_source(source, recorded(source), {"threads": 2, "flags": "default"})
    assert "sum_arr[2]" in text and "lanes_arr[4]" in text and "num_threads(2)" in text
    assert text.count("i < 2") == text.count("i < 4") == 1


def test_threads_in_a_form_that_is_not_known_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "#pragma omp parallel num_threads( 4 )\n{ int num_threads = 4; float s_arr[4]; s_arr[tid]; float s_arr[ 4 ]; }"
    )
    monkeypatch.setattr("inductor_bench.autotune.kernel_variants.read_threads", lambda texts: 4)
    with pytest.raises(UnfitVariantError, match="written for 4 threads in a way that cannot be changed"):
        make_variant_source(source, {"literal_threads": 4}, {"threads": 2, "flags": "default"})


def test_schedules_replace_each_other() -> None:
    source = "#pragma omp for collapse(2) schedule( static , 1 )\nfor (;;) {}\n#pragma omp for\nfor (;;) {}"
    assert default_config(source, {"threads": 2})["schedule"] == "static,1"
    text, _ = make_variant_source(source, {"threads": 2}, {"threads": 2, "schedule": "guided", "flags": "default"})
    assert text.count("schedule(guided)") == 2 and "collapse(2) schedule(guided)" in text and "static" not in text
    plain, _ = make_variant_source(text, {"threads": 2}, {"threads": 2, "schedule": SCHEDULES[0], "flags": "default"})
    assert "schedule" not in plain


@pytest.mark.parametrize(
    "change", [{"threads": 100000}, {"threads": None}, {"threads": True}, {"flags": "x"}, {"vector_bits": "x"}]
)
def test_values_that_no_kernel_has_are_refused(change: dict[str, Any]) -> None:
    source = kernel("forward", "cpp_fused_0")
    cpp = recorded(source)
    with pytest.raises(UnfitVariantError):
        make_variant_source(source, cpp, {**default_config(source, cpp), **change})


def test_one_thread_has_nothing_to_share() -> None:
    source = kernel("forward", "cpp_fused_0")
    axes = list_variant_axes(source, recorded(source, threads=1), PROCESSORS, WIDTHS)
    assert "schedule" not in axes and axes["threads"] == (1, 2, 4, 6)
    assert "threads" not in list_variant_axes(source, recorded(source, threads=1), 1, WIDTHS)


@pytest.mark.parametrize("flags", list(FLAGS))
def test_flags_are_switches_of_the_builder_or_a_line_at_the_top(flags: str) -> None:
    source = kernel("brk", "cos")
    cpp = recorded(source)
    text, changed = make_variant_source(source, cpp, {**default_config(source, cpp), "flags": flags})
    assert text.endswith(source) and (text != source) == (flags == "unroll")
    assert changed.get("options", {}) == FLAGS[flags]


@pytest.mark.parametrize("source", [source for _, source in KERNELS if "vector_bits" in axes_of(source)])
def test_narrower_vectors_are_narrower_everywhere(source: str) -> None:
    cpp = recorded(source)
    text, changed = make_variant_source(source, cpp, {**default_config(source, cpp), "vector_bits": 256})
    assert changed["vector_bits"] == 256
    if "Vectorized<" in source:  # otherwise there are masks only
        assert read_vector_lanes([text]) == 8
    assert not re.search(r"\+=\s*static_cast<int64_t>\(16L\)|, static_cast<int64_t>\(16\)\)", text)


def test_tiles_and_loops_without_steps_are_refused() -> None:
    for place, part, why in (
        ("forward", "cpp_fused_0", "tiles of whole vectors"),
        ("frz", "view_1", "no loop in steps"),
    ):
        source = kernel(place, part)
        cpp = {**recorded(source), "vector_bits": 512}
        with pytest.raises(UnfitVariantError, match=why):
            make_variant_source(source, cpp, {**default_config(source, cpp), "vector_bits": 256})
