"""Which of the device's limits a kernel is nearest to, how near it is, and what reaching it would save.

Pure functions of counts and measured peaks. The counts are lower bounds on what must be done (each buffer moved once,
multiply-adds of matrix products only), the peaks are what simple kernels reached on the same device; so a share of peak
is a share of what is practicable, not of the data sheet.

The time that the hardware needs for one call is the longest of

- its bytes at the memory roof, or at the cache roof where the call's bytes fit into the cache. Producer and consumer
  then meet in the cache, and a share of DRAM peak would mean nothing;
- its matrix FLOPs at the dense matrix roof of its element type;
- the launch floor: no kernel of a GPU takes less.

Which of them is the longest is the kernel's bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..records.run import Peaks

SPREAD = 1.03
"""A rate this far above a roof is the roof: both are medians of measurements that repeat within a few percent."""

MATRIX_SPREAD = 1.05
"""The same for matrix products, whose rate also depends on their shape and may depend on the numbers in them: on an
H200 one of a model ran 3.05% above the roof of its type, which is that of large square products of random numbers."""


@dataclass(frozen=True)
class Work:
    """What a kernel did. All figures are per iteration, over all of its ``calls``.

    ``flops`` are those of matrix products (``None`` or 0 for a kernel that has none), ``dtype`` the element type
    that they are computed in, in torch's spelling. ``tf32`` tells that float32 products may use TF32 here.
    """

    time_s: float
    calls: float
    moved_bytes: float | None = None
    flops: float | None = None
    dtype: str | None = None
    tf32: bool = False


@dataclass(frozen=True)
class Judgement:
    """A kernel against its roof; the fields of the same names in ``records.run.Kernel``.

    ``bound`` is ``memory``, ``cache``, ``compute``, ``latency`` or ``unknown``. ``peak_share`` (0 to 1) refers to the
    roof that ``bound`` names, for ``cache`` to the cache's bandwidth; it is ``None`` for ``latency`` and ``unknown``,
    and where the rate is beyond the roof, so that the roof is not this kernel's. ``bandwidth`` is in bytes/s,
    ``flop_rate`` in FLOP/s; both are over the kernel's own time. ``gain_limit_s`` is the time per iteration that
    would be saved at the roof: never negative, ``None`` where the roof is not known.
    """

    bound: str = "unknown"
    peak_share: float | None = None
    bandwidth: float | None = None
    flop_rate: float | None = None
    gain_limit_s: float | None = None


def judge_kernel(work: Work, peaks: Peaks | None) -> Judgement:
    """Places one kernel, taking its calls for equal ones.

    How the doubtful cases are decided:

    - no peaks, no time or no calls: ``unknown``; rates are given where they can be.
    - bytes per call within ``cache_bytes``, or a bandwidth more than :data:`SPREAD` beyond the memory roof: the cache
      serves the kernel. If the cache's bandwidth was not measured the roof is unknown and so is the gain.
    - FLOPs of an element type whose matrix rate was not measured: ``unknown``, because the missing roof may be the
      nearest. Bytes that are not known, beside FLOPs that are: judged by FLOPs, the gain being an upper limit.
    - the launch floor is the longest time: ``latency``, whatever the rates are.
    - a rate within :data:`SPREAD` above its roof (:data:`MATRIX_SPREAD` for FLOPs) counts as at the roof (share 1);
      beyond that the share is ``None`` and the gain 0: the kernel does less than was counted, or has a faster path than
      the one that was measured.
    """
    timed = work.time_s > 0
    bandwidth = work.moved_bytes / work.time_s if timed and work.moved_bytes is not None else None
    flop_rate = work.flops / work.time_s if timed and work.flops else None
    rates = Judgement(bandwidth=bandwidth, flop_rate=flop_rate)
    if peaks is None or not timed or work.calls <= 0:
        return rates
    needs = _needed_times(work, peaks, bandwidth)
    if needs is None:
        return rates
    bound = max(needs, key=lambda name: (needs[name] or 0.0, name == "latency"))
    if needs.get("cache", 0.0) is None:
        # Whatever else is known, a roof that is not known cannot be ruled out.
        return Judgement("cache", None, bandwidth, flop_rate, None)
    needed = needs[bound] or 0.0
    gain = max(work.time_s - needed, 0.0)
    return Judgement(bound, _share(bound, needed, work.time_s), bandwidth, flop_rate, gain)


def judge_groups(groups: Sequence[Work], peaks: Peaks | None) -> Judgement:
    """Places a kernel whose calls differ (a library call with several shapes): each group of equal calls by itself.

    Gains add up, and are ``None`` if one of them is. The bound is the one that most of the time is under, and the
    share that of the time under it. Rates are over all groups, of what is known for all.
    """
    judged = [(work, judge_kernel(work, peaks)) for work in groups]
    if len(judged) == 1:
        return judged[0][1]
    time_s = sum(work.time_s for work in groups)
    moved = _sum([work.moved_bytes for work in groups])
    flops = _sum([work.flops for work in groups])
    under: dict[str, float] = {}
    for work, judgement in judged:
        under[judgement.bound] = under.get(judgement.bound, 0.0) + work.time_s
    bound = max(under, key=lambda name: under[name], default="unknown")
    alike = [(work, judgement) for work, judgement in judged if judgement.bound == bound]
    share = _sum([_scaled(judgement.peak_share, work.time_s) for work, judgement in alike])
    return Judgement(
        bound=bound,
        peak_share=min(share / under[bound], 1.0) if share is not None and under.get(bound) else None,
        bandwidth=moved / time_s if moved is not None and time_s > 0 else None,
        flop_rate=flops / time_s if flops and time_s > 0 else None,
        gain_limit_s=_sum([judgement.gain_limit_s for _, judgement in judged]),
    )


def matrix_roof(dtype: str | None, peaks: Peaks, *, tf32: bool = False) -> float | None:
    """The measured matrix rate of an element type in FLOP/s. float32 means without TF32 unless ``tf32``."""
    if dtype is None:
        return None
    if dtype.startswith("float8"):
        dtype = "float8"
    if dtype == "tf32" or (tf32 and dtype == "float32"):  # devices without TF32 ignore that it is allowed
        dtype = "tf32" if "tf32" in peaks.matmul_flops else "float32"
    return peaks.matmul_flops.get(dtype)


def _needed_times(work: Work, peaks: Peaks, bandwidth: float | None) -> dict[str, float | None] | None:
    """Seconds per iteration that each limit asks for; ``None`` where the deciding limit is not known.

    The only entry that may be ``None`` is ``cache``: the cache serves the kernel at a rate that was not measured.
    """
    needs: dict[str, float | None] = {}
    if work.moved_bytes and bandwidth is not None:
        within = peaks.cache_bytes is not None and work.moved_bytes / work.calls <= peaks.cache_bytes
        if within or bandwidth > SPREAD * peaks.memory_bandwidth:
            needs["cache"] = work.moved_bytes / peaks.cache_bandwidth if peaks.cache_bandwidth else None
        else:
            needs["memory"] = work.moved_bytes / peaks.memory_bandwidth
    if work.flops:
        roof = matrix_roof(work.dtype, peaks, tf32=work.tf32)
        if roof is None:
            return None
        needs["compute"] = work.flops / roof
    if not needs:
        return None
    if peaks.launch_floor_s is not None:
        needs["latency"] = work.calls * peaks.launch_floor_s
    return needs


def _share(bound: str, needed: float, time_s: float) -> float | None:
    share = needed / time_s
    if bound == "latency" or share > (MATRIX_SPREAD if bound == "compute" else SPREAD):
        return None
    return min(share, 1.0)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
