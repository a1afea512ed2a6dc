"""Nsight Compute on just one kernel: its standalone file makes one call, and the hardware counts what that does."""

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
PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
"""Where its installers put it, beside the PATH."""

NOT_FOUND = (
    "Nsight Compute is not installed: install the nsight-compute package of the CUDA toolkit, or add ncu to PATH"
)
HOPELESS = (
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
"""What it says where it can count no kernel, and what that means."""

_ERROR = re.compile(r"^==ERROR== *(.+)$", re.MULTILINE)
_OF_PROGRAM = "The application returned an error code"


class NoCountersError(InductorBenchError):
    """Nothing can be counted on this machine, whatever the kernel."""


@dataclass
class NsightCompute:
    """Counts one kernel after the other, until it turns out that none can be counted.

    Args:
        pool: the interpreter that runs the files, and a scratch folder.
        environment: of the worker that measures.
        timeout_s: for one kernel.
    """

    pool: WorkerPool
    environment: Environment
    timeout_s: float | None = None
    hopeless: bool = False

    def counted(self, kernel: MeasuredKernel, device: str) -> MeasuredKernel:
        """The kernel with its counters, or why it has none; what holds for all kernels is said of the first one."""
        if not device_of(device).has_hardware_counters:
            return replace(kernel, no_counters="no counters: Nsight Compute counts on NVIDIA GPUs only")
        if self.hopeless:
            return kernel
        try:
            return replace(kernel, counters=self.count(Path(kernel.file)))
        except NoCountersError as error:
            self.hopeless = True
            return replace(kernel, no_counters=f"no counters for any kernel: {error.message}")
        except InductorBenchError as error:
            return replace(kernel, no_counters=f"no counters: {error.message}")

    def count(self, file: Path) -> HardwareCounters:
        """The counters of one call of a standalone file.

        Raises:
            NoCountersError: this machine has none.
            InductorBenchError: this kernel was not counted.
        """
        if f'"{PROFILE}"' not in read_text(file):
            raise InductorBenchError(f"{file.name} was written before {PROFILE} was: extract it again")
        ncu = self._find()
        asked = ",".join(metrics_for(compute_capability(self.environment)))
        how = ("--profile-from-start", "off", "--clock-control", "none", "--csv", "--page", "raw")
        command = [ncu, *how, "--print-units", "base", "--metrics", asked]
        log = self.pool.folder / f"ncu-{file.stem}.log"
        log.unlink(missing_ok=True)
        ended = run_process(
            [*command, self.pool.python, str(file.resolve()), PROFILE],
            environment={**self.pool.environment, **SAFE_PATH, "LC_ALL": "C"},  # which decides how numbers are written
            log=log,
            timeout_s=self.timeout_s or COUNT_S,
            on_line=self.pool.on_line,
        )
        said = log.read_text(encoding="utf-8", errors="replace")
        found = read_counters(said)
        if found is None or (found.dram_bytes is None and found.occupancy is None):
            raise _explained(said, ended)
        return found

    def _find(self) -> str:
        found = shutil.which("ncu", path=self.pool.environment.get("PATH"))
        installed = [place for pattern in PLACES for place in sorted(glob.glob(pattern), reverse=True)]
        if not found and not installed:
            raise NoCountersError(NOT_FOUND)
        return found or installed[0]


def _explained(said: str, ended: ProcessResult) -> InductorBenchError:
    """Why nothing was counted, from what was printed."""
    for pattern, why in HOPELESS:
        match = re.search(pattern, said)
        if match:
            return NoCountersError(why.format(match.group()))
    if ended.timed_out:
        return InductorBenchError(f"Nsight Compute {ended.outcome}: give it more time with --timeout SECONDS")
    errors = [error.strip() for error in _ERROR.findall(said) if not error.startswith(_OF_PROGRAM)]
    if errors:
        return InductorBenchError(f"Nsight Compute says: {errors[-1]}")
    if ended.ok:
        return InductorBenchError("Nsight Compute saw no kernel in the call")
    printed = [line.strip() for line in said.splitlines() if line.strip() and not line.startswith("==")]
    return InductorBenchError(printed[-1] if printed else f"Nsight Compute {ended.outcome}")
