"""Rules about generated kernels that could be faster.

Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned. A gain
is the saving at a roof, which the kernel may be unable to reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..evidence import (
    FAR_FROM_ROOF,
    LEAST_GAIN,
    LEAST_SHARE,
    SHORT_S,
    UNTUNABLE,
    RunEvidence,
    finding_of,
    gain_of,
    in_program,
    is_max_autotuned,
    time_of,
)
from ..finding import Finding
from ..phrases import plural

MORE_CONFIGS = "max-autotune chose their configs, and --autotune coordesc tries more"
NARROW = 0.75  # number of blocks per multiprocessor below which part of the GPU is idle


def below_limit(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports generated kernels far from the memory or matrix roof. Tuning may make them faster."""
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    for bound, roof in (("memory", "of the DRAM bandwidth"), ("compute", "of the matrix rate")):
        low = [
            row
            for row in rows
            if row.kernel.category not in UNTUNABLE
            and row.kernel.roof.bound == bound
            and row.kernel.roof.peak_share is not None
            and row.kernel.roof.peak_share < FAR_FROM_ROOF
            and whole.part(row.cost.gain_limit_s or 0.0) >= LEAST_GAIN
        ]
        low.sort(key=lambda row: -(row.cost.gain_limit_s or 0.0))
        if whole.part(gain_of(low)) < LEAST_SHARE:
            continue
        verb, they, them = ("reaches", "it", "it") if len(low) == 1 else ("reach", "they", "them")
        text = (
            f"{plural(len(low), 'generated kernel')} {verb} less than {FAR_FROM_ROOF:.0%} {roof}: at 100% {they} would "
            f"take {whole.format(gain_of(low))} less, an upper bound"
        )
        if all(row.device.suggests_tuning for row in low):
            tunes = f"mode='max-autotune-no-cudagraphs' tunes {them}"
            text += f"; {MORE_CONFIGS if is_max_autotuned(run, low) else tunes}"
        gain = in_program(low, lambda row: row.cost.gain_limit_s or 0.0)
        yield finding_of(f"below-{bound}-limit", text, low, gain_s=gain)


def few_blocks(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports generated kernels with fewer blocks than the GPU has multiprocessors."""
    rows, whole, run = evidence.critical_rows, evidence.whole, evidence.run
    multiprocessors = run.environment.device.multiprocessors
    if not multiprocessors:
        return
    narrow = [
        row
        for row in rows
        if row.kernel.category not in UNTUNABLE
        and row.kernel.launch.grid
        and math.prod(row.kernel.launch.grid) < NARROW * multiprocessors
        and row.cost.time_s >= SHORT_S * row.cost.calls
    ]
    if whole.part(time_of(narrow)) < LEAST_SHARE:
        return
    blocks = max(math.prod(row.kernel.launch.grid) for row in narrow)
    most = plural(blocks, "block") if len(narrow) == 1 else f"at most {plural(blocks, 'block')}"
    text = (
        f"{plural(len(narrow), 'generated kernel')} {'starts' if len(narrow) == 1 else 'start'} {most} on "
        f"{multiprocessors} multiprocessors, so part of the GPU idles in {'its' if len(narrow) == 1 else 'their'} "
        f"{whole.format(time_of(narrow))}"
    )
    # Upper bound of the gain: the kernel's time multiplied by the share of idle multiprocessors.
    gain = in_program(narrow, lambda row: row.cost.time_s * (1 - math.prod(row.kernel.launch.grid) / multiprocessors))
    yield finding_of("few-blocks", text, narrow, gain_s=gain)
