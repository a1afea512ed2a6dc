"""The verb ``kernel`` on real C++ kernels: timed, compared, retuned, saved, interrupted."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import forking_python
import pytest
from breakdown_runs import command, environment, forks, run, scratch
from documented import documented
from kernel_files import LEAN, LOOP, MARK, compiler_cache, gather, kernel, left_over, measured, shared_cache

from inductor_bench.cli import main as entry
from inductor_bench.workflows.kernels.kernel_session import find_files

pytestmark = pytest.mark.slow

PROGRAM = """
import torch

torch.set_num_threads(1)

def step(x, w):
    return torch.softmax(torch.relu(x @ w) * 2, -1)

torch.compile(step)(torch.randn(256, 64), torch.randn(64, 384))
"""


@functools.cache
def kernels() -> Path:
    """A RUN folder's stand-in: ``kernels/`` with a C++ kernel and a matrix product of a tiny compiled function."""
    folder = scratch() / "kernel-verb"
    folder.mkdir()
    (folder / "program.py").write_text(PROGRAM)
    ended = forking_python.run([str(folder / "program.py")], **shared_cache())
    assert ended.returncode == 0, ended.stderr
    cache = Path(shared_cache()["TORCHINDUCTOR_CACHE_DIR"])
    (module,) = [path for path in cache.rglob("*.py") if "def call(" in path.read_text()]
    (folder / "module.py").write_text(module.read_text())
    done = run(command("extract", module, "-o", folder / "kernels", "-q"), folder, **shared_cache(), **forks())
    assert done.code == 0, done.printed
    return folder / "kernels"


def softmax() -> Path:
    (found,) = kernels().glob("cpp_fused*softmax*.py")
    return found


# What is measured


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


def test_a_retune_tries_what_there_is_and_tells_of_each(tmp_path: Path) -> None:
    place = tmp_path / "tuned.py"
    done, found = measured(gather(tmp_path), "--autotune", "--save", place)
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
    is_faster = tuning["verdict"] == "faster"
    assert (tuning["best_config"] != each["config"]) == (tuning["speedup"] > 1) == is_faster and tuning["speedup"] >= 1
    assert found["saved"] == [str(place)] * is_faster and place.exists() == is_faster


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="the kernel is written for two threads")
def test_a_true_winner_is_found_and_saved(tmp_path: Path) -> None:
    """Two threads sleep, one does not."""
    threads = """
    #pragma omp parallel num_threads(2)
    {
        if (omp_get_num_threads() > 1) usleep(4000);
        """
    sleepy = LEAN.replace(LOOP, threads + LOOP)
    path = gather(tmp_path, source=sleepy.rstrip() + "\n}\n", threads=2)
    done, found = measured(path, "--autotune", "coordesc", "--state", "warm", "--save", tmp_path / "out")
    assert done.code == 0, done.printed
    tuning = found["kernels"][0]["tuning"]
    assert (tuning["verdict"], tuning["state"], tuning["best_config"]["threads"]) == ("faster", "warm", 1)
    assert tuning["default_s"] > max(4e-3, tuning["best_s"]) and tuning["speedup"] > 1
    assert found["saved"] == [str(tmp_path / "out" / "gather.py")]
    ended = forking_python.run([found["saved"][0], "--check", "--json"], **compiler_cache())
    alone = json.loads(ended.stdout)
    assert (ended.returncode, alone["check"]) == (1, None), "the kernel has no reference; it runs all the same"
    assert alone["method"].startswith("1 threads; ")
    _, again = measured(found["saved"][0], "--no-check")
    assert again["kernels"][0]["config"] == tuning["best_config"]


# The screen


