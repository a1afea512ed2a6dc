"""Standalone files of C++ kernels: what is read out of their source, what they refuse, and that one of them runs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import forking_python
import pytest
from gather_kernel import PICKED, ROWS, SOURCE, gather_text
from source_data import CPU, cpu_sample, module_of

from inductor_bench.errors import InductorBenchError
from inductor_bench.source import standalone_header
from inductor_bench.source.generated_text import read_threads
from inductor_bench.source.harness import cpp_main, timing_cpu
from inductor_bench.source.standalone_header import UnwritableKernelError, write_harness
from inductor_bench.source.standalone_writer import (
    edit_standalone,
    find_vector_bits,
    list_argument_types,
    list_written_arguments,
    quote_source,
)


def own_lines(said: str) -> list[str]:
    """What a file itself says: torch warns on a machine with CUDA's compiler and no GPU."""
    return [line for line in said.splitlines() if not re.match(r"W\d{4} \d\d:", line)]


def test_argument_types_are_those_of_the_entry() -> None:
    assert list_argument_types(SOURCE) == ("const int64_t*", "const float*", "float*", "const int64_t")
    assert list_written_arguments(list_argument_types(SOURCE)) == [2]
    restricted = 'extern "C" void kernel(const bool* __restrict__ a, bfloat16 *b, const double c) {}'
    assert list_argument_types(restricted) == ("const bool*", "bfloat16*", "const double")
    with pytest.raises(UnwritableKernelError, match="no function named kernel"):
        list_argument_types('extern "C" void other(float* a) {}')


@pytest.mark.parametrize("name", ["forward", "backward", "inference"])
def test_argument_types_of_recorded_kernels_equal_those_that_inductor_wrote(name: str) -> None:
    module = module_of(CPU / f"{name}.py")
    for kernel in module.kernels:
        types = list_argument_types(kernel.source)
        assert types and all(each.endswith("*") or each.startswith("const ") for each in types), kernel.name
    assert any(list_argument_types(kernel.source)[-1] == "const int64_t" for kernel in cpu_sample("dyn").kernels)


def test_vectors_are_as_wide_as_the_source_needs() -> None:
    wide = "auto t = at::vec::Vectorized<float>::loadu(p + static_cast<int64_t>(x0), static_cast<int64_t>(8));"
    assert find_vector_bits(SOURCE, "avx512") is None
    assert find_vector_bits("at::vec::Vectorized<float>(1)", "avx512") == 512
    assert find_vector_bits(wide, "avx512") == 256  # told to use half of what the processor has
    assert find_vector_bits(wide, "default") == 256
    half = "tmp = at::vec::Vectorized<at::BFloat16>::loadu(p + x0, static_cast<int64_t>({}));"
    assert find_vector_bits(half.format(16) + "at::vec::convert<float>(tmp)", "avx512") == 512
    assert find_vector_bits(half.format(32) + "at::vec::convert<float,2,at::BFloat16,1>(tmp)", "avx512") == 512
    assert find_vector_bits(half.format(16) + "at::vec::convert<float,2,at::BFloat16,1>(tmp)", "avx512") == 256


@pytest.mark.parametrize(
    "text", ["plain\n", "it's '''quoted'''", "ends in '", "back\\", "two\r\nlines", "\x00", "é\\n"]
)
def test_quoted_text_is_kept_to_the_letter(text: str) -> None:
    assert ast.literal_eval(quote_source(text)) == text


def test_no_part_of_the_harness_defines_what_another_has_defined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text("import os\n\nSAMPLES = 5\n")
    monkeypatch.setattr(standalone_header, "HARNESS", tmp_path)
    assert write_harness("one.py")
    with pytest.raises(ValueError, match=r"other.py defines SAMPLES once more"):
        write_harness("one.py", "other.py")


def test_a_launch_that_does_not_fit_is_not_written() -> None:
    with pytest.raises(UnwritableKernelError, match="takes 2 arguments, 4 were recorded"):
        gather_text('extern "C" void kernel(const float* a, float* b) {}')


def test_a_kernel_for_more_threads_than_there_are_cpus_is_refused() -> None:
    threads = cpp_main.usable_processors() + 1
    facts = {"argument_types": ["float*"], "literal_threads": threads, "vector_bits": None}
    kernel = cpp_main.CppKernel({"name": "k", "launch": {}, "cpp": facts}, "no C++ at all")
    with pytest.raises(
        cpp_main.MachineRefusedError, match=f"exactly {threads} threads, and there are {threads - 1} CPUs"
    ):
        kernel.compile()


def test_arrays_by_thread_count_as_threads_and_arrays_by_lane_do_not() -> None:
    by_thread = "float tmp_acc0_arr[3];\ntmp_acc0_arr[tid] = 1;"
    by_lane = "float tmp_acc1_arr[16];\nfor (int i = 0; i < 16; i++) tmp_acc1_arr[i] = 0;"
    assert read_threads([by_lane]) is None
    assert read_threads([by_lane + by_thread]) == 3
    assert read_threads([by_lane + "#pragma omp parallel num_threads(7)"]) == 7


def test_times_are_ordered() -> None:
    timing = timing_cpu.summarize([3.0, 1.0, 2.0])
    assert timing.pop("samples_s") == [3.0, 1.0, 2.0]
    assert timing == {"median_s": 2.0, "low_s": 1.0, "high_s": 3.0, "min_s": 1.0, "samples": 3}


