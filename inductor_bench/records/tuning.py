"""Measurements of standalone kernel files: times in seconds, the candidates of a retune, and its outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .base import Inline
from .kernel import LeastWork

Config = dict[str, Any]
"""The configuration of a candidate: block sizes, ``num_warps``, ``num_stages``; threads, flags; an implementation."""

BY_DEFAULT = "max"
"""The method of autotuning where none is named."""


@dataclass(frozen=True)
class Timing:
    """Samples of the time of one call, in seconds, and their statistics.

    Attributes:
        median_s: the median.
        low_s: lower end of the 95% confidence interval of the median.
        high_s: upper end of that interval.
        min_s: the smallest sample.
        mad_s: the median absolute deviation.
        samples: the number of samples.
        samples_s: the samples, in the order of measurement.
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
    """The ratio of two times that were measured alternately.

    Attributes:
        median: the median of the pairs' ratios.
        low: lower end of its confidence interval.
        high: upper end of that interval.
        pairs: the number of pairs.
    """

    median: float
    low: float
    high: float
    pairs: int


@dataclass(frozen=True)
class TriedCandidate:
    """One candidate of a retune and its outcome.

    Attributes:
        config: the configuration of the candidate.
        status: ``default``, ``best``, ``finalist``, ``slower`` (dropped in the race), ``timed`` (by a method without a
            winner), ``duplicate`` (equal code to another candidate), ``wrong`` (its outputs differ), ``spills``,
            ``refused`` (it does not compile or fit here), ``crashed`` or ``hung``; ``compiled`` or ``untried`` where
            it was not timed.
        reason: an explanation of the status.
        median_s: the median of ``samples_s``.
        samples: the number of all samples taken.
        ratio: the ratio of its times to the default's.
        registers: registers of one thread, where known.
        spills: spilled registers of one thread, where known.
        shared_memory_bytes: shared memory of one block, where known.
        instructions: the number of instructions, where known.
        binary_bytes: the size of the compiled kernel, where known.
        samples_s: the samples that decided, in the order of measurement.
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

    The best candidate is the contender that was surely faster than the default; where there is none, it is the default.

    Attributes:
        method: the way of choosing candidates. ``configs`` times the candidates of Inductor itself, without a winner.
        state: the times that were compared: ``cold`` or ``warm``.
        candidates: all candidates.
        tried: the number of candidates beside the default that were checked and timed.
        default_s: the default's median in the final rounds.
        best_s: the best candidate's median in the same rounds.
        speedup: the inverse of the best candidate's ratio; 1 where the default is the best.
        verdict: the verdict on the best contender; empty for ``configs``.
        best_config: the configuration of the best candidate.
        ratio: the best contender's ratio to the default in the final rounds.
        time_s: seconds of the retune's checks and races, including waits for other workers that use the device, and
            without compilation.
        notes: remarks for the user.
        cut_short: what ended the search before its method did: ``gain`` (too little was left to win for the step) or
            ``budget``; empty where nothing did.
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
    cut_short: str = ""


@dataclass(frozen=True)
class HardwareCounters:
    """Nsight Compute's counters of one call, after the caches were emptied.

    Where a call launches several device kernels, bytes and times are sums, and shares (0 to 1) are means weighted by
    time.

    Attributes:
        device_kernels: the number of device kernels of the call.
        dram_bytes: bytes to and from the memory, without written bytes that are still in the cache at the end.
        dram_share: the share of the hardware's maximum bandwidth.
        occupancy: the share of the warps for which the multiprocessors have room.
        stalls: the share of the warps' time by the reason of waiting, by NVIDIA's names, largest first.
        time_s: seconds at the clock of that call.
    """

    device_kernels: int
    dram_bytes: float | None = None
    dram_share: float | None = None
    occupancy: float | None = None
    stalls: dict[str, float] = field(default_factory=dict)
    time_s: float | None = None


@dataclass(frozen=True)
class CallWork(LeastWork):
    """The least work of one call, whose bytes are a whole number.

    Attributes:
        moved_bytes: bytes that one call must read and write, each buffer once.
        flops: FLOPs of its matrix products.
    """

    moved_bytes: int | None = None


@dataclass(frozen=True)
class MeasuredRoof:
    """The rates of a standalone file, and the roof that it reaches.

    Attributes:
        bandwidth: bytes per second of the cold time.
        flop_rate: FLOPs per second of the cold time.
        bound: the resource that limits it: ``memory``, ``cache``, ``compute``, ``latency`` or ``unknown``.
        peak_share: the share of that roof that it reaches, for ``cache`` by its warm time; ``None`` for ``latency`` and
            where no roof was measured.
    """

    bandwidth: float | None = None
    flop_rate: float | None = None
    bound: str | None = None
    peak_share: float | None = None


@dataclass(frozen=True)
class ModelCalls:
    """The calls of a kernel in its model.

    Attributes:
        calls: the number of calls in one iteration of the model.
        in_model_s: seconds of one call in the model.
    """

    calls: int | None = None
    in_model_s: float | None = None


@dataclass(frozen=True)
class Resources:
    """The resources of a compiled kernel.

    Attributes:
        registers: registers of one thread.
        spills: spilled registers of one thread, as Triton counts them.
        shared_memory_bytes: shared memory of one block.
        occupancy: the share of a multiprocessor's warps that can be resident, 0 to 1.
    """

    registers: int | None = None
    spills: int | None = None
    shared_memory_bytes: int | None = None
    occupancy: float | None = None


@dataclass(frozen=True)
class TimingClock:
    """The clock of the multiprocessors during a timing.

    Attributes:
        clock_mhz: the median clock.
        clock_change: relative change from the first to the last third of the timing.
        throttled: the reasons why the GPU lowered its clock.
    """

    clock_mhz: float | None = None
    clock_change: float | None = None
    throttled: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeasuredKernel:
    """The measurement of one standalone file on this machine.

    Attributes:
        name: the kernel's name.
        kernel_id: a hash of its content.
        file: the path of the standalone file.
        category: the category.
        device: the name of the device.
        config: the configuration that was timed.
        cold: times of one call with emptied caches.
        warm: times of one call with the data of the previous call in the caches; ``None`` for a kernel of a run that
            was retuned without a measurement of its own.
        method: the way of timing.
        work: the work of one call.
        roof: its rates, and the roof that it reaches.
        original: the calls of the model's kernel from which the file was written.
        edited: whether the file was changed since it was written.
        resources: the resources that it occupies.
        checked: whether its outputs equal the reference; ``None`` where they were not compared.
        check_message: how its outputs differ, or why they were not compared.
        with_zeros: times by state (``cold``, ``warm``) with zeros as all indices, where it reads indices.
        clock: the GPU's clock during the timing.
        counters: Nsight Compute's counters, where they were requested.
        no_counters: the reason why there are none.
        shared_device: other users of the GPU.
        advice: doubts about the measurement, each with a hint.
        tuning: the outcome of a retune.
    """

    name: str
    kernel_id: str
    file: str
    category: str
    device: str
    config: Config
    cold: Timing
    warm: Timing | None
    method: str
    work: Inline[CallWork] = CallWork()
    roof: Inline[MeasuredRoof] = MeasuredRoof()
    original: Inline[ModelCalls] = ModelCalls()
    edited: bool = False
    resources: Inline[Resources] = Resources()
    checked: bool | None = None
    check_message: str = ""
    with_zeros: dict[str, Timing] = field(default_factory=dict)
    clock: Inline[TimingClock] = TimingClock()
    counters: HardwareCounters | None = None
    no_counters: str = ""
    shared_device: str = ""
    advice: tuple[str, ...] = ()
    tuning: Tuning | None = None
