"""What was measured of standalone kernel files: their times, the candidates of a retune, and what won. Seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .failure import Failure

Config = dict[str, Any]
"""What distinguishes a candidate: block sizes, ``num_warps`` and ``num_stages``; threads, flags; an implementation."""

BY_DEFAULT = "max"
"""The method of autotuning where none is named."""


@dataclass(frozen=True)
class Timing:
    """Samples of the time of one call, in the order in which they were taken, and what they say.

    ``low_s`` and ``high_s`` enclose the median with a confidence of 95%; ``mad_s`` is the median distance from it.
    """

    median_s: float
    low_s: float
    high_s: float
    min_s: float
    mad_s: float
    samples: int
    samples_s: tuple[float, ...]


@dataclass(frozen=True)
class Ratio:
    """The median of ``pairs`` ratios of times that were measured in turn, and the interval that encloses it."""

    median: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class TriedCandidate:
    """One candidate of a retune and what became of it.

    ``status`` is ``default``, ``best``, ``finalist``, ``slower`` (dropped in the race), ``timed`` (where none is to
    win), ``duplicate`` (compiles to what another does), ``wrong`` (its outputs differ), ``spills``, ``refused`` (it
    does not compile or fit here), ``crashed`` or ``hung``; ``compiled`` and ``untried`` where nothing was timed;
    ``reason`` says more. ``median_s`` is of ``samples_s``, those that it was judged by, in the order in which they were
    taken; the last five are what it was compiled to, where that is known.
    """

    config: Config
    status: str
    reason: str = ""
    median_s: float | None = None
    samples: int = 0
    ratio: Ratio | None = None
    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None
    instructions: int | None = None
    binary_bytes: int | None = None
    samples_s: tuple[float, ...] = ()


@dataclass(frozen=True)
class Tuning:
    """The outcome of a retune.

    ``tried`` counts the candidates beside the default that were checked and timed. ``default_s`` and ``best_s`` are
    medians of the same final rounds. ``verdict`` and ``ratio`` (over the default, in these rounds) are those of the
    best contender. Where it was surely faster it is the best, and ``speedup`` is the inverse of its ratio; otherwise
    the best is the default, and ``speedup`` 1. ``state`` says which times were compared: ``cold`` or ``warm``. The
    ``method`` ``configs`` times what Inductor itself chooses from; none of them wins, and there is no ``verdict``.
    """

    method: str
    state: str
    candidates: tuple[TriedCandidate, ...]
    tried: int
    default_s: float
    best_s: float
    speedup: float
    verdict: str
    best_config: Config
    ratio: Ratio | None = None
    time_s: float = 0.0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class HardwareCounters:
    """What Nsight Compute counted in one call, with the caches emptied before it.

    A call may launch several device kernels (``device_kernels``): bytes and ``time_s``, at whatever clock there was,
    are their sums; the shares (0 to 1) are means weighted by their times. ``dram_bytes`` is what went to and from the
    memory: what the call wrote may be in the cache at its end, and is then not among them. ``dram_share`` is of the
    bandwidth that the hardware could have, ``occupancy`` of the warps that the multiprocessors have room for.
    ``stalls`` says how much of their time warps waited for what, by NVIDIA's names, largest first.
    """

    device_kernels: int
    dram_bytes: float | None = None
    dram_share: float | None = None
    occupancy: float | None = None
    stalls: dict[str, float] = field(default_factory=dict)
    time_s: float | None = None


@dataclass(frozen=True)
class MeasuredKernel:
    """One standalone file as it was timed on this machine.

    ``bandwidth`` (bytes per second) and ``flop_rate`` refer to the cold time, the latter to products in ``dtype``.
    ``bound`` is what limits it at most: ``memory``, ``cache``, ``compute``, ``latency`` or ``unknown``; ``peak_share``
    the share of that roof that it reaches, of the cache's by its warm time, ``None`` for ``latency`` or where no roof
    was measured. ``calls`` of it there are in an iteration of the model, each of which took ``in_model_s`` there.
    ``edited`` says that the file was changed since it was written: these are then of the kernel as it was.
    ``occupancy`` is the share of a multiprocessor's warps that can be resident. ``with_zeros`` are the
    times with zeros for all indices, where it has any. ``clock_mhz`` is the median clock of the multiprocessors while
    it was timed, ``clock_change`` what of it changed from the beginning to the end, ``throttled`` what held it back.
    ``counters`` are those of Nsight Compute, where they were asked for; ``no_counters`` says why there are none.
    ``shared_device`` says what else used the GPU. ``advice`` says what is wrong with the measurement, if anything, and
    what to do.
    """

    name: str
    kernel_id: str
    file: str
    category: str
    device: str
    config: Config
    cold: Timing
    warm: Timing
    method: str
    moved_bytes: int | None = None
    flops: float | None = None
    dtype: str | None = None
    bandwidth: float | None = None
    flop_rate: float | None = None
    bound: str | None = None
    peak_share: float | None = None
    calls: int | None = None
    in_model_s: float | None = None
    edited: bool = False
    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None
    occupancy: float | None = None
    checked: bool | None = None
    check_message: str = ""
    with_zeros: dict[str, Timing] = field(default_factory=dict)
    clock_mhz: float | None = None
    clock_change: float | None = None
    throttled: tuple[str, ...] = ()
    counters: HardwareCounters | None = None
    no_counters: str = ""
    shared_device: str = ""
    advice: tuple[str, ...] = ()
    tuning: Tuning | None = None


@dataclass(frozen=True)
class Pairing:
    """Two kernels that were timed in turn, each in a configuration.

    ``ratio`` is the second's time over the first's, ``verdict`` the second's; ``first_s`` and ``second_s`` are medians
    of the same rounds. Where it could not be done there is none of that, and ``reason`` says why.
    """

    first_config: Config
    second_config: Config
    first_s: float | None = None
    second_s: float | None = None
    ratio: Ratio | None = None
    verdict: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Comparison:
    """Two kernels, and what they take beside each other.

    ``same_config`` has the second in the configuration of the first: what is left of the difference is the code's.
    ``best_of_each`` has both as they came out of a retune, where there was one. Either is ``as_they_stand`` again where
    that has its configurations. ``difference`` is empty where both compute the same; otherwise what differs, or why
    it cannot be told, ``alike`` being ``None``. ``failures`` says which of them could not be retuned, ``notes`` what
    makes the times of both less comparable.
    """

    first: MeasuredKernel
    second: MeasuredKernel
    state: str
    as_they_stand: Pairing
    same_config: Pairing
    best_of_each: Pairing | None = None
    difference: str = ""
    alike: bool | None = None
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()