def test_vectors_are_those_of_the_capture_not_of_this_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    source = SOURCE.replace("in_ptr1[in_ptr0[i]] * 2.0f", "at::vec::Vectorized<float>::size()")
    text = gather_text(source, threads=None, vector_isa="avx2")
    assert text.startswith('"""cpp_gather\n') and "vectors of 256 bits" in text.split('"""')[1]
    namespace: dict[str, Any] = {"__name__": "gather", "__file__": str(tmp_path / "gather.py")}
    exec(compile(text, "gather.py", "exec"), namespace)
    arguments = namespace["make_arguments"]()
    try:
        namespace["call"](arguments)
    except namespace["RefusedError"] as refused:  # a processor without AVX2
        assert "is written for vectors of 256 bits; this machine has" in str(refused)
    else:
        assert arguments.args[2].unique().tolist() == [8]


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a file. That one runs by itself is tested in ``test_extract_cpu.py``."""
    return forking_python.run([str(path), *options], TORCHINDUCTOR_CACHE_DIR=path.parent / "cache")


def test_a_file_runs_checks_and_notices_wrong_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "gather.py"
    path.write_text(gather_text())
    namespace: dict[str, Any] = {"__name__": "gather", "__file__": str(path), "__doc__": ""}
    exec(compile(path.read_text(), str(path), "exec"), namespace)
    arguments = namespace["make_arguments"]()
    namespace["call"](arguments)
    index, table, out, _ = arguments.args
    assert out.equal(table[index] * 2) and int(index.max()) < ROWS and len(index.unique()) > ROWS // 2
    agrees, why = namespace["check"]()
    assert agrees is None and why.endswith("kernel FILE` records it; a second run gives the same bits")

    reference = namespace["fingerprint"](namespace["outputs"](arguments))
    path.write_text(gather_text(reference=reference))
    timed = run(path, "--check", "--json")
    assert timed.returncode == 0, timed.stderr
    result = json.loads(timed.stdout)
    assert result["check"] is True and result["moved_bytes"] == PICKED * 12 + ROWS * 4
    assert 0 < result["warm"]["min_s"] <= result["warm"]["median_s"] <= result["warm"]["high_s"]
    assert result["cold"]["samples"] >= timing_cpu.FEWEST_SAMPLES

    reference["tensors"][0]["mean"] += 0.1
    path.write_text(gather_text(reference=reference))
    wrong = run(path, "--check")
    assert wrong.returncode == 1 and "MISMATCH" in wrong.stderr and len(own_lines(wrong.stderr)) == 1

    path.write_text(gather_text(SOURCE.replace("2.0f", "oops").replace("#include", "#include <cstdint> //")))
    broken = run(path)
    assert broken.returncode == 1 and "does not compile here" in broken.stderr
    assert len(own_lines(broken.stderr)) == 1


# Changes in the text of a standalone file: made where they belong, and nowhere else.


def literals(text: str) -> dict[str, Any]:
    found = {}
    for node in ast.parse(text).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(target, ast.Name) and target.id in ("RECORDED", "SOURCE"):
            found[target.id] = ast.literal_eval(node.value)
    return found


def test_facts_and_source_are_replaced_and_the_rest_is_kept() -> None:
    text = gather_text(calls=3)
    before = literals(text)
    cpp = {**before["RECORDED"]["cpp"], "threads": 4, "flags": "unroll"}
    edited = edit_standalone(text, {"cpp": cpp}, SOURCE + "// it's '''new'''\n")
    after = literals(edited)
    assert after["SOURCE"] == SOURCE + "// it's '''new'''\n"
    assert after["RECORDED"] == {**before["RECORDED"], "cpp": cpp}
    lost = [line for line in text.replace(SOURCE, "").splitlines() if line not in edited.splitlines()]
    assert lost == ["        'threads': 1,", "SOURCE = r''''''"]


def test_a_change_and_the_change_back_give_the_same_text() -> None:
    text = gather_text()
    before = literals(text)
    there = edit_standalone(text, {"cpp": {**before["RECORDED"]["cpp"], "threads": 7}}, "int x;\n")
    assert there != text
    assert edit_standalone(there, {"cpp": before["RECORDED"]["cpp"]}, before["SOURCE"]) == text


def test_facts_alone_leave_the_source_alone() -> None:
    text = gather_text()
    edited = edit_standalone(text, {"threads": 3})
    assert literals(edited)["RECORDED"]["threads"] == 3 and literals(edited)["SOURCE"] == SOURCE


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SOURCE = ''\n", "the file has no RECORDED"),
        ("RECORDED = {'launch': {}}\n", "the file has no SOURCE"),
        ("RECORDED = dict(launch={})\nSOURCE = ''\n", "RECORDED is not a plain literal"),
        ("RECORDED = [1]\nSOURCE = ''\n", "RECORDED is not a plain literal"),
        ("RECORDED = {\n", "it is not Python"),
    ],
)
def test_a_file_that_somebody_rewrote_is_refused(text: str, why: str) -> None:
    with pytest.raises(InductorBenchError, match=why):
        edit_standalone(text, {"threads": 3}, "new")
