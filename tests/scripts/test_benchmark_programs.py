"""The table of programs: which laps the tool's step is compared with, on made-up figures, and one real program."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import mode_rows
import pytest

from inductor_bench.records.retune import Saving
from inductor_bench.store import codec
from scripts import benchmark_apply, benchmark_modes, benchmark_programs
from scripts.benchmark_host import summary, words_of
from scripts.benchmark_programs import FOLDER, PROGRAMS, SEVERAL_RANKS, answer_of, compare, measure, observe

LIMIT_S = 500.0
ROW = {"program": "train", "note": "", "ended_s": 112.0}


def laps(*times: tuple[str, float], parts: tuple[tuple[str, float], ...] = (), kind: str = "step") -> dict[str, Any]:
    found = {"pid": 7, "kind": kind, "laps": times, "parts": parts, "host_s": [], "ended_s": 110.0, "compiled": {}}
    return found | {"device_s": []}


def record(step_s: float, times: list[float], first: int) -> dict[str, Any]:
    rank = {"pid": 7, "step_times_s": times, "profiled_steps": 3, "tied_share": 0.99, "busy_time_s": None}
    return {"step_time_s": step_s, "step_times_s": times, "settled_after": first, "ranks": [rank]}


def test_the_laps_of_the_tools_steps_are_compared_by_their_numbers() -> None:
    times = [("step", float(number)) for number in range(1, 11)]
    found = compare(record(4.4, [4.0, 5.0], 3), [laps(*times)], ROW)
    assert found["over"] == "2 of 3-4" and found["own_step_s"] == 4.5
    assert found["deviation"] == pytest.approx(4.4 / 4.5 - 1)
    assert found["after_end_s"] == 2.0 and found["profiled_steps"] == 3


def test_steps_on_both_sides_of_the_profile_and_at_its_level_have_their_own_numbers() -> None:
    times = [("step", float(number)) for number in range(10)]
    seen = record(8.0, [2.0, 7.0, 8.0, 9.0], 2) | {"step_numbers": {7: [2, 7, 8, 9]}, "level": [1, 4]}
    found = compare(seen, [laps(*times)], ROW)
    assert found["over"] == "3 of 7-9" and found["own_step_s"] == 8.0 and found["deviation"] == 0.0


def test_an_evaluation_between_the_steps_has_no_number() -> None:
    times = [("step", 1.0), ("evaluation", 9.0), ("step", 2.0), ("step", 3.0), ("evaluation", 9.0)]
    assert compare(record(2.5, [2.0, 3.0], 1), [laps(*times)], ROW)["own_step_s"] == 2.5


def test_steps_with_a_name_for_each_shape_are_all_steps() -> None:
    times = [("length 1", 1.0), ("length 2", 2.0), ("length 1", 1.0), ("length 2", 2.0)]
    assert compare(record(1.5, [1.0, 2.0], 2), [laps(*times)], ROW)["own_step_s"] == 1.5


def test_a_step_that_is_a_part_of_a_lap_is_named() -> None:
    parts = (("prefill", 0.4), *[("decode", 0.1)] * 6)
    found = compare(record(0.101, [0.1] * 3, 2), [laps(*[("request", 1.0)] * 8, parts=parts, kind="request")], ROW)
    assert found["as"] == "decode" and found["over"] == "settled" and found["own_step_s"] == 1.0
    assert found["deviation"] == pytest.approx(-0.899)


def test_a_program_without_a_step_in_the_record_has_no_deviation() -> None:
    found = compare({}, [laps(("step", 1.0), ("step", 2.0))], ROW)
    assert found["step_s"] is None and "deviation" not in found and found["own_step_s"] == 2.0
    assert compare({}, [], ROW)["note"] == "the program wrote no laps"


def test_the_first_paragraph_below_the_title_is_the_answer() -> None:
    assert answer_of("train.py   AMD\n\n1 ms a step,\nall idle.\n\nGraphs\n") == "1 ms a step, all idle."
    assert answer_of("Error: no such file\n") == "Error: no such file" and answer_of("") == ""


def test_every_program_with_laps_is_in_the_table() -> None:
    with_laps = {file.stem for file in FOLDER.glob("*.py") if "Laps(" in file.read_text(encoding="utf-8")}
    assert with_laps - {"stopwatch"} <= PROGRAMS.keys() and set(SEVERAL_RANKS) < PROGRAMS.keys()
    assert all((FOLDER / f"{name}.py").is_file() for name in PROGRAMS)


def test_a_program_that_reaches_its_limit_is_interrupted_and_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    code = (
        "import pathlib, time\nprint('title\\n\\nanswer\\n', flush=True)\n"
        f"try:\n pathlib.Path({str(begun)!r}).touch()\n time.sleep(600)\nexcept KeyboardInterrupt:\n exit(130)"
    )

    class Popen(subprocess.Popen[str]):
        """Runs the code above in place of the command, and reaches the limit once the code has begun."""

        def __init__(self, _: list[str], **how: Any) -> None:
            super().__init__([sys.executable, "-c", code], **how)

        def wait(self, timeout: float | None = None) -> int:
            if timeout != LIMIT_S:
                return super().wait(300.0)
            while not begun.exists():
                time.sleep(0.01)
            raise subprocess.TimeoutExpired(code, LIMIT_S)

    monkeypatch.setattr(benchmark_programs.subprocess, "Popen", Popen)
    found = observe(["train.py"], tmp_path / "run", tmp_path, tmp_path / "train", LIMIT_S)
    assert found["note"] == "interrupted after 500 s" and found["exit_code"] == 130
    assert found["first_line"] == "answer" and "title" in (tmp_path / "train.txt").read_text()


def test_a_program_for_which_no_time_is_left_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    row = measure("decode", argparse.Namespace(limit=60.0), 10.0)
    benchmark_programs.print_table([row])
    assert "not run: no time was left" in capsys.readouterr().out


@pytest.mark.corner
def test_a_program_writes_its_laps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SMALL", "1")
    monkeypatch.setenv("STEP_ENDS", str(tmp_path))
    row = benchmark_programs.run_alone(benchmark_programs.command_of("skipped"), {"note": ""}, 300.0)
    (file,) = tmp_path.glob("*.json")
    found = json.loads(file.read_text())
    assert [kind for kind, _ in found["laps"]] == ["step"] * 60 and len(found["host_s"]) == 60
    assert row["alone_compiled"] == found["compiled"] and found["compiled"]["graphs"] == 0
    assert row["alone_step_s"] > 0 and found["ended_s"] >= found["host_s"][-1]


# The script that compares a program with itself: which verdicts it takes for a difference.


@pytest.mark.parametrize(
    ("step", "device", "good"),
    [
        ("no difference", "no difference", True),
        ("undecided", None, True),
        ("saves", "no difference", False),
        ("no difference", "slower", False),
        (None, None, False),
    ],
)
def test_a_sure_verdict_is_a_difference(step: str | None, device: str | None, good: bool) -> None:
    def saving(verdict: str | None) -> object:
        return codec.encode(Saving(1e-3, 1e-3, 2e-6, -1e-6, 5e-6, 10, verdict)) if verdict else None

    row = benchmark_apply.row_of({"step": saving(step), "device": saving(device)})
    assert row["same"] is good
    assert step is None or f"step 1.00 ms, saves +2.00 µs (-1.00 to +5.00), {step}" in row["words"]


def test_bits_and_files_that_were_taken_are_counted() -> None:
    kernels = [{"state": "pinned", "reason": None}, {"state": "missing", "reason": "it did not run"}]
    outputs = {"difference": 1e-9, "own_difference": 0.0, "tensors": 3}
    row = benchmark_apply.row_of({"step": None, "device": None, "outputs": outputs, "kernels": kernels})
    assert (row["taken"], row["equal"], row["reasons"]) == (1, False, ["it did not run"])
    assert benchmark_apply.row_of({"step": None, "device": None, "outputs": outputs | {"tensors": 0}})["equal"] is None


# What the script on the host's ledger makes of a record.


LINE = {"file": "/app/train.py", "line": 5, "function": "busy_wait", "code": "pass"}
RECORD: dict[str, Any] = {
    "program": {
        "step_time_s": 0.01,
        "parts": [
            {"kind": "graph", "label": "forward", "time_s": 0.004},
            {"kind": "idle", "label": "Python", "time_s": 0.005},
            {"kind": "idle", "label": "between kernels", "time_s": 0.001},
        ],
        "host": {
            "stretches": [
                {"label": "Python", "function": "busy_wait", "time_s": 0.004, "samples": 80, "source": LINE},
                {"label": "Python", "function": "f", "time_s": 0.001, "samples": 20, "source": None},
            ],
            **{"samples": 100, "every": 200, "steps": 60, "cost": 0.004, "cost_low": -0.001, "cost_high": 0.012},
        },
    }
}


def test_the_tied_share_is_of_the_idle_time_in_which_the_host_is_awaited() -> None:
    row = summary("python 5 ms", RECORD)
    assert (round(row["tied"], 9), round(row["idle_ms"], 9), round(row["between_ms"], 9)) == (0.8, 6, 1)
    text = words_of({**row, "own_ms": 5.0, "found_ms": 4.9, "off": -0.02})
    assert "cost +0.40% (-0.10 to +1.20)" in text and "tied 80.0%" in text and "off -2.0%" in text
    assert "busy_wait  train.py:5" in text and text.endswith("no line")


def test_a_program_without_a_record_has_a_row() -> None:
    assert "0 of 0 samples" in words_of(summary("gan", {}))


# What ``scripts/benchmark_modes.py`` says of a process, and what it does if it is ended itself.


SCRIPTS = Path(benchmark_modes.__file__).parent

CHILD = """
    import signal, time
    def interrupt(*_):
        print("interrupted", flush=True)
        raise SystemExit(130)
    signal.signal(signal.SIGINT, interrupt)
    print("begun", flush=True)
    time.sleep(600)
"""


def test_the_time_of_a_process_is_divided() -> None:
    process = mode_rows.process(0, 0.1, compile_time_s=20.0, compiled_graphs=2, time_s=30.5)
    said = benchmark_modes.time_of(process)
    assert said.startswith("30.5 s, of which compilation or its caches 20.0 s (2 graphs compiled in it)")
    assert "timed steps 0.5 s" in said and said.endswith("end 10.0 s")
    assert "nothing compiled" in benchmark_modes.time_of(mode_rows.process(1, 0.1, time_s=3.0))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_interrupts_the_comparison_and_the_rows_are_read(number: signal.Signals) -> None:
    code = f"""
        import os, sys
        from scripts import benchmark_modes
        benchmark_modes.run_until([sys.executable, "-c", {textwrap.dedent(CHILD)!r}], os.environ, 50)
        print("rows", flush=True)
    """
    path = str(SCRIPTS.parent)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(number)
        assert process.communicate(timeout=600)[0] == "interrupted\nrows\n" and process.returncode == 0
