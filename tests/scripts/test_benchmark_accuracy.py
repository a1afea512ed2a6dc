"""The accuracy benchmark: which kernels it takes, what its outcomes come to, its picture, and what a stop leaves."""

from __future__ import annotations

import io
import itertools
import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import ROOT
from late import Late

sys.path.insert(0, str(ROOT / "scripts"))
from accuracy.outcomes import METHODS, Row, choose_files, class_of, errors, scattered, summarize, table
from benchmark_accuracy import loaded
from benchmark_kernels import Outcome as RunFile

image = Late("matplotlib.image")
plot = Late("accuracy.plot")
Outcome = dict[str, Any]


def run_file(name: str, time_s: float, category: str = "pointwise") -> RunFile:
    return RunFile("run", name, category, time_s, time_s)


def kernel(time_s: float, **times: float) -> Outcome:
    """An outcome whose methods are all exact, but for those of ``times``: factors of the profiler's time."""
    exact = {name: time_s for names in METHODS.values() for name in names[1:]}
    wrong = {name: factor * time_s for name, factor in times.items()}
    return {"step": "kernel", "subject": f"k{time_s}", "in_model_s": time_s, "weight_s": time_s, **exact, **wrong}


def rows_of(*outcomes: Outcome) -> dict[str, Row]:
    return {f"{row.id} {row.quantity}": row for row in summarize(outcomes)}


def test_kernels_are_spread_over_the_logarithm_of_their_time() -> None:
    many = [run_file(f"triton_{number}.py", 0.5e-6 * 1.01**number) for number in range(800)]
    chosen = choose_files([*reversed(many), run_file("aten_mm.py", 3e-5, "extern_gemm"), run_file("x.py", 2e-5, "cpp")])
    assert chosen == choose_files([run_file("aten_mm.py", 3e-5, "extern_gemm"), *many])  # whatever their order
    assert sum(one.file.startswith("triton") for one in chosen) == 44 and len(chosen) == 45
    assert len({one.file for one in chosen}) == 45
    logs = [math.log(one.in_model_s or 0.0) for one in chosen if one.category == "pointwise"]
    for part in (8, 16, 44):
        places = sorted(logs[:part])
        gaps = [later - earlier for earlier, later in itertools.pairwise(places)]
        assert max(gaps) <= 2.2 * math.log(400) / part, "a beginning of the list leaves a part of the scale out"


def test_scattered_numbers_are_each_there_once() -> None:
    assert scattered(1) == [0] and scattered(8) == [0, 4, 2, 6, 1, 5, 3, 7]
    assert sorted(scattered(44)) == list(range(44))


@pytest.mark.parametrize(
    ("time_s", "off", "inside"),
    [
        (20e-6, 0.019, True),
        (20e-6, 0.021, False),
        (6e-6, 0.049, True),  # 0.3 µs
        (6e-6, -0.051, False),
        (19e-6, 0.029, True),  # 3%
        (19e-6, 0.031, False),
        (2e-6, 0.24, True),  # 0.5 µs
        (2e-6, -0.26, False),
    ],
)
def test_a_time_is_held_to_the_target_of_its_class(time_s: float, off: float, inside: bool) -> None:
    each = class_of(time_s)
    found = rows_of(kernel(time_s, cold_s=1 + off), kernel(time_s * 1.01))
    cold = found[f"{each.id} this tool, cold, {each.title}, against the profiler"]
    warm = found[f"{each.id} this tool, warm, {each.title}, against the profiler"]
    assert cold.reached is inside and cold.found.startswith("2 of 2" if inside else "1 of 2")
    assert warm.reached is True
    assert f"{off:+.1%}" in cold.found or f"{off * time_s * 1e6:+.2f} µs" in cold.found


def test_the_others_are_shown_without_a_verdict() -> None:
    found = rows_of(kernel(2e-6, do_bench_s=2.5, inductor_s=2.0), kernel(30e-6, do_bench_s=1.1))
    row = found[" triton.testing.do_bench, 1 to 5 µs, against the profiler"]
    assert row.reached is None and row.found.startswith("0 of 1 (0%); median +3.00 µs")
    assert found[" triton.testing.do_bench, ≥ 20 µs, against the profiler"].found.count("+10.0%") == 2


def test_what_failed_is_not_counted() -> None:
    failed = {"step": "kernel", "subject": "x", "why": "RuntimeError: no memory"}
    begun = {"step": "itself", "subject": "y", "begun": True}
    assert summarize([failed, begun]) == []
    assert rows_of(failed, kernel(30e-6)) == rows_of(kernel(30e-6))
    assert errors([{"subject": "z", "cold_s": 1.0}], "cold") == []


