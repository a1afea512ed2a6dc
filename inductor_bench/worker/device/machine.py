"""Reads what this machine says of its processor, and NVIDIA's driver of a GPU's processes, memory and clock.

It calls NVML, the C library behind ``nvidia-smi``, which comes with the driver and needs no installation. A figure that
the driver or the device does not have is ``None``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import platform
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_char_p, c_uint, c_ulonglong, c_void_p
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import torch

from ...records.base import DeviceUse, OtherProcess
from ...records.code import MachineLoad

TOOL_LIMIT_S = 10.0


def read_cpu_name() -> str:
    """The processor's model name, or its architecture if the name is unknown."""
    for text in (_read("/proc/cpuinfo"), run_for_output("lscpu"), run_for_output("sysctl", "machdep.cpu.brand_string")):
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key.strip().lower() in ("model name", "machdep.cpu.brand_string") and value.strip(" -\t"):
                return value.strip()
    return platform.processor() or platform.machine()


def count_usable_cpus() -> tuple[int, ...]:
    """The numbers of the CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def read_clock_hz() -> float | None:
    """The lowest clock of the usable CPUs in Hz, as the kernel reports it now; ``None`` if it does not."""
    usable = set(count_usable_cpus())
    clocks: list[float] = []
    number = -1
    for line in _read("/proc/cpuinfo").splitlines():
        key, _, value = (part.strip() for part in line.partition(":"))
        if key == "processor":
            number = int(value) if value.isdecimal() else -1
        elif key == "cpu MHz" and number in usable:
            with contextlib.suppress(ValueError):
                clocks.append(1e6 * float(value))
    return min(clocks, default=None)


def find_vector_isa() -> str:
    """The vector instructions that torch's kernels use here, for example ``avx512``; ``default`` for none.

    They follow from ``ATEN_CPU_CAPABILITY`` and the processor. Inductor's ``pick_vec_isa`` follows from the same, but
    is not used here, because it compiles and loads test programs first, which takes seconds.
    """
    return torch.backends.cpu.get_cpu_capability().lower()


def read_memory_bytes() -> int | None:
    """The size of the machine's memory in bytes; ``None`` if it is unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return None


