"""Reads hardware counters of a kernel with Nsight Compute, which runs one call of the kernel's standalone file."""

from __future__ import annotations

import glob
import re
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from ...devices.nvidia.architectures import compute_capability
from ...devices.nvidia.counters import metrics_for, read_counters
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...launch.interpreter import SAFE_PATH
from ...launch.process import ProcessResult, run_process
from ...launch.worker import WorkerPool
from ...records.run import Environment
from ...records.tuning import HardwareCounters, MeasuredKernel
from ...store.files import read_text

COUNT_S = 300.0
PROFILE = "--profile"
INSTALL_PATTERNS = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
"""Glob patterns of the places where installers put Nsight Compute, other than the PATH."""

NOT_FOUND = (
    "Nsight Compute is not installed: install the nsight-compute package of the CUDA toolkit, or add ncu to PATH"
)
MACHINE_ERRORS = (
    (
        "ERR_NVGPUCTRPERM",
        "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): run as root, or load the driver "
        "with NVreg_RestrictProfilingToAdminUsers=0; a container needs --cap-add=SYS_ADMIN",
    ),
    (
        "LibraryNotLoaded|Failed to initialize the profiler",
        "Nsight Compute cannot load the driver's profiler here ({}): that needs an ncu that the driver supports, and "
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
        """The kernel with its counters, or with the reason why it has none.

        A reason that holds for all kernels is added to the first kernel only.
        """
        if not device_of(device).has_hardware_counters:
            return replace(kernel, no_counters="no counters: Nsight Compute counts on NVIDIA GPUs only")
        if self.is_unavailable:
            return kernel
        try:
            return replace(kernel, counters=self.count(Path(kernel.file)))
        except NoCountersError as error:
            self.is_unavailable = True
            return replace(kernel, no_counters=f"no counters for any kernel: {error.message}")
        except InductorBenchError as error:
            return replace(kernel, no_counters=f"no counters: {error.message}")

    def count(self, file: Path) -> HardwareCounters:
        """The counters of one call of a standalone file.

        Raises:
            NoCountersError: no kernel can be counted on this machine.
            InductorBenchError: this kernel could not be counted.
        """
        if f'"{PROFILE}"' not in read_text(file):
            raise InductorBenchError(f"{file.name} was written before {PROFILE} was: extract it again")
        ncu = self._find()
        metrics = ",".join(metrics_for(compute_capability(self.environment)))
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
    """The error of a run without counters, from its output and the way that it ended."""
    for pattern, why in MACHINE_ERRORS:
        match = re.search(pattern, output)
        if match:
            return NoCountersError(why.format(match.group()))
    if ended.timed_out:
        return InductorBenchError(f"Nsight Compute {ended.outcome}: give it more time with --timeout SECONDS")
    errors = [error.strip() for error in _ERROR.findall(output) if not error.startswith(_PROGRAM_ERROR)]
    if errors:
        return InductorBenchError(f"Nsight Compute says: {errors[-1]}")
    if ended.ok:
        return InductorBenchError("Nsight Compute saw no kernel in the call")
    printed = [line.strip() for line in output.splitlines() if line.strip() and not line.startswith("==")]
    return InductorBenchError(printed[-1] if printed else f"Nsight Compute {ended.outcome}")
