"""Other jobs on a GPU: what the driver says of them, when that refuses a measurement, and how the clock is watched."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from device_bench import Bench

from inductor_bench.analysis.roofline import describe_use
from inductor_bench.analysis.statistics import summarize
from inductor_bench.messages.job_requests import FindDeviceUse
from inductor_bench.messages.kernel_requests import Load, Measure
from inductor_bench.records.base import DeviceUse, OtherProcess
from inductor_bench.records.request import KernelRequest
from inductor_bench.records.retune import MeasuredKernel, TimingClock
from inductor_bench.worker.device import machine
from inductor_bench.worker.device.machine import (
    IDLE,
    ClockSummary,
    ClockWatch,
    Driver,
    GpuClock,
    GpuProcess,
    describe_clocks,
    find_use,
)
from inductor_bench.workflows.kernel import _measure_all
from inductor_bench.workflows.kernels.kernel_timing import list_advice, measure_file

GIB = 1 << 30
NOBODY = 4_194_305
"""Higher than any process number."""

FREE = DeviceUse(0, (), 0.0, 500 << 20)
TAKEN = DeviceUse(0, (OtherProcess(1234, "python", 34 * 10**9),), 0.97, 36 * GIB)


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (FREE, ""),
        (DeviceUse(), ""),
        (replace(FREE, busy=0.05), ""),
        (TAKEN, "another job uses GPU 0: pid 1234 python, 34.0 GB, 97% busy"),
        (replace(TAKEN, busy=0.0), "another job uses GPU 0: pid 1234 python, 34.0 GB, 0% busy"),
        (replace(FREE, gpu=None, busy=0.6), "another job uses the GPU: 524 MB taken, 60% busy"),
        (replace(FREE, gpu=3, held_bytes=34 * 10**9), "another job uses GPU 3: 34.0 GB taken, 0% busy"),
        (
            DeviceUse(1, tuple(OtherProcess(pid) for pid in range(11, 16))),
            "another job uses GPU 1: pid 11, pid 12, pid 13, 2 more",
        ),
    ],
)
def test_what_is_said_of_a_gpu_in_use(use: DeviceUse, words: str) -> None:
    assert describe_use(use) == words


# A request for a kernel on such a GPU


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inductor_bench.workflows.kernels.kernel_timing.COOLING_S", 0.0)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("cpp_0.py", "triton_1.py", "triton_2.py")]
    for path in paths:
        path.write_text("RECORDED = {}\n")
    return paths


def test_a_gpu_in_use_is_refused_before_anything_is_measured_there(tmp_path: Path, files: list[Path]) -> None:
    bench = Bench(KernelRequest(()), tmp_path, TAKEN)
    outcome = _measure_all(files, bench, lambda found, environment: None)
    assert [kernel.device for kernel in outcome.kernels] == ["a CPU"]  # for which nobody looked
    (failure,) = outcome.failures
    assert failure.subject.endswith("triton_1.py") and bench.asked[-2:] == [Load, FindDeviceUse]
    assert failure.message.endswith("pid 1234 python, 34.0 GB, 97% busy; its times would be mixed with yours")
    assert "--force" in failure.hint and "CUDA_VISIBLE_DEVICES" in failure.hint


def test_with_force_it_is_measured_and_said(tmp_path: Path, files: list[Path]) -> None:
    bench = Bench(KernelRequest((), force=True), tmp_path, TAKEN)
    outcome = _measure_all(files, bench, lambda found, environment: None)
    assert len(outcome.kernels) == 3 and not outcome.failures and bench.asked.count(FindDeviceUse) == 1
    assert outcome.kernels[0].shared_device == "" and outcome.kernels[0].advice == ()
    for kernel in outcome.kernels[1:]:
        assert kernel.shared_device.endswith("97% busy")
        assert any("97% busy: its work disturbs these times" in advice for advice in kernel.advice)


@pytest.mark.parametrize(("clocks", "kept"), [((1400.0, 1700.0), 1700.0), ((1400.0, 1300.0), 1400.0)])
def test_times_are_taken_again_if_the_clock_was_held_back(
    tmp_path: Path, files: list[Path], clocks: tuple[float, float], kept: float
) -> None:
    bench, answers = Bench(KernelRequest(()), tmp_path, None), iter(clocks)
    bench.clock_of = lambda: next(answers)
    kernel = measure_file(files[1], bench)
    assert kernel.clock.clock_mhz == kept and bench.asked.count(Measure) == 2 and not list(answers)


def test_roofs_are_not_measured_on_a_gpu_in_use(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inductor_bench.workflows.kernels.kernel_timing.load_peaks", lambda key: None)
    monkeypatch.setattr("inductor_bench.workflows.kernels.kernel_timing.take_survey", None)
    bench = Bench(KernelRequest((), force=True), tmp_path, TAKEN)
    del bench.peaks["cuda"]
    (kernel,) = _measure_all(files[1:2], bench, lambda found, environment: None).kernels
    assert kernel.roof.peak_share is None and bench.peaks["cuda"] is None


@pytest.mark.parametrize("use", [FREE, None])
def test_a_gpu_that_is_free_or_unknown_is_measured(tmp_path: Path, files: list[Path], use: DeviceUse | None) -> None:
    bench = Bench(KernelRequest(()), tmp_path, use)
    outcome = _measure_all(files, bench, lambda found, environment: None)
    assert len(outcome.kernels) == 3 and bench.asked.count(FindDeviceUse) == 1
    on_gpu = outcome.kernels[1]
    assert on_gpu.clock == TimingClock(1980.0, -0.08, ("power cap",))
    assert on_gpu.resources.occupancy == 0.5 and on_gpu.shared_device == ""
    held, moved = on_gpu.advice
    assert "limited to 1,980 MHz by its power cap" in held and "clock sank by 8%" in moved
    assert outcome.kernels[0].clock.clock_mhz is None


def test_a_steady_clock_is_no_trouble() -> None:
    times = summarize([1e-5 + number * 1e-9 for number in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)])
    kernel = MeasuredKernel("k", "0" * 16, "k.py", "pointwise", "a GPU", {}, times, times, "graphs")
    assert list_advice(replace(kernel, clock=TimingClock(1980.0, 0.03))) == []


# What the driver is asked


class FakeDriver(Driver):
    """A driver that says what it is told to."""

    def __init__(
        self, processes: list[GpuProcess], busy: list[float | None], used: int | None, drawing: int = 0
    ) -> None:
        self.told, self.shares, self.used, self.drawing = processes, iter(busy), used, drawing

    def number(self) -> int | None:
        return 2

    def compute_processes(self) -> list[GpuProcess]:
        return self.told

    def drawing_bytes(self) -> int:
        return self.drawing

    def used_bytes(self) -> int | None:
        return self.used

    def busy(self) -> float | None:
        return next(self.shares)

    def highest_clock_mhz(self) -> int | None:
        return 1980


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="parents are told by /proc")
def test_our_own_processes_are_no_other_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's family are the children of its parent; here this process is that parent, and no child of it."""
    monkeypatch.setattr(os, "getppid", os.getpid)
    with subprocess.Popen(["sleep", "600"]) as child:
        told = [GpuProcess(child.pid, GIB), GpuProcess(os.getpid(), 34 * 10**9), GpuProcess(NOBODY, None)]
        use = find_use(
            FakeDriver(told, [1.0] * 4 + [0.9, 0.0, 0.8, 1.0], 40 * GIB, drawing=GIB), pause=lambda seconds: None
        )
        child.kill()
    seen, hidden = use.processes
    assert (seen.pid, seen.memory_bytes) == (os.getpid(), 34 * 10**9)
    assert seen.name == Path("/proc/self/comm").read_text().strip()
    assert hidden == OtherProcess(NOBODY)
    assert (use.gpu, use.busy, use.held_bytes) == (2, pytest.approx(0.85), 39 * GIB)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="parents are told by /proc")
