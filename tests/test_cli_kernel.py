"""The verb ``kernel`` on real C++ kernels: timed, retuned, saved; and what becomes of files that cannot be measured."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from breakdown_runs import Done, command, environment, run, scratch
from test_source_standalone_cpp import SOURCE, gather_text

from inductor_bench.records.category import Category

pytestmark = pytest.mark.slow

PROGRAM = """
import torch

def step(x, w):
    return torch.softmax(torch.relu(x @ w) * 2, -1)

torch.compile(step)(torch.randn(256, 64), torch.randn(64, 384))
"""
LOOP = "for (int64_t i = 0; i < ks0; i++)"
HEADERS = ("chrono", "cmath", "cstdint", "omp.h", "thread")
LEAN = SOURCE.replace("#include <torch/csrc/inductor/cpp_prefix.h>", "\n".join(f"#include <{one}>" for one in HEADERS))
"""Compiled in a fraction of the time that torch's own headers take."""


@functools.cache
def kernels() -> Path:
    """A RUN folder's stand-in: ``kernels/`` with a C++ kernel and a matrix product of a tiny compiled function."""
    folder = scratch() / "kernel-verb"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    cache = folder / "compiled"
    variables = {**environment(), "TORCHINDUCTOR_CACHE_DIR": str(cache)}
    subprocess.run([sys.executable, folder / "program.py"], env=variables, check=True, timeout=300)
    (module,) = [path for path in cache.rglob("*.py") if "def call(" in path.read_text()]
    (folder / "module.py").write_text(module.read_text())
    done = run(command("extract", module, "-o", folder / "kernels", "-q"), folder, **compiler_cache())
    assert done.code == 0, done.printed
    return folder / "kernels"


def compiler_cache() -> dict[str, str]:
    return {"TORCHINDUCTOR_CACHE_DIR": str(scratch() / "kernel-verb-cache")}


def kernel(*arguments: str | Path, cwd: Path | None = None) -> Done:
    return run(command("kernel", *arguments), scratch(), cwd=cwd, **compiler_cache())


def measured(*arguments: str | Path) -> tuple[Done, dict[str, Any]]:
    done = kernel(*arguments, "--format", "json", "-q")
    return done, json.loads(done.stdout, parse_constant=pytest.fail)


def softmax() -> Path:
    (found,) = kernels().glob("cpp_fused*softmax*.py")
    return found


def gather(folder: Path, name: str = "gather", source: str = LEAN, **recorded: Any) -> Path:
    """The standalone file of a kernel that gathers rows."""
    path = folder / f"{name}.py"
    path.write_text(gather_text(source, category=Category.CPP.value, **recorded))
    return path


