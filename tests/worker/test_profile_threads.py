"""A profile and the threads of a program: torch ends one on the thread on which it began, and crashes otherwise."""

from __future__ import annotations

from pathlib import Path

import forking_python
import pytest
from conftest import ROOT

pytestmark = pytest.mark.slow

PROGRAM = f"""
import atexit, sys, threading
from pathlib import Path
sys.path.insert(0, {str(ROOT)!r})
import torch
from inductor_bench.worker.capture.step_recording import OtherThreadError, Recording, end_left_profile

def in_thread(act):
    thread = threading.Thread(target=act)
    thread.start()
    thread.join()

def begin():
    global recording
    recording = Recording(Path(sys.argv[1]))
    recording.prepare()
    recording.start()
    torch.ones(3) + 1

def end_elsewhere():
    try:
        recording.export()
    except OtherThreadError as error:
        print("refused:", error)
    recording.stop()
    torch.ones(3) + 1

BEGIN
in_thread(end_elsewhere)
torch.ones(3) + 1
print("ended")
"""


def test_a_profile_that_something_else_ended_writes_no_trace_and_crashes_nothing(tmp_path: Path) -> None:
    """As with two threads that call compiled graphs: torch crashes if it writes the trace of such a profile."""
    program = tmp_path / "program.py"
    text = (
        PROGRAM.partition("BEGIN")[0]
        + """begin()
torch._C._autograd._disable_profiler()
try:
    recording.export()
except RuntimeError as error:
    print("refused:", error)
"""
    )
    program.write_text(text)
    ended = forking_python.run([str(program), str(tmp_path / "trace.json")])
    assert ended.returncode == 0, ended.stderr
    assert "refused: torch's profiler ended early" in ended.stdout and not (tmp_path / "trace.json").exists()


@pytest.mark.corner
@pytest.mark.parametrize("begin", ["in_thread(begin)", "atexit.register(end_left_profile); begin()"])
def test_a_profile_that_another_thread_should_end_crashes_nothing(begin: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("BEGIN", begin))
    ended = forking_python.run([str(program), str(tmp_path / "trace.json")])
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.splitlines()
    assert said[-1] == "ended" and any("several threads" in line for line in said)
    assert not (tmp_path / "trace.json").exists()
