"""What each pinned kernel saves of the device's time in the profiled steps."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from ...messages.pins import PinnedProcess
from ...trace.program.durations import StepDurations


def savings_by_name(flags: Sequence[bool], durations: Sequence[StepDurations]) -> dict[str, float]:
    """The device seconds per step that the kernels of each name save; medians over the steps.

    Args:
        flags: whether each step ran the pins.
        durations: the durations of these steps.
    """
    own = [step.by_name for tuned, step in zip(flags, durations, strict=False) if not tuned]
    tuned = [step.by_name for tuned, step in zip(flags, durations, strict=False) if tuned]
    if not own or not tuned:
        return {}
    names = {name for step in (*own, *tuned) for name in step}
    return {
        name: statistics.median(step.get(name, 0.0) for step in own)
        - statistics.median(step.get(name, 0.0) for step in tuned)
        for name in names
    }


def savings_by_kernel(processes: Sequence[PinnedProcess], by_name: Mapping[str, float]) -> dict[str, float]:
    """The seconds per step that each pinned kernel saves, by the kernel's id.

    A kernel may have several names, one in each graph. Of pinned kernels that share a name, as those of two graphs may,
    a profile does not tell which one saves what: they are left out.
    """
    names: dict[str, set[str]] = defaultdict(set)
    for state in (state for process in processes for state in process.states):
        if state.event_name:
            names[state.kernel_id].add(state.event_name)
    owners = Counter(name for own in names.values() for name in own)
    return {
        kernel_id: sum(by_name.get(name, 0.0) for name in own)
        for kernel_id, own in names.items()
        if all(owners[name] == 1 for name in own) and any(name in by_name for name in own)
    }