def run_for_output(*command: str) -> str:
    """The standard output of a system tool; empty if the tool is missing or fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_LIMIT_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _read(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


LIBRARY = "libnvidia-ml.so.1"
SUCCESS, NOT_FOUND, INSUFFICIENT_SIZE = 0, 6, 7
SM_CLOCK = 1
GPU_UTILISATION = 1
UNKNOWN_BYTES = 2**64 - 1
PREFIXES = ("GPU-", "MIG-")


class _GpuProcess(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint),
        ("bytes", c_ulonglong),
        ("instance", c_uint),
        ("compute_instance", c_uint),
    )


class _Utilisation(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _ProcessUtilisation(ctypes.Structure):
    _fields_ = (
        ("pid", c_uint),
        ("time_us", c_ulonglong),
        ("gpu", c_uint),
        ("memory", c_uint),
        ("encoder", c_uint),
        ("decoder", c_uint),
    )


class _GpuSample(ctypes.Structure):
    _fields_ = (("time_us", c_ulonglong), ("value", c_uint), ("upper", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    )


class GpuProcess(NamedTuple):
    """A process with a context on a GPU."""

    pid: int
    memory_bytes: int | None


class Driver:
    """The driver's view of one GPU.

    Args:
        uuid: the UUID of the GPU, from torch's properties of the device.

    Raises:
        OSError: NVML is missing or does not know the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._library: Any = ctypes.CDLL(LIBRARY)
        self._gpu = c_void_p()
        if self._library.nvmlInit_v2() != SUCCESS:
            raise OSError("NVML does not start")
        names = (f"{prefix}{uuid.removeprefix(prefix)}".encode() for prefix in PREFIXES)
        if not any(self._succeeds("nvmlDeviceGetHandleByUUID", c_char_p(name), byref(self._gpu)) for name in names):
            raise OSError(f"NVML knows no GPU {uuid}")

    def number(self) -> int | None:
        """The number by which ``nvidia-smi`` lists the GPU."""
        return self._read_count("nvmlDeviceGetIndex")

    def compute_processes(self) -> list[GpuProcess]:
        """The processes that compute. In a container, these are the container's own, or none."""
        drawing = {each.pid for each in self._processes("nvmlDeviceGetGraphicsRunningProcesses_v3")}
        found = self._processes("nvmlDeviceGetComputeRunningProcesses_v3")
        return [each for each in found if each.pid not in drawing]

    def drawing_bytes(self) -> int:
        """The memory in bytes of the processes that draw on a display."""
        return sum(each.memory_bytes or 0 for each in self._processes("nvmlDeviceGetGraphicsRunningProcesses_v3"))

    def used_bytes(self) -> int | None:
        """The used memory in bytes, without the driver's own."""
        memory = _Memory(version=ctypes.sizeof(_Memory) | 2 << 24)
        return memory.used if self._read_figure("nvmlDeviceGetMemoryInfo_v2", byref(memory)) else None

    def busy(self) -> float | None:
        """The share of the last sampling period, of 1/6 s to 1 s, in which any kernel ran."""
        found = _Utilisation()
        return found.gpu / 100 if self._read_figure("nvmlDeviceGetUtilizationRates", byref(found)) else None

    def busy_since(self, time_us: int) -> float | None:
        """Returns the share of the time since then in which any kernel ran; without samples that of :meth:`busy`.

        Args:
            time_us: microseconds since the epoch. The driver keeps samples of some seconds.
        """
        kind, start = c_uint(), c_ulonglong(time_us)
        function, asked = "nvmlDeviceGetSamples", (self._gpu, c_uint(GPU_UTILISATION), start, byref(kind))
        found = self._read_list(_GpuSample, lambda room, size: self._call(function, *asked, size, room))
        shares = [one.value / 100 for one in found or () if one.time_us > time_us and one.value <= 100]
        return statistics.fmean(shares) if shares else self.busy()

    def busy_by_process(self, time_us: int) -> dict[int, float] | None:
        """Returns by process id the share of the time since then in which its kernels ran; ``None`` if it is unknown.

        A process without kernels may be left out. In a container, these are the container's own processes, or none.
        """
        function, start = "nvmlDeviceGetProcessUtilization", c_ulonglong(time_us)
        found = self._read_list(
            _ProcessUtilisation, lambda room, size: self._call(function, self._gpu, room, size, start)
        )
        if found is None:
            return None
        shares: dict[int, list[float]] = {}
        for one in found:
            if one.pid and one.time_us > time_us and one.gpu <= 100:
                shares.setdefault(one.pid, []).append(one.gpu / 100)
        return {pid: statistics.fmean(known) for pid, known in shares.items()}

    def clock_mhz(self) -> int | None:
        """The clock of the multiprocessors in MHz."""
        return self._read_count("nvmlDeviceGetClockInfo", c_uint(SM_CLOCK))

    def highest_clock_mhz(self) -> int | None:
        """The maximum clock of the multiprocessors in MHz."""
        return self._read_count("nvmlDeviceGetMaxClockInfo", c_uint(SM_CLOCK))

    def clock_limits(self) -> int:
        """The active limits of the clock, as bits of NVML."""
        found = c_ulonglong()
        return found.value if self._read_figure("nvmlDeviceGetCurrentClocksThrottleReasons", byref(found)) else 0

    def throttles(self) -> tuple[str, ...]:
        """The limits that throttle the clock now, in words."""
        limits = self.clock_limits()
        return tuple(dict.fromkeys(word for bit, word in THROTTLES.items() if limits & bit))

    def _processes(self, function: str) -> list[GpuProcess]:
        count = c_uint(64)  # of a GPU with more processes the first 64 are enough
        found = (_GpuProcess * count.value)()
        status = self._call(function, self._gpu, byref(count), found)
        if status not in (SUCCESS, INSUFFICIENT_SIZE):
            return []
        known = found[: min(count.value, len(found))]
        return [GpuProcess(one.pid, None if one.bytes == UNKNOWN_BYTES else one.bytes) for one in known if one.pid]

    def _read_list(self, kind: type[Any], ask: Callable[[Any, Any], int | None]) -> list[Any] | None:
        """Returns what a function of NVML lists. It first says how much room that needs; ``None`` if it cannot say."""
        count = c_uint()
        status = ask(None, byref(count))
        if status == NOT_FOUND:
            return []
        if status not in (SUCCESS, INSUFFICIENT_SIZE):
            return None
        found = (kind * count.value)()
        status = ask(found, byref(count)) if count.value else NOT_FOUND
        if status == NOT_FOUND:
            return []
        return list(found[: min(count.value, len(found))]) if status == SUCCESS else None

    def _read_count(self, function: str, *arguments: Any) -> int | None:
        found = c_uint()
        return found.value if self._read_figure(function, *arguments, byref(found)) else None

    def _read_figure(self, function: str, *arguments: Any) -> bool:
        return self._succeeds(function, self._gpu, *arguments)

    def _succeeds(self, function: str, *arguments: Any) -> bool:
        return self._call(function, *arguments) == SUCCESS

    def _call(self, function: str, *arguments: Any) -> int | None:
        """The status that a function of NVML returns; ``None`` if this driver lacks the function."""
        found = getattr(self._library, function, None)
        return None if found is None else int(found(*arguments))


