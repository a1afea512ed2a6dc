"""What is said of measurements that are not to be trusted, and of retunes on a busy machine."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from inductor_bench.analysis.statistics import summarize
from inductor_bench.records.retune import MeasuredKernel, Timing
from inductor_bench.source.harness import timing_cpu
from inductor_bench.workflows.kernels.kernel_timing import list_advice, list_busy_notes

STEADY = summarize([1e-3 + number * 1e-7 for number in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)])
IDLE = "2 threads; cold: 9 copies in turn, evicted before"
AXES = {"threads": (2, 1), "schedule": ("static", "guided"), "flags": ("default", "unroll")}


def kernel(cold: Timing = STEADY, method: str = IDLE, checked: bool | None = True, message: str = "") -> MeasuredKernel:
    return MeasuredKernel(
        name="k",
        kernel_id="0" * 16,
        file="k.py",
        category="cpp",
        device="cpu",
        config={},
        cold=cold,
        warm=STEADY,
        method=method,
        checked=checked,
        check_message=message,
    )


def test_nothing_is_said_of_a_good_measurement() -> None:
    assert list_advice(kernel()) == []


@pytest.mark.parametrize(
    ("measured", "why"),
    [
        (kernel(checked=False, message="output 0: 3 NaNs"), "differ from the reference: output 0: 3 NaNs"),
        (kernel(checked=None, message="its outputs hold NaNs"), "its outputs hold NaNs"),
        (kernel(method=f"{IDLE}; unreliable: the machine is busy"), "unreliable: the machine is busy"),
        (kernel(summarize([1e-3 * 1.02**number for number in range(12)])), "the cold time rose by 17%"),
        (kernel(summarize([1e-3, 2e-3] * 6)), "the 95% interval of the cold time is 67% wide"),
        (kernel(summarize([1e-3] * 5)), "the cold time rests on 5 samples only"),
    ],
)
def test_one_thing_is_said_of_what_is_wrong(measured: MeasuredKernel, why: str) -> None:
    (advice,) = list_advice(measured)
    assert why in advice


def test_a_busy_machine_is_said_to_decide_on_threads() -> None:
    assert list_busy_notes(AXES, IDLE, load=2.4, processors=2) == []
    (note,) = list_busy_notes(AXES, IDLE, load=3.3, processors=2)
    assert "load 3.3 on 2 CPUs: the best threads and schedule may differ on an idle machine" in note
    (note,) = list_busy_notes(AXES, f"{IDLE}; unreliable: the machine is busy, threads waited", load=0.1, processors=2)
    assert note.startswith("the machine is busy, threads waited: the best threads")
    assert list_busy_notes({"flags": AXES["flags"]}, IDLE, load=9.0, processors=2) == []


def test_threads_that_wait_or_a_load_make_the_times_unreliable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (0.0, 0.0, 0.0))
    assert "unreliable" not in timing_cpu.describe_method(3, waiting=0.01)
    assert "threads waited for a CPU 110% of the time" in timing_cpu.describe_method(3, waiting=1.1)
    monkeypatch.setattr("os.getloadavg", lambda: (1e6, 0.0, 0.0))
    assert "unreliable: the machine is busy, load 1000000.0" in timing_cpu.describe_method(3, waiting=0.0)


WAITING = """
import os, time
from inductor_bench.source.harness.timing_cpu import waited_seconds
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
other = os.fork()
while not other:
    pass
end = time.monotonic() + 1
while time.monotonic() < end:
    pass
os.kill(other, 9)
print(waited_seconds())
"""


@pytest.mark.skipif(not timing_cpu.glob.glob("/proc/self/task/*/schedstat"), reason="this kernel does not tell")
def test_waiting_for_a_cpu_is_seen() -> None:
    """Two processes on one CPU: each waits for about half of the time, and for some of it in any case."""
    ended = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) > 0.1
    before = timing_cpu.waited_seconds()
    time.sleep(0.01)
    assert timing_cpu.waited_seconds() >= before >= 0
