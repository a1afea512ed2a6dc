"""The verb ``kernel`` with edits: written from a RUN, checked for real on the CPU, and what the verdict comes to."""

from __future__ import annotations

import ast
import json
import shlex
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from documented import documented
from gather_kernel import gather_launch
from kernel_files import LEAN, LOOP, kernel
from source_data import DATA

import inductor_bench
from inductor_bench.analysis.findings.finding import list_program_words
from inductor_bench.analysis.statistics import summarize
from inductor_bench.cli.main import main
from inductor_bench.errors import EXIT_FAILURE, EXIT_OK, EXIT_SLOWER, EXIT_UNDECIDED, EXIT_USAGE, UsageError
from inductor_bench.records.comparison import Pairing
from inductor_bench.records.edit import EditCheck, EditHashes, EditVerdict
from inductor_bench.records.request import KernelRequest
from inductor_bench.records.retune import Ratio
from inductor_bench.records.run import Environment, Host, Versions
from inductor_bench.report.edit_document import describe_pair
from inductor_bench.source.edited import KernelEdit, digest, edit_text, read_edit
from inductor_bench.source.stretch_texts import split_joined_parts
from inductor_bench.store.codec import encode
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.kernels import edit_check
from inductor_bench.workflows.kernels.edit_check import _find_origin, require_same
from inductor_bench.workflows.kernels.edit_evidence import check_texts

HASHES = EditHashes("a" * 64, "b" * 64, "c" * 64, "d" * 64, "e" * 64)
CHECKS = (
    EditCheck("recorded", "nan", 0, "first", "passed", "", 2e-7, 1e-7, 2e-6, "float64"),
    EditCheck("large", "nan", 0, "first", "skipped", "the original cannot be run so"),
)
FASTER = EditVerdict(
    file="mine.py",
    kernel="triton_red_fused_gelu_native_layer_norm_0",
    kernel_id="0" * 16,
    language="triton",
    device="NVIDIA H200",
    torch="2.11.0",
    triton="3.6.0",
    tool_version="0.1.0",
    verdict="faster",
    hashes=HASHES,
    checks=CHECKS,
    original=summarize([2e-4] * 20),
    edited=summarize([1e-4] * 20),
    ratio=Ratio(0.5, 0.49, 0.52, 40),
    moved_bytes=200_000_000,
    roof=4e12,
)
REFUSED = replace(
    FASTER,
    verdict="refused",
    reason="stale",
    words="out_ptr0: 5 of 9 elements still hold the results of the call before (with three elements changed)",
    hint="write every element of each result in each call, for any content of the buffer",
    original=None,
    edited=None,
    ratio=None,
)


def written(folder: Path, source: str = LEAN, torch: str = "2.13.0", **facts: Any) -> Path:
    """Writes an edit of the kernel that gathers rows."""
    launch = replace(gather_launch(), mutated=(2,))
    known = {
        "kernel_id": "0" * 16,
        "category": "cpp",
        "moved_bytes": None,
        "parameters": ["in_ptr0", "in_ptr1", "out_ptr0", "ks0"],
        "roles": {"output_only": [2], "cleared": [], "scratch": []},
        "recorded": {"threads": 1},
        "launches": [encode(launch)],
        **facts,
    }
    edit = KernelEdit(Path(), "cpp_gather", "cpp", source, digest(LEAN), LEAN, torch, None, "", facts=known)
    path = folder / "mine.py"
    path.write_text(edit_text(edit, "cpp_gather"))
    return path


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(list(words))
    return code, capsys.readouterr().out


@pytest.fixture
def edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return written(tmp_path)


@pytest.mark.slow
def test_an_edit_is_compiled_checked_and_timed_in_turn_with_its_original(tmp_path: Path) -> None:
    import torch

    backwards = LEAN.replace(LOOP, "for (int64_t i = ks0 - 1; i >= 0; i--)")
    done = kernel(written(tmp_path, backwards, str(torch.__version__)), "--check", "--format", "json", "-q")
    verdict = json.loads(done.stdout)
    assert verdict["verdict"] in ("faster", "slower", "same", "undecided"), done.stderr
    assert {one["outcome"] for one in verdict["checks"]} == {"passed"}
    assert [one["when"] for one in verdict["checks"]].count("repeated") == 3
    assert [one["when"] for one in verdict["checks"]][-2:] == ["after", "after"]
    assert verdict["ratio"]["pairs"] >= 20
    assert verdict["hashes"]["source"] == digest(backwards)
    assert len(set(verdict["hashes"].values())) == 5
    jsonschema.validate(verdict, inductor_bench.schema(verdict["schema"]))


