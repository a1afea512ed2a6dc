"""The script that runs every standalone file of a RUN, on files that are as bad as files can be."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

GOOD = """
def check():
    print("a word of the kernel's own")
    return True, "fine"
def make_arguments():
    return None
class KERNEL:
    launch, bind = {}, None
def measure_cpu(launch, arguments, bind):
    return {"cold": {"median_s": 3e-5}, "warm": {"median_s": 1e-5}}
"""
HANGS = "import time\ndef check():\n    time.sleep(600)\n"
FILES = {
    "good.py": GOOD,
    "slow.py": GOOD,
    "wrong.py": "def check():\n    return False, 'output 0: mean 1, the reference has 2'\n",
    "unchecked.py": "def check():\n    return None, 'a second run agrees'\n",
    "raises.py": "def check():\n    raise RuntimeError('an illegal access\\nand more')\n",
    "crashes.py": "import os, signal\ndef check():\n    os.kill(os.getpid(), signal.SIGSEGV)\n",
    "ends.py": "import os\ndef check():\n    os._exit(7)\n",
    "broken.py": "def check(:\n",
    "last.py": GOOD,
}
TIMES = {"good.py": 20e-6, "slow.py": 90e-6, "last.py": 2e-6}


def write_run(folder: Path, files: dict[str, str]) -> Path:
    kernels = folder / "kernels"
    kernels.mkdir(parents=True)
    rows = [
        {"name": name, "file": name, "category": "cpp", "calls": 2, "time_s": 2 * TIMES.get(name, 0.0), "reason": ""}
        for name in files
    ]
    rows.append({**rows[0], "name": "without", "file": None, "reason": "it was not launched"})
    (kernels / "kernels.json").write_text(json.dumps(rows))
    for name, text in files.items():
        (kernels / name).write_text(text)
    return folder


def command(run: Path, *options: str) -> list[str]:
    script = ROOT / "scripts" / "benchmark_kernels.py"
    return [sys.executable, str(script), str(run), "--json", str(run / "lines"), *options]


def last_lines(run: Path) -> dict[str, dict[str, Any]]:
    lines = (run / "lines").read_text().splitlines()
    return {one["file"]: one for one in map(json.loads, lines)}


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_a_bad_file_costs_only_itself(tmp_path: Path, jobs: str) -> None:
    run = write_run(tmp_path / "run", FILES)
    ended = subprocess.run(command(run, "--jobs", jobs), capture_output=True, text=True, timeout=600)
    assert ended.returncode == 1
    found = last_lines(run)
    assert {name: (one["ran"], one["agreed"], one["why"]) for name, one in found.items()} == {
        "good.py": (True, True, "fine"),
        "slow.py": (True, True, "fine"),
        "wrong.py": (True, False, "output 0: mean 1, the reference has 2"),
        "unchecked.py": (True, None, "a second run agrees"),
        "raises.py": (False, None, "RuntimeError: an illegal access"),
        "crashes.py": (False, None, "the process ended by SIGSEGV"),
        "ends.py": (False, None, "the process ended with status 7"),
        "broken.py": (False, None, "SyntaxError: invalid syntax (broken.py, line 1)"),
        "last.py": (True, True, "fine"),
    }
    assert {name: one["inside"] for name, one in found.items() if one["inside"] is not None} == {
        "good.py": True,
        "slow.py": False,
    }, "files of less than 10 µs are not timed"
    assert "no file: without: it was not launched" in ended.stdout
    assert "5 of 9 run,    3 agree with the reference" in ended.stdout
    assert "18.2% of kernel time (2 kernels)" in ended.stdout and "outside: slow.py" in ended.stdout
    assert "a word of the kernel's own" not in ended.stdout


@pytest.mark.corner
def test_a_file_that_hangs_is_given_up(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"hangs.py": HANGS, "good.py": GOOD})
    ended = subprocess.run(command(run, "--limit", "5"), capture_output=True, text=True, timeout=600)
    assert ended.returncode == 1
    assert {name: one["why"] for name, one in last_lines(run).items()} == {
        "hangs.py": "no answer in 5 s",
        "good.py": "fine",
    }


def test_without_a_budget_nothing_is_timed_and_the_summary_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"good.py": GOOD, "slow.py": GOOD})
    ended = subprocess.run(command(run, "--budget", "0"), capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert "2 of 2 kernels were not timed (100.0% of their time)" in ended.stdout


def test_what_was_found_is_summed_up_after_a_signal(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"good.py": GOOD, "hangs.py": HANGS, "last.py": GOOD})
    child = subprocess.Popen(command(run, "--jobs", "1"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    deadline = time.monotonic() + 600
    while not ((run / "lines").is_file() and (run / "lines").read_text()):
        assert child.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    child.send_signal(signal.SIGTERM)
    printed, _ = child.communicate(timeout=600)
    assert child.returncode == 1
    assert "1 of 3 run,    1 agree with the reference" in printed
    assert "2 files were not tried: stopped before" in printed
    assert list(last_lines(run)) == ["good.py"]
