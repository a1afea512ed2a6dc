"""Every kernel of a program of many kinds, as a file that runs by itself on the CPU and agrees with its reference: the
C++ kernels and the library calls of a convnet and a transformer in training, of their optimizer and of a dynamic graph.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import forking_python
import pytest
from breakdown_runs import PROGRAMS, Done, breakdown, command, environment, forks, run, scratch
from conftest import RARE_COLLECTION, ROOT

pytestmark = pytest.mark.slow

WORDS_BYTES = 8 * 24 * 8
BATCH_NORM = "cpp_fused_*batch_norm*max_pool2d_with_indices_relu_*"
DYNAMIC = "cpp_fused_*index_add*"


@pytest.fixture(scope="module")
def done() -> Done:
    ended = breakdown(scratch() / "cpu-kinds", PROGRAMS / "cpu_kinds.py")
    assert ended.code == 0, ended.printed
    return ended


@pytest.fixture(scope="module")
def rows(done: Done) -> list[dict[str, Any]]:
    return list(json.loads((done.folder / "kernels" / "kernels.json").read_text()))


@pytest.fixture(scope="module")
def variables() -> dict[str, str]:
    """A cache of compiled kernels for all files, and no way to this package."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(scratch() / "kernel-files")}
    return {**environment(), **cache, "PYTHONPATH": str(RARE_COLLECTION)}


@pytest.fixture(scope="module")
def extracted(done: Done, variables: dict[str, str]) -> Path:
    """The files of the RUN once more, with what their kernels compute."""
    folder = scratch() / "cpu-kinds-files"
    cache = {"TORCHINDUCTOR_CACHE_DIR": variables["TORCHINDUCTOR_CACHE_DIR"]}
    ended = run(command("extract", done.folder, "--references", "-o", folder), folder, **cache, **forks())
    assert ended.code == 0, ended.printed
    assert "cannot check" not in ended.stdout
    return folder


@pytest.fixture(scope="module")
def outcomes(extracted: Path, variables: dict[str, str]) -> dict[str, dict[str, Any]]:
    """What became of each file: the last line about it counts."""
    lines = scratch() / "cpu-kinds.jsonl"
    options = ["--jobs", "1", "--budget", "0", "--json", str(lines)]
    words = [sys.executable, "scripts/benchmark_kernels.py", str(extracted), *options]
    ended = subprocess.run(words, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=900)
    assert lines.is_file(), ended.stdout + ended.stderr
    return {one["file"]: one for one in map(json.loads, lines.read_text().splitlines())}


def file_of(done: Done, pattern: str) -> Path:
    return min((done.folder / "kernels").glob(f"{pattern}.py"))


def file_of_embedding_backward(done: Done) -> Path:
    """The file of the kernel that adds the gradient of each word to the row of that word."""
    paths = (done.folder / "kernels").glob("cpp_fused_*embedding_dense_backward*.py")
    return next(path for path in paths if storages_of_words(path))


def storages_of_words(path: Path) -> list[dict[str, Any]]:
    storages = recorded(path)["launch"]["storages"]
    return [one for one in storages if one["dtype"] == "int64" and one["size_bytes"] == WORDS_BYTES]


def header_of(path: Path) -> str:
    return " ".join(path.read_text().split('"""')[1].split())


def recorded(path: Path) -> dict[str, Any]:
    return dict(runpy.run_path(str(path), run_name="standalone")["RECORDED"])


def test_every_kernel_that_ran_has_a_file(done: Done, rows: list[dict[str, Any]]) -> None:
    assert [(row["name"], row["reason"]) for row in rows if not row["file"]] == []
    written = {(row["module"], row["kernel_id"]) for row in rows}
    called = {(row["module"], re.sub(r"_(out_|_two_|stable_|low_out_)*\d+$", "", row["name"])) for row in rows}
    for module in done.record["modules"]:
        for kernel in module["kernels"]:
            if kernel["category"] == "cpp":
                assert (module["label"], kernel["kernel_id"]) in written, kernel["name"]
            else:
                name = kernel["operator"].replace(".", "_").rstrip("_")
                assert (module["label"], name) in called, kernel["name"]


def test_the_program_has_kernels_of_every_kind(rows: list[dict[str, Any]]) -> None:
    categories = {row["category"] for row in rows}
    assert categories == {"cpp", "extern_conv", "extern_gemm", "extern_attention", "extern_aten"}
    names = " ".join(row["name"] for row in rows)
    generated = (
        "batch_norm max_pool2d_with_indices avg_pool2d native_layer_norm gelu dropout log_softmax _foreach argmax"
    )
    library = "aten_convolution_backward attention_for_cpu_backward aten_addmm aten_mm aten_sort aten_topk aten_cumsum"
    for kind in (*generated.split(), *library.split(), "embedding_dense_backward", "native_batch_norm_backward"):
        assert kind in names, kind


