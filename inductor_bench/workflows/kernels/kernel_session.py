"""The session of the verb ``kernel``: its request, the worker that measures, and the compile pools."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from ...analysis.roofline import describe_use
from ...autotune.methods import TuningPriority
from ...autotune.tuning_workers import (
    COMPILE_S,
    LOAD_S,
    CompileJob,
    CompilePool,
    NoCandidatesError,
    Waiting,
    ask_worker,
)
from ...devices.hardware_counters import list_metrics, read_counters
from ...devices.nvidia import NVIDIA, VISIBLE_GPUS, Architecture, compute_capability, list_visible_gpus
from ...devices.table import find_device
from ...errors import InductorBenchError, UsageError
from ...launch.process import SAFE_PATH, ProcessResult, find_remedy, run_process
from ...launch.worker import (
    CORES_KEPT_FROM_A_RETUNE,
    WorkerLostError,
    WorkerPool,
    WorkerSession,
    count_timing_workers,
    count_usable_cores,
    explain_loss_at_start,
)
from ...messages.job_requests import (
    COMPILES_TRITON,
    LAUNCH_GAP,
    LAUNCHES_TRITON,
    Answer,
    FindDeviceUse,
    GetReady,
    Pretend,
    StartCompilers,
    TellArchitecture,
    TellEnvironment,
    WorkerRequest,
)
from ...messages.kernel_requests import CompileTriton
from ...records.base import NO_CANDIDATES, DeviceUse, Failure
from ...records.module import ExtractedKernel
from ...records.request import KernelRequest
from ...records.retune import HardwareCounters, MeasuredKernel
from ...records.run import Environment, Peaks
from ...source.standalone_header import holds_triton_kernel
from ...store.files import read_text
from ...store.folder import is_edited, read_rows
from ...store.lock import TURN, WAITING
from ...units import ELLIPSIS
from ..modules.targets import find_path_kind
from ..progress import Progress

# Refuses to measure on a GPU that another job uses, unless the user insists.


DEVICE_USE_S = 60.0
"""Limit in seconds for the worker's answer."""


class DeviceInUseError(InductorBenchError):
    """Another job uses the GPU, so that no kernel is measured on it."""

    id = "device-in-use"


def find_other_job(ask: Callable[[FindDeviceUse, float], DeviceUse | None], force: bool) -> str:
    """Describes the job that uses the worker's GPU; empty if there is none, or if it is unknown.

    Args:
        ask: sends a request, with a limit in seconds, to the worker that is about to measure.
        force: whether the user insists on the measurement.

    Raises:
        DeviceInUseError: another job uses the GPU, and ``force`` is false.
    """
    found = ask(FindDeviceUse(), DEVICE_USE_S)
    others = describe_use(found) if found else ""
    if others and not force:
        raise DeviceInUseError(
            f"{others}; its times would be mixed with yours",
            "wait for it, choose another GPU with CUDA_VISIBLE_DEVICES, or measure anyway with --force",
        )
    return others


def make_kernel_environment(folder: Path) -> dict[str, str]:
    """Makes the environment of workers with a scratch folder.

    If the parent shares the GPU with other jobs, it holds its turn for the whole request, so that the workers do not
    wait for these jobs.
    """
    environment = {"TRITON_CACHE_DIR": str(folder / "triton"), **os.environ}
    return {name: value for name, value in environment.items() if name not in (TURN, WAITING)}


# Reads hardware counters of a kernel with Nsight Compute, which runs one call of the kernel's standalone file.


COUNT_S = 300.0
PROFILE = "--profile"
INSTALL_PATTERNS = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
"""Glob patterns of the places where installers put Nsight Compute, other than the PATH."""

NOT_FOUND = (
    "Nsight Compute is not installed; install the nsight-compute package of the CUDA toolkit, or add ncu to PATH"
)
MACHINE_ERRORS = (
    (
        "ERR_NVGPUCTRPERM",
        "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM); run as root, or load the driver "
        "with NVreg_RestrictProfilingToAdminUsers=0; a container needs --cap-add=SYS_ADMIN",
    ),
    (
        "LibraryNotLoaded|Failed to initialize the profiler",
        "Nsight Compute cannot load the driver's profiler here ({}); this needs an ncu that the driver supports, and "
        "a container or virtual machine that lets profilers through",
    ),
)
"""Errors of Nsight Compute that hold for all kernels: a pattern of its output, and the message for the user."""

_ERROR = re.compile(r"^==ERROR== *(.+)$", re.MULTILINE)
_PROGRAM_ERROR = "The application returned an error code"