@pytest.mark.slow
def test_an_edit_that_does_not_compile_shows_the_first_error_with_the_line_of_its_file(tmp_path: Path) -> None:
    import torch

    broken = LEAN.replace(LOOP, f"int first(1)\nint second(first);\nabsent = 1;\n{LOOP}")
    path = written(tmp_path, broken, str(torch.__version__))
    done = kernel(path, "--check", "--format", "json", "-q")
    verdict = json.loads(done.stdout)
    assert (verdict["verdict"], verdict["reason"]) == ("refused", "no-compile"), done.stderr
    lines = path.read_text().splitlines()
    place = next(number for number, line in enumerate(lines, 1) if "second" in line)
    assert f"line {place}: error: " in verdict["words"] and "absent" not in verdict["words"]


def test_a_kernel_of_a_run_is_written_by_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(DATA / "documented" / "loss.zip") as archive:
        archive.extractall("runs/train")
    words = documented("inductor-bench kernel 'runs/train#triton_red_fused_gelu_native_layer_norm_0' --edit mine.py")
    assert main([*words, "--format", "json"]) == EXIT_OK
    assert Path("mine.py").is_file()
    assert main(words) == EXIT_USAGE


def test_one_kernel_in_the_place_of_calls_of_a_gpu_is_written_and_can_be_checked_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(DATA / "documented" / "train.zip") as archive:
        archive.extractall("runs/train")
    call = documented("inductor-bench kernel 'runs/train#aten_mm_out_0' --edit mine.py")
    group = documented(
        "inductor-bench kernel 'runs/train#triton_red_fused_sum_6..triton_per_fused_sum_7' --edit mine.py"
    )
    for words, required, count in ((call, 3, 3), (group, 2, 3)):
        assert main([*words, "--format", "json"]) == EXIT_OK
        edit = read_edit(Path("mine.py"))
        assert (edit.facts["replaces"]["required"], len(edit.arguments)) == (required, count)
        assert bool(edit.reference) == (count == required)
        ((original, edited),) = check_texts(edit)
        assert original.count("STEM = ") == 1 and "'fixed_grid': [" in edited
        for text in (original, edited, *split_joined_parts(original)):
            ast.parse(text)
        Path("mine.py").unlink()


