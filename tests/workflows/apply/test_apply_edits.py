"""Edited kernels put into a program on a CPU, proven, kept in RUN/tuned, and refused."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from breakdown_runs import PROGRAMS, command, copy_of, factory, forks, run, scratch
from documented import documented, with_options
from edited_files import kernel_with, write_edit
from forking_python import interpreter
from inline import change
from retuned_runs import write_winners
from test_apply import apply, program

from inductor_bench.errors import InductorBenchError, UsageError
from inductor_bench.messages.observed import APPLY, PINNED, Pins
from inductor_bench.records.edit import CPP, REFUSED, EditHashes, EditPin, EditVerdict
from inductor_bench.records.request import ApplyRequest
from inductor_bench.records.retune import FASTER, STEPS, AppliedKernel, Ratio, Verification
from inductor_bench.records.run import Environment
from inductor_bench.source.edited import KernelEdit
from inductor_bench.store import codec
from inductor_bench.store.caches import save_verdict
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows import apply as apply_workflow
from inductor_bench.workflows.pins import (
    EDITED_NOW,
    PinnedRun,
    add_checked_ratios,
    add_edits,
    edit_pin,
    make_pins,
    read_edits,
    warn_of_unchecked_edits,
)
from inductor_bench.workflows.progress import Silent
from inductor_bench.workflows.proof import ProofPlan, describe_kernels
from inductor_bench.workflows.tuned import TunedRecord, load_tuned, write_page, write_tuned

pytestmark = pytest.mark.xdist_group("captures")

ENTRY = 'extern "C"'
SINE = f"""
import sys, torch
sys.path.insert(0, {str(PROGRAMS)!r})
from factories import mlp
torch.manual_seed(3)
model, inputs = mlp()
result = torch.compile(model)(*inputs)
result.mean().backward()
first, _, last = model
for name, function in (("sine", torch.sin), ("tangent", torch.tanh)):
    print(name, torch.allclose(result, last(function(first(*inputs))), atol=1e-5))
sys.exit(7)
"""


HITS = 'print("hits", torch._dynamo.utils.counters["inductor"]["fxgraph_cache_hit"])'


def sine(run: RunFolder, path: Path) -> KernelEdit:
    """An edit of the forward kernel that computes a sine in the place of a hyperbolic tangent."""
    return write_edit(run, kernel_with(run, "tanh("), path, lambda text: text.replace("tanh(", "sin("))


def own_cache(folder: Path) -> dict[str, str]:
    """Caches of a test's own: from the user's, torch may load what another session compiled for other vectors, and the
    tool's holds which edits the checks of other tests refused."""
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "INDUCTOR_BENCH_CACHE": str(folder / "verdicts")}


def with_constant(value: str) -> Callable[[str], str]:
    """Adds a constant of its own to a C++ kernel."""
    return lambda text: text.replace(ENTRY, f"constexpr int edited = {value};\n{ENTRY}")


def test_an_edit_is_compared_a_wrong_one_dropped_and_one_that_does_not_compile_named(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "with-edits"))
    good = write_edit(folder, kernel_with(folder, "tanh("), tmp_path / "good.py", with_constant("1"))
    twice = kernel_with(folder, "(1.0)")
    wrong = write_edit(folder, twice, tmp_path / "wrong.py", lambda text: text.replace("(1.0)", "(2.0)"))
    summed = kernel_with(folder, "512L*x1")
    broken = write_edit(folder, summed, tmp_path / "broken.py", with_constant("absent"))
    places = {"runs/train": folder.path, "mine.py": good.path, "python": interpreter(), "train.py": program("edited")}
    words = documented(
        "inductor-bench apply runs/train --kernel mine.py --verify --fail-above 0% -- python train.py", places
    )
    files = ("--kernel", wrong.path, "--kernel", broken.path)
    words = command(*with_options(words, *files, "--stop", "--format", "json"))
    done = run(words, folder.path, **forks(), **own_cache(tmp_path))
    assert done.code == 1, "an edit that does not run is a failure"
    found = json.loads(done.stdout)["verification"]
    assert found["way"] == "steps" and found["step"]["pairs"] >= 9
    kernels = {Path(kernel["edit"]).name: kernel for kernel in found["kernels"]}
    assert {name: kernel["state"] for name, kernel in kernels.items()} == {
        "good.py": "pinned",
        "wrong.py": "dropped",
        "broken.py": "refused",
    }
    assert "changes the outputs of its graph" in kernels["wrong.py"]["reason"]
    assert "of a tensor's norm" in kernels["wrong.py"]["reason"]
    assert "did not compile here" in kernels["broken.py"]["reason"] and "absent" in kernels["broken.py"]["reason"]
    assert found["outputs"]["graphs"] == 2 and found["outputs"]["difference"] <= found["outputs"]["tolerance"]
    assert folder.load().verification is not None, "the record keeps it"
    assert "Outputs agree" in (folder.path / "report.html").read_text(), "and the page shows it"