def test_the_screen_says_what_was_measured_and_what_to_type_next() -> None:
    folder = scratch() / ("a folder with a name that is far longer than any line of the screen " + "x" * 60)
    folder.mkdir()
    path = folder / softmax().name
    path.write_text(softmax().read_text())
    done = kernel(path, COLUMNS="80")
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
        (("{kernel}", "--configs", "--autotune"), "leave out one of them"),
        (("{kernel}", "--configs", "--save", "x.py"), "--save writes the winner of a retune"),
        (("{kernel}", "--compare", "{copy}", "--configs"), "--configs is for kernels by themselves"),
        (("{kernel}", "--compare", "{copy}", "--autotune", "--save", "x.py"), "--save is for kernels by themselves"),
        (("{kernels}", "--autotune", "--save", "x.py"), "2 kernels cannot be saved into one file"),
        (("{kernel}", "{copy}", "--autotune", "--save", "x"), "two of these files have one name"),
        (("{kernel}", "--autotune", "--save", "/proc/nowhere/x.py"), "cannot be written to"),
        (("{kernel}", "--autotune", "hard"), "hard"),
        (("{kernel}", "--budget", "0"), "--budget"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused_at_once(
    arguments: tuple[str, ...],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    copy = tmp_path / "other" / softmax().name
    copy.parent.mkdir()
    copy.write_text(softmax().read_text())
    places = {"folder": tmp_path / "empty", "kernels": kernels(), "kernel": softmax(), "copy": copy}
    monkeypatch.chdir(tmp_path)
    code = entry.main(["kernel", *(argument.format(**places) for argument in arguments)])
    out, err = capsys.readouterr()
    assert code == 2 and why in " ".join(err.split()) and out == ""
    assert not (tmp_path / "x").is_file() and not (tmp_path / "x.py").exists()


def test_run_and_glob_name_kernels() -> None:
    run_folder = kernels().parent
    assert find_files([f"{run_folder}#aten_*", f"{run_folder}#aten_mm_out_0"]) == [kernels() / "aten_mm_out_0.py"]
    assert find_files([str(run_folder)]) == find_files([str(kernels())]) == sorted(kernels().glob("*.py"))


# Compared


def test_two_files_are_timed_in_turn_and_held_against_each_other(tmp_path: Path) -> None:
    same, other = gather(tmp_path, "same"), gather(tmp_path, "other", LEAN.replace("2.0f", "3.0f"))
    places = {"k.py": gather(tmp_path), "edited.py": same}
    done, found = measured(*documented("inductor-bench kernel k.py --compare edited.py", places)[1:])
    assert (done.code, found["alike"], found["difference"]) == (0, True, "")
    assert found["same_config"] == found["as_they_stand"] and found["best_of_each"] is None
    for each in (found["first"], found["second"]):
        assert each["cold"]["samples"] == found["as_they_stand"]["ratio"]["pairs"]
        assert each["bandwidth"] == pytest.approx(each["moved_bytes"] / each["cold"]["median_s"])
    done, found = measured(gather(tmp_path), "--compare", other)
    assert (done.code, found["alike"]) == (1, False) and "4096 elements differ" in found["difference"]


def test_a_kernel_with_one_config_is_one_row(tmp_path: Path) -> None:
    words = documented("inductor-bench kernel k.py --configs", {"k.py": gather(tmp_path)})
    done, found = measured(*words[1:], "--no-check")
    (each,) = found["kernels"]
    (row,) = each["tuning"]["candidates"]
    assert (done.code, each["checked"], each["tuning"]["method"], each["tuning"]["verdict"]) == (0, None, "configs", "")
    assert (row["config"], row["status"], row["samples_s"]) == (each["config"], "default", each["cold"]["samples_s"])


# Ctrl-C


@pytest.mark.parametrize("stage", ["building", "timing"])
def test_ctrl_c_ends_everything_at_once_and_shows_what_was_measured(stage: str, tmp_path: Path) -> None:
    log, shown = tmp_path / "stderr", tmp_path / "stdout"
    variables = {**environment(**forks()), **compiler_cache(), MARK: str(tmp_path)}
    words = command("kernel", gather(tmp_path), "--autotune", "--format", "json", "-v")
    with log.open("w") as stderr, shown.open("w") as stdout:
        child = subprocess.Popen(words, env=variables, stdout=stdout, stderr=stderr)
    deadline = time.monotonic() + 600
    while f"{stage} " not in log.read_text().partition("building ")[1 if stage == "building" else 2]:
        assert child.poll() is None and time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    assert child.wait(600) == 130
    said = json.loads(log.read_text().splitlines()[-1])
    assert "Traceback" not in log.read_text()
    assert (said["id"], said["cause"]) == ("interrupted", "interrupted; what was measured until then is shown")
    found = json.loads(shown.read_text())
    (each,) = found["kernels"]
    assert found["interrupted"] is True and is_timing(each["cold"]) and each["tuning"] is None
    assert "not retuned: interrupted" in each["advice"]
    assert left_over(str(tmp_path)) == [], "a worker that was just being started ends when it finds nobody to ask it"