class NoCountersError(InductorBenchError):
    """No kernel can be counted on this machine."""


@dataclass
class NsightCompute:
    """Counts one kernel after the other, until an error shows that this machine can count none.

    Args:
        pool: the interpreter that runs the files, and a scratch folder.
        environment: the environment of the worker that measures.
        timeout_s: limit for one kernel in seconds; ``None`` for :data:`COUNT_S`.
        is_unavailable: whether such an error has occurred.
    """

    pool: WorkerPool
    environment: Environment
    timeout_s: float | None = None
    is_unavailable: bool = False

    def with_counters(self, kernel: MeasuredKernel, device: str) -> MeasuredKernel:
        """Returns the kernel with its counters, or with the reason why it has none.

        A reason that holds for all kernels is added only to the first kernel.
        """
        if not find_device(device).has_hardware_counters:
            return replace(kernel, no_counters="no counters: Nsight Compute counts on NVIDIA GPUs only")
        if self.is_unavailable:
            return kernel
        try:
            return replace(kernel, counters=self.count(Path(kernel.file)))
        except NoCountersError as error:
            self.is_unavailable = True
            return replace(kernel, no_counters=f"no kernel has counters: {error.message}")
        except InductorBenchError as error:
            return replace(kernel, no_counters=f"no counters: {error.message}")

    def count(self, file: Path) -> HardwareCounters:
        """Counts one call of a standalone file.

        Raises:
            NoCountersError: no kernel can be counted on this machine.
            InductorBenchError: this kernel could not be counted.
        """
        if f'"{PROFILE}"' not in read_text(file):
            raise InductorBenchError(f"{file.name} was written before {PROFILE} was: extract it again")
        ncu = self._find()
        metrics = ",".join(list_metrics(compute_capability(self.environment)))
        options = ("--profile-from-start", "off", "--clock-control", "none", "--csv", "--page", "raw")
        command = [ncu, *options, "--print-units", "base", "--metrics", metrics]
        log = self.pool.folder / f"ncu-{file.stem}.log"
        log.unlink(missing_ok=True)
        ended = run_process(
            [*command, self.pool.python, str(file.resolve()), PROFILE],
            environment={**self.pool.environment, **SAFE_PATH, "LC_ALL": "C"},  # LC_ALL sets the format of numbers
            log=log,
            timeout_s=self.timeout_s or COUNT_S,
            on_line=self.pool.on_line,
        )
        output = log.read_text(encoding="utf-8", errors="replace")
        found = read_counters(output)
        if found is None or (found.dram_bytes is None and found.occupancy is None):
            raise _explain_failure(output, ended)
        return found

    def _find(self) -> str:
        found = shutil.which("ncu", path=self.pool.environment.get("PATH"))
        installed = [place for pattern in INSTALL_PATTERNS for place in sorted(glob.glob(pattern), reverse=True)]
        if not found and not installed:
            raise NoCountersError(NOT_FOUND)
        return found or installed[0]


def _explain_failure(output: str, ended: ProcessResult) -> InductorBenchError:
    """Returns the error of a run without counters, from its output and the way it ended."""
    for pattern, why in MACHINE_ERRORS:
        match = re.search(pattern, output)
        if match:
            return NoCountersError(why.format(match.group()))
    if ended.timed_out:
        return InductorBenchError(f"Nsight Compute {ended.outcome}; give it more time with --timeout SECONDS")
    errors = [error.strip() for error in _ERROR.findall(output) if not error.startswith(_PROGRAM_ERROR)]
    if errors:
        return InductorBenchError(f"Nsight Compute says: {errors[-1]}")
    if ended.ok:
        return InductorBenchError("Nsight Compute saw no kernel in the call")
    printed = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("==")]
    return InductorBenchError(printed[-1] if printed else f"Nsight Compute {ended.outcome}")


MOST_COMPILE_WORKERS = 32
CANDIDATES_OF_KERNEL = 4
"""The number of candidates that each kernel has at least, for the estimate of the work."""

MEMORY_OF_A_WORKER = 16 << 30
"""Bytes of device memory for each worker, if several workers time on one device."""


