"""A kernel of a RUN as a file to edit: what it says, what it holds, and what cannot be edited."""

from __future__ import annotations

import ast
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from inline import change
from source_data import CPU, DATA

from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.records.code import MachineLoad
from inductor_bench.records.request import KernelRequest
from inductor_bench.source.edited import BEGIN, END, read_edit
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.kernels.edit_evidence import check_texts, find_buffer_roles
from inductor_bench.workflows.kernels.edit_files import find_run_kernel, find_unread_places, is_edit_file, run_edit

RED = "triton_red_fused_gelu_native_layer_norm_0"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of a RUN of a CPU, and of one of a GPU."""
    folder = tmp_path_factory.mktemp("runs")
    for name, file in (("cpu", CPU / "run_of_format_2.zip"), ("gpu", DATA / "documented" / "loss.zip")):
        with zipfile.ZipFile(file) as archive:
            archive.extractall(folder / name)
    return folder


def write(target: str, place: Path) -> str:
    run_edit(KernelRequest((target,), edit=place))
    return place.read_text()


def assert_head_says(text: str, *words: str) -> None:
    """Asserts that the head of a file says all of this."""
    head = ast.get_docstring(ast.parse(text)) or ""
    assert [said for said in words if said not in head] == []


def test_a_cpp_kernel_is_written_with_what_its_writer_needs(runs: Path, tmp_path: Path) -> None:
    text = write(f"{runs}/cpu#cpp_fused_relu_0", tmp_path / "mine.py")
    assert_head_says(
        text,
        "inductor-bench kernel mine.py --check",
        "in_out_ptr0: float32 [32, 128], strides [128, 1], aligned to 64 bytes, written",
        "made for: torch 2.13.0",
        "before:   aten.addmm",
        "after:    aten.addmm",
    )
    edit = read_edit(tmp_path / "mine.py")
    assert not edit.changed
    assert is_edit_file(str(tmp_path / "mine.py"))
    ((original, edited),) = check_texts(edit)
    assert original == edited
    assert "RECORD_FUNCTION" not in edit.source


def test_the_head_of_a_file_says_that_its_times_are_those_of_a_busy_machine(runs: Path, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "quiet")
    shutil.copytree(runs / "cpu", folder.path)
    run, idle = folder.load(), MachineLoad(200, 2, 7.8, 0.5, cpu_time_s=1.84, waited_s=0.0, stolen_s=0.0)
    modules = tuple(change(one, wall_load=idle, profile_load=idle) for one in run.modules)
    folder.save(replace(run, modules=modules))
    words = "hese times may be too long: the machine was busy (load 7.2 on 2 cores, waiting for a core 74% of the"
    for target, said in (("cpp_fused_relu_0", f"\nbusy:     t{words}"), ("aten_addmm_out_0", f"\nT{words}")):
        assert said in write(f"{runs}/cpu#{target}", tmp_path / f"busy_{target}.py"), target
        assert "may be too long" not in write(f"{folder.path}#{target}", tmp_path / f"{target}.py")


def test_what_is_returned_after_the_block_of_its_device_is_a_result() -> None:
    """A module for a GPU returns its results below the block in which it launches its kernels."""
    text = """
class Runner:
    def call(self, args):
        arg0_1, = args
        with torch.cuda._DeviceGuard(0):
            buf0 = empty_strided_cuda((8,), (1,), torch.float32)
            buf1 = empty_strided_cuda((8,), (1,), torch.float32)
            buf2 = empty_strided_cuda((8,), (1,), torch.float32)
            triton_poi_fused_0.run(arg0_1, buf0, buf1, buf2, 8, stream=stream0)
            del arg0_1
            triton_poi_fused_1.run(buf1, 8, stream=stream0)
            del buf2
        return (buf0, buf1, )

def benchmark_compiled_module(times=10):
    return buf2
