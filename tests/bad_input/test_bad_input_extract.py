"""Extraction from what is broken, hostile or not there: one clear line, or a row with its reason; the other kernels are
written, and nothing outside of the output folder is touched."""

from __future__ import annotations

import ast
import gzip
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import breakdown_runs as runs
import pytest
from conftest import ROOT
from full_disks import full_disk

from inductor_bench.cli import main as entry
from inductor_bench.source.module_reader import read_module
from inductor_bench.source.standalone_writer import name_file
from inductor_bench.source.static_calls import read_static_launches
from inductor_bench.workflows.modules import kernel_files
from inductor_bench.workflows.modules.extraction import ModuleKernels, list_candidates
from inductor_bench.workflows.modules.kernel_files import write_kernels

TEXT = gzip.decompress((ROOT / "tests/data/cpu_torch2.13/inference.py.gz").read_bytes()).decode()
FIRST = "cpp_fused_convolution_0"
SECOND = "cpp_fused__native_batch_norm_legit_no_training_add_embedding_mean_relu_sum_1"
HOSTILE = (
    "../../etc/passwd",
    "/absolute",
    "..",
    ".hidden",
    "-rf",
    "quote\"and'quote",
    "triple\"\"\"quotes'''",
    "new\nline\r\n",
    "nul\0byte",
    "back\\slash\\N{x}",
    "%s{0}$(touch pwned)",
    "\x1b[31mred\u202e",
    "ядро_0",
    "",
    "CON",
    "json",
    "torch",
    "Kernel_0",
    "kernel_0",
    "k" * 5000,
)


@dataclass(frozen=True)
class Said:
    """What a command returned and printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with one of everything that may be named by mistake."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(TEXT)
    (tmp_path / "script.py").write_text("print('hello')\n")
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "binary.bin").write_bytes(b"\x7fELF\x00\x01\x02")
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\x00\x01\x02")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine.txt").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    return tmp_path


@pytest.fixture
def extract(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the verb in this process."""

    def run(*words: str | Path) -> Said:
        capsys.readouterr()
        code = entry.main(["extract", *map(str, words)])
        said = capsys.readouterr()
        assert "Traceback" not in said.err and "bug in" not in said.err
        return Said(code, said.out, said.err)

    return run


