"""Compares a kernel with the limits of its device: the nearest limit, the share of it, and the possible saving.

Pure functions of counts and measured peaks. The counts are lower bounds of the necessary work (each buffer moved once,
multiply-adds of matrix products only). The peaks are the rates that simple kernels reached on the same device, so a
share of peak refers to a practicable rate instead of the data sheet's.

The time that the hardware needs for one call is the longest of

- the time of its bytes at the memory roof, or at the cache roof if the call's bytes fit into the cache (the data
  then stays in the cache between producer and consumer, and the DRAM bandwidth is no limit). If it is known which
  bytes of a program's step come from DRAM (``analysis.residence``), the longer of their time at the memory roof and the
  time of all bytes at the cache roof;
- the time of its matrix FLOPs at the dense matrix roof of its element type;
- the launch floor, the time of an empty GPU kernel.

The limit with the longest time is the kernel's bound.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from .. import units
from ..records.base import DeviceUse, OtherProcess, sum_known
from ..records.evidence import GpuSharing
from ..records.module import Kernel, LeastWork, ModuleRecord, RooflineResult
from ..records.run import IDLE, QUEUED, OtherWork, Peaks, RankSteps

SPREAD = 1.03
"""A rate counts as at its roof up to this ratio of the two. Both are medians that repeat within a few percent."""

WRITE_SPREAD = 1.1
"""The same ratio for DRAM. The roof was measured with kernels that read and write. Kernels that write most of their
bytes ran up to 3.4% above it on an H200, whose data sheet allows 10%.
"""

MATRIX_SPREAD = 1.05
"""The same ratio for matrix products. Their rate also depends on the shape and may depend on the values.