@functools.cache
def find_driver_of_current_gpu() -> Driver | None:
    """The driver's view of the GPU that torch uses; ``None`` without a GPU or NVML."""
    import torch

    if not torch.cuda.is_available():
        return None
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    try:
        return Driver(str(uuid)) if uuid is not None else None
    except OSError:
        return None


def read_driver_version() -> str | None:
    """The NVIDIA driver's version, from NVML if its Python binding is installed, otherwise from ``nvidia-smi``."""
    return _load_nvml_driver() or _make_smi_driver()


def _load_nvml_driver() -> str | None:
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        try:
            version = nvml.nvmlSystemGetDriverVersion()
        finally:
            nvml.nvmlShutdown()
    except nvml.NVMLError:
        return None
    return version.decode() if isinstance(version, bytes) else str(version)


def _make_smi_driver() -> str | None:
    lines = run_for_output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()
    return lines[0] if lines else None


# Finds other users of a GPU before a measurement, and watches the GPU's clock during it.


READINGS = 4
BETWEEN_READINGS_S = 0.1
DRIVER_WINDOW_S = 1.0
"""Longest time in seconds over which the driver averages the utilization of a GPU (NVML, ``nvmlUtilization_t``)."""

BETWEEN_CLOCKS_S = 0.02
FEWEST_CLOCKS = 6
RISEN = 0.95
HELD_BACK = 0.97
"""Share of the maximum clock below which a limit costs more than the uncertainty of a measurement."""

IDLE = 0x1
THROTTLES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "thermal limit",
    0x40: "thermal limit",
    0x80: "power brake",
}
"""Limits that throttle the clock, by NVML's bits. Idle clocks and clocks that the owner chose are left out."""


def find_use(driver: Driver, pause: Callable[[float], None] = time.sleep) -> DeviceUse:
    """Returns the use of the GPU by other jobs, while this process and the other workers of its parent leave it idle.

    A program that calls this tool from Python does not count, because it waits; it may hold memory on the GPU. A busy
    GPU is read again after :data:`DRIVER_WINDOW_S`, because kernels of this tool may have run shortly before.
    """
    busy = _read_busy(driver, pause)
    if busy:
        pause(DRIVER_WINDOW_S)
        busy = _read_busy(driver, pause)
    used = driver.used_bytes()
    processes, callers = driver.compute_processes(), set(find_parents(os.getpid()))
    waiting = [each for each in processes if each.pid in callers]
    others = [each for each in processes if each not in waiting and os.getppid() not in find_parents(each.pid)]
    ours = own_bytes() + sum(each.memory_bytes or 0 for each in waiting)
    return DeviceUse(
        gpu=driver.number(),
        processes=tuple(OtherProcess(each.pid, read_process_name(each.pid), each.memory_bytes) for each in others),
        busy=busy,
        held_bytes=None if used is None else max(used - driver.drawing_bytes() - ours, 0),
    )


