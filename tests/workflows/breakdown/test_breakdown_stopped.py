"""A breakdown that is stopped at any moment: the screen shows all that is known, the exit code says how it ended."""

from __future__ import annotations

import signal
from pathlib import Path

import breakdown_runs as runs
import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, time, torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 1))
compiled, optimizer = torch.compile(model), torch.optim.SGD(model.parameters())
for number in range(300):
    compiled(torch.ones(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if number == 1:
        print("compiled", flush=True)
LAST
"""
MOMENTS = (
    ("compiled", 0, ""),
    ("the program goes on", 0, "its graphs and kernels were not measured"),
    ("profiling backward", 1, "when 1 of 2 graphs was measured"),
    ("writing the kernels", 2, ""),
    ("writing the report", 2, ""),
)
"""What a breakdown says when it is stopped, the graphs that it has measured by then, and what it says is missing."""


def write(folder: Path, last: str = "") -> Path:
    path = folder / "train.py"
    path.write_text(PROGRAM.replace("LAST", last))
    return path


@pytest.mark.parametrize(("number", "moment"), [*enumerate(MOMENTS)], ids=[words for words, _, _ in MOMENTS])
def test_what_is_known_is_shown_at_each_moment(number: int, moment: tuple[str, int, str], tmp_path: Path) -> None:
    said, graphs, missing = moment
    last = "time.sleep(300)" if said == "the program goes on" else ""
    sent, code = ((signal.SIGINT, 130), (signal.SIGTERM, 143))[number % 2]
    plots = ["--plots"] if said == "writing the report" else []  # without them it is written before the signal comes
    words = (write(tmp_path, last), "-v", *plots)
    done = runs.interrupt(tmp_path / "run", *words, when=lambda text: said in text, number=sent)
    assert done.code == code and "interrupted; what was measured until then is in" in done.stderr
    record = done.record
    assert [failure["kind"] for failure in record["failures"]] == ["interrupted"]
    assert missing in record["failures"][0]["message"]
    assert len(record["modules"]) >= graphs and not (done.folder / ".work").exists()
    if number >= 1:
        program = record["program"]
        assert program["step_time_s"] > 0 and program["step_source"] == "optimizer"
        times = {part["label"]: part["time_s"] for part in program["parts"] if part["kind"] == "graph"}
        assert set(times) == {"forward", "backward"} and all(times.values()), "also of one that was not profiled"
        answer, _, missing = done.stdout.partition("Stopped before its end")
        assert "a step (optimizer steps" in answer and "Where the step goes" in answer and "Failed" not in answer
        assert "nterrupted by Ctrl-C or a signal" in " ".join(missing.split())


@pytest.mark.parametrize(("last", "kind"), [("sys.exit(3)", "exit"), ("time.sleep(900)", "timeout")])
def test_a_program_that_dies_after_its_steps_keeps_them(last: str, kind: str, tmp_path: Path) -> None:
    done = runs.breakdown(tmp_path / "run", write(tmp_path, last), "--timeout", "30")
    assert done.code == 1 and [failure["kind"] for failure in done.record["failures"]] == [kind]
    assert done.record["program"]["parts"] and "Where the step goes" in done.stdout
    assert len(done.record["modules"]) == 2