The roof is the rate of large square products of random numbers. On an H200 one product of a model ran 3.05% above it.
"""

ABOVE_ROOF = 0.25
"""If groups above their roof take more than this share of the bound's time, the kernel's share of peak is unknown."""

_SPREADS = {"memory": WRITE_SPREAD, "compute": MATRIX_SPREAD}


@dataclass(frozen=True)
class TimedWork:
    """The work and the time of a kernel in one iteration, summed over all of its calls."""

    time_s: float  # device time in seconds
    calls: float  # number of calls
    work: LeastWork  # the bytes and FLOPs; FLOPs of ``None`` or 0 if it has no matrix products
    dram_bytes: float | None = None  # the bytes that DRAM serves in the program's step; ``None`` if unknown
    cache_bytes: float | None = None  # the bytes that the cache serves there; ``None`` if unknown


def judge_kernel(timed: TimedWork, peaks: Peaks | None) -> RooflineResult:
    """Compares a kernel with the peaks of its device. All its calls count as equal.

    The doubtful cases are decided as follows:

    - no peaks, no time or no calls: ``unknown``; rates are given if they can be.
    - at most ``cache_bytes`` per call, or a bandwidth above :data:`WRITE_SPREAD` times the memory roof: the cache
      serves the kernel. If the cache's bandwidth was not measured, the roof and the gain are unknown.
    - known ``dram_bytes``: they decide instead of the size of a call, unless the kernel is faster than DRAM can serve
      them. Without a measured cache bandwidth the roof is unknown if the cache serves the larger part.
    - FLOPs of an element type whose matrix rate was not measured: ``unknown``, because the missing roof may be the
      nearest.
    - known FLOPs with unknown bytes: the FLOPs decide, and the gain is an upper limit.
    - the launch floor is the longest time: ``latency``, whatever the rates are.
    - a rate up to :data:`SPREAD` times its roof (:data:`WRITE_SPREAD` for DRAM, :data:`MATRIX_SPREAD` for FLOPs) counts
      as at the roof (share 1). Above that the share is ``None`` and the gain 0: the kernel does less work than was
      counted, or takes a faster path than the measured one.
    """
    work, time_s, measured = timed.work, timed.time_s, timed.time_s > 0
    bandwidth = work.moved_bytes / time_s if measured and work.moved_bytes is not None else None
    flop_rate = work.flops / time_s if measured and work.flops else None
    rates = RooflineResult(bandwidth=bandwidth, flop_rate=flop_rate)
    if peaks is None or not measured or timed.calls <= 0:
        return rates
    needs = _compute_needed_times(timed, peaks, bandwidth)
    if needs is None:
        return rates
    bound = max(needs, key=lambda name: (needs[name] or 0.0, name == "latency"))
    if needs.get("cache", 0.0) is None:
        # The unknown cache roof may be the nearest limit.
        return replace(rates, bound="cache")
    needed = needs[bound] or 0.0
    return replace(rates, bound=bound, peak_share=_share(bound, needed, time_s), gain_limit_s=max(time_s - needed, 0.0))


def judge_groups(groups: Sequence[TimedWork], peaks: Peaks | None) -> RooflineResult:
    """Compares a kernel whose calls differ, such as a library call with several shapes, with the peaks of its device.

    Args:
        groups: one item for each group of equal calls.
        peaks: the measured peaks; ``None`` if there are none.

    Returns:
        The bound with the longest total time and the mean share of peak of its groups, weighted by time. The gain
        limit is the sum over all groups. Shares, rates and gains are ``None`` if one group's value is unknown. Groups
        faster than their roof count as at it if they take at most :data:`ABOVE_ROOF` of the bound's time.
    """
    judged = [(timed, judge_kernel(timed, peaks)) for timed in groups]
    if len(judged) == 1:
        return judged[0][1]
    time_s = sum(timed.time_s for timed in groups)
    moved = sum_known([timed.work.moved_bytes for timed in groups])
    flops = sum_known([timed.work.flops for timed in groups])
    under: dict[str, float] = {}
    for timed, judgement in judged:
        under[judgement.bound] = under.get(judgement.bound, 0.0) + timed.time_s
    bound = max(under, key=lambda name: under[name], default="unknown")
    alike = [(timed, judgement) for timed, judgement in judged if judgement.bound == bound]
    faster = [timed for timed, one in alike if one.peak_share is None and one.gain_limit_s == 0.0]
    at_roof = 1.0 if faster and sum(timed.time_s for timed in faster) <= ABOVE_ROOF * under[bound] else None
    shares = [(at_roof if timed in faster else one.peak_share, timed.time_s) for timed, one in alike]
    share = sum_known([_multiply(*one) for one in shares])
    return RooflineResult(
        bound=bound,
        peak_share=min(share / under[bound], 1.0) if share is not None and under.get(bound) else None,
        bandwidth=moved / time_s if moved is not None and time_s > 0 else None,
        flop_rate=flops / time_s if flops and time_s > 0 else None,
        gain_limit_s=sum_known([judgement.gain_limit_s for _, judgement in judged]),
    )


def find_matrix_roof(dtype: str | None, peaks: Peaks, *, tf32: bool = False) -> float | None:
    """The measured matrix rate in FLOP/s of an element type; with ``tf32``, float32 products may use TF32."""
    if dtype is None:
        return None
    if dtype.startswith("float8"):
        dtype = "float8"
    if dtype == "tf32" or (tf32 and dtype == "float32"):  # devices without TF32 ignore the permission
        dtype = "tf32" if "tf32" in peaks.matmul_flops else "float32"
    return peaks.matmul_flops.get(dtype)


def _compute_needed_times(timed: TimedWork, peaks: Peaks, bandwidth: float | None) -> dict[str, float | None] | None:
    """Shortest seconds per iteration under each limit; ``None`` if the limits are not known well enough."""
    needs: dict[str, float | None] = {}
    work = timed.work
    if timed.dram_bytes is not None and timed.dram_bytes <= WRITE_SPREAD * peaks.memory_bandwidth * timed.time_s:
        needs.update(_compute_resident_times(timed, peaks))
    elif work.moved_bytes and bandwidth is not None:
        within = peaks.cache_bytes is not None and work.moved_bytes / timed.calls <= peaks.cache_bytes
        if within or bandwidth > WRITE_SPREAD * peaks.memory_bandwidth:
            roof = peaks.find_cache_bandwidth(work.moved_bytes / timed.calls)
            needs["cache"] = work.moved_bytes / roof if roof else None
        else:
            needs["memory"] = work.moved_bytes / peaks.memory_bandwidth
    if work.flops:
        roof = find_matrix_roof(work.dtype, peaks)
        if roof is None:
            return None
        needs["compute"] = work.flops / roof
    if not needs:
        return None
    if peaks.launch_floor_s is not None:
        needs["latency"] = timed.calls * peaks.launch_floor_s
    return needs


def _compute_resident_times(timed: TimedWork, peaks: Peaks) -> dict[str, float | None]:
    """The shortest seconds of DRAM's bytes, and of all bytes in the cache; see :func:`_compute_needed_times`."""
    needs: dict[str, float | None] = {}
    dram_bytes, cache_bytes = timed.dram_bytes or 0.0, timed.cache_bytes or 0.0
    roof = peaks.find_cache_bandwidth((dram_bytes + cache_bytes) / timed.calls)
    if dram_bytes > 0:
        needs["memory"] = dram_bytes / peaks.memory_bandwidth
    if cache_bytes and roof:
        needs["cache"] = (dram_bytes + cache_bytes) / roof
    elif cache_bytes > dram_bytes:
        needs["cache"] = None
    return needs


