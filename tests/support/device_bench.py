"""A session on a device that others use."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from inductor_bench.launch.worker import WorkerPool
from inductor_bench.records.device_use import DeviceUse
from inductor_bench.records.run import Environment
from inductor_bench.store.formats import codec
from inductor_bench.workflows.kernel.session import KernelOptions, Workbench
from inductor_bench.workflows.progress import Silent


class Bench(Workbench):
    """One whose worker says what it is told to."""

    def __init__(self, options: KernelOptions, folder: Path, use: DeviceUse | None) -> None:
        pool = WorkerPool("python", folder, {})
        super().__init__(
            options, pool, Silent(), Environment(accelerator="a GPU", cpu="a CPU", compute_capability="9.0")
        )
        self.peaks, self.use, self.asked = {"cuda": None, "cpu": None}, use, list[str]()
        self.clock_of: Callable[[], float] = lambda: 1980.0

    def ask(self, limit_s: float, **request: Any) -> Any:
        self.asked.append(request["do"])
        if request["do"] == "load":
            self.device = "cpu" if "cpp" in request["file"] else "cuda"
            recorded = {"name": "k", "kernel_id": "0" * 16, "category": "pointwise"}
            return {"device": self.device, "recorded": recorded}
        samples = [1e-5 + number * 1e-9 for number in (3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5)]
        watched = {}
        if request["do"] == "measure" and request["watch"]:
            watched = {"clock_mhz": self.clock_of(), "clock_change": -0.08, "throttled": ["power cap"]}
        return {
            "device_use": codec.encode(self.use) if self.use else None,
            "verify": {"passed": True, "message": ""},
            "measure": {"cold": samples, "warm": samples, "method": "graphs", **watched},
            "describe": {"config": {"num_warps": 8}, "registers": 64, "shared_memory_bytes": 0, "spills": 0},
        }[request["do"]]
