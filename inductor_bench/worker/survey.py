"""Surveys the machine and library calls: the environment, the FLOPs and bytes of operators, and the measured peaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

import torch

from inductor_bench.messages.jobs import Surveyed, SurveyMachine
from inductor_bench.records.run import Peaks
from inductor_bench.store.peaks import load_peaks, peaks_key, save_peaks

from .costs.operators import count_operator_costs
from .device.environment import describe_environment
from .device.runtimes import open_device
from .device.sharing import SharedDevice


def survey(job: SurveyMachine, save: Callable[[Surveyed], None]) -> Surveyed:
    """Surveys the machine.

    Args:
        job: the calls, the device and the wanted peaks.
        save: saves the part that is known before the peaks are measured, which may crash the process.
    """
    shared = SharedDevice()
    shared.use()
    environment = describe_environment()
    shared.leave()
    found = Surveyed(environment, tuple(count_operator_costs(job.calls)))
    save(found)
    if job.peaks == "none":
        return found
    key = peaks_key(environment, job.device)
    peaks = load_peaks(key) if job.peaks == "cached" else None
    shared.use()  # also with cached peaks, because the end of this process occupies the GPU
    if peaks is None:
        peaks = measure_peaks(job.device)
        save_peaks(key, peaks)
    return replace(found, peaks=peaks)


def measure_peaks(device: str) -> Peaks:
    """Measures the memory, cache and matrix roofs of a device, which takes some seconds.

    Torch's global switches and random state are restored at the end.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``. A CPU is measured with the threads that torch is set to.

    Raises:
        InductorBenchError: the device is missing, or its peaks cannot be measured.
    """
    runtime, place = open_device(device)
    with torch.inference_mode():
        measured = runtime.measure_roofs(place)
    return Peaks(
        device=runtime.name(place),
        memory_bandwidth=measured.memory_bandwidth,
        matmul_flops=measured.matmul_flops,
        cache_bytes=measured.cache_bytes,
        cache_bandwidth=measured.cache_bandwidth,
        launch_floor_s=measured.launch_floor_s,
        threads=torch.get_num_threads() if runtime.device.runs_on_host else None,
        torch=str(torch.__version__),
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )
