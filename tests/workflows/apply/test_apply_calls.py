"""One kernel in the place of a library call, or of a group, on a CPU: written, checked, put into a program, proven."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from breakdown_runs import command, copy_of, factory, forks, run, scratch
from documented import documented, with_options
from edited_files import kernel_with
from forking_python import interpreter
from test_apply import program
from test_apply_edits import SINE, own_cache

from inductor_bench.errors import UsageError
from inductor_bench.records.request import KernelRequest
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.kernels.edit_files import run_edit
from inductor_bench.workflows.pins import read_edits

pytestmark = pytest.mark.xdist_group("captures")


def write(folder: RunFolder, name: str, path: Path, *changes: tuple[str, str]) -> Path:
    """Writes the file of calls, with changes in it that leave what it began with as it was."""
    run_edit(KernelRequest((f"{folder.path}#{name}",), edit=path))
    text = path.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


def forward_group(folder: RunFolder) -> str:
    """The first product of the network and the function behind it."""
    return f"aten_addmm_out_0..{kernel_with(folder, 'tanh(').name}"


def verdict_on(path: Path) -> dict[str, object]:
    done = run(command("kernel", path, "--check", "--force", "--format", "json", "-q"), path.parent, **forks())
    assert done.stdout, done.printed
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_kernel_in_the_place_of_a_group_is_checked_like_any_edit(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "group-checked"))
    name = forward_group(folder)
    found = verdict_on(write(folder, name, tmp_path / "right.py"))
    assert found["verdict"] != "refused" and found["language"] == "cpp", found
    checks = found["checks"]
    assert isinstance(checks, list) and {check["outcome"] for check in checks} == {"passed"}
    assert "float64" in {check["against"] for check in checks}
    wrong = write(folder, name, tmp_path / "wrong.py", ("tanh(", "sin("))
    assert verdict_on(wrong)["reason"] == "wrong"


def test_a_library_call_is_checked_in_float64(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "call-checked"))
    path = write(folder, "aten_addmm_out_0", tmp_path / "right.py", ("double sum = 0;", "double sum = 0.0;"))
    found = verdict_on(path)
    assert found["verdict"] != "refused" and found["changed"], found
    rounded = ("sum += static_cast<double>(a[", "sum += static_cast<double>((at::BFloat16)a[")
    path = write(folder, "aten_addmm_out_0", tmp_path / "narrow.py", rounded)
    assert verdict_on(path)["reason"] in ("precision", "wrong")


def test_a_program_runs_one_kernel_in_the_place_of_a_group(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "group-kept"))
    write(folder, forward_group(folder), tmp_path / "mine.py", ("tanh(", "sin("))
    words = command("apply", folder.path, "--kernel", tmp_path / "mine.py")
    written = run(words, folder.path, **forks(), **own_cache(tmp_path))
    assert written.code == 0 and "1 edited kernel" in written.stdout, written.printed
    path = scratch() / "sine.py"
    path.write_text(SINE)
    words = command("apply", folder.path / "tuned", "--", interpreter(), path)
    for _ in range(2):  # the second process finds the graphs in Inductor's caches
        done = run(words, folder.path, **forks(), **own_cache(tmp_path))
        assert done.stdout == "sine True\ntangent False\n", done.printed
        assert "1 of 1 edited kernel ran its edit" in done.stderr


def test_a_group_is_compared_in_the_program_and_a_wrong_one_is_dropped(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "group-proven"))
    good = write(folder, forward_group(folder), tmp_path / "good.py")
    wrong = write(folder, "aten_addmm_out_1", tmp_path / "wrong.py", ("double sum = 0;", "double sum = 1;"))
    broken = write(folder, "aten_mm_out_0", tmp_path / "broken.py", ("double sum = 0;", "double sum = absent;"))
    places = {"runs/train": folder.path, "mine.py": good, "python": interpreter(), "train.py": program("edited")}
    words = documented(
        "inductor-bench apply runs/train --kernel mine.py --verify --fail-above 0% -- python train.py", places
    )
    files = ("--kernel", wrong, "--kernel", broken)
    words = command(*with_options(words, *files, "--stop", "--format", "json"))
    done = run(words, folder.path, **forks(), **own_cache(tmp_path))
    assert done.code == 1, done.printed
    found = json.loads(done.stdout)["verification"]
    kernels = {Path(kernel["edit"]).name: kernel for kernel in found["kernels"]}
    assert {name: kernel["state"] for name, kernel in kernels.items()} == {
        "good.py": "pinned",
        "wrong.py": "dropped",
        "broken.py": "refused",
    }
    assert "absent" in kernels["broken.py"]["reason"]
    assert found["way"] == "steps" and found["outputs"]["difference"] <= found["outputs"]["tolerance"]


def test_what_cannot_be_replaced_is_named_with_the_reason(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "group-refused"))
    backward = kernel_with(folder, "512L*x1").name
    with pytest.raises(UsageError, match="has no module that calls both aten_addmm_out_0 and absent"):
        write(folder, "aten_addmm_out_0..absent", tmp_path / "mine.py")
    with pytest.raises(UsageError, match="has no module that calls both"):
        write(folder, f"aten_addmm_out_1..{backward}", tmp_path / "mine.py")
    path = write(folder, "aten_addmm_out_0", tmp_path / "mine.py")
    assert [edit.kernel for edit in read_edits([path], folder.load())] == ["aten_addmm_out_0"]
    record = folder.path / "record.json"
    record.write_text(record.read_text().replace('"aten.addmm"', '"aten.bmm"'))
    with pytest.raises(UsageError, match="the RUN has no such kernel"):
        read_edits([path], folder.load())
