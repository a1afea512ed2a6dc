"""How much of a step the host spends on what while the device waits for it, and what sampling it costs."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ...records.code import SourceLine
from ...records.evidence import HostSamples, HostTrace, HostTraceFrame, HostTraceFrames, HostTraceProfile
from ...records.program import COLLECTING, HostStretch
from ...records.tuning import Ratio
from ..statistics import CONFIDENCE, paired_ratio
from .stacks import LineKinds, StackReader

ENOUGH = 40
"""Number of samples in which the device waits from which they divide the idle time."""


def host_stretches(samples: HostSamples, lines: LineKinds, graphs: Mapping[str, str], step_s: float) -> HostShares:
    """What the host did while the device waited.

    Args:
        samples: what was sampled of a process.
        lines: what the profile says of lines.
        graphs: the names of the compiled graphs by their slugs.
        step_s: the time of a step.
    """
    collected_s = sum(one.waiting_s + one.working_s for one in samples.stacks if one.is_collection)
    sampled = [one for one in samples.stacks if not one.is_collection]
    whole_s = sum(one.waiting_s + one.working_s for one in sampled) or 1.0
    collecting = min(1.0, collected_s / samples.steps_s) if samples.steps_s else 0.0
    found: dict[tuple[str, str, SourceLine | None], list[float]] = defaultdict(lambda: [0.0, 0.0])
    reader = StackReader(samples, lines, graphs)
    for stack in samples.stacks:
        sampled_share = (1 - collecting) * stack.waiting_s / whole_s
        share = stack.waiting_s / samples.steps_s if stack.is_collection else sampled_share
        if not share or (not samples.sees_device and reader.is_operator(stack)):
            continue
        entry = found[reader.read(stack)]
        entry[0] += step_s * share
        entry[1] += 0 if stack.is_collection else stack.waiting
    stretches = [HostStretch(key[0], key[1], time_s, round(count), key[2]) for key, (time_s, count) in found.items()]
    stretches.sort(key=lambda one: (-one.time_s, one.label, one.function))
    return HostShares(tuple(stretches), sum(one.waiting + one.working for one in sampled), samples.sees_device)


@dataclass(frozen=True)
class HostShares:
    """What the samples say: how long each stretch is in a step, on a CPU only in relation to the others."""

    stretches: tuple[HostStretch, ...]
    every: int  # the number of all samples
    sees_device: bool  # whether the samples know when the device waited

    @property
    def samples(self) -> int:
        """The number of samples of these stretches."""
        return sum(one.samples for one in self.stretches)

    @property
    def is_enough(self) -> bool:
        return self.samples >= ENOUGH


def sampling_cost(blocks: Sequence[Sequence[float]]) -> Ratio:
    """By how much sampled steps are longer than those around them, with the interval of the median over the blocks.

    Args:
        blocks: the times of the steps of each block in order; every second one, from the second on, was sampled.
    """
    medians = [statistics.median(block) if block else None for block in blocks]
    times, others = [], []
    for number in range(1, len(medians), 2):
        own = medians[number]
        beside = [one for one in (medians[number - 1], *medians[number + 1 : number + 2]) if one is not None]
        if own is not None and beside:
            times.append(own)
            others.append(statistics.fmean(beside))
    return paired_ratio(times, others, CONFIDENCE) if times else Ratio(1.0, 1.0, 1.0, 0)


def host_trace(processes: Sequence[tuple[str, HostSamples]]) -> HostTrace | None:
    """The samples of processes for speedscope, each with its name; ``None`` if none was sampled."""
    frames: dict[HostTraceFrame, int] = {}
    profiles = []
    for name, samples in processes:
        reader = StackReader(samples, LineKinds({}), {})
        stacks = []
        for stack in samples.stacks:
            shown = [HostTraceFrame(one.function, one.file, one.line, one.owner) for one in reader.frames(stack)][::-1]
            shown += [HostTraceFrame(COLLECTING, "", 0)] if stack.is_collection else []
            stacks.append((tuple(frames.setdefault(one, len(frames)) for one in shown), stack))
        waits = "while the device waits" if samples.sees_device else "with its operators, which run on it"
        profiles.append(_profile(f"{name} {waits}", [(place, one.waiting_s) for place, one in stacks]))
        if samples.sees_device:
            working = [(place, one.working_s) for place, one in stacks]
            profiles.append(_profile(f"{name} while the device works", working))
    return HostTrace(HostTraceFrames(tuple(frames)), tuple(profiles)) if profiles else None


def _profile(name: str, stacks: Iterable[tuple[tuple[int, ...], float]]) -> HostTraceProfile:
    kept = [(place, time_s) for place, time_s in stacks if time_s > 0]
    samples, weights = tuple(place for place, _ in kept), tuple(time_s for _, time_s in kept)
    return HostTraceProfile(name, "sampled", "seconds", 0.0, sum(weights), samples, weights)
