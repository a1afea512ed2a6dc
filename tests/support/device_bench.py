"""A fake kernel session on a device that other jobs use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from inline import make

from inductor_bench.launch.worker import WorkerPool
from inductor_bench.messages.job_requests import FindDeviceUse, WorkerRequest
from inductor_bench.messages.kernel_requests import (
    Describe,
    Described,
    KernelTimes,
    Load,
    MakeReference,
    Measure,
    RecordedFacts,
    VariantFacts,
    Verified,
    Verify,
)
from inductor_bench.records.base import DeviceUse
from inductor_bench.records.code import Reference
from inductor_bench.records.request import KernelRequest
from inductor_bench.records.run import Environment
from inductor_bench.workflows.kernels.kernel_session import KernelSession
from inductor_bench.workflows.progress import Silent


class Bench(KernelSession):
    """A kernel session whose requests get fixed answers. ``asked`` lists the types of the requests."""

    def __init__(self, request: KernelRequest, folder: Path, use: DeviceUse | None) -> None:
        pool = WorkerPool("python", folder, {})
        super().__init__(
            request, pool, Silent(), make(Environment, accelerator="a GPU", cpu="a CPU", compute_capability="9.0")
        )
        self.peaks, self.use, self.asked = {"cuda": None, "cpu": None}, use, list[type[WorkerRequest[Any]]]()
        self.clock_of: Callable[[], float] = lambda: 1980.0

    def ask(self, request: WorkerRequest[Any], limit_s: float) -> Any:
        self.asked.append(type(request))
        if isinstance(request, Load):
            self.device = "cpu" if "cpp" in request.file else "cuda"
            recorded = RecordedFacts("k", "0" * 16, "pointwise")
            return VariantFacts("cpp" if self.device == "cpu" else "triton", self.device, recorded)
        samples = tuple(1e-5 + number * 1e-9 for number in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5))
        watched: dict[str, Any] = {}
        if isinstance(request, Measure) and request.watch:
            watched = {"clock_mhz": self.clock_of(), "clock_change": -0.08, "throttled": ("power cap",)}
        answers: dict[type[WorkerRequest[Any]], Any] = {
            FindDeviceUse: self.use,
            MakeReference: Reference(error="none"),
            Verify: Verified(True, ""),
            Measure: KernelTimes(samples, samples, "graphs", **watched),
            Describe: Described({"num_warps": 8}, registers=64, shared_memory_bytes=0, spills=0),
        }
        return answers[type(request)]
