"""Determines the bottleneck of a graph outside its kernels: launches, the host, or gaps between kernels."""

from __future__ import annotations

from ...devices.table import device_of
from ...records.module import ModuleRecord

LAUNCH_BOUND = 0.7  # busy share below which a graph is bound by its launches or its host
GAPS = 0.9  # busy share below which idle gaps are reported
LONG_WAIT_S = 100e-6  # idle seconds per launch above which the host is slow, because a launch takes less
GRAPH_GAIN = 0.98  # share of the wall time below which a CUDA graph replay is reported as a gain
HOST_SHARE = 0.15  # share of a CPU graph's wall time outside kernels from which it is reported

WAITS_FOR_HOST = ("launch-bound", "host-bound")
"""Bottlenecks with which a faster kernel does not shorten the run."""


def bottleneck(module: ModuleRecord) -> str:
    """Returns the bottleneck of a graph outside its kernels, as far as its own run tells that of the program's calls.

    Returns:
        ``launch-bound``, ``host-bound``, ``cuda-graph`` (a replay as one CUDA graph is faster), ``gaps`` or, on a CPU,
        ``host-share``; an empty string where there is no such bottleneck, the times are unknown, or the program
        compiles it for CUDA graphs.
    """
    times = module.times
    if not times.wall_time_s or times.busy_share is None or module.cuda_graphs:
        return ""
    if device_of(module.device).runs_on_host:
        return "host-share" if 1 - times.busy_share >= HOST_SHARE else ""
    if times.busy_share < LAUNCH_BOUND:
        return "host-bound" if idle_per_launch(module) > LONG_WAIT_S else "launch-bound"
    if replay_gain_s(module) > (1 - GRAPH_GAIN) * times.wall_time_s:
        return "cuda-graph"
    return "gaps" if times.busy_share < GAPS else ""


def replay_gain_s(module: ModuleRecord) -> float:
    """Seconds that one iteration saves when replayed as one CUDA graph; 0 where the replay is slower or unmeasured."""
    times = module.times
    if not times.graph_time_s or not times.wall_time_s:
        return 0.0
    return max(0.0, times.wall_time_s - times.graph_time_s)


def idle_s(module: ModuleRecord) -> float:
    """Seconds of one iteration in which the device is idle."""
    return (module.times.wall_time_s or 0.0) * max(0.0, 1 - (module.times.busy_share or 0.0))


def idle_per_launch(module: ModuleRecord) -> float:
    """Idle seconds of one iteration divided by the number of its launches."""
    return idle_s(module) / module.launches if module.launches else 0.0