def _read_busy(driver: Driver, pause: Callable[[float], None]) -> float | None:
    """The median utilization of a few readings; ``None`` if the driver tells none."""
    shares = []
    for _ in range(READINGS):
        pause(BETWEEN_READINGS_S)
        shares.append(driver.busy())
    known = [share for share in shares if share is not None]
    return statistics.median(known) if known else None


def find_parents(pid: int) -> Iterator[int]:
    """The parents of a process, nearest first, up to the first that cannot be read."""
    while pid > 1:
        try:
            status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return
        pid = int(status.rpartition(")")[2].split()[1])
        yield pid


def read_process_name(pid: int) -> str:
    """The name of a process; empty if it cannot be read."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def own_bytes() -> int:
    """The device memory in bytes that torch holds for this process."""
    torch: Any = sys.modules.get("torch")
    return int(torch.cuda.memory_reserved()) if torch is not None and torch.cuda.is_initialized() else 0


class GpuClock(NamedTuple):
    """The clock of the multiprocessors in MHz at one moment, and its active limits as NVML's bits."""

    mhz: int
    limits: int


class ClockWatch:
    """Reads the clock of a GPU every :data:`BETWEEN_CLOCKS_S` seconds on a separate thread, during a measurement.

    Args:
        driver: the driver's view of the GPU; ``None`` to read nothing.
    """

    def __init__(self, driver: Driver | None) -> None:
        self._driver, self._over = driver, threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self.clocks: list[GpuClock] = []
        self.highest_mhz = driver.highest_clock_mhz() if driver is not None else None

    def __enter__(self) -> ClockWatch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _read(self) -> None:
        while self._driver is not None:
            mhz = self._driver.clock_mhz()
            if mhz is None:
                return
            self.clocks.append(GpuClock(mhz, self._driver.clock_limits()))
            if self._over.wait(BETWEEN_CLOCKS_S):
                return


@dataclass(frozen=True)
class ClockSummary:
    """The clock during a measurement."""

    mhz: float | None = None  # the median in MHz
    # the relative change from the first to the last third; ``None`` with fewer than :data:`FEWEST_CLOCKS` readings
    change: float | None = None
    # the limits that were active in at least half of the readings while the clock was below :data:`HELD_BACK` times the
    # maximum
    throttled: tuple[str, ...] = ()


def describe_clocks(clocks: Sequence[GpuClock], highest_mhz: int | None = None) -> ClockSummary:
    """Summarizes the clock during a measurement; without values if the GPU was idle all the time.

    Readings before the clock reaches :data:`RISEN` times its median are left out, because the arguments are made then.

    Args:
        clocks: the readings, in order.
        highest_mhz: the GPU's maximum clock; ``None`` if it is unknown.
    """
    working = [clock for clock in clocks if not clock.limits & IDLE]
    if not working:
        return ClockSummary()
    usual = statistics.median(clock.mhz for clock in working)
    risen = next(index for index, clock in enumerate(working) if clock.mhz >= RISEN * usual)
    steady = working[risen:]
    highest = max([highest_mhz or 0, *(clock.mhz for clock in steady)])
    slow = [clock for clock in steady if clock.mhz < HELD_BACK * highest]
    met = [name for bit, name in THROTTLES.items() if 2 * sum(bool(one.limits & bit) for one in slow) >= len(steady)]
    change, third = None, len(steady) // 3
    if len(steady) >= FEWEST_CLOCKS:
        first, last = (statistics.median(clock.mhz for clock in part) for part in (steady[:third], steady[-third:]))
        change = last / first - 1
    return ClockSummary(statistics.median(clock.mhz for clock in steady), change, tuple(dict.fromkeys(met)))


# Measures how much other processes delay this one, from the system's counters before and after runs (Linux).


ASSUME_IDLE = "INDUCTOR_BENCH_ASSUME_IDLE"  # if this variable is set, every load counts as none

STOLEN, WORKED = (8,), (1, 2, 3, 6, 7)
"""Columns of ``/proc/stat``: the time that the hypervisor gave to other machines, and that processes ran."""