def contents(folder: Path) -> dict[str, bytes | None]:
    paths = sorted(folder.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


def without(name: str) -> str:
    """The module less the definition of one kernel."""
    start = TEXT.index(f"{name} = async_compile")
    return TEXT[:start] + TEXT[TEXT.index("''')\n", start) + 5 :]


@pytest.mark.parametrize(
    ("words", "code", "message", "hint"),
    [
        ("absent.py", 2, "absent.py does not exist", "a RUN folder, a compiled module"),
        ("absent.py:make", 2, "absent.py:make does not exist", "a RUN folder, a compiled module"),
        ("script.py", 2, "script.py is not a compiled module", "inductor-bench breakdown script.py"),
        ("script.py:make", 2, "script.py:make is not a compiled module", "inductor-bench breakdown script.py:make"),
        ("timm:resnet18", 2, "timm:resnet18 is not a compiled module", "breakdown timm:resnet18"),
        ("empty.py", 2, "empty.py is not a compiled module", ""),
        ("binary.py", 2, "binary.py is not a compiled module", ""),
        ("binary.bin", 2, "but binary data", "a RUN folder, a compiled module"),
        ("empty.log", 1, "holds no `Compiled module path:` line", "TORCHINDUCTOR_BENCHMARK_KERNEL=1"),
        ("folder", 2, "neither a RUN (no record.json) nor a TORCH_TRACE folder", "a RUN folder"),
        ("good.py script.py", 2, "script.py is not a compiled module", "several targets"),
        ("good.py -o folder", 2, "folder exists and is not an empty folder", "choose another folder"),
        ("good.py -o script.py", 2, "script.py exists and is not an empty folder", "choose another folder"),
        ("good.py -o script.py/out", 1, "cannot create script.py/out", "choose another folder"),
        ("good.py -o dangling", 1, "cannot create dangling", "choose another folder"),
        ("good.py -o /proc/out", 1, "cannot create /proc/out", "choose another folder"),
        (f"good.py -o {'o' * 300}", 1, "File name too long", "choose another folder"),
        ("good.py", 2, "give either -o DIR or --list", "-o kernels"),
        ("good.py -o out --list", 2, "give either -o DIR or --list", "-o kernels"),
        ("good.py -o out --static --kernel nothing*", 2, "kernels fits --kernel 'nothing*'", "--list shows them all"),
        ("good.py -o out --static --kernel -", 2, "kernels fits --kernel=-", "--list shows them all"),
        ("good.py --list --static --category template", 2, "fits --category template", "categories: cpp, extern_"),
        ("good.py --list --top 0", 2, "--top", ""),
        ("good.py --list --category nonsense", 2, "nonsense", ""),
        ("good.py --list --timeout 0", 2, "--timeout", ""),
        ("good.py -o out --python no-such-python", 2, "no-such-python is not a program", "interpreter"),
    ],
)
def test_a_request_is_refused_in_words(
    words: str, code: int, message: str, hint: str, desk: Path, extract: Any
) -> None:
    wants_output = "-o" in words.split() or "--list" in words or words == "good.py"
    before = contents(desk)
    said = extract(*words.split(), *([] if wants_output else ["-o", "out"]))
    assert said.code == code, said
    assert contents(desk) == before, "something was written"
    (error,) = [line for line in said.err.splitlines() if line.startswith("Error: ")]
    assert message in error
    assert hint in " ".join(line for line in said.err.splitlines() if line.startswith("Hint: "))


def test_an_empty_name(desk: Path, extract: Any) -> None:
    said = extract("", "--list")
    assert said.code == 2 and "the target is an empty name" in said.err


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_run(desk: Path, extract: Any) -> None:
    if os.getuid() == 0:
        pytest.skip("root can write everywhere")
    (desk / "locked").mkdir(mode=0o555)
    said = extract("good.py", "-o", "locked")
    assert said.code == 1 and "cannot write locked: Permission denied" in said.err


@pytest.mark.parametrize("place", ["fresh", "a/b/c", "waiting", "link"])
def test_an_empty_folder_is_filled(place: str, desk: Path, extract: Any) -> None:
    (desk / "waiting").mkdir()
    (desk / "behind").mkdir()
    (desk / "link").symlink_to(desk / "behind")
    said = extract("good.py", "-o", place, "--static", "--kernel", "cpp_*")
    assert said.code == 0, said
    assert {path.name for path in (desk / place).iterdir()} == {f"{FIRST}.py", f"{SECOND}.py", "kernels.json"}
    assert all(len(line) <= 100 for line in said.out.splitlines())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("def call(self, args):", "def call(self, args:"), "it is not Python (line 228: '(' was never"),
        (TEXT[:4000], "it is not Python (line "),
        (TEXT.replace("def call(", "def kall("), "it has no function `call`"),
        (TEXT + "\0", "it is not Python ("),
        (f"{TEXT}\nx = {'-' * 200_000}1\n", "it is not Python ("),
    ],
)
def test_a_broken_module_is_named_and_the_others_are_written(text: str, message: str, desk: Path, extract: Any) -> None:
    (desk / "broken.py").write_text(text)
    alone = extract("broken.py", "-o", "out", "--static")
    assert alone.code == 1 and f"Error: broken.py: not a {'whole ' * ('no function' in message)}" in alone.err
    assert message in alone.err and "may be cut short or edited" in alone.err and not (desk / "out").exists()
    both = extract("broken.py", "good.py", "-o", "out", "--static", "--kernel", "cpp_*")
    assert both.code == 1 and "failed: broken.py: not a" in both.out and (desk / "out" / f"{FIRST}.py").is_file()


def rows_of(folder: Path) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads((folder / "kernels.json").read_text())}


def test_a_kernel_that_is_called_and_not_defined_has_a_row(desk: Path, extract: Any) -> None:
    (desk / "edited.py").write_text(without(FIRST))
    said = extract("edited.py", "-o", "out", "--static")
    rows = rows_of(desk / "out")
    assert said.code == 1 and rows[FIRST]["reason"] == "the module calls it, but does not define it"
    assert rows[FIRST]["calls"] == 1 and rows[SECOND]["file"] == f"{SECOND}.py"
    assert f"{FIRST}: the module calls it, but does not define it" in said.out


