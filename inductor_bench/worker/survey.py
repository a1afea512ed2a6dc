"""What only a process with torch can say about the machine and about library calls: the environment, the FLOPs and
bytes of operators, the measured peaks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import torch

from inductor_bench.records.run import Peaks
from inductor_bench.records.traced.operators import OperatorCall
from inductor_bench.store.formats import codec
from inductor_bench.store.peaks import load_peaks, peaks_key, save_peaks

from .costs.operators import count_operator_costs
from .device.environment import describe_environment
from .device.runtimes import open_device
from .device.sharing import SharedDevice

Save = Callable[[dict[str, Any]], None]


def survey(job: dict[str, Any], save: Save) -> dict[str, Any]:
    """Surveys the machine.

    Args:
        job: ``calls`` (encoded ``OperatorCall``), ``device`` (its type) and ``peaks``: ``none``,
            ``cached`` (measured only where the cache has none) or ``measured`` (afresh).
        save: keeps the part that is known should the measurement of the peaks take the process down.

    Returns:
        ``environment``, ``costs`` (one for each call, in order) and ``peaks`` (or ``None``), encoded.
    """
    shared = SharedDevice()
    shared.use()
    environment = describe_environment()
    shared.leave()
    costs = count_operator_costs([codec.decode(OperatorCall, call) for call in job["calls"]])
    result: dict[str, Any] = {"environment": codec.encode(environment), "costs": codec.encode(costs), "peaks": None}
    save(result)
    if job["peaks"] != "none":
        key = peaks_key(environment, job["device"])
        peaks = load_peaks(key) if job["peaks"] == "cached" else None
        shared.use()  # also only to end: the GPU has to clear up behind this process
        if peaks is None:
            peaks = measure_peaks(job["device"])
            save_peaks(key, peaks)
        result["peaks"] = codec.encode(peaks)
    return result


def measure_peaks(device: str) -> Peaks:
    """Measures the memory, cache and matrix roofs of a device, which takes some seconds.

    Torch's global switches and random state are as before when it returns.

    Args:
        device: ``cpu``, ``cuda`` or ``cuda:N``. A CPU is measured with the threads that torch is set to.

    Raises:
        InductorBenchError: no such device is here, or no way to measure it is known.
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