def test_time_in_the_model_is_weighed() -> None:
    outside = {**kernel(12e-6), "in_model_s": 20e-6, "weight_s": 1e-6}
    short = {**kernel(3e-6), "in_model_s": 9e-6, "weight_s": 1.0}  # below what is judged
    row = rows_of(kernel(30e-6), outside, short)["A5 in-model time inside [warm, cold] ± 5%, ≥ 10 µs"]
    assert row.reached is True and row.found == "96.8% of kernel time (1 of 2 kernels)"
    assert rows_of(kernel(30e-6), {**outside, "weight_s": 30e-6})[f"A5 {row.quantity}"].reached is False


def test_ratios_and_repeats() -> None:
    ratio = {"step": "ratio", "subject": "k", "cold": 1.1, "profiled_cold": 1.12, "warm": 1.2, "profiled_warm": 1.1}
    repeat = {"step": "repeat", "subject": "k", "cold": [30e-6, 30.1e-6, 30.2e-6], "warm": [6e-6, 6.01e-6, 6.05e-6]}
    found = rows_of(ratio, repeat)
    assert found["A3 ratio of two configs, cold, 1 to 5 µs"].reached is True
    assert found["A3 ratio of two configs, warm, 1 to 5 µs"].reached is False
    assert found["R1 range of 3 medians, cold, ≥ 20 µs"].reached is False  # 0.66%
    assert found["R1 range of 3 medians, warm, 5 to 20 µs"].reached is True  # 0.83%


def test_races() -> None:
    same = [{"step": "itself", "subject": str(number), "verdict": "same"} for number in range(99)]
    lucky = {"step": "itself", "subject": "x", "verdict": "faster"}
    assert rows_of(*same, lucky)["R3 a config against itself called faster"].reached is True
    assert rows_of(*same[1:], lucky)["R3 a config against itself called faster"].reached is False
    gap = {"step": "gap", "time_s": 30e-6, "profiled_ratio": 1.0203, "verdict": "faster"}
    trials = [{**gap, "subject": str(number)} for number in range(9)]
    row = rows_of(*trials, {**gap, "subject": "x", "verdict": "undecided"})["R4 a true 2% gap at 30 µs found"]
    assert row.reached is True and row.found == "9 of 10 (90%); by the profiler the gap is 2.03%"


def test_retunes_costs_and_builds() -> None:
    right = {"step": "retune", "subject": "6", "kernels": 6, "ranked": 20, "checked": 20, "right": 20}
    assert rows_of(right)["V1 candidates checked before they are ranked"].reached is True
    for name in ("checked", "right"):
        assert rows_of({**right, name: 19})["V1 candidates checked before they are ranked"].reached is False
    cost = {"step": "cost", "subject": "k", "first_s": 3e-3, "sample_s": 0.9e-3}
    found = rows_of(cost)
    assert found["C1 device time of a candidate in screening"].reached is True
    assert found["C1 device time of a candidate in full"].reached is True
    assert rows_of({**cost, "first_s": 5e-3})["C1 device time of a candidate in screening"].reached is False
    builds = [
        {"step": "builds", "subject": str(workers), "workers": workers, "time_s": time_s, "candidates": 41}
        for workers, time_s in ((1, 12.0), (2, 7.0), (4, 5.2))
    ]
    found = rows_of(*builds)
    assert found["C4 compile speed-up with 2 workers"].found == "1.71x (12.0 s → 7.0 s, 41 candidates)"
    assert [row.reached for row in found.values()] == [True, False]


def test_the_table_is_aligned() -> None:
    lines = table(
        [Row("A1", "a quantity", "within 2%", "3 of 4", False), Row("", "another", "", "1", None)]
    ).splitlines()
    assert lines[1] == "A1  a quantity  within 2%  3 of 4   NOT REACHED"
    assert lines[2] == "    another                1"


def measured_kernels() -> list[Outcome]:
    times = [1e-6 * 400 ** (step / 45) for step in range(46)]
    found = []
    for number, time_s in enumerate(times):
        floor = 1 + 2.1e-6 / time_s
        near = 1 + (number % 5 - 2) * 0.004
        others = {"inductor_s": 1 + 0.9 * (floor - 1), "do_bench_s": floor * 1.02}
        found.append(kernel(time_s, cold_s=near + 0.1e-6 / time_s, warm_s=2 - near, **others))
    return found


@pytest.mark.filterwarnings("error")
def test_the_picture() -> None:
    data = plot.draw_errors(measured_kernels(), "NVIDIA H200 · torch 2.11.0+cu130")
    assert data is not None
    pixels = image.imread(io.BytesIO(data), format="png")
    assert pixels.shape[:2] == (896, 1440)
    for edge in (pixels[:, :8], pixels[:, -8:], pixels[:8], pixels[-8:]):
        assert edge[..., :3].min() == 1, "something is cut off"
    assert plot.draw_errors([{"step": "kernel", "subject": "x", "why": "it failed"}], "") is None
    assert plot.draw_errors([kernel(30e-6)], "one kernel") is not None


# What runs in the process that measures