"""
    assert find_unread_places(text, "triton_poi_fused_0") == {0, 3}
    assert find_unread_places(text, "triton_poi_fused_1") == frozenset()


def test_a_changed_cpp_kernel_is_checked_with_the_flags_of_the_original(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = write(f"{runs}/cpu#cpp_fused_relu_0", path)
    path.write_text(text.replace("#pragma omp parallel", "// one thread", 1))
    ((original, edited),) = check_texts(read_edit(path))
    facts = [[line for line in one.splitlines() if line.startswith("    'cpp'")] for one in (original, edited)]
    assert facts[0] == facts[1]
    assert edited == original.replace("#pragma omp parallel", "// one thread", 1)


def test_a_triton_kernel_is_written_with_its_roof_and_the_same_in_pytorch(runs: Path, tmp_path: Path) -> None:
    text = write(f"{runs}/gpu#{RED}", tmp_path / "mine.py")
    assert_head_says(
        text,
        "in_out_ptr0: float32 [32768, 1]",
        "limited by DRAM bandwidth, reaches",
        "registers",
        "config:",
        "before:   aten.addmm",
        "The function reference below computes the same",
    )
    edit = read_edit(tmp_path / "mine.py")
    assert find_buffer_roles(edit).output_only == (4, 5)
    assert (
        "def reference(in_out_ptr0, in_ptr0, in_ptr1, in_ptr2, out_ptr0, out_ptr1, xnumel, r0_numel):" in edit.reference
    )
    assert "getitem_1 = var_mean[1]" in edit.reference
    kernel = text.partition(BEGIN)[2].partition(END)[0]
    assert "@triton_heuristics.reduction(" in kernel
    assert "get_args" not in kernel
    for one in check_texts(edit)[0]:
        compile(one, "standalone", "exec")


def test_a_triton_edit_with_other_hints_is_checked_in_the_config_that_these_choose(runs: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    text = write(f"{runs}/gpu#{RED}", path)
    path.write_text(text.replace("tl.load(", "1 * tl.load(", 1))
    ((original, edited),) = check_texts(read_edit(path))
    assert "'config': {" in original
    assert "'config': {" in edited
    path.write_text(text.replace("ReductionHint.INNER", "ReductionHint.DEFAULT", 1))
    ((original, edited),) = check_texts(read_edit(path))
    assert "'config': {" in original
    assert "'config': {" not in edited


def test_every_generated_kernel_of_a_run_is_read_back_as_it_was_written(runs: Path, tmp_path: Path) -> None:
    names = [f"triton_red_fused_sum_{number}" for number in (3, 4, 7)]
    for name in names:
        write(f"{runs}/gpu#{name}", tmp_path / f"{name}.py")
        edit = read_edit(tmp_path / f"{name}.py")
        assert edit.source == edit.original_source == find_run_kernel(f"{runs}/gpu#{name}").source


@pytest.mark.parametrize(
    "target",
    ["{}/cpu#cpp_*_relu_?", "{}/cpu#*relu*.py", "{}/gpu#triton_red_*_layer_norm_0", "{}/gpu#triton_red_…norm_0"],
)
def test_a_glob_or_a_shortened_name_that_fits_one_kernel_names_it(runs: Path, target: str, tmp_path: Path) -> None:
    write(target.format(runs), tmp_path / "mine.py")
    assert read_edit(tmp_path / "mine.py").kernel == (RED if "gpu" in target else "cpp_fused_relu_0")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("{}/cpu", "names no kernel of a RUN"),
        ("{}/none#cpp_fused_relu_0", "is no RUN"),
        ("{}/cpu#cpp_fused_gelu_0", "has no kernel cpp_fused_gelu_0"),
        ("{}/cpu#cpp_fused_gelu_*", r"has no kernel cpp_fused_gelu_\*"),
        ("{}/gpu#triton_red_fused_sum_[37]", "fits 2 kernels of .*: triton_red_fused_sum_3, triton_red_fused_sum_7$"),
        ("{}/gpu#triton_red_fused_sum_3..triton_red_fused_sum_99", "has no module that calls both"),
        ("{}/gpu#..triton_red_fused_sum_3", "names no first kernel"),
        ("{}/gpu#triton_red_fused_sum_3..", "names no last kernel"),
        ("{}/gpu#a..b..c", "names more than a first and a last kernel"),
        ("{}/gpu#triton_poi_fused_native_layer_norm_backward_2", "cannot be called by itself"),
    ],
)
def test_what_cannot_be_edited_is_refused(runs: Path, target: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        write(target.format(runs), tmp_path / "mine.py")
    assert raised.value.hint
    assert not (tmp_path / "mine.py").exists()


def test_a_run_whose_modules_are_gone_is_said_to_be_damaged(runs: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(runs / "cpu", tmp_path / "damaged")
    for module in (damaged / "modules").glob("*.py"):
        module.unlink()
    with pytest.raises(InductorBenchError, match="is gone") as raised:
        write(f"{damaged}#cpp_fused_relu_0", tmp_path / "mine.py")
    assert "the RUN is damaged" in raised.value.hint


def test_an_edit_is_not_overwritten_and_other_options_are_refused(runs: Path, tmp_path: Path) -> None:
    place = tmp_path / "mine.py"
    place.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        write(f"{runs}/cpu#cpp_fused_relu_0", place)
    assert place.read_text() == "mine"
    with pytest.raises(UsageError, match="--autotune is not for --edit"):
        run_edit(KernelRequest((f"{runs}/cpu#cpp_fused_relu_0",), autotune="max", edit=tmp_path / "other.py"))