def test_a_program_runs_what_the_folder_tuned_holds(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "kept"))
    sine(folder, tmp_path / "mine.py")
    places: dict[str, str | Path] = {"runs/train": folder.path, "mine.py": tmp_path / "mine.py"}
    words = documented("inductor-bench apply runs/train --kernel mine.py", places)
    written = run(command(*words), folder.path, **forks(), **own_cache(tmp_path))
    assert written.code == 0 and "1 edited kernel" in written.stdout
    (tmp_path / "mine.py").unlink()
    moved = shutil.move(folder.path / "tuned", tmp_path / "elsewhere")
    path = scratch() / "sine.py"
    path.write_text(SINE.replace("sys.exit(7)", f"{HITS}\nsys.exit(7)"))
    places = {"runs/train/tuned": moved, "python": interpreter(), "train.py": path}
    words = documented("inductor-bench apply runs/train/tuned -- python train.py", places)
    without = run([interpreter(), str(path)], folder.path, **forks(), **own_cache(tmp_path))
    assert without.stdout == "sine False\ntangent True\nhits 0\n"
    done = run(command(*words), folder.path, **forks(), **own_cache(tmp_path))
    assert done.code == 7, "the program's"
    assert done.stdout == "sine True\ntangent False\nhits 2\n", "the graphs of the program without this tool are found"
    assert "1 of 1 edited kernel ran its edit" in done.stderr


def test_the_folder_holds_configs_and_edits_alike(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "alike_edits"))
    run = write_winners(folder, flags="unroll")
    edits = read_edits([sine(folder, tmp_path / "mine.py").path], run)
    pinned = add_edits(make_pins(run, folder), [*map(edit_pin, edits)], run.environment)
    (edit,) = pinned.pins.edits
    assert edit.kernel_id not in {pin.kernel_id for pin in pinned.pins.configs}, "one kernel runs one thing"
    assert [(one.row.kernel_id, one.reason) for one in pinned.unpinned] == [(edit.kernel_id, EDITED_NOW)]
    assert pinned.pins.configs and pinned.pins.digest != make_pins(run, folder).pins.digest

    written = write_tuned(run, folder, pinned)
    tuned = folder.path / "tuned"
    assert tuned / "kernels" / f"{edit.name}.py" in written
    again, environment = load_tuned(tuned)
    assert (again.pins.configs, environment.host.cpu) == (pinned.pins.configs, run.environment.host.cpu)
    assert [one.source for one in again.pins.edits] == [edit.source]
    assert f"kernels/{edit.name}.py" in write_page(run, folder, pinned, {})
    missing = {kernel.name: kernel for kernel in describe_kernels(again, {}, (), {})}
    assert missing[edit.name].state == "missing" and missing[edit.name].edit, "what a program does not have is named"

    write_tuned(run, folder, make_pins(run, folder))
    assert not list((tuned / "kernels").iterdir()), "an edit that was not given is not kept"
    assert load_tuned(tuned)[0].pins.edits == ()