def test_library_calls_of_a_module_that_is_not_run_are_read_from_its_text(desk: Path, extract: Any) -> None:
    said = extract("good.py", "-o", "out", "--static")
    rows = rows_of(desk / "out")
    assert said.code == 0 and rows["aten_addmm_out_0"]["file"] == "aten_addmm_out_0.py"
    assert "conv (library)" in said.out and "1 of 1" in said.out


def test_library_calls_that_the_text_does_not_tell_have_rows(desk: Path, extract: Any) -> None:
    (desk / "edited.py").write_text(TEXT.replace("alpha=1", "alpha=some_function()"))
    said = extract("edited.py", "-o", "out", "--static")
    rows = rows_of(desk / "out")
    assert said.code == 1 and rows["aten_addmm"]["category"] == "extern_gemm"
    assert "only a run shows them" in rows["aten_addmm"]["reason"] and "0 of 1" in said.out


def test_a_source_that_does_not_fit_its_calls_has_a_row(desk: Path, extract: Any) -> None:
    (desk / "edited.py").write_text(TEXT.replace("void  kernel(", "void  kernel(const int* extra, ", 1))
    said = extract("edited.py", "-o", "out", "--static", "--kernel", "cpp_*")
    rows = rows_of(desk / "out")
    assert said.code == 1 and "the module's text does not hold its arguments" in rows[FIRST]["reason"]
    assert rows[SECOND]["file"] == f"{SECOND}.py"


def test_a_module_that_ends_in_the_middle_of_its_calls_says_so(desk: Path, extract: Any) -> None:
    (desk / "cut.py").write_text(TEXT[: TEXT.index("        # [Provenance debug handles] extern_kernels.addmm")])
    said = extract("cut.py", "-o", "out", "--static", "--kernel", "cpp_*")
    text = " ".join(said.out.split())
    assert said.code == 0 and "its `call` does not return: the file is cut short or edited" in text


def test_a_module_without_harness_is_read_from_its_text(desk: Path, extract: Any) -> None:
    (desk / "bare.py").write_text(TEXT[: TEXT.index("def get_args()")])
    said = extract("bare.py", "-o", "out", "--static", "--kernel", "cpp_*")
    assert said.code == 0 and (desk / "out" / f"{SECOND}.py").is_file()


def test_top_without_times_says_what_it_takes(desk: Path, extract: Any) -> None:
    said = extract("good.py", "--list", "--static", "--top", "1")
    assert said.code == 0 and FIRST in said.out and SECOND not in said.out and "no times are known" in said.out


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[tuple[Path, list[Any]]]:
    """The files of kernels with hostile names, and their rows."""
    source = read_module(TEXT)
    module = ModuleKernels("inference", "a model", source, read_static_launches(TEXT, source))
    candidate = next(one for one in list_candidates(module) if one.launch is not None)
    candidates = []
    for number, name in enumerate(HOSTILE):
        storages = (*candidate.launch.storages[:-1], replace(candidate.launch.storages[-1], alignment=number + 1))
        header = replace(candidate.header, name=name, aten_ops=(name,), model=name, module=name)
        candidates.append(replace(candidate, header=header, launch=replace(candidate.launch, storages=storages)))
    folder = tmp_path / "deep" / "out"
    folder.mkdir(parents=True)
    yield folder, list(write_kernels(candidates, folder, {}))


def test_hostile_names_make_harmless_files(hostile: tuple[Path, list[Any]], tmp_path: Path) -> None:
    folder, rows = hostile
    assert [row.reason for row in rows] == [""] * len(HOSTILE)
    files = [row.file for row in rows]
    assert sorted(files) == sorted(path.name for path in folder.iterdir()), "each has its own, none lies elsewhere"
    assert len({file.lower() for file in files}) == len(files)
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.parent != folder] == []
    for name, file in zip(HOSTILE, files, strict=True):
        assert file.isascii() and len(file) <= 160 and not file.startswith(("-", ".")), file
        tree = ast.parse((folder / file).read_text())
        recorded = next(node for node in tree.body if isinstance(node, ast.Assign))
        assert ast.literal_eval(recorded.value)["name"] == name
        assert all(letter.isprintable() or letter == "\n" for letter in ast.get_docstring(tree) or "")