def test_every_file_runs_and_agrees(rows: list[dict[str, Any]], outcomes: dict[str, dict[str, Any]]) -> None:
    assert set(outcomes) == {row["file"] for row in rows}
    assert [(name, one["why"]) for name, one in outcomes.items() if not one["ran"]] == []
    assert [(name, one["why"]) for name, one in outcomes.items() if one["agreed"] is not True] == []


def test_only_what_is_drawn_is_compared_by_its_shape_alone(outcomes: dict[str, dict[str, Any]]) -> None:
    assert [name for name, one in outcomes.items() if "only shapes" in one["why"]] == ["aten_randint_low_out_0.py"]


def test_every_file_says_what_it_took_in_the_model_and_what_it_was_compiled_for(
    done: Done, rows: list[dict[str, Any]]
) -> None:
    for name in {row["file"] for row in rows if row["category"] == "cpp"}:
        header = header_of(done.folder / "kernels" / name)
        assert re.search(r" in the model: \d+ calls?, [\d.]+ µs an iteration ", header), header
        assert re.search(r" recorded: torch .* \d+ threads", header), header
    has_vectors = done.record["environment"]["vector_isa"] != "default"
    width = r", vectors of \d+ bits" if has_vectors else ""
    assert re.search(rf" threads{width} ", header_of(file_of(done, BATCH_NORM)))


def test_arguments_are_those_of_the_program(done: Done) -> None:
    (words,) = storages_of_words(file_of_embedding_backward(done))
    assert words["values"]["kind"] == "recorded", "and so some words are there twice"
    launch = recorded(file_of(done, DYNAMIC))["launch"]
    assert [item["integer"] for item in launch["arguments"] if item["kind"] == "int"] == [47, 61]
    views = [item["tensor"]["storage"] for item in launch["arguments"] if item["kind"] == "tensor"]
    assert max(map(views.count, views)) == 2, "the input is read and written through two arguments"
    statistics = recorded(file_of(done, BATCH_NORM))["launch"]
    assert len(statistics["storages"]) < sum(item["kind"] == "tensor" for item in statistics["arguments"])


def run_file(path: Path, variables: dict[str, str]) -> dict[str, Any]:
    """What a file says that agrees with its reference, in a fork of a process that has imported torch."""
    cache = {"TORCHINDUCTOR_CACHE_DIR": variables["TORCHINDUCTOR_CACHE_DIR"]}
    ended = forking_python.run([str(path), "--check", "--json"], **cache)
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    assert result["check"] is True
    return result


def test_a_file_of_a_breakdown_has_no_reference_before_somebody_asks(done: Done, extracted: Path) -> None:
    file = file_of(done, DYNAMIC)
    assert "reference" not in recorded(file) and recorded(extracted / file.name)["reference"]["tensors"]


def test_a_cpp_file_runs_by_itself(done: Done, extracted: Path, variables: dict[str, str]) -> None:
    result = run_file(extracted / file_of_embedding_backward(done).name, variables)
    assert re.match(r"(vectors of \d+ bits; )?\d+ threads; ", result["method"])
    assert result["cold"]["median_s"] > 0 and result["warm"]["median_s"] > 0 and result["moved_bytes"] > 0


def test_a_file_of_a_library_call_runs_by_itself(done: Done, variables: dict[str, str]) -> None:
    result = run_file(file_of(done, "aten_convolution_backward_0"), variables)
    assert result["cold"]["median_s"] > 0 and result["moved_bytes"] > 0
    assert "the same call in float64" in result["check_message"]


def changed(path: Path, pattern: str, replacement: str, target: Path) -> dict[str, Any]:
    """The names that a changed copy of a file defines."""
    text, count = re.subn(pattern, replacement, path.read_text())
    assert count == 1
    target.write_text(text)
    return runpy.run_path(str(target), run_name="standalone")


def test_a_file_for_other_vectors_is_refused_in_one_line(
    done: Done, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = file_of(done, BATCH_NORM)
    other = changed(path, r"'vector_bits': (\d+|None)", "'vector_bits': 4096", tmp_path / path.name)
    assert other["run_cpp"](other["KERNEL"], "", ["--check"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "is written for vectors of 4096 bits; this machine has: " in line


def test_a_file_from_a_machine_with_another_number_of_threads_runs(
    extracted: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    path = next(path for path in sorted(extracted.glob("cpp_*.py")) if recorded(path)["cpp"]["literal_threads"] is None)
    threads = 2 * (os.cpu_count() or 1) + 1
    changed(
        path, r"'threads': \d+,\n        'literal", f"'threads': {threads},\n        'literal", tmp_path / path.name
    )
    assert f"{threads} threads" in run_file(tmp_path / path.name, variables)["method"]
