"""How much of a step the host spends on what while the device waits for it, and what sampling it costs."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.code import SourceLine
from ...records.evidence import CallPlace, HostSamples, HostTrace, HostTraceFrame, HostTraceFrames, HostTraceProfile
from ...records.program import (
    BACKWARD,
    COLLECTING,
    DISPATCHING,
    GUARDS,
    LAUNCHING,
    PYTHON,
    QUEUED,
    SYNCHRONISING,
    HostStretch,
    Part,
)
from ...records.tuning import Ratio
from ...trace.program_works import ProgramWorks
from ..statistics import CONFIDENCE, paired_ratio
from .stacks import OPERATORS, LineKinds, StackReader, kinds_of_lines

LARGEST_ERROR = 0.15
"""Largest standard error, as a share of the idle time, with which samples divide it: that of 12 samples."""

SEVERAL = 3
"""Number of collections from which their measured time is that of a usual step."""

MUCH_LONGER = 2.0
"""How many times as long as the profile's operators of its line a sampled call takes that is none of them."""


def host_stretches(samples: HostSamples, lines: LineKinds, graphs: Mapping[str, str], step_s: float) -> HostShares:
    """What the host did while the device waited.

    Args:
        samples: what was sampled of a process.
        lines: what the profile says of lines.
        graphs: the names of the compiled graphs by their slugs.
        step_s: the time of a step.
    """
    collections = [one for one in samples.stacks if one.is_collection]
    # The callbacks of a collection write two samples, one for each end.
    counts = sum(one.waiting + one.working for one in collections) >= 2 * SEVERAL
    collected_s = sum(one.waiting_s + one.working_s for one in collections) if counts else 0.0
    sampled = [one for one in samples.stacks if not one.is_collection]
    whole_s = sum(one.waiting_s + one.working_s for one in sampled) or 1.0
    collecting = min(1.0, collected_s / samples.steps_s) if samples.steps_s else 0.0
    found: dict[tuple[str, str, SourceLine | None], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    reader = StackReader(samples, lines, graphs)
    for stack in sampled + (collections if counts and samples.steps_s else []):
        if not samples.sees_device and not stack.is_collection and reader.is_optimizer_operator(stack):
            continue
        sampled_share = (1 - collecting) * stack.waiting_s / whole_s
        share = stack.waiting_s / samples.steps_s if stack.is_collection else sampled_share
        entry = found[reader.read(stack)]
        entry[0] += step_s * share
        entry[1] += 0 if stack.is_collection else stack.waiting
        entry[2] += step_s * share * reader.calls_other_code(stack)
    stretches = [
        HostStretch(_label(key, other_s, lines), key[1], time_s, round(count), key[2])
        for key, (time_s, count, other_s) in found.items()
        if time_s
    ]
    if not samples.sees_device:  # a CPU's operators are no idle time
        stretches = [one for one in stretches if one.label not in (*OPERATORS, LAUNCHING, BACKWARD)]
    stretches.sort(key=lambda one: (-one.time_s, one.label, one.function))
    return HostShares(tuple(stretches), sum(one.waiting + one.working for one in sampled), samples.sees_device)


def lines_of_steps(found: ProgramWorks, places: Mapping[int, CallPlace]) -> LineKinds:
    """What the host did at each line in the profiled steps that count."""
    marks = found.window.marks
    return kinds_of_lines(found.timeline.between(marks[0], marks[-1]), places, len(marks) - 1)


def waits_of(
    found: ProgramWorks,
    places: Mapping[int, CallPlace],
    samples: HostSamples | None,
    lines: LineKinds,
    names: Mapping[str, str],
) -> Iterator[HostStretch]:
    """Where the host waited for the device: by operators that wait, and by samples for calls that are no operators.

    Args:
        found: the profiled steps.
        places: the places of outermost operators, by their index.
        samples: what was sampled of the process; ``None`` for nothing.
        lines: what the profile says of lines.
        names: the names of the compiled graphs by their slugs.
    """
    window = found.window
    times: dict[SourceLine | None, float] = defaultdict(float)
    for one in found.timeline.between(window.marks[0], window.marks[-1]):
        if one.label == SYNCHRONISING:
            place = places.get(one.op)
            times[place.source if place is not None else None] += (one.end_s - one.start_s) / (len(window.marks) - 1)
    unknown_s = times.pop(None, 0.0)
    known = [HostStretch(SYNCHRONISING, "", time_s, 0, source) for source, time_s in times.items()]
    yield from sorted(known, key=lambda one: -one.time_s)
    if unknown_s and samples is not None:
        seen = {(source.file, source.line) for source in times if source is not None}
        yield from (
            one
            for one in sampled_waits(samples, lines, names, unknown_s)
            if one.source is not None and (one.source.file, one.source.line) not in seen
        )


def sampled_waits(
    samples: HostSamples, lines: LineKinds, graphs: Mapping[str, str], whole_s: float
) -> list[HostStretch]:
    """The lines at which samples saw the host wait for the device, whether the device worked or not.

    Args:
        samples: what was sampled of a process.
        lines: what the profile says of lines.
        graphs: the names of the compiled graphs by their slugs.
        whole_s: the seconds of a step that they divide.
    """
    reader = StackReader(samples, lines, graphs)
    found: dict[tuple[str, SourceLine | None], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for stack in samples.stacks:
        label, function, source = reader.read(stack)
        if label == SYNCHRONISING:
            entry = found[function, source]
            entry[0] += stack.waiting_s + stack.working_s
            entry[1] += stack.waiting + stack.working
    every_s = math.fsum(time_s for time_s, _ in found.values()) or 1.0
    stretches = [
        HostStretch(SYNCHRONISING, function, whole_s * time_s / every_s, round(count), source)
        for (function, source), (time_s, count) in found.items()
    ]
    return sorted(stretches, key=lambda one: -one.time_s)


def _label(key: tuple[str, str, SourceLine | None], other_s: float, lines: LineKinds) -> str:
    """What a stretch is: no operator if its calls take much longer than the operators of its line do in the profile."""
    label, _, source = key
    known_s = lines.seconds(source.file, source.line) if source is not None else 0.0
    return PYTHON if label in OPERATORS and known_s and other_s > MUCH_LONGER * known_s else label


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

    def error(self, idle_s: float) -> float:
        """The largest standard error of a stretch, as a share of the idle time. Measured collections have none.

        Args:
            idle_s: the idle time of a step, in seconds.
        """
        collected_s = math.fsum(one.time_s for one in self.stretches if one.label == COLLECTING)
        sampled = 1 - min(1.0, collected_s / idle_s) if idle_s else 1.0
        return sampled / (2 * math.sqrt(max(1, self.samples)))

    def is_enough(self, idle_s: float) -> bool:
        """Whether the stretches divide the idle time of a step, in seconds."""
        return bool(self.stretches) and self.error(idle_s) <= LARGEST_ERROR


SEVERAL_SAMPLES = 3
"""Number of samples that name what a profile only has a kind for."""

_NAMED_BY_GRAPH = frozenset({LAUNCHING, DISPATCHING, BACKWARD, GUARDS, QUEUED})


def named_parts(parts: Iterable[Part], host: HostShares | None) -> list[Part]:
    """The idle parts, divided among functions where a few samples know them and the profile does not."""
    found: list[Part] = []
    for part in parts:
        alike = [one for one in host.stretches if one.label == part.label and one.source] if host is not None else []
        seen_s = math.fsum(one.time_s for one in alike)
        known = part.source is not None or part.label in _NAMED_BY_GRAPH
        if known or sum(one.samples for one in alike) < SEVERAL_SAMPLES or not seen_s:
            found.append(part)
            continue
        times = ((one, part.time_s * one.time_s / seen_s) for one in alike)
        found += [replace(part, time_s=time_s, source=one.source, function=one.function) for one, time_s in times]
    return found


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