@pytest.mark.parametrize(("calls", "rounds", "each"), [(3, 2, 1), (1, 4, 2), (5, 1, 3)])
def test_what_a_call_launches_is_added_up(monkeypatch: pytest.MonkeyPatch, calls: int, rounds: int, each: int) -> None:
    from accuracy import times

    launched: list[float] = []

    def events(run: Any) -> list[float]:
        launched.clear()
        run()
        return list(launched)

    def call() -> None:
        launched.extend([2e-6] * each)

    monkeypatch.setattr(times, "profile_events", events)
    profile = times.Profile(lambda: launched.extend([7e-6, 9e-6]), [call] * calls, rounds)
    assert profile.launched == each and profile.median_s == pytest.approx(2e-6 * each)
    odd = iter(range(1000))
    with pytest.raises(ValueError, match="calls launched"):
        times.Profile(lambda: None, [lambda: launched.extend([2e-6] * (next(odd) % 2))] * 3, 1)


def test_a_race_takes_cold_samples_in_turn() -> None:
    from accuracy import trials

    class Timer:
        def bind(self, bind: Any) -> Any:
            return bind

        def cold(self, call: Any) -> float:
            return next(call)

    def times(factor: float) -> Any:
        return (30e-6 * factor * (1 + step % 7 * 1e-4) for step in itertools.count())

    assert trials.time_race(Timer(), [times(1.0), times(1 / 1.02)]).verdict == "faster"
    assert trials.time_race(Timer(), [times(1.0), times(1.0)]).verdict == "same"


# The whole script


def command(*options: str | Path) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "benchmark_accuracy.py"), *map(str, options)]


def test_earlier_outcomes_are_summed_up_again(tmp_path: Path) -> None:
    lines = [{"step": "device", "subject": "", "name": "a GPU", "torch": "2.11"}, *measured_kernels()]
    lines += [{"step": "gap", "subject": "10 µs, 3", "begun": True}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "outcomes.jsonl").write_text(text + '{"step": "kern')  # the process ended here
    ended = subprocess.run(
        command(tmp_path, "--read", "--output", tmp_path), capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stderr
    assert "a GPU · torch 2.11" in ended.stdout and "not measured: gap 10 µs, 3: it did not end" in ended.stdout
    record = json.loads((tmp_path / "accuracy.json").read_text())
    assert [row["id"] for row in record["rows"] if row["id"]] == [*["A1", "A2", "A3"] * 4, "A5"]
    assert len(record["outcomes"]) == len(lines)
    assert (tmp_path / "accuracy.png").read_bytes()[:4] == b"\x89PNG"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    for options, why in (([tmp_path], "has no kernels/kernels.json"), ([tmp_path, "--read"], "is not there")):
        ended = subprocess.run(command(*options, "--output", tmp_path), capture_output=True, text=True, timeout=600)
        assert ended.returncode == 2 and why in ended.stderr and "Traceback" not in ended.stderr


def test_a_load_is_at_work_as_long_as_it_is_asked_for() -> None:
    children = set(psutil.Process().children())
    with loaded(2):
        busy = set(psutil.Process().children()) - children
        assert len(busy) == 2
        deadline = time.monotonic() + 600
        while not all(child.cpu_times().user > 0.2 for child in busy):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert not any(child.is_running() for child in busy)


PRETENDER = """
import json, os, signal, sys, time
job = json.load(open(sys.argv[1]))
seen = open(job["outcomes"]).read() if os.path.exists(job["outcomes"]) else ""
def write(**facts):
    print(json.dumps(facts), file=open(job["outcomes"], "a", buffering=1))
if "first" not in seen:
    write(step="itself", subject="first", verdict="same")
    write(step="itself", subject="deadly", begun=True)
    os.kill(os.getpid(), signal.SIGSEGV)
write(step="itself", subject="second", verdict="same")
time.sleep(600)
"""


@pytest.mark.corner
@pytest.mark.parametrize("how", ["signal", "budget"])
def test_nothing_is_lost(tmp_path: Path, how: str) -> None:
    """The process that measures crashes once, and is stopped in the midst of the next."""
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "kernels.json").write_text("[]")
    python = tmp_path / "python"
    (tmp_path / "pretender.py").write_text(PRETENDER)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{tmp_path}/pretender.py" "$3"\n')
    python.chmod(0o755)
    budget = "600" if how == "signal" else "-5"  # and what is granted beyond it
    options = command(tmp_path, "--output", tmp_path / "out", "--python", python, "--budget", budget)
    script = subprocess.Popen(options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    outcomes, limit = tmp_path / "out" / "outcomes.jsonl", time.monotonic() + 600
    if how == "signal":
        while "second" not in (outcomes.read_text() if outcomes.exists() else "") and time.monotonic() < limit:
            time.sleep(0.05)
        script.send_signal(signal.SIGTERM)
    out, err = script.communicate(timeout=600)
    assert "the process that measures ended with status -11" in err
    assert "0 of 2 (0.0%); called slower: 0" in out and "not measured: itself deadly: it did not end" in out
    assert "Traceback" not in err and json.loads((tmp_path / "out" / "accuracy.json").read_text())["rows"]