def test_a_program_that_waits_for_us_is_no_other_job() -> None:
    told = [GpuProcess(os.getppid(), 3 * GIB)]
    use = find_use(FakeDriver(told, [0.0] * 4, 4 * GIB), pause=lambda seconds: None)
    assert (use.processes, use.held_bytes) == ((), GIB)


def test_a_driver_that_says_little_is_believed_in_that() -> None:
    assert find_use(FakeDriver([], [None] * 4, None), pause=lambda seconds: None) == DeviceUse(2)


def test_kernels_of_this_tool_that_just_ran_are_no_other_job() -> None:
    pauses: list[float] = []
    use = find_use(FakeDriver([], [0.18] * 4 + [0.0] * 4, GIB), pause=pauses.append)
    assert use.busy == 0.0 and max(pauses) >= 1.0 and describe_use(use) == ""


NVML = """
#include <string.h>
typedef struct { unsigned pid; unsigned long long bytes; unsigned instance, compute; } process_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilisation_t;
static int device;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **found) {
    *found = &device;
    return strcmp(uuid, "GPU-8a9d") ? 6 : 0;
}
static int is(void *asked) { return asked == &device ? 0 : 2; }
int nvmlDeviceGetIndex(void *gpu, unsigned *index) { *index = 3; return is(gpu); }
static int list(unsigned *count, process_t *found, int first, int many) {
    if (*count < many) return 7;
    for (int i = 0; i < many; i++) { found[i].pid = first + i; found[i].bytes = i ? ~0ull : 5000000000ull; }
    *count = many;
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *gpu, unsigned *count, process_t *found) {
    return is(gpu) ? 2 : list(count, found, 100, 3);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *gpu, unsigned *count, process_t *found) {
    return is(gpu) ? 2 : list(count, found, 102, 1);
}
int nvmlDeviceGetMemoryInfo_v2(void *gpu, memory_t *found) {
    if (found->version != (sizeof(memory_t) | 2 << 24)) return 25;
    found->used = 7000000000ull;
    return is(gpu);
}
int nvmlDeviceGetUtilizationRates(void *gpu, utilisation_t *found) { found->gpu = 97; return is(gpu); }
typedef struct { unsigned pid; unsigned long long us; unsigned gpu, memory, encoder, decoder; } use_t;
typedef struct { unsigned long long us; union { unsigned whole; unsigned long long most; } value; } sample_t;
#ifdef PROCESSES
int nvmlDeviceGetProcessUtilization(void *gpu, use_t *found, unsigned *count, unsigned long long since) {
    use_t known[] = {{100, 2000, 40, 1, 1, 1}, {100, 3000, 60}, {0, 3000, 30}, {101, 3000, 35}, {102, 900, 9},
                     {103, 3000, 4000000}};
    if (since >= 3000) return 6;
    if (!found) { *count = 6; return 7; }
    if (*count < 6) return 7;
    memcpy(found, known, sizeof known);
    return is(gpu);
}
int nvmlDeviceGetSamples(void *gpu, int kind, unsigned long long since, int *type, unsigned *count, sample_t *found) {
    if (kind != 1) return 2;
    if (since >= 3000) return 6;
    *count = 3;
    if (!found) return 0;
    for (int i = 0; i < 3; i++) { found[i].us = 1000 + 1000 * i; found[i].value.most = 10 + 40 * i; }
    return is(gpu);
}
#endif
int nvmlDeviceGetClockInfo(void *gpu, int kind, unsigned *mhz) { *mhz = kind == 1 ? 1980 : 1; return is(gpu); }
int nvmlDeviceGetMaxClockInfo(void *gpu, int kind, unsigned *mhz) { *mhz = kind == 1 ? 2100 : 1; return is(gpu); }
#ifdef THROTTLES
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *found) { *found = 0x24; return is(gpu); }
#endif
"""


