"""What the driver is asked while steps are measured: the clock, and what other programs do on the GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from inductor_bench.launch import marks
from inductor_bench.messages.observed import PROCESS_MARK
from inductor_bench.records.base import OtherProcess
from inductor_bench.records.evidence import GpuSharing
from inductor_bench.records.run import Peaks
from inductor_bench.worker.device.gpu_watch import GpuWatch, find_sharing, measure_gpu_peaks_unshared
from inductor_bench.worker.device.machine import Driver, GpuProcess

GIB = 1 << 30
TOOL, PROGRAM, WORKER, OTHER = (digit * 32 for digit in "abcd")
SELF = os.getpid()

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="/proc tells who a process belongs to")


class SharedGpu(Driver):
    """A driver that says what it is told to."""

    def __init__(self, shares: dict[int, float] | None, held: dict[int, int | None], used: int = 0) -> None:
        self.shares, self.held, self.used = shares, held, used
        self.asked: list[int] = []

    def busy_by_process(self, time_us: int) -> dict[int, float] | None:
        self.asked.append(time_us)
        return self.shares

    def busy_since(self, time_us: int) -> float | None:
        self.asked.append(time_us)
        return 0.95

    def compute_processes(self) -> list[GpuProcess]:
        return [GpuProcess(pid, size) for pid, size in self.held.items()]

    def used_bytes(self) -> int | None:
        return self.used

    def drawing_bytes(self) -> int:
        return 0


@contextmanager
def process(mark: str = "") -> Iterator[int]:
    """A process that this one did not start: ``sleep`` under a shell that has ended."""
    variables = {"PATH": os.environ["PATH"], **({PROCESS_MARK: mark} if mark else {})}
    script = "sleep 600 >/dev/null 2>&1 & echo $!"
    told = subprocess.run(["sh", "-c", script], env=variables, stdout=subprocess.PIPE, text=True, check=True)
    pid = int(told.stdout)
    try:
        yield pid
    finally:
        os.kill(pid, 9)


def test_another_process_and_what_it_computes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROCESS_MARK, TOOL + PROGRAM)
    with process(OTHER + PROGRAM) as other, process() as holder:
        gpu = SharedGpu({SELF: 0.6, other: 0.35}, {SELF: 8 * GIB, other: 9 * GIB, holder: None}, 20 * GIB)
        sharing = find_sharing(gpu, 5, 7)
        assert sharing == GpuSharing(
            (OtherProcess(other, "sleep", 9 * GIB, 0.35), OtherProcess(holder, "sleep", None, 0.0)), 0.6, 0.95, 3 * GIB
        )
    assert gpu.asked == [5, 7]


def test_ranks_children_and_processes_of_this_tool_are_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROCESS_MARK, OTHER + TOOL + PROGRAM)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env={})
    with child, process(OTHER + TOOL + PROGRAM) as rank, process(OTHER + TOOL + WORKER) as worker:
        shares = {SELF: 0.2, child.pid: 0.1, rank: 0.3, worker: 0.1}
        sharing = find_sharing(SharedGpu(shares, {}), 1, 1)
        child.kill()
    assert sharing.others == () and sharing.own_busy == pytest.approx(0.7)


def test_a_program_without_a_mark_has_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROCESS_MARK, raising=False)
    with process() as other:
        assert [one.pid for one in find_sharing(SharedGpu(None, {SELF: 1, other: 1}), 1, 1).others] == [other]


def test_ids_of_another_container_name_nobody() -> None:
    sharing = find_sharing(SharedGpu({1: 0.6, 2: 0.3}, {1: 8 * GIB, 2: 9 * GIB}, 18 * GIB), 1, 1)
    assert sharing == GpuSharing(busy=0.95, held_bytes=18 * GIB)


def test_a_driver_that_tells_no_shares_of_processes_tells_who_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PROCESS_MARK, raising=False)
    with process() as other:
        sharing = find_sharing(SharedGpu(None, {SELF: GIB, other: GIB}, 3 * GIB), 1, 1)
        assert sharing == GpuSharing((OtherProcess(other, "sleep", GIB),), None, 0.95, GIB)


def test_peaks_of_a_gpu_that_another_process_uses_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROCESS_MARK, TOOL + PROGRAM)
    peaks = Peaks("an H100", 2.99e12, {"float32": 5e13}, 50 << 20, 4.28e12)
    with process(OTHER + PROGRAM) as other:
        busy, slightly = (SharedGpu({SELF: 0.5, other: share}, {SELF: GIB, other: GIB}) for share in (0.48, 0.01))
        kept, doubt = measure_gpu_peaks_unshared(lambda: peaks, busy)
        assert kept is None and "used the GPU 48% of the time" in doubt and f"pid {other}" in doubt
        assert measure_gpu_peaks_unshared(lambda: peaks, slightly) == (peaks, "")
    assert measure_gpu_peaks_unshared(lambda: peaks, None) == (peaks, "")


def test_it_is_asked_only_of_a_gpu_whose_steps_are_measured() -> None:
    watch, gpu = GpuWatch(), SharedGpu({SELF: 0.5}, {})
    watch.begin()
    assert watch.sharing() is None, "there is no driver"
    watch.set_driver(gpu)
    watch.begin()
    watch.begin_window()
    assert watch.sharing() == GpuSharing((), 0.5, 0.95, 0)
    begin_us, steady_us = gpu.asked
    assert 0 < begin_us <= steady_us
    later = GpuWatch()
    later.set_driver(gpu)
    assert later.sharing() is None, "no step is measured yet"


def test_the_name_of_the_mark_is_that_of_the_processes() -> None:
    assert PROCESS_MARK == marks.MARK