@dataclass(frozen=True)
class Counters:
    """Readings of counters that never decrease. Times are in seconds; ``None`` if the system has no such counter."""

    time_s: float
    cpu_time_s: float
    waited_s: float | None
    stolen_s: float | None
    switches: int
    others_s: float | None = None


def read_counters(*, with_others: bool = False) -> Counters:
    """The counters of this process, all threads together, and of the processors that it may use.

    Args:
        with_others: whether the time of other processes is read, too, which takes some milliseconds.
    """
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_time_s = usage.ru_utime + usage.ru_stime
    if os.environ.get(ASSUME_IDLE):
        return Counters(time.perf_counter(), cpu_time_s, 0.0, 0.0, 0, 0.0)
    others_s = _read_others_s() if with_others else None
    waited_s, stolen_s = _read_waited_s(), _read_processors_s(STOLEN)
    return Counters(time.perf_counter(), cpu_time_s, waited_s, stolen_s, usage.ru_nivcsw, others_s)


def load_since(begin: Counters, runs: int) -> MachineLoad:
    """Returns the load of the machine since ``begin``, a time in which ``runs`` runs were made."""
    end = read_counters(with_others=begin.others_s is not None)
    load = None
    with contextlib.suppress(OSError):
        load = os.getloadavg()[0]
    return MachineLoad(
        runs=runs,
        cores=len(count_usable_cpus()),
        load=load,
        time_s=end.time_s - begin.time_s,
        cpu_time_s=end.cpu_time_s - begin.cpu_time_s,
        waited_s=_compute_growth(begin.waited_s, end.waited_s),
        stolen_s=_compute_growth(begin.stolen_s, end.stolen_s),
        others_s=_compute_growth(begin.others_s, end.others_s),
        switches=end.switches - begin.switches,
    )


def _compute_growth(begin: float | None, end: float | None) -> float | None:
    """Returns the growth of a counter. It is not below 0, although a thread's counts disappear when it ends."""
    return None if begin is None or end is None else max(0.0, end - begin)


def _read_waited_s() -> float | None:
    """The time in seconds that runnable threads of this process waited for a CPU."""
    total = 0
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # the thread has ended
            total += int(path.read_text().split()[1])
    return total / 1e9 or None


def _read_processors_s(columns: Sequence[int]) -> float | None:
    """The sum of columns of ``/proc/stat`` over the usable processors."""
    mine = {f"cpu{number}" for number in count_usable_cpus()}
    try:
        lines = [line.split() for line in Path("/proc/stat").read_text().splitlines()]
        ticks = sum(int(words[column]) for words in lines if words and words[0] in mine for column in columns)
        return ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return None


def _read_others_s() -> float | None:
    """Returns the seconds that the usable processors ran other processes than this one and its descendants."""
    worked_s = _read_processors_s(WORKED)
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):  # the process has ended
            words = path.read_text().rpartition(")")[2].split()
            number = int(path.parent.name)
            parents[number], ticks[number] = int(words[1]), sum(map(int, words[11:15]))  # with ended ones
    mine = {os.getpid()}
    while below := {number for number, parent in parents.items() if parent in mine} - mine:
        mine |= below
    if worked_s is None or os.getpid() not in ticks:
        return None
    return worked_s - sum(ticks.get(number, 0) for number in mine) / os.sysconf("SC_CLK_TCK")


class LoadWatch:
    """The load of the machine in a window of the program's steps; ``found`` is ``None`` if no window has ended."""

    def __init__(self) -> None:
        self._begin: Counters | None = None
        self.found: MachineLoad | None = None

    def begin(self, *, alone: bool) -> None:
        """Begins the window; the time of other processes is read if the program runs ``alone``, without other ranks."""
        self._begin, self.found = read_counters(with_others=alone), None

    def end(self, steps: int) -> None:
        """Ends the window, unless it has ended."""
        begin, self._begin = self._begin, None
        if begin is not None and steps > 0:
            self.found = load_since(begin, steps)

    def forget(self) -> None:
        """Drops the window, because its steps are not the measured ones."""
        self._begin = self.found = None