@pytest.mark.parametrize("name", ["json", "torch", "CON", "nul", "sitecustomize", "numpy"])
def test_no_file_is_named_like_something_that_its_neighbours_import(name: str) -> None:
    assert name_file(name, "0123456789abcdef") == f"{name}_01234567.py"


def test_a_full_disk_costs_the_files_that_do_not_fit(desk: Path, extract: Any) -> None:
    words = ("good.py", "--static", "--kernel", "cpp_*")
    extract(*words, "-o", "room")
    small, large = sorted((path.stat().st_size, path.name) for path in (desk / "room").glob("*.py"))
    limit = (small[0] + large[0]) // 2
    done = runs.run([*full_disk(limit), *runs.command("extract", *words, "-o", "full")], desk, cwd=desk)
    rows = {row["file"]: row["reason"] for row in rows_of(desk / "full").values()}
    assert done.code == 1 and rows[small[1]] == "" and "cannot write" in rows[None]
    assert contents(desk / "full")[str(desk / "full" / small[1])] == (desk / "room" / small[1]).read_bytes()
    assert {path.name for path in (desk / "full").iterdir()} == {small[1], "kernels.json"}
    assert "No file for 1 kernel" in done.stdout and "File too large" in " ".join(done.stdout.split())


def test_a_full_file_system_leaves_whole_files_only(desk: Path, extract: Any) -> None:
    disk = desk / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        said = extract("good.py", "-o", disk / "out", "--static", "--kernel", "cpp_*")
        assert said.code == 1 and "No space left on device" in " ".join(said.out.split())
        for path in (disk / "out").iterdir():
            assert path.name == "kernels.json" or path.read_text().rstrip().endswith("__doc__.splitlines()[0]))")
    finally:
        subprocess.run(["umount", disk], check=True)


def test_ctrl_c_keeps_whole_files_and_their_list(desk: Path, extract: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    write = kernel_files.write_bytes

    def impatient(path: Path, data: bytes) -> None:
        if path.name.startswith(SECOND):
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(kernel_files, "write_bytes", impatient)
    said = extract("good.py", "-o", "out", "--static")
    assert said.code == 130 and "interrupted; 1 of 4 kernels are in out" in said.err
    assert {path.name for path in (desk / "out").iterdir()} == {f"{FIRST}.py", "kernels.json"}
    assert [row["file"] for row in rows_of(desk / "out").values()] == [f"{FIRST}.py"]


@pytest.fixture
def run_copy(tmp_path: Path) -> Path:
    name = f"extract-{tmp_path.name}"
    return runs.copy_of(runs.recorded(), name)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda run: (run / "modules" / "forward.py").unlink(), "forward.py is gone"),
        (lambda run: (run / "modules" / "forward.py").write_bytes(b"\xff\xfe\x00"), "not a compiled module"),
        (lambda run: (run / "traces" / "forward.details.json").write_text("[1]"), "forward.details.json is damaged"),
        (
            lambda run: (run / "traces" / "forward.details.json").write_text('{"launches": [{}]}'),
            ".kernel is missing",
        ),
        (lambda run: (run / "record.json").write_text('{"format": 999}'), "newer than the"),
        (lambda run: (run / "record.json").write_text("{"), "is not valid JSON"),
    ],
)
def test_a_damaged_run(damage: Any, message: str, run_copy: Path, desk: Path, extract: Any) -> None:
    damage(run_copy)
    said = extract(run_copy, "-o", "out")
    assert said.code == 1 and message in said.err and "Hint: " in said.err and not (desk / "out").exists()


def test_a_run_whose_trace_is_gone_is_extracted_all_the_same(run_copy: Path, desk: Path, extract: Any) -> None:
    (run_copy / "traces" / "forward.trace.json.gz").unlink()
    said = extract(run_copy, "-o", "out", "--kernel", "triton_*")
    words = "".join(said.out.split())  # a path that is longer than a line is folded anywhere
    assert said.code == 1 and "forward.trace.json.gzisgone" in words
    rows = rows_of(desk / "out").values()
    assert rows and all((desk / "out" / row["file"]).is_file() and row["time_s"] > 0 for row in rows)


