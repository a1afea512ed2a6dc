"""Measures the peaks of a device: the roofs to which shares of peak refer; see ``gpu`` and ``cpu``.

Torch's global settings and random state are restored.
"""

from __future__ import annotations

from datetime import datetime, timezone

import torch

from ...errors import InductorBenchError
from ...records.run import Peaks
from ..device.environment import cpu_name
from .cpu import CpuPeaks, measure_cpu
from .gpu import GpuPeaks, measure_gpu


def measure_peaks(device: str) -> Peaks:
    """Measures the memory, cache and matrix roofs of a device. Takes some seconds.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``. A CPU is measured with torch's number of threads.

    Raises:
        InductorBenchError: the machine has no such device, or its kind cannot be measured.
    """
    try:
        wanted = torch.device(device)
    except RuntimeError as error:
        raise InductorBenchError(f"{device!r} is not a device", "use cpu, cuda or cuda:N") from error
    if wanted.type not in ("cpu", "cuda"):
        raise InductorBenchError(f"no way to measure the peaks of a {wanted.type} device is known")
    if wanted.type == "cuda" and (wanted.index or 0) >= torch.cuda.device_count():
        raise InductorBenchError(f"there is no device {device} here", "`inductor-bench doctor` lists the devices")
    measured: CpuPeaks | GpuPeaks
    with torch.inference_mode():
        measured = measure_cpu() if wanted.type == "cpu" else measure_gpu(wanted)
    return Peaks(
        device=cpu_name() if wanted.type == "cpu" else torch.cuda.get_device_name(wanted),
        memory_bandwidth=measured.memory_bandwidth,
        matmul_flops=measured.matmul_flops,
        cache_bytes=measured.cache_bytes,
        cache_bandwidth=measured.cache_bandwidth,
        launch_floor_s=measured.launch_floor_s,
        threads=torch.get_num_threads() if wanted.type == "cpu" else None,
        torch=str(torch.__version__),
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