def test_a_proof_of_what_the_folder_holds_says_how_much_faster_each_edit_was_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "cache"))
    folder = RunFolder(copy_of(factory(), "checked_edits"))
    run = folder.load()
    (edit,) = read_edits([sine(folder, tmp_path / "mine.py").path], run)
    write_tuned(run, folder, add_edits(make_pins(run, folder), [edit_pin(edit)], run.environment))

    def verify(pinned: PinnedRun, plan: ProofPlan, progress: object) -> Verification:
        (kernel,) = describe_kernels(pinned, {}, (), {})
        return Verification(STEPS, 0.0, kernels=(replace(kernel, state=PINNED),))

    monkeypatch.setattr(apply_workflow, "verify", verify)
    monkeypatch.setattr(apply_workflow, "read_environment", lambda python: run.environment)
    request = ApplyRequest(folder.path / "tuned", ("python", "train.py"), verify=True)
    (note,) = found_by(request).notes
    assert "was not checked by itself" in note and str(folder.path / "tuned" / "kernels") in note
    hashes, ratio = EditHashes(edit.sha256, edit.original, "", "", ""), Ratio(0.72, 0.7, 0.75, 20)
    verdict = EditVerdict(str(edit.path), edit.kernel, edit.kernel_id, CPP, "", "", None, "", FASTER, hashes)
    save_verdict(replace(verdict, ratio=ratio))
    found = found_by(request)
    assert ([one.alone for one in found.kernels], found.notes) == ([ratio], ())


def found_by(request: ApplyRequest) -> Verification:
    found = apply_workflow.run_apply(request, Silent()).verification
    assert found is not None
    return found


def test_a_folder_for_another_torch_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "tuned_elsewhere"))
    own = folder.load()
    run = replace(own, environment=change(own.environment, torch="2.9.9"))
    edit, kernel = sine(folder, tmp_path / "mine.py"), kernel_with(folder, "tanh(")
    pinned = add_edits(make_pins(run, folder), [edit_pin(edit)], run.environment)
    write_tuned(run, folder, pinned)
    with pytest.raises(InductorBenchError, match=r"not 2\.9\.9"):
        load_tuned(folder.path / "tuned")
    with pytest.raises(InductorBenchError, match=r"is for torch 2\.9\.9, not") as refused:
        read_edits([write_edit(folder, kernel, tmp_path / "older.py", torch="2.9.9").path], own)
    assert refused.value.id == "elsewhere"
    with pytest.raises(InductorBenchError, match="is for device another CPU, not"):
        read_edits([write_edit(folder, kernel, tmp_path / "other.py", device="another CPU").path], own)


TEMPLATE = """@triton_heuristics.template(

num_stages=3,
num_warps=4,
)
@triton.jit
def triton_tem_fused_mm_0(arg_A, out_ptr0):
    BLOCK_N : tl.constexpr = 64
    BLOCK_M : tl.constexpr = 128
"""


def test_an_edit_of_a_template_knows_what_max_autotune_had_chosen(tmp_path: Path) -> None:
    edited = TEMPLATE.replace("num_warps=4", "num_warps=8")
    name = "triton_tem_fused_mm_0"
    pin = edit_pin(KernelEdit(tmp_path, name, "triton", edited, "", TEMPLATE, "2.11.0", "3.6.0", "NVIDIA H200"))
    assert pin.choice == ("BLOCK_M=128", "BLOCK_N=64", "num_stages=3", "num_warps=4")
    pins = Pins(APPLY, "digest", "2.11.0", "3.6.0", edits=(pin, replace(pin, kernel_id="o" * 16, choice=())))
    missing = describe_kernels(PinnedRun(pins, {}, {}), {}, (), {})
    assert ["chose a library call" in one.reason for one in missing] == [True, False]


