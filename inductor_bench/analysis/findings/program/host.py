"""Rules about what the host does while the device waits in the program's step."""

from __future__ import annotations

from collections.abc import Iterator

from ....records.program import (
    ALLOCATING,
    DATA_LOADING,
    GUARDS,
    IDLE,
    LAUNCHING,
    PYTHON,
    QUEUED,
    SYNCHRONISING,
)
from ...costs.step import host_idle_share, host_sets_pace, idle_labels, parts_of, runs_on_host
from ..evidence import LEAST_SHARE, RunEvidence
from ..finding import Finding
from ..phrases import join_words
from .words import line_words, share_words

MOST_LINES = 3
GAPS = 0.03  # share of the step from which gaps between launched kernels are reported


def synchronisations(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports lines at which the host waits for the device, and the device then for the host."""
    run = evidence.run
    parts = [part for part in parts_of(run, IDLE) if part.label == SYNCHRONISING]
    time_s = sum(part.time_s for part in parts)
    if runs_on_host(run) or time_s < LEAST_SHARE * evidence.whole.time_s:
        return
    lines = [(line_words(part.source), share_words(run, part.time_s)) for part in parts if part.source]
    known = [line if len(parts) == 1 else f"{line} {took}" for line, took in lines]
    where = f" at {join_words(known, MOST_LINES)}" if known else ""
    text = (
        f"the device is idle for {share_words(run, time_s)} of a step around synchronisations{where}: read results "
        "(.item(), .cpu(), print) less often, or after the next step is launched"
    )
    yield Finding("synchronisations", text, gain_s=time_s)


def data_loading(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the idle time in which the program waits for its data loader."""
    time_s = idle_labels(evidence.run).get(DATA_LOADING, 0.0)
    if time_s >= LEAST_SHARE * evidence.whole.time_s:
        what = "the program waits" if runs_on_host(evidence.run) else "the device is idle"
        text = (
            f"{what} for {share_words(evidence.run, time_s)} of a step while data is loaded: more num_workers, a "
            "larger prefetch_factor, or batches that are prepared beforehand"
        )
        yield Finding("data-loading", text, gain_s=time_s)


def allocations(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the idle time in which the host allocates device memory from the driver."""
    time_s = idle_labels(evidence.run).get(ALLOCATING, 0.0)
    if time_s >= LEAST_SHARE * evidence.whole.time_s:
        text = (
            f"the device is idle for {share_words(evidence.run, time_s)} of a step while the driver allocates or frees "
            "memory: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or shapes that stay the same"
        )
        yield Finding("allocations", text, gain_s=time_s)


def host_work(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports Python, guards and launches of a program whose host sets the pace."""
    run = evidence.run
    times = {label: time_s for label, time_s in idle_labels(run).items() if label in (PYTHON, GUARDS, LAUNCHING)}
    if not host_sets_pace(run) or sum(times.values()) < LEAST_SHARE * evidence.whole.time_s:
        return
    words = [f"{label} {share_words(run, time_s)}" for label, time_s in times.items() if time_s]
    waits = share_words(run, host_idle_share(run) * evidence.whole.time_s)
    text = (
        f"the host sets the pace: the device waits for it {waits} of a step, {join_words(words)}: compile more of the "
        "step as one graph, or give each step more work"
    )
    yield Finding("host-pace", text, gain_s=sum(times.values()))


def gaps_between_kernels(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the idle time between kernels that were launched early enough."""
    time_s = idle_labels(evidence.run).get(QUEUED, 0.0)
    if not runs_on_host(evidence.run) and time_s >= GAPS * evidence.whole.time_s:
        text = (
            f"the device is idle for {share_words(evidence.run, time_s)} of a step between kernels that were launched "
            "in time: fewer and larger kernels have fewer gaps"
        )
        yield Finding("kernel-gaps", text, gain_s=time_s)