def test_the_exit_code_says_whether_it_is_right_and_faster(
    edit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slower = replace(FASTER, verdict="slower", ratio=Ratio(1.5, 1.4, 1.6, 40))
    unclear = replace(FASTER, verdict="undecided", ratio=Ratio(1.0, 0.9, 1.1, 40))
    cases = ((FASTER, EXIT_OK), (slower, EXIT_SLOWER), (unclear, EXIT_UNDECIDED), (REFUSED, EXIT_FAILURE))
    for verdict, code in cases:
        monkeypatch.setattr(edit_check, "run_check", lambda request, progress, found=verdict: found)
        assert main(documented("inductor-bench kernel mine.py --check --fail-above 0%")) == code
        expected = EXIT_FAILURE if verdict is REFUSED else EXIT_OK
        assert main(documented("inductor-bench kernel mine.py --check")) == expected


def test_a_screen_says_what_was_found_and_json_holds_the_same(
    edit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: list[EditVerdict] = [FASTER]
    monkeypatch.setattr(edit_check, "run_check", lambda request, progress: found[0])
    _, text = printed(capsys, "kernel", "mine.py")
    figures = "2.00x (1.92x to 2.04x in 40 pairs): 0.200 ms → 0.100 ms a call, saves 0.100 ms (96.0 µs to 0.102 ms)"
    assert f"mine.py is right, and is faster than the original, {figures}" in " ".join(text.split())
    assert "1 passed, 1 skipped, with 1 launch" in text
    assert "50% of the roof" in text
    found[0] = replace(FASTER, verdict="undecided", ratio=Ratio(1.0, 0.9, 1.25, 40))
    _, text = printed(capsys, "kernel", "mine.py", "--format", "json")
    said = json.loads(text)["summary"]["headline"]
    assert "may be faster or slower than the original, 1.00x (0.80x to 1.11x in 40 pairs): " in said, (
        "what an agent reads"
    )
    assert said.endswith("saves 0 s (-50.0 µs to 20.0 µs)")
    found[0] = REFUSED
    code, text = printed(capsys, "kernel", "mine.py")
    assert code == EXIT_FAILURE
    assert "mine.py is refused: out_ptr0: 5 of 9 elements still hold the results" in text
    assert "Write every element of each result in each call" in text
    _, text = printed(capsys, "kernel", "mine.py", "--format", "json")
    data = json.loads(text)
    jsonschema.validate(data, inductor_bench.schema(data["schema"]))
    assert (data["verdict"], data["reason"]) == ("refused", "stale")


@pytest.mark.parametrize(
    ("second_s", "ratio", "said"),
    [
        (0.2e-3, Ratio(2.0, 1.9, 2.1, 20), "0.100 ms → 0.200 ms a call, takes 0.100 ms longer (90.0 µs to 0.110 ms)"),
        (
            0.09e-3,
            Ratio(1.1, 1.0, 1.2, 20),
            "in the median, and compared in pairs it takes 10.0 µs longer (0",
        ),
        (
            0.11e-3,
            Ratio(0.9, 0.8, 1.2, 20),
            "in the median, and compared in pairs it saves 10.0 µs (-20.0 µs to 20",
        ),
        (0.1e-3, Ratio(0.9, 0.8, 1.2, 20), "0.100 ms → 0.100 ms a call, saves 10.0 µs (-20.0 µs to 20.0 µs)"),
    ],
)
def test_a_loss_is_no_negative_saving_and_other_medians_are_told_apart(
    second_s: float, ratio: Ratio, said: str
) -> None:
    assert said in describe_pair(Pairing({}, {}, 0.1e-3, second_s, ratio, "slower"))


def test_a_right_edit_is_followed_by_what_proves_it_in_the_program_of_its_run(
    edit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(DATA / "documented" / "loss.zip") as archive:
        archive.extractall("runs/my train")
    assert _find_origin(read_edit(written(edit.parent, run="runs/gone"))) == ("", "")
    place, origin = _find_origin(read_edit(written(edit.parent, run="runs/my train")))
    program = list_program_words(RunFolder(Path("runs/my train")).load().request)
    assert program and (place, origin) == ("runs/my train", program)
    command = f"inductor-bench apply 'runs/my train' --kernel mine.py --verify -- {program}"
    for verdict, said in (("faster", command), ("same", command), ("slower", ""), ("refused", "")):
        found = replace(FASTER, verdict=verdict, run=place, program=program)
        monkeypatch.setattr(edit_check, "run_check", lambda request, progress, found=found: found)
        shown = printed(capsys, "kernel", "mine.py", "--check")[1].partition("Next")[2]
        assert " ".join(shown.split()).startswith(said) and bool(shown) == bool(said)


def test_an_undecided_check_names_the_command_that_times_more_pairs(
    edit: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[KernelRequest] = []

    def check(request: KernelRequest, progress: object) -> EditVerdict:
        asked.append(request)
        return replace(FASTER, verdict="undecided", request=request)

    monkeypatch.setattr(edit_check, "run_check", check)
    words = ["kernel", "mine.py", "--compare", "runs/my train#k", "--python", "a python", "--state", "warm"]
    for said in ("1 min", "10 min", "30 min", ""):
        _, text = printed(capsys, *words)
        shown = " ".join(text.partition("Next")[2].split())
        command, _, rest = shown.partition(" measures more pairs, ")
        assert (f"for up to {said}, until there is a verdict" in rest) == bool(said) == bool(command), said
        words = shlex.split(command)[1:]
    first, *others = asked
    assert [one.proof_s for one in asked] == [None, 60, 600, 1800]
    assert all(replace(one, proof_s=None) == first for one in others)
    doubted = replace(FASTER, verdict="undecided", doubt="its fastest call", request=first)
    monkeypatch.setattr(edit_check, "run_check", lambda request, progress: doubted)
    assert "--proof-time" not in printed(capsys, "kernel", "mine.py")[1], "more pairs cannot decide it"
    Path("other.py").write_text("")
    for option in ("--proof-time", "--fail-above"):
        assert main(["kernel", "other.py", "--check", option, "60"]) == EXIT_USAGE, "nothing is timed in turn"
        assert "add --compare OTHER, or give a file that --edit wrote" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--autotune",), "--autotune is not for the file of an edited kernel"),
        (("--no-check",), "--no-check is not for"),
        (("--ncu",), "--ncu is not for"),
        (("other.py",), "one edited kernel is checked at a time"),
        (("--compare", "other.py"), "other.py names no kernel of a RUN"),
        (("--compare", "none#cpp_gather"), "none is no RUN"),
    ],
)
def test_what_is_not_for_an_edit_is_refused(
    edit: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernel", "mine.py", *words]) == EXIT_USAGE
    assert said in capsys.readouterr().err


def test_an_edit_of_another_kernel_is_not_compared_with_one_of_a_run(
    edit: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(DATA / "documented" / "loss.zip") as archive:
        archive.extractall("runs/train")
    words = documented(
        "inductor-bench kernel mine.py --check --compare 'runs/train#triton_red_fused_gelu_native_layer_norm_0'"
    )
    assert main(words) == EXIT_USAGE
    assert "mine.py is an edit of cpp_gather, and runs/train#triton_red" in capsys.readouterr().err


def test_an_edit_for_another_torch_or_device_is_refused(edit: Path) -> None:
    made = replace(read_edit(edit), torch="2.13.0", device="AMD EPYC")
    here = Environment(versions=Versions(torch="2.13.0"), host=Host(cpu="AMD EPYC"))
    require_same(made, here)
    for found, said in (
        (replace(here, versions=Versions(torch="2.11.0")), "made for torch 2.13.0, and here is 2.11.0"),
        (replace(here, host=Host(cpu="Xeon")), "made for device AMD EPYC, and here is Xeon"),
    ):
        with pytest.raises(UsageError, match=said) as raised:
            require_same(made, found)
        assert raised.value.id == "elsewhere"
    with pytest.raises(UsageError, match="is for a GPU"):
        require_same(replace(made, language="triton", triton="3.6.0"), here)