def test_the_name_of_a_kernel_is_no_path_and_two_of_one_name_are_two_files(tmp_path: Path) -> None:
    folder = RunFolder(copy_of(factory(), "named"))
    run = folder.load()
    (tmp_path / "mine.py").write_text("the file")
    names = ("../escaped", "cpp_fused_0", "cpp_fused_0", "cpp_fused_1")
    pins = [EditPin(name, f"{n}" * 16, "", CPP, "", str(tmp_path / "mine.py")) for n, name in enumerate(names)]
    write_tuned(run, folder, add_edits(make_pins(run, folder), pins, run.environment))
    kept = sorted(path.name for path in (folder.path / "tuned" / "kernels").iterdir())
    assert kept == ["cpp_0000000000000000.py", "cpp_1111111111111111.py", "cpp_2222222222222222.py", "cpp_fused_1.py"]
    assert not list(tmp_path.parent.rglob("escaped.py")) and not list(folder.path.rglob("escaped.py"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "tuned.json"),
        ("[]", "no format number"),
        ('{"format": 99}', "newer"),
        ('{"format": 1, "title": 3}', "damaged"),
        ('{"format": 1, "title": "", "environment": {}, "pins": {}, "edits": ["../mine.py"]}', "damaged"),
        (None, "none.py is gone"),
    ],
)
def test_a_damaged_folder_is_named(text: str | None, words: str, tmp_path: Path) -> None:
    pins = Pins(APPLY, "digest", "2.13", None)
    good = codec.encode(TunedRecord(1, "train", Environment(), pins, ("none.py",)))
    (tmp_path / "tuned.json").write_text(json.dumps(good) if text is None else text)
    with pytest.raises(InductorBenchError, match=words):
        load_tuned(tmp_path)


def test_an_edit_that_its_check_refused_is_not_put_in_and_one_that_was_not_checked_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INDUCTOR_BENCH_CACHE", str(tmp_path / "cache"))
    folder = RunFolder(factory().folder)
    (edit,) = read_edits([sine(folder, tmp_path / "it's.py").path], folder.load())
    (words,) = warn_of_unchecked_edits([edit])
    assert "was not checked by itself" in words and f"kernel {shlex.quote(str(edit.path))} --check" in words
    (words,) = warn_of_unchecked_edits([edit, edit, edit])
    assert "and 2 other edits were not checked by themselves" in words
    hashes = EditHashes(edit.sha256, edit.original, "", "", "")
    verdict = EditVerdict(str(edit.path), edit.kernel, edit.kernel_id, CPP, "", "", None, "", FASTER, hashes)
    save_verdict(replace(verdict, ratio=Ratio(0.72, 0.7, 0.75, 20)))
    assert warn_of_unchecked_edits(read_edits([edit.path], folder.load())) == ()
    edited, other = (AppliedKernel("cpp_0", "c" * 16, {}, PINNED, edit=file) for file in (str(edit.path), "b.py"))
    known, unknown = add_checked_ratios([edited, other], [edit])
    assert known == replace(edited, alone=Ratio(0.72, 0.7, 0.75, 20)) and unknown == other
    save_verdict(replace(verdict, verdict=REFUSED, words="out_ptr0: 3 of 4 elements differ"))
    with pytest.raises(UsageError, match=r"it's\.py was refused when it was checked: out_ptr0: 3 of 4 elements differ"):
        read_edits([edit.path], folder.load())
    edit.path.write_text(edit.path.read_text().replace("sin(", "cos("))
    assert warn_of_unchecked_edits(read_edits([edit.path], folder.load())), "another source has no verdict"


def test_files_that_do_not_fit_the_run_are_refused(tmp_path: Path) -> None:
    folder = RunFolder(factory().folder)
    run = folder.load()
    first, second = sine(folder, tmp_path / "first.py"), sine(folder, tmp_path / "second.py")
    with pytest.raises(UsageError, match=r"first.py and .*second.py are both edits of cpp_fused_tanh"):
        read_edits([first.path, second.path], run)
    with pytest.raises(UsageError, match=r"first.py is an edit of cpp_fused_tanh\w*, and the RUN has no such kernel"):
        read_edits([first.path], replace(run, modules=()))
    link = tmp_path / "link.py"
    link.symlink_to(first.path)
    for path in (link, tmp_path / "none.py", folder.path / "record.json"):
        done = apply(folder.path, "--kernel", path, "--", interpreter(), "-c", "print('never')")
        assert done.code in (1, 2) and done.stdout == "" and path.name in " ".join(done.stderr.split())
    for words in (("--known", "--kernel", first.path, "--", "true"), (folder.path, "--kernel", first.path, "--verify")):
        refused = apply(*words)  # type: ignore[arg-type]
        assert refused.code == 2, refused.printed
    assert edit_pin(first).language == CPP
