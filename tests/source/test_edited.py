"""The file of an edited kernel: recorded kernels are read back as they were written, and what is no edit is refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from source_data import cpu_sample, gpu_sample

from inductor_bench.errors import UsageError
from inductor_bench.source.edited import BEGIN, END, KernelEdit, digest, edit_text, is_edit, read_edit, read_passed_form

GPU_SAMPLES = ("attention", "combo", "cooperative", "dynamic", "foreach", "partition", "scan", "user")
CPU_SAMPLES = ("cond", "dyn", "opt", "unb")
CPP = """#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0, float* out_ptr0, const int64_t ks0)
{
    for (int64_t i = 0; i < ks0; i++)
        out_ptr0[i] = 2 * in_ptr0[i];
}
"""
TRITON = gpu_sample("dynamic").kernels[0].source
FUNCTION = read_passed_form("triton", TRITON).partition("@triton.jit\n")[2].partition("(")[0]


def written(folder: Path, language: str, source: str, kernel: str = "kernel_0") -> Path:
    """Returns a file for a kernel, as ``kernel --edit`` writes it."""
    source = read_passed_form(language, source)
    facts = {"limit": float("inf"), "launches": [{"shape": (2, 3), "n": None}]}
    triton = "3.6.0" if language == "triton" else None
    hashed, twice = digest(source), "def reference(x):\n    return 2 * x  # twice"
    edit = KernelEdit(Path(), kernel, language, source, hashed, source, "2.11.0", triton, "H200", twice, facts)
    path = folder / "mine.py"
    path.write_text(edit_text(edit, f'{kernel}\n\n"""quoted""" and a \\'))
    return path


def edited(path: Path, old: str, new: str) -> Path:
    """Replaces a text between the marks."""
    head, end, tail = path.read_text().partition(END)
    before, begin, kernel = head.partition(BEGIN)
    assert old in kernel
    path.write_text(before + begin + kernel.replace(old, new) + end + tail)
    return path


@pytest.mark.parametrize("sample", [*GPU_SAMPLES, *CPU_SAMPLES])
def test_a_recorded_kernel_is_read_back_as_its_wrapper_passes_it(sample: str, tmp_path: Path) -> None:
    module = gpu_sample(sample) if sample in GPU_SAMPLES else cpu_sample(sample)
    kernels = [kernel for kernel in module.kernels if kernel.language in ("triton", "cpp")]
    assert kernels
    for kernel in kernels:
        path = written(tmp_path, kernel.language, kernel.source, kernel.name)
        edit = read_edit(path)
        assert is_edit(path.read_text())
        assert (edit.kernel, edit.language, edit.changed) == (kernel.name, kernel.language, False)
        assert edit.source == edit.original_source == read_passed_form(kernel.language, kernel.source)
        assert edit.kernel_id == kernel.kernel_id
        assert "get_args" not in edit.source
        assert "RecordFunction" not in edit.source


def test_a_changed_kernel_is_read_with_its_original_and_what_it_was_made_for(tmp_path: Path) -> None:
    edit = read_edit(edited(written(tmp_path, "cpp", CPP), "2 * in_ptr0[i]", "in_ptr0[i] + in_ptr0[i]"))
    assert edit.changed
    assert edit.source == CPP.replace("2 * in_ptr0[i]", "in_ptr0[i] + in_ptr0[i]")
    assert (edit.original, edit.original_source) == (digest(CPP), CPP)
    assert (edit.torch, edit.triton, edit.device) == ("2.11.0", None, "H200")
    assert edit.facts["launches"][0]["shape"] == [2, 3]
    assert edit.reference == "def reference(x):\n    return 2 * x\n"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("out_ptr0[i] =", "''' out_ptr0[i] =", "it is not Python"),
        ("const float* in_ptr0", "const double* in_ptr0", "another signature"),
        (", const int64_t ks0)", ")", "another signature"),
        ("kernel(", "my_kernel(", "no function"),
        ('extern "C"', 'extern "C" void kernel(float* x) {}\nextern "C"', "2 functions named kernel"),
        ("#include", "#include <torch/extension.h>\n#include", "torch/extension.h"),
        ("    for", "    static float* seen = nullptr;\n    for", "`static` keeps data"),
        ('extern "C"', 'float cache[64];\nextern "C"', "`float cache.64.` keeps data"),
        ("    for", "    omp_set_num_threads(1);\n    for", "`omp_set_num_threads` changes a setting"),
        ("    for", "    auto now = std::chrono::steady_clock::now();\n    for", "asks for the time"),
        ("    for", '    system("true");\n    for', "`system` reaches out"),
        ("SOURCE = r'''", "import os\nSOURCE = r'''", "more than SOURCE"),
        ("SOURCE = r'''", "SOURCE = '' + r'''", "no plain text"),
        ("SOURCE = r'''", "TEXT = r'''", "one SOURCE"),
    ],
)
def test_a_cpp_edit_that_no_program_could_take_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        read_edit(edited(written(tmp_path, "cpp", CPP), old, new))
    assert raised.value.hint


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    for", "    // static: std::thread, system(\n    for"),
        ("    for", "    static const float two = 2;\n    for"),
        ("out_ptr0[i] = 2", "out_ptr0[i] = static_cast<float>(2)"),
        ("#include", "#include <immintrin.h>\n#include <array>\n#include"),
        (
            'extern "C"',
            'constexpr int64_t tile = 64;\nstatic inline float twice(float x) { return 2 * x; }\nextern "C"',
        ),
        (
            'extern "C"',
            'namespace { struct Tile { float at[8]; }; }\ntemplate <int N> float g() { return N; }\nextern "C"',
        ),
        ("const float* in_ptr0", "const float* __restrict__ in_ptr0"),
    ],
)
def test_helpers_constants_and_comments_are_no_reason_to_refuse(old: str, new: str, tmp_path: Path) -> None:
    assert read_edit(edited(written(tmp_path, "cpp", CPP), old, new)).changed


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tl.load(", "tl.load((", "it is not Python"),
        (f"{FUNCTION}(in_out_ptr0", f"{FUNCTION}(in_ptr0", "another signature"),
        (f"{FUNCTION}(", "def other(", "the kernel is named other"),
        ("size_hints={", "size_hints={'y': 4, ", "size_hints .* grid"),
        ("'grid_type': '", "'grid_type': 'My", "inductor_meta .* grid"),
        ("'signature': {", "'signature': {'z': 'i32', ", "triton_meta"),
        ("@triton_heuristics", "@other", "no kernel"),
        ("import triton\n", "import triton\nimport torch\n", "an import of torch"),
        ("import triton\n", "import triton\nfrom os import system\n", "an import"),
        ("import triton\n", "import triton\nprint(1)\n", "would be run"),
        ("import triton\n", "import triton\nTILE = [open]\n", "no constant"),
        ("import triton\n", "import triton\ndef helper(x): return x\n", "no function of Triton"),
        ("tl.load(", "eval(", "eval is not for kernels"),
        (FUNCTION, f"{FUNCTION}(x):\n    pass\n\n@triton.jit\n{FUNCTION}", "two functions are named"),
    ],
)
def test_a_triton_edit_that_no_program_could_take_is_refused(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        read_edit(edited(written(tmp_path, "triton", TRITON), old, new))
    assert raised.value.hint


def test_a_triton_edit_may_have_helpers_constants_and_other_hints(tmp_path: Path) -> None:
    path = written(tmp_path, "triton", TRITON)
    helper = "TILE: tl.constexpr = tl.constexpr(64)\n\n@triton.jit\ndef helper(x):\n    return x\n\n"
    edited(path, "@triton_heuristics", f"{helper}@triton_heuristics")
    edited(path, "tl.load(", "helper(0) + tl.load(")
    assert read_edit(edited(path, "    filename=__file__", "    min_elem_per_thread=4,\n    filename=__file__")).changed


def test_a_file_that_is_no_edit_is_refused_with_the_command_that_writes_one(tmp_path: Path) -> None:
    path = written(tmp_path, "cpp", CPP)
    text = path.read_text()
    cases = {
        "no file of an edited kernel": "print(1)\n",
        "each of the two marks": text.replace(END, f"{BEGIN}\n{END}"),
        "it was changed below": text.replace("'n': None", "'n': 3"),
        "was changed below the second mark": text.replace("2 * x", "3 * x"),
        "not as it was written": text.replace("ORIGINAL = ", "OTHER = "),
        "another version": text.replace("'format': 1", "'format': 99"),
    }
    for said, changed in cases.items():
        path.write_text(changed)
        with pytest.raises(UsageError, match=said) as raised:
            read_edit(path)
        assert "--edit" in raised.value.hint


def test_a_link_a_missing_file_and_one_that_is_no_text_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "cpp", CPP)
    link = tmp_path / "link.py"
    os.symlink(path, link)
    (tmp_path / "bytes.py").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.py").write_text("#" * 2_000_000)
    names = {"link.py": "symbolic link", "none.py": "no file", "bytes.py": "not a Python file", "large.py": "1 MB"}
    for name, said in names.items():
        with pytest.raises(UsageError, match=said):
            read_edit(tmp_path / name)
