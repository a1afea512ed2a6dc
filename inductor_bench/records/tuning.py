"""Measurements of standalone kernel files: times in seconds, the candidates of a retune, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .base import Inline
from .kernel import LeastWork

Config = dict[str, Any]
"""The configuration of a candidate: block sizes, ``num_warps``, ``num_stages``; threads, flags; an implementation."""

BY_DEFAULT = "max"
"""The method of autotuning if none is named."""


@dataclass(frozen=True)
class Timing:
    """Samples of the time of one call, in seconds, and their statistics."""

    median_s: float  # the median
    low_s: float  # lower end of the 95% confidence interval of the median
    high_s: float  # upper end of that interval
    min_s: float  # the smallest sample
    mad_s: float  # the median absolute deviation
    samples: int  # the number of samples
    samples_s: tuple[float, ...]  # the samples, in the order of measurement


@dataclass(frozen=True)
class Ratio:
    """The ratio of two times that were measured alternately."""

    median: float  # the median of the pairs' ratios
    low: float  # lower end of its confidence interval
    high: float  # upper end of that interval
    pairs: int  # the number of pairs


@dataclass(frozen=True)
class TriedCandidate:
    """One candidate of a retune and its outcome."""

    config: Config  # the configuration of the candidate
    # ``default``, ``best``, ``finalist``, ``slower`` (dropped in the race), ``timed`` (by a method without a winner),
    # ``duplicate`` (equal code to another candidate), ``wrong`` (its outputs differ), ``spills``, ``refused`` (it does
    # not compile or fit here), ``crashed`` or ``hung``; ``compiled`` or ``untried`` if it was not timed
    status: str
    reason: str = ""  # an explanation of the status
    median_s: float | None = None  # the median of ``samples_s``
    samples: int = 0  # the number of all samples taken
    ratio: Ratio | None = None  # the ratio of its times to the default's
    registers: int | None = None  # registers of one thread, if known
    spills: int | None = None  # spilled registers of one thread, if known
    shared_memory_bytes: int | None = None  # shared memory of one block, if known
    instructions: int | None = None  # the number of instructions, if known
    binary_bytes: int | None = None  # the size of the compiled kernel, if known
    samples_s: tuple[float, ...] = ()  # the samples that decided, in the order of measurement


@dataclass(frozen=True)
class Tuning:
    """The outcome of a retune.

    The best candidate is the contender that was reliably faster than the default; if there is none, it is the default.
    """

    method: str  # the way of choosing candidates. ``configs`` times the candidates of Inductor itself, without a winner
    state: str  # the times that were compared: ``cold`` or ``warm``
    candidates: tuple[TriedCandidate, ...]  # all candidates
    tried: int  # the number of candidates beside the default that were checked and timed
    default_s: float  # the default's median in the final rounds
    best_s: float  # the best candidate's median in the same rounds
    speedup: float  # the inverse of the best candidate's ratio; 1 if the default is the best
    verdict: str  # the verdict on the best contender; empty for ``configs``
    best_config: Config  # the configuration of the best candidate
    ratio: Ratio | None = None  # the best contender's ratio to the default in the final rounds
    # seconds of the retune's checks and races, including waits for other workers that use the device, and without
    # compilation
    time_s: float = 0.0
    notes: tuple[str, ...] = ()  # remarks for the user
    # what ended the search before its method did: ``gain`` (too little was left to win for the step) or ``budget``;
    # empty if nothing did
    cut_short: str = ""


@dataclass(frozen=True)
class HardwareCounters:
    """Nsight Compute's counters of one call, after the caches were emptied.

    If a call launches several device kernels, bytes and times are sums, and shares (0 to 1) are means weighted by
    time.
    """

    device_kernels: int  # the number of device kernels of the call
    # bytes to and from the memory, without written bytes that are still in the cache at the end
    dram_bytes: float | None = None
    dram_share: float | None = None  # the share of the hardware's maximum bandwidth
    occupancy: float | None = None  # the share of the warps for which the multiprocessors have room
    # the share of the warps' time by the reason of waiting, by NVIDIA's names, largest first
    stalls: dict[str, float] = field(default_factory=dict)
    time_s: float | None = None  # seconds at the clock of that call


@dataclass(frozen=True)
class CallWork(LeastWork):
    """The least work of one call, whose bytes are a whole number."""

    moved_bytes: int | None = None  # bytes that one call must read and write, each buffer once


@dataclass(frozen=True)
class MeasuredRoof:
    """The rates of a standalone file, and the roof that it reaches."""

    bandwidth: float | None = None  # bytes per second of the cold time
    flop_rate: float | None = None  # FLOPs per second of the cold time
    # the resource that limits it: ``memory``, ``cache``, ``compute``, ``latency`` or ``unknown``
    bound: str | None = None
    # the share of that roof that it reaches, for ``cache`` by its warm time; ``None`` for ``latency`` and if no roof
    # was measured
    peak_share: float | None = None


@dataclass(frozen=True)
class ModelCalls:
    """The calls of a kernel in its model."""

    calls: int | None = None  # the number of calls in one iteration of the model
    in_model_s: float | None = None  # seconds of one call in the model


@dataclass(frozen=True)
class Resources:
    """The resources of a compiled kernel."""

    registers: int | None = None  # registers of one thread
    spills: int | None = None  # spilled registers of one thread, as Triton counts them
    shared_memory_bytes: int | None = None  # shared memory of one block
    occupancy: float | None = None  # the share of a multiprocessor's warps that can be resident, 0 to 1


@dataclass(frozen=True)
class TimingClock:
    """The clock of the multiprocessors during a timing."""

    clock_mhz: float | None = None  # the median clock
    clock_change: float | None = None  # relative change from the first to the last third of the timing
    throttled: tuple[str, ...] = ()  # the reasons why the GPU lowered its clock


@dataclass(frozen=True)
class MeasuredKernel:
    """The measurement of one standalone file on this machine."""

    name: str  # the kernel's name
    kernel_id: str  # a hash of its content
    file: str  # the path of the standalone file
    category: str  # the category
    device: str  # the name of the device
    config: Config  # the configuration that was timed
    cold: Timing  # times of one call with emptied caches
    # times of one call with the data of the previous call in the caches; ``None`` for a kernel of a run that was
    # retuned without being measured separately
    warm: Timing | None
    method: str  # the way of timing
    work: Inline[CallWork] = CallWork()  # the work of one call
    roof: Inline[MeasuredRoof] = MeasuredRoof()  # its rates, and the roof that it reaches
    original: Inline[ModelCalls] = ModelCalls()  # the calls of the model's kernel from which the file was written
    edited: bool = False  # whether the file was changed since it was written
    resources: Inline[Resources] = Resources()  # the resources that it occupies
    checked: bool | None = None  # whether its outputs equal the reference; ``None`` if they were not compared
    check_message: str = ""  # how its outputs differ, or why they were not compared
    # times by state (``cold``, ``warm``) with zeros as all indices, if it reads indices
    with_zeros: dict[str, Timing] = field(default_factory=dict)
    clock: Inline[TimingClock] = TimingClock()  # the GPU's clock during the timing
    counters: HardwareCounters | None = None  # Nsight Compute's counters, if they were requested
    no_counters: str = ""  # the reason why there are none
    shared_device: str = ""  # other users of the GPU
    advice: tuple[str, ...] = ()  # doubts about the measurement, each with a hint
    tuning: Tuning | None = None  # the outcome of a retune