@dataclass
class KernelSession:
    """The state that all files of a request share."""

    request: KernelRequest  # what the user asked for
    pool: WorkerPool  # the interpreter, the scratch folder and the environment of the workers
    progress: Progress  # the listener for stages and output
    environment: Environment = field(default_factory=Environment)  # the environment of the worker that measures
    peaks: dict[str, Peaks | None] = field(default_factory=dict)  # the measured peaks, by the device
    # the workers that measure and time, by their number. Number 0 measures; it is there after :meth:`open`. The others
    # share its device with it.
    measuring: dict[int, WorkerSession] = field(default_factory=dict)
    readied: set[int] = field(default_factory=set)  # the numbers of the workers that have been asked to get ready
    nsight: NsightCompute | None = None  # the reader of hardware counters, if the request asks for them
    # a description of the job that uses a device, by the device; empty if there is none
    other_jobs: dict[str, str] = field(default_factory=dict)
    # the rows of a folder's kernel index, by the folder and the file
    index_rows: dict[Path, dict[str | None, ExtractedKernel]] = field(default_factory=dict)
    pools: dict[str, CompilePool] = field(default_factory=dict)  # the compile pools, by the device
    architecture: Architecture | None = None  # the architecture of the GPU, once the worker that measures has told it
    # the failure of that request, once it has failed
    no_architecture: InductorBenchError | WorkerLostError | None = None
    # yields numbers that no kernel has in the worker
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    # the start of the budget on the monotonic clock, in seconds: that of the session, or of a later retune
    began: float = field(default_factory=time.monotonic)
    # what a retune of each kernel can win, if this decides their order; see ``run_kernel``
    stakes: Mapping[str, TuningPriority] = field(default_factory=dict)

    def start(self, name: str, **variables: str) -> WorkerSession:
        log = self.pool.folder / f"{name}.log"
        environment = {**self.pool.environment, **variables}
        return WorkerSession(self.pool.python, self.pool.folder, environment, log=log, on_line=self.pool.on_line)

    def open(self) -> None:
        """Starts the worker that measures, and reads its environment.

        Raises:
            InductorBenchError: the interpreter has no working torch.
        """
        self.progress.stage("looking at the machine")
        worker = self.measuring.get(0) or self._start_measuring(0)
        try:
            self.environment = worker.ask(TellEnvironment(), LOAD_S)
        except WorkerLostError as lost:
            raise explain_loss_at_start(lost, self.pool) from None
        if self.request.ncu:
            self.nsight = NsightCompute(self.pool, self.environment, self.request.timeout_s)

    def find_other_jobs(self, device: str) -> str:
        """Describes the job that uses a device, as it was before the first measurement on the device.

        Raises:
            DeviceInUseError: another job uses the device, and the request does not insist.
        """
        if device not in self.other_jobs:
            on_host = find_device(device).runs_on_host
            self.other_jobs[device] = "" if on_host else find_other_job(self.ask, self.request.force)
        return self.other_jobs[device]

    def is_edited(self, file: Path) -> bool:
        """Whether a file was changed since ``extract`` wrote it."""
        folder = file.parent
        if folder not in self.index_rows:
            self.index_rows[folder] = {row.file: row for row in read_rows(folder)}
        row = self.index_rows[folder].get(file.name)
        return row is not None and is_edited(row, folder)

    def worker(self) -> WorkerSession:
        """Returns the worker that measures; starts a new one if the last one was lost.

        A new worker is asked for its environment first, so that its start-up has a time limit of its own.
        """
        if not self.has_worker(0):
            self._start_measuring(0).ask(TellEnvironment(), LOAD_S)
        return self.measuring[0]

    def has_worker(self, number: int) -> bool:
        """Whether the worker with a number has started."""
        return number in self.measuring and self.measuring[number].alive

    def _start_measuring(self, number: int) -> WorkerSession:
        """Starts a worker. Only one worker at a time uses the device."""
        folder = self.pool.folder.absolute()
        variables = {TURN: str(folder / "device-turn"), LAUNCH_GAP: str(folder / "launch-gap.json")}
        if number:  # the first worker is asked about the machine meanwhile
            variables[LAUNCHES_TRITON] = "1"
        worker = self.start(f"measure-{number}" if number else "measure", **variables)
        self.measuring[number] = worker
        return worker

    def ask(self, request: WorkerRequest[Answer], limit_s: float) -> Answer:
        """Asks the worker that measures. If the user gave a time limit, it replaces ``limit_s``."""
        return self.worker().ask(request, self.request.timeout_s or limit_s)

    def timing_workers(
        self, kernels: int, devices: Collection[str], *, library: bool = False
    ) -> list[Callable[[], Waiting[WorkerSession]]]:
        """Returns the timing workers for the pipeline: one for a CPU, or several that share a GPU.

        Args:
            kernels: the number of kernels.
            devices: the types of their devices, as far as they are known.
            library: whether library calls are among the kernels.
        """
        count = 1
        on_host = bool(devices) and all(device and find_device(device).runs_on_host for device in devices)
        if list_visible_gpus() and not on_host:
            memory = self.environment.device.accelerator_memory_bytes or 0
            count = max(1, min(count_timing_workers(count_usable_cores()), memory // MEMORY_OF_A_WORKER, kernels))
        ready: list[WorkerRequest[Any]] = [StartCompilers(count)] if library and list_visible_gpus() else []
        if ready or any(device and not find_device(device).runs_on_host for device in devices):
            ready.append(GetReady())
            self._ask_ahead()
        return [partial(self._steps_to_worker, number, ready) for number in range(count)]

    def _ask_ahead(self) -> None:
        """Asks the first worker the questions that must not disturb the timing later.

        The measurement reports a failure.
        """
        with contextlib.suppress(InductorBenchError, WorkerLostError):
            self.find_other_jobs(NVIDIA.type)  # first: the driver's figures of the last second would include ours
        self.other_jobs.setdefault(NVIDIA.type, "")
        try:
            self._greeting()
        except (InductorBenchError, WorkerLostError) as error:
            self.no_architecture = error

    def _steps_to_worker(self, number: int, ready: Sequence[WorkerRequest[Any]]) -> Waiting[WorkerSession]:
        """Returns the steps that lead to a worker that times: it gets ready at its first call; after a loss another one
        starts."""
        requests: list[WorkerRequest[Any]] = []
        if not self.has_worker(number):
            self._start_measuring(number)
            requests.append(TellEnvironment())
        if number not in self.readied:
            self.readied.add(number)
            requests += ready
        elif requests:  # the first kernel does the rest
            requests += [one for one in ready if isinstance(one, StartCompilers)]
        session = self.measuring[number]
        for request in requests:
            yield from ask_worker(session, request, max(self.request.timeout_s or LOAD_S, LOAD_S))
        return session

    def compile_pool(self, device: str) -> CompilePool:
        """Returns the compile pool for a device.

        Its workers use no GPU, leave one core free, and have a low priority.
        """
        on_host = find_device(device).runs_on_host
        greeting = None if on_host else self._greeting()
        if device not in self.pools:
            self.pools[device] = self._make_pool(on_host)
        self.pools[device].greeting = greeting
        return self.pools[device]

    def _greeting(self) -> Pretend:
        if self.no_architecture is not None:
            raise self.no_architecture
        if self.architecture is None:
            limit_s = max(self.request.timeout_s or LOAD_S, LOAD_S)
            self.architecture = self.worker().ask(TellArchitecture(), limit_s)
        return Pretend(self.architecture)

    def _make_pool(self, on_host: bool) -> CompilePool:
        load_s, compile_s = self.request.timeout_s or LOAD_S, self.request.timeout_s or COMPILE_S
        if on_host:
            load_s = max(load_s, LOAD_S)  # these workers import torch when they load their first file
            return CompilePool(self.start, min(count_usable_cores(), MOST_COMPILE_WORKERS), load_s, compile_s)
        count = max(1, min(count_usable_cores() - CORES_KEPT_FROM_A_RETUNE, MOST_COMPILE_WORKERS))
        return CompilePool(self._start_without_gpu, count, load_s, compile_s)

    def start_ahead(self, files: Sequence[Path]) -> None:
        """Starts the workers that time and those that compile Triton kernels, so that they import torch at the same
        time."""
        if not list_visible_gpus():
            return
        for number in range(min(count_timing_workers(count_usable_cores()), len(files))):
            self._start_measuring(number)
        if triton := sum(map(holds_triton_kernel, files)):
            pool = self.pools[NVIDIA.type] = self._make_pool(on_host=False)
            pool.start_workers(triton * CANDIDATES_OF_KERNEL)

    def compile_ahead(self, files: Sequence[Path]) -> None:
        """Compiles the Triton kernels among the files in parallel, into the cache of the worker that measures.

        Errors are ignored here, because the measurement of the same files reports them.
        """
        here = [file for file in files if holds_triton_kernel(file)] if self.environment.device.accelerator else []
        if not here:
            return
        self.progress.stage(f"compiling {len(here)} kernel{'s' * (len(here) != 1)}")
        jobs = [CompileJob(file, str(file.resolve()), partial(CompileTriton, read=False)) for file in here]
        with contextlib.suppress(InductorBenchError, WorkerLostError):
            self.find_other_jobs(NVIDIA.type)
            for _ in self.compile_pool(NVIDIA.type).compile(jobs, lambda: False):
                pass

    def _start_without_gpu(self, name: str) -> WorkerSession:
        return self.start(f"gpu-{name}", **{VISIBLE_GPUS: "", COMPILES_TRITON: "1"})

    def start_budget(self) -> None:
        """Starts the clock of the budget again, because the retune begins here: of a host's kernels, or after
        measurements."""
        self.began = time.monotonic()

    def left_s(self) -> float | None:
        """Returns the seconds that are left of the budget; ``None`` without a budget."""
        return None if self.request.budget_s is None else self.request.budget_s - (time.monotonic() - self.began)

    def is_over(self) -> bool:
        """Whether the budget is spent."""
        left_s = self.left_s()
        return left_s is not None and left_s <= 0

    def close(self) -> None:
        with ThreadPoolExecutor(max(len(self.measuring), 1)) as threads:  # a worker takes a second to leave its GPU
            for worker in self.measuring.values():
                threads.submit(worker.close)
            for pool in self.pools.values():
                pool.end()


def make_failure(file: Path, error: InductorBenchError | WorkerLostError) -> Failure:
    """Makes the failure of a file, with a hint."""
    if isinstance(error, WorkerLostError):
        message, hint = f"the worker {error.message}", _find_hint(error, file)
        return Failure("kernel", error.kind, message, hint, error.tail, str(file))
    kind = NO_CANDIDATES if isinstance(error, NoCandidatesError) else "invalid"
    return Failure("kernel", kind, error.message, error.hint or find_remedy(error.message), "", str(file))


def _find_hint(lost: WorkerLostError, file: Path) -> str:
    if lost.kind == "hung":
        return "give it more time with --timeout SECONDS"
    if "SIGKILL" in lost.message:
        return "it may have needed more memory than there is"
    return f"python {file} may say more"


# Finds the standalone files that a request names, and the paths that their winners are saved to.


def find_files(targets: Sequence[str]) -> list[Path]:
    """Returns the standalone files that the targets name, without duplicates.

    Raises:
        UsageError: a target is missing or names no standalone file.
    """
    found: list[Path] = []
    for target in targets:
        place, _, glob = (
            (target, "", "") if "#" not in target or find_path_kind(Path(target)) else target.partition("#")
        )
        path = Path(place)
        path = path / "kernels" if find_path_kind(path) == "folder" == find_path_kind(path / "kernels") else path
        if not find_path_kind(path):
            hint = "`inductor-bench extract SOURCE -o DIR` writes standalone files"
            raise UsageError(f"there is no {path}", hint, "no-such-target")
        if find_path_kind(path) == "folder":
            pattern = glob.removesuffix(".py").replace(ELLIPSIS, "*") or "*"
            matching = [each for each in _list_files(path) if fnmatchcase(each.name, f"{pattern}.py")]
            if not matching:
                raise UsageError(f"{path} holds no {pattern}.py", f"ls {path} shows what it holds", "no-fitting-kernel")
            found += matching
        elif find_path_kind(path) == "file":
            found.append(path)
        else:
            raise UsageError(
                f"{path} is not a file", "give a standalone kernel file, or a folder of them", "wrong-target"
            )
    return list(dict.fromkeys(found))


def _list_files(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if each.is_file())
    except OSError as error:
        raise UsageError(f"{folder} cannot be read: {error.strerror or error}", name="unreadable") from error


def prepare_to_save(save: Path | None, files: Sequence[Path]) -> None:
    """Makes the folder for the faster files, so that an unwritable place is reported before the tuning.

    Raises:
        UsageError: the winners cannot be written there.
    """
    if save is None:
        return
    if len(files) > 1 and save.suffix == ".py":
        raise UsageError(
            f"{len(files)} kernels cannot be saved into one file", "give a folder with --save", "misplaced-option"
        )
    places = [choose_save_path(save, file, files) for file in files]
    if len(set(places)) < len(places):
        raise UsageError(
            "two of these files have one name, so they cannot be saved side by side",
            "save one at a time",
            "misplaced-option",
        )
    for place in places:
        if find_path_kind(place):
            raise UsageError(f"{place} exists", "choose another place with --save", "folder-in-use")
    folder = places[0].parent
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if find_path_kind(folder) != "folder" or not os.access(folder, os.W_OK):
        raise UsageError(f"{folder} cannot be written to", "choose another place with --save", "unwritable")


def choose_save_path(save: Path, file: Path, files: Sequence[Path]) -> Path:
    """Returns the path at which the fastest version of a kernel file is saved."""
    return save if len(files) == 1 and save.suffix == ".py" else save / file.name