def _share(bound: str, needed: float, time_s: float) -> float | None:
    share = needed / time_s
    if bound == "latency" or share > _SPREADS.get(bound, SPREAD):
        return None
    return min(share, 1.0)


def _multiply(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


# Finds measured peaks that a run's own kernels exceed, and removes the bounds of such peaks from all kernels.
#
# Such a peak was measured too low, on a busy machine or at a lower clock, so that it bounds no kernel.


BEYOND = 1.1
"""If a kernel's rate exceeds its peak by more than this ratio, the peak is too low."""

BEYOND_TIME = 0.02
"""A peak is too low only if the kernels above it take this share of all kernels' time. A smaller share may come from
kernels whose work was overcounted."""

Roof = tuple[str, str]
"""A bound, and for ``compute`` the element type of the products; else empty."""


class KernelRate(NamedTuple):
    """The rates of a kernel, and the bound that it was judged by."""

    bound: str
    dtype: str | None  # the element type of its products
    tf32: bool  # whether float32 products may use TF32
    time_s: float
    bandwidth: float | None
    flop_rate: float | None
    peak_share: float | None  # of the bound; ``None`` for a rate above it
    call_bytes: float  # the bytes that one of its calls moves; 0 if they are unknown

    @property
    def roof(self) -> Roof:
        if self.bound != "compute":
            return self.bound, ""
        return "compute", "tf32" if self.tf32 and self.dtype == "float32" else self.dtype or ""

    def find_peak(self, peaks: Peaks) -> float | None:
        """The measured peak that bounds it, in FLOPs or bytes per second; ``None`` if it is unknown."""
        if self.bound == "compute":
            return find_matrix_roof(self.dtype, peaks, tf32=self.tf32)
        if self.bound == "cache":
            return peaks.find_cache_bandwidth(self.call_bytes)
        return peaks.memory_bandwidth if self.bound == "memory" else None

    def beyond(self, peaks: Peaks) -> float:
        """Returns the ratio of the rate to its measured peak; 0 if the rate is lower, or a figure is unknown."""
        if self.peak_share is not None or self.bound not in ("compute", "cache"):
            return 0.0
        rate, peak = self.flop_rate if self.bound == "compute" else self.bandwidth, self.find_peak(peaks)
        return rate / peak if rate and peak else 0.0


def describe_rate(module: ModuleRecord, kernel: Kernel) -> KernelRate:
    """The rates of a kernel of a module, by its time in the step if it is known."""
    time_s, roof = kernel.time_s if kernel.step_time_s is None else kernel.step_time_s, kernel.roof
    rates = roof.bandwidth, roof.flop_rate, roof.peak_share
    call_bytes = (kernel.work.moved_bytes or 0.0) / (kernel.calls or 1)
    return KernelRate(roof.bound, kernel.work.dtype, module.tf32, time_s, *rates, call_bytes)


def find_refuted_roofs(rates: Iterable[KernelRate], peaks: Peaks | None, judged_s: float = 0.0) -> frozenset[Roof]:
    """Finds roofs that kernels exceed, if these kernels take at least :data:`BEYOND_TIME` of the time of all kernels.

    Args:
        rates: the rates of the kernels; kernels with a share of a peak may be left out.
        peaks: the measured peaks; ``None`` if there are none.
        judged_s: seconds of the kernels that are left out.
    """
    if peaks is None:
        return frozenset()
    whole_s = judged_s
    beyond_s: dict[Roof, float] = defaultdict(float)
    for one in rates:
        whole_s += one.time_s
        if one.beyond(peaks) > BEYOND:
            beyond_s[one.roof] += one.time_s
    return frozenset(roof for roof, time_s in beyond_s.items() if time_s and time_s >= BEYOND_TIME * whole_s)


def list_rates(modules: Iterable[ModuleRecord]) -> Iterator[KernelRate]:
    """The rates of all kernels."""
    return (describe_rate(module, kernel) for module in modules for kernel in module.kernels)


def leave_out_bounds(modules: Iterable[ModuleRecord], roofs: Set[Roof]) -> tuple[ModuleRecord, ...]:
    """The modules, without shares of these roofs and without gain limits at them."""
    if not roofs:
        return tuple(modules)
    return tuple(
        replace(module, kernels=tuple(_leave_out_bound(module, kernel, roofs) for kernel in module.kernels))
        for module in modules
    )


def _leave_out_bound(module: ModuleRecord, kernel: Kernel, roofs: Set[Roof]) -> Kernel:
    if describe_rate(module, kernel).roof not in roofs:
        return kernel
    return replace(kernel, roof=replace(kernel.roof, peak_share=None, gain_limit_s=None))


# Describes the use of a GPU by another job, which would disturb the measured times.


BUSY = 0.1
"""Utilization (0 to 1) from which a GPU counts as used by another job."""

HELD_BYTES = 2 << 30
"""Allocated memory in bytes from which a GPU counts as used; an idle GPU with one context of this tool holds less."""

MOST_NAMED = 3
"""Largest number of processes that are named."""


def describe_use(use: DeviceUse) -> str:
    """Returns ``another job uses GPU 0: pid 1234 python, 34 GB, 97% busy``, or an empty string for an idle GPU."""
    busy, held = use.busy or 0.0, use.held_bytes or 0
    if not use.processes and busy < BUSY and held < HELD_BYTES:
        return ""
    gpu = "the GPU" if use.gpu is None else f"GPU {use.gpu}"
    return f"another job uses {gpu}: {', '.join(_describe_processes(use))}"


def _describe_processes(use: DeviceUse) -> Iterator[str]:
    for process in use.processes[:MOST_NAMED]:
        yield _describe_process(process)
    if len(use.processes) > MOST_NAMED:
        yield f"{len(use.processes) - MOST_NAMED} more"
    if not use.processes and use.held_bytes:
        yield f"{units.size(use.held_bytes)} taken"
    if use.busy is not None:
        yield f"{units.whole_percent(use.busy)} busy"


def _describe_process(process: OtherProcess) -> str:
    who = f"pid {process.pid} {process.name}".rstrip()
    return f"{who}, {units.size(process.memory_bytes)}" if process.memory_bytes else who


UNNAMED_BUSY = 0.25
"""If the driver's busy share of the GPU exceeds this program's busy share by this much, unnamed programs used the GPU.
The driver may count gaps between kernels as busy; the profile does not."""


def list_named_work(sharing: GpuSharing | None) -> OtherWork | None:
    """What other processes did on the GPU, if the driver tells the processes apart; else ``None``."""
    if sharing is None or not sharing.others_share:
        return None
    return OtherWork(sharing.others_share, tuple(one for one in sharing.others if one.busy))


def find_other_work(steps: RankSteps, sharing: GpuSharing | None, *, alone: bool) -> OtherWork | None:
    """Returns the work of other programs on a process's GPU during its steps; ``None`` if there is no sign of any.

    If the driver does not tell the processes apart, the GPU has to be busy for longer than with this program, by its
    profile, and somebody else has to hold memory on it.

    Args:
        steps: the step of the process.
        sharing: what the driver said meanwhile.
        alone: whether no other process of the program makes steps, which could share the GPU.
    """
    if (named := list_named_work(sharing)) is not None:
        return named
    if sharing is None or sharing.busy is None or steps.busy_time_s is None or not alone:
        return None
    queued_s = math.fsum(part.time_s for part in steps.parts if part.kind == IDLE and part.label == QUEUED)
    unnamed = sharing.busy - max((steps.busy_time_s + queued_s) / steps.step_time_s, sharing.own_busy or 0.0)
    unknown = tuple(one for one in sharing.others if one.busy is None)
    if unnamed < UNNAMED_BUSY or not (unknown or (sharing.held_bytes or 0) >= HELD_BYTES):
        return None
    return OtherWork(unnamed, unknown)


MOST_PROCESSES = 3
"""Largest number of other processes that are named."""


def describe_other_work(work: OtherWork, when: str) -> str:
    """``another process used the GPU during these steps (python, pid 1234, 35% of the time)``."""
    many = len(work.processes) > 1
    named = [f"{one.name}, pid {one.pid}".removeprefix(", ") for one in work.processes[:MOST_PROCESSES]]
    if len(work.processes) > MOST_PROCESSES:
        named.append(f"{len(work.processes) - MOST_PROCESSES} more")
    who = f"{len(work.processes)} other processes" if many else "another process"
    words = ("; " if many else ", ").join([*named, f"{units.whole_percent(work.share)} of the time"])
    return f"{who} used the GPU during {when} ({words})"