def test_modules_that_cannot_be_run(desk: Path) -> None:
    """One that crashes, one of another torch version, one for vectors or for a GPU that are not here.

    All are read from their text. The first two hold no vectors: a processor without theirs would not begin to run them.
    """
    start, scalar = "import torch\n", TEXT.replace("at::vec::Vectorized<", "Scalar<")
    (desk / "crash.py").write_text(scalar.replace(start, f"{start}import os; os.kill(os.getpid(), 11)\n", 1))
    gone = "from torch._inductor.hooks import no_longer_there\n"
    (desk / "newer.py").write_text(scalar.replace("['1_inference']", "['2_inference']").replace(start, start + gone, 1))
    (desk / "wide.py").write_text(TEXT.replace("['1_inference']", "['3_inference']"))
    gpu = gzip.decompress((runs.H200 / "samples" / "scan" / "module_0.py.gz").read_bytes())
    (desk / "gpu.py").write_bytes(gpu)
    before = contents(desk)
    words = ("crash.py", "newer.py", "wide.py", "gpu.py", "-o", "out")
    without = {"CUDA_VISIBLE_DEVICES": "", "ATEN_CPU_CAPABILITY": "default"}
    done = runs.run(runs.command("extract", *words), desk, cwd=desk, **without)
    assert done.code == 0, done.printed
    said = " ".join(done.stdout.split())
    assert "could not be run: the worker was killed by SIGSEGV" in said
    assert "could not be run: ImportError: cannot import name 'no_longer_there'" in said
    assert "could not be run: the module was compiled for vectors of 16 floats, and here they hold 1" in said
    assert "could not be run: it is for a CUDA GPU, and torch sees none here" in said
    assert "integer tensors are filled with zeros" in said
    rows = json.loads((desk / "out" / "kernels.json").read_text())
    assert all(row["file"] for row in rows) and {f"{FIRST}.py", "aten_addmm_out_0.py"} <= {row["file"] for row in rows}
    after = {path: data for path, data in contents(desk).items() if Path(path).relative_to(desk).parts[0] != "out"}
    assert after == before


def test_an_interpreter_that_answers_nothing(desk: Path, extract: Any) -> None:
    said = extract("good.py", "-o", "out", "--python", "false", "--kernel", "cpp_*")
    words = " ".join(said.out.split())
    assert said.code == 0 and "could not be run: the worker exited with code 1" in words
    assert (desk / "out" / f"{FIRST}.py").is_file()


def test_the_time_limit_ends_a_worker_that_hangs(desk: Path, extract: Any) -> None:
    (desk / "hang").write_text("#!/bin/sh\nexec sleep 1000\n")
    (desk / "hang").chmod(0o755)
    said = extract("good.py", "-o", "out", "--python", "./hang", "--timeout", "0.2", "--kernel", "cpp_*")
    words = " ".join(said.out.split())
    assert said.code == 0 and "was stopped by the time limit" in words and "--timeout SECONDS" in words


class Properties(NamedTuple):
    """Like Inductor's ``DeviceProperties``."""

    index: int
    multi_processor_count: int

    @classmethod
    def create(cls, device: Any) -> Properties:
        return cls(device.index, 144)


@pytest.mark.parametrize(("option", "count"), [("", 144), ("--as-recorded", 132)])
def test_device_properties_are_those_of_this_gpu_unless_as_recorded(
    option: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from inductor_bench.source.harness.triton_definition import this_device

    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr("sys.argv", ["file.py", *option.split()])
    assert this_device(Properties(3, 132)) == Properties(1, count)


def test_only_files_that_can_be_retargeted_have_the_option(desk: Path, extract: Any) -> None:
    (desk / "gpu.py").write_bytes(gzip.decompress((runs.H200 / "samples" / "scan" / "module_0.py.gz").read_bytes()))
    extract("gpu.py", "good.py", "-o", "out", "--static")
    for path in (desk / "out").glob("*.py"):
        text = path.read_text()
        retargetable = "this_device(DeviceProperties(" in text
        assert retargetable == ("retargetable=True," in text) == ("python FILE --as-recorded" in text)
        assert retargetable == path.name.startswith("triton_")
        header = ast.get_docstring(ast.parse(text)) or ""
        assert all(len(line) <= 100 for line in header.splitlines())