def build(folder: Path, monkeypatch: pytest.MonkeyPatch, *flags: str) -> None:
    """A library with the functions and structures of NVML's header, in the place of the driver's."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    (folder / "nvml.c").write_text(NVML)
    library = folder / f"lib{len(flags)}.so"
    subprocess.run([compiler, "-shared", "-fPIC", *flags, folder / "nvml.c", "-o", library], check=True, timeout=600)
    monkeypatch.setattr(machine, "LIBRARY", str(library))


def test_the_driver_is_asked_as_its_library_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, monkeypatch, "-DTHROTTLES")
    driver = Driver("8a9d")
    assert driver.number() == 3
    assert driver.compute_processes() == [GpuProcess(100, 5 * 10**9), GpuProcess(101, None)]  # 102 draws
    assert (driver.drawing_bytes(), driver.used_bytes(), driver.busy()) == (5 * 10**9, 7 * 10**9, 0.97)
    assert (driver.clock_mhz(), driver.highest_clock_mhz(), driver.clock_limits()) == (1980, 2100, 0x24)
    with pytest.raises(OSError, match="no GPU 77"):
        Driver("77")


def test_the_driver_is_asked_for_the_use_since_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, monkeypatch, "-DPROCESSES")
    driver = Driver("8a9d")
    assert driver.busy_by_process(1000) == {100: 0.5, 101: 0.35}, "0 is hidden, 102 was earlier, 103 is no share"
    assert driver.busy_since(1000) == pytest.approx(0.7)
    assert driver.busy_by_process(3000) == {}
    assert driver.busy_since(3000) == 0.97, "there is no sample yet: that of the last period"


def test_an_older_driver_or_none_says_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build(tmp_path, monkeypatch)
    assert Driver("GPU-8a9d").clock_limits() == 0
    assert (Driver("GPU-8a9d").busy_by_process(0), Driver("GPU-8a9d").busy_since(0)) == (None, 0.97)
    monkeypatch.setattr(machine, "LIBRARY", str(tmp_path / "none.so"))
    with pytest.raises(OSError):
        Driver("8a9d")


# The clock


def test_the_clock_is_read_while_something_is_measured() -> None:
    read = threading.Event()

    class Ticking(FakeDriver):
        def clock_mhz(self) -> int | None:
            return 1980

        def clock_limits(self) -> int:
            read.set()
            return 4

    with ClockWatch(Ticking([], [], None)) as watch:
        assert read.wait(600)
    assert watch.clocks[0] == GpuClock(1980, 4)
    with ClockWatch(None) as nothing:
        pass
    assert nothing.clocks == [] and describe_clocks([]) == ClockSummary()


def test_an_idle_and_a_rising_clock_do_not_count() -> None:
    clocks = (
        [GpuClock(345, IDLE)] * 20
        + [GpuClock(900, 0), GpuClock(1500, 0)]
        + [GpuClock(1980, 0)] * 6
        + [GpuClock(1965, 0)] * 3
    )
    found = describe_clocks(clocks)
    assert (found.mhz, found.throttled) == (1980, ())
    assert found.change == pytest.approx(1965 / 1980 - 1)
    assert describe_clocks([GpuClock(345, IDLE)]) == ClockSummary()
    assert describe_clocks([GpuClock(1980, 0)] * 5).change is None


def test_what_held_the_clock_back_is_named_if_it_did_so_often() -> None:
    clocks = [GpuClock(1980, 0)] * 6 + [GpuClock(1400, 0x4 | 0x20)] * 5 + [GpuClock(1400, 0x4 | 0x20 | 0x80)]
    found = describe_clocks(clocks)
    assert found.throttled == ("power cap", "thermal limit")
    assert found.change == pytest.approx(1400 / 1980 - 1)
    assert describe_clocks([GpuClock(1980, 0)] * 7 + [GpuClock(1400, 0x4)] * 5).throttled == ()


def test_a_limit_that_is_met_at_nearly_the_highest_clock_is_no_trouble() -> None:
    assert describe_clocks([GpuClock(1965, 0x4)] * 9, 1980).throttled == ()
    assert describe_clocks([GpuClock(1700, 0x4)] * 9, 1980).throttled == ("power cap",)
    assert describe_clocks([GpuClock(1700, 0x4)] * 9).throttled == (), "it may be as high as it goes"