def changed(folder: Path, name: str, old: str, new: str) -> Path:
    path = gather(folder, name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


# What is measured


@functools.cache
def tuned() -> tuple[Done, dict[str, Any], Path]:
    place = scratch() / "winners" / "tuned.py"
    return (*measured(softmax(), "--autotune", "--save", place), place)


def is_timing(timing: dict[str, Any]) -> bool:
    low, middle, high = timing["low_s"], timing["median_s"], timing["high_s"]
    assert 0 < timing["min_s"] <= low <= middle <= high
    return bool(timing["samples"] == len(timing["samples_s"]) >= 5)


def test_a_folder_is_measured_file_by_file() -> None:
    done, found = measured(kernels())
    assert done.code == 0 and found["failures"] == []
    product, generated = found["kernels"]
    assert (product["name"], generated["category"]) == ("aten_mm_out_0", "cpp")
    for each in (product, generated):
        assert is_timing(each["cold"]) and is_timing(each["warm"])
        assert each["checked"] is True and each["tuning"] is None
        assert each["moved_bytes"] > 0 and re.fullmatch("[0-9a-f]{16}", each["kernel_id"])
        assert each["bandwidth"] == pytest.approx(each["moved_bytes"] / each["cold"]["median_s"])
        assert each["peak_share"] is None or 0 < each["peak_share"] <= 1
        assert each["device"] == found["environment"]["cpu"]
    assert product["flops"] == 2 * 256 * 64 * 384 and product["flop_rate"] > 0
    assert product["config"].keys() == {"threads"} and "flags" in generated["config"]


def test_a_retune_tries_what_there_is_and_tells_of_each() -> None:
    done, found, _ = tuned()
    assert done.code == 0, done.printed
    (each,) = found["kernels"]
    tuning = each["tuning"]
    assert (tuning["method"], tuning["state"]) == ("max", "cold")
    assert tuning["verdict"] in ("faster", "same", "slower", "undecided")
    rows = tuning["candidates"]
    assert rows[0]["config"] == each["config"] and len({json.dumps(row["config"]) for row in rows}) == len(rows)
    assert {row["config"]["flags"] for row in rows} == {"default", "contract", "unsafe-math", "unroll"}
    assert tuning["tried"] == sum(row["median_s"] is not None for row in rows) - 1 >= 3
    for row in rows:
        assert row["status"] in ("default", "best", "finalist", "slower", "wrong", "refused"), row
        assert (row["median_s"] is None) == (row["status"] in ("wrong", "refused"))
        assert row["ratio"] is None or 0 < row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
    assert tuning["best_s"] > 0 and tuning["default_s"] > 0 and math.isfinite(tuning["time_s"])
    if tuning["verdict"] == "faster":
        assert tuning["best_config"] != each["config"] and tuning["speedup"] > 1
    else:
        assert tuning["best_config"] == each["config"] and tuning["speedup"] == 1


def test_the_winner_is_saved_and_only_a_winner() -> None:
    _, found, place = tuned()
    tuning = found["kernels"][0]["tuning"]
    if tuning["verdict"] != "faster":
        assert found["saved"] == [] and not place.exists()
        assert any("was not written" in note for note in tuning["notes"])
        return
    assert found["saved"] == [str(place)]
    ended = subprocess.run(
        [sys.executable, place, "--check"], env={**environment(), **compiler_cache()}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    _, again = measured(place, "--no-check")
    assert again["kernels"][0]["config"] == tuning["best_config"]


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="the kernel is written for two threads")
def test_a_true_winner_is_found_and_saved(tmp_path: Path) -> None:
    """Two threads sleep, one does not."""
    threads = """
    #pragma omp parallel num_threads(2)
    {
        if (omp_get_num_threads() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(4));
        #pragma omp for
        """
    sleepy = LEAN.replace(LOOP, threads + LOOP)
    path = gather(tmp_path, source=sleepy.rstrip() + "\n}\n", threads=2)
    done, found = measured(path, "--autotune", "coordesc", "--state", "warm", "--save", tmp_path / "out")
    assert done.code == 0, done.printed
    tuning = found["kernels"][0]["tuning"]
    assert (tuning["verdict"], tuning["state"], tuning["best_config"]["threads"]) == ("faster", "warm", 1)
    assert tuning["default_s"] > 4e-3 > tuning["best_s"] and tuning["speedup"] > 1
    assert found["saved"] == [str(tmp_path / "out" / "gather.py")]
    screen = kernel(found["saved"][0], "--no-check")
    assert "threads=1" in screen.stdout and screen.code == 0


# The screen


def test_the_screen_says_what_was_measured_and_what_to_type_next() -> None:
    folder = scratch() / ("a folder with a name that is far longer than any line of the screen " + "x" * 60)
    folder.mkdir()
    path = folder / softmax().name
    path.write_text(softmax().read_text())
    done = run(command("kernel", path), scratch(), COLUMNS="80", **compiler_cache())
    assert done.code == 0
    head, *rows, last, _ = done.stdout.splitlines()
    assert head.startswith("1 kernel ") and "torch" in head
    assert [row for row in (head, *rows) if len(row) > 80] == []
    assert "outputs agree" in done.stdout and "C++ (CPU)" in done.stdout
    assert last == f"Next      inductor-bench kernel '{path}' --autotune"


# Requests that cannot be carried out as typed


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nowhere.py",), "there is no nowhere.py"),
        (("nowhere#cpp_*",), "there is no nowhere"),
        (("{folder}",), "holds no *.py"),
        (("{kernels}#nothing_*",), "holds no nothing_*.py"),
        (("{kernel}", "--save", "x.py"), "--save writes the winner of a retune"),
        (("{kernel}", "--autotune", "--save", "{kernel}"), "exists"),
        (("{kernels}", "--autotune", "--save", "x.py"), "2 kernels cannot be saved into one file"),
        (("{kernel}", "{copy}", "--autotune", "--save", "x"), "two of these files have one name"),
        (("{kernel}", "--autotune", "--save", "/proc/nowhere/x.py"), "cannot be written to"),
        (("{kernel}", "--autotune", "hard"), "hard"),
        (("{kernel}", "--budget", "0"), "--budget"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_at_once(arguments: tuple[str, ...], why: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    copy = tmp_path / "other" / softmax().name
    copy.parent.mkdir()
    copy.write_text(softmax().read_text())
    places = {"folder": tmp_path / "empty", "kernels": kernels(), "kernel": softmax(), "copy": copy}
    done = kernel(*(argument.format(**places) for argument in arguments), cwd=tmp_path)
    assert done.code == 2 and why in done.stderr and done.stdout == ""
    assert not (tmp_path / "x").is_file() and not (tmp_path / "x.py").exists()


def test_run_and_glob_name_kernels() -> None:
    run_folder = kernels().parent
    _, by_glob = measured(f"{run_folder}#aten_*", f"{run_folder}#aten_mm_out_0", "--no-check")
    assert [each["name"] for each in by_glob["kernels"]] == ["aten_mm_out_0"]
    assert by_glob["kernels"][0]["checked"] is None


# Files that cannot be measured: a line each, and the others are


FOREIGN = "RECORDED = {}\nraise RuntimeError(__name__ + ': this Triton kernel needs a GPU, and torch sees none')\n"
OWN = "from torch._inductor.runtime import triton_heuristics\ndef get_args(): ...\ndef call(args): ...\n"


def bad_files(folder: Path) -> dict[Path, str]:
    """Files, and what is said of each."""
    broken = {
        "binary": (b"\xff\xfe\x00", "is not a Python file"),
        "train": (b"print('a program')\nraise SystemExit('it was run')\n", "is not a standalone kernel file"),
        "inductor": (OWN.encode(), "is Inductor's own code, without the arguments that kernels had"),
        "module": ((kernels().parent / "module.py").read_bytes(), "is Inductor's own code"),
        "foreign": (FOREIGN.encode(), "foreign.py: this Triton kernel needs a GPU, and torch sees none"),
        "raises": (b"RECORDED = {}\nraise ValueError('no good')\n", "ValueError: no good"),
        "exits": (b"RECORDED = {}\nraise SystemExit(4)\n", "ended the process when it was imported (4)"),
        "leaves": (b"RECORDED = {}\nimport os; os._exit(5)\n", "exited with code 5"),
        "syntax": (b"RECORDED = {\n", "SyntaxError"),
        "empty": (b"RECORDED = {}\n", "is not a standalone kernel file"),
        "two": (gather_text().encode() * 2, "holds 2 kernels"),
        "crashes": (gather_text(LEAN.replace(LOOP, f"*(volatile int*)8 = 1; {LOOP}")).encode(), "killed by SIGSEGV"),
        "uncompilable": (gather_text(LEAN.replace("2.0f", "oops")).encode(), "does not compile here"),
    }
    found = {}
    for name, (content, why) in broken.items():
        (folder / f"{name}.py").write_bytes(content)
        found[folder / f"{name}.py"] = why
    size, huge = "'size_bytes': 200", f"'size_bytes': {1 << 50}"
    found[changed(folder, "huge", size, huge)] = "out of memory: "
    return found


def test_each_bad_file_gets_one_clear_line_and_the_good_ones_are_measured(tmp_path: Path) -> None:
    expected = bad_files(tmp_path)
    good = gather(tmp_path, "good")
    done, found = measured(*expected, good)
    assert done.code == 1
    assert [each["file"] for each in found["kernels"]] == [str(good)]
    assert [failure["subject"] for failure in found["failures"]] == list(map(str, expected))
    for failure in found["failures"]:
        assert expected[Path(failure["subject"])] in failure["message"], failure
        assert "\n" not in failure["message"] and "Traceback" not in failure["message"]
    hints = {Path(failure["subject"]).stem: failure["hint"] for failure in found["failures"]}
    assert "extract MODULE" in hints["inductor"] and f"extract {tmp_path / 'module.py'}" in hints["module"]


def test_what_takes_too_long_is_ended_and_said_on_the_screen(tmp_path: Path) -> None:
    looping = tmp_path / "looping.py"
    looping.write_text("RECORDED = {}\nwhile True: pass\n")
    hanging = gather(tmp_path, "hanging", LEAN.replace(LOOP, f"volatile bool on = true; while (on) {{}} {LOOP}"))
    done = kernel(looping, hanging, "--timeout", "4")
    assert done.code == 1 and "Traceback" not in done.printed
    assert done.stdout.count("was stopped by the time limit") == 2
    assert done.stdout.count("Hint: give it more time with --timeout SECONDS") == 2
    assert f"Failed  {hanging}" in done.stdout.splitlines()


def test_wrong_outputs_and_nans_are_said(tmp_path: Path) -> None:
    of_nan = gather(tmp_path, "nan", LEAN.replace("2.0f", "NAN"))
    reference = {"tensors": [{"shape": [4096], "dtype": "float32", "nan": 0, "inf": 0}]}
    wrong = gather(tmp_path, "wrong", LEAN.replace("2.0f", "NAN"), reference=reference)
    done, found = measured(of_nan, wrong)
    assert done.code == 1
    without, against = found["kernels"]
    assert without["checked"] is None and against["checked"] is False
    assert any("hold NaNs" in advice for advice in without["advice"])
    assert any("4096 NaNs, the reference has 0" in advice for advice in against["advice"])


# Compared


def test_two_files_are_timed_in_turn_and_held_against_each_other(tmp_path: Path) -> None:
    same, other = gather(tmp_path, "same"), gather(tmp_path, "other", LEAN.replace("2.0f", "3.0f"))
    done, found = measured(gather(tmp_path), "--compare", same)
    assert (done.code, found["alike"], found["difference"]) == (0, True, "")
    for each in (found["first"], found["second"]):
        assert each["cold"]["samples"] == found["ratio"]["pairs"]
        assert each["bandwidth"] == pytest.approx(each["moved_bytes"] / each["cold"]["median_s"])
    done, found = measured(gather(tmp_path), "--compare", other)
    assert (done.code, found["alike"]) == (1, False) and "4096 elements differ" in found["difference"]


# Ctrl-C


@pytest.mark.parametrize("stage", ["measuring", "building", "timing"])
def test_ctrl_c_ends_everything_at_once(stage: str, tmp_path: Path) -> None:
    log = tmp_path / "stderr"
    variables = {**environment(), **compiler_cache(), "A_MARK_OF_THIS_TEST": str(tmp_path)}
    with log.open("w") as stderr:
        child = subprocess.Popen(
            command("kernel", softmax(), "--autotune"), env=variables, stdout=subprocess.DEVNULL, stderr=stderr
        )
    deadline = time.monotonic() + 120
    while f"{stage} " not in log.read_text():
        assert child.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.wait(60) == 130
    assert "Traceback" not in log.read_text() and log.read_text().endswith("Error: interrupted\n")
    deadline = time.monotonic() + 30  # a worker that was just being started ends when it finds nobody to ask it
    while left := left_over(str(tmp_path)):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def left_over(mark: str) -> list[str]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("A_MARK_OF_THIS_TEST") == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found
