"""Judges how much longer a step of B is than a step of A, from whole processes of both that ran in turn.

A process is one sample. Processes of the same program differ more than steps of one process do: in their addresses, in
the clock, and in what else the machine does meanwhile.
"""

from __future__ import annotations

import math
import operator
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ... import units
from ...devices.table import find_device
from ...records.comparison import FASTER, SLOWER, UNDECIDED, Change, KindChange, StepProof
from ...records.optimization import KEPT_SIZES, MODE_BITS, Trial, TrialVariant
from ..comparison_words import BUSY, BUSY_OTHERS
from ..findings.finding import plural
from ..statistics import EFFECT, compute_shift, judge_ratio
from .judging import MOST_LOG, describe_digest_difference
from .step_mix import LEAST_ALIKE, StepMix, find_mix, list_steps

A, B = "A", "B"
"""The names of the sides in their processes."""

LOOKS = (3, 6)
"""The numbers of processes of each side after which the sides are judged; they are judged once more at the end."""

CONFIDENCE = 1 - (1 - 0.99) / (len(LOOKS) + 1)
"""The confidence of each interval. All looks together are wrong in at most 1% of the comparisons of equal sides."""

LEAST = LOOKS[0]
"""The least number of processes of each side for an interval."""

OTHER_SHARES = 0.1
"""Kinds of steps of A and B that are not the same count as counterparts if their shares differ by at most this."""

UNLIKE = (
    "the steps are of several kinds (graphs or sizes), and B has other kinds than A: the mean over all timed steps is "
    "compared"
)
SEVERAL = (
    "the steps are of {count} kinds (graphs and sizes); a step's time is the mean over all of them, with A's shares"
)
COUNTERPARTS = (
    "B calls other graphs than A, so its kinds of steps are paired with those of A in the order of their times"
)


def prove_step(a: Sequence[Trial], b: Sequence[Trial]) -> StepProof | None:
    """Compares the steps of processes of A and B; ``None`` if a side has none.

    Args:
        a, b: the processes of each side, in which steps were timed.

    Returns:
        The change of the step with its 99.67% interval, which is unknown with less than :data:`LEAST` processes. The
        verdict ``slower`` or ``faster`` needs a difference of at least 1%. Nothing is decided if the means of the
        processes' steps certainly say something else.
    """
    timed = [[trial for trial in side if _list_times(trial)] for side in (a, b)]
    if not all(timed):
        return None
    (ours, theirs), disturbed = _leave_out_disturbed(*timed)
    mixes, notes = _find_mixes(ours, theirs)
    sides = tuple(zip((ours, theirs), mixes, strict=True))
    steps = [_list_steps_s(side, mix) for side, mix in sides]
    change = _judge(*steps)
    means = _judge(*([statistics.fmean(_list_times(trial)) for trial in side] for side, _ in sides))
    rare: tuple[str, ...] = ()
    if not mixes[0] and means.verdict in (FASTER, SLOWER) and means.verdict != change.verdict:
        share, long = units.percent(abs(means.delta_s) / means.a_s), units.seconds(means.b_s)
        why = _count_long_steps(*((A, ours) if means.verdict == FASTER else (B, theirs)))
        rare = (f"by the mean of all steps B is {share} {means.verdict} ({long} a step): {why}",)
        change = replace(change, verdict=UNDECIDED)
    results, difference = _compare_results(a, b)
    return StepProof(
        **vars(change),
        a_steps_s=tuple(steps[0]),
        b_steps_s=tuple(steps[1]),
        kinds=tuple(_compare_kinds(ours, theirs, mixes)),
        difference=difference,
        failure=find_failure(a, b),
        process_s=statistics.median(trial.time_s for trial in (*a, *b)),
        notes=(*rare, *disturbed, *notes, *results, *_describe_memory(ours, theirs)),
    )


LONG_STEP = 1.5
"""A step takes far longer than others if it takes at least this many times the median of its process."""


def _count_long_steps(side: str, trials: Sequence[Trial]) -> str:
    """Says how many steps of a side take far longer than others, and how long these take in the median."""
    processes = [_list_times(trial) for trial in trials]
    long = [one for times in processes for one in times if one >= LONG_STEP * statistics.median(times)]
    if not long:
        return f"some of {side}'s steps take longer than others"
    each = (
        f", {units.seconds(statistics.median(long))} in the median" if len(long) > 1 else f": {units.seconds(long[0])}"
    )
    return f"{len(long)} of {side}'s {sum(map(len, processes))} steps take{'s' * (len(long) == 1)} far longer{each}"


def find_failure(a: Sequence[Trial], b: Sequence[Trial]) -> str:
    """Why a process timed nothing; empty if each process has steps."""
    for name, trial in ((name, trial) for name, side in ((A, a), (B, b)) for trial in side):
        if not _list_times(trial):
            said = next((one.failure for one in trial.variants if one.failure), "")
            return f"{name}: {trial.failure.message if trial.failure else said or 'it timed no step'}"
    return ""


def _list_times(trial: Trial) -> tuple[float, ...]:
    """The seconds of the timed steps of a process; none if it failed."""
    variant = next(iter(trial.variants), None)
    if variant is None or trial.failure is not None or variant.failure:
        return ()
    return variant.times_s if min(variant.times_s, default=0.0) > 0 else ()


def _leave_out_disturbed(
    a: Sequence[Trial], b: Sequence[Trial]
) -> tuple[tuple[Sequence[Trial], Sequence[Trial]], list[str]]:
    """Returns the processes that others did not disturb, if enough are left of each side, and a note on the others."""
    quiet = [[trial for trial in side if not _is_disturbed(trial)] for side in (a, b)]
    gone = len(a) + len(b) - sum(map(len, quiet))
    if not gone or min(map(len, quiet)) < LEAST:
        busy = f"other processes used the cores during {gone} of the {len(a) + len(b)} processes" if gone else ""
        return (a, b), [busy] if busy else []
    said = f"{gone} of the {len(a) + len(b)} processes do not count, because other processes used the cores meanwhile"
    return (quiet[0], quiet[1]), [said]


def _is_disturbed(trial: Trial) -> bool:
    if trial.load is None or not find_device(trial.device).runs_on_host:
        return False
    return trial.load.others_share >= BUSY_OTHERS or trial.load.delayed_share >= BUSY


# The kinds of steps, and the step of a process.


@dataclass(frozen=True)
class SideMix:
    """The kinds of steps of one side. ``shares`` are those of A's steps, so that both sides count the same work."""

    groups: tuple[frozenset[int], ...]
    shares: tuple[float, ...]
    ignored_bits: int = 0  # the lowest bits of a kind that do not count

    def list_times(self, variant: TrialVariant) -> list[list[float]]:
        """The seconds of the steps of each group."""
        times: list[list[float]] = [[] for _ in self.groups]
        for kind, step in list_steps(variant):
            for place, kinds in enumerate(self.groups):
                if kind >> self.ignored_bits in kinds:
                    times[place].append(step.time_s)
        return times

    def covers(self, variant: TrialVariant) -> bool:
        """Whether a process has steps of each group, and most of its time is in steps of these groups."""
        times = self.list_times(variant) if variant.kinds else []
        whole_s = math.fsum(variant.times_s)
        return bool(times) and all(times) and math.fsum(map(math.fsum, times)) >= LEAST_ALIKE * whole_s


Mixes = tuple["SideMix | None", "SideMix | None"]


def _find_mixes(a: Sequence[Trial], b: Sequence[Trial]) -> tuple[Mixes, list[str]]:
    """Returns the kinds of steps of both sides, ``None`` if steps are not told apart, and notes."""
    mix, other = find_mix(a, A), find_mix(b, B)
    if mix is None and other is None:
        return (None, None), []
    if mix is not None:
        for ignored_bits in (0, MODE_BITS):  # B may leave out the gradients
            ours = _make_side_mix(mix, mix, ignored_bits)
            are_apart = sum(map(len, ours.groups)) == len(frozenset().union(*ours.groups))
            if are_apart and all(ours.covers(trial.variants[0]) for trial in (*a, *b)):
                return (ours, ours), [SEVERAL.format(count=len(mix.groups))]
        ours = _make_side_mix(mix, mix)
        if other is not None and _are_counterparts(mix, other):
            theirs = _make_side_mix(other, mix)
            if all(side.covers(trial.variants[0]) for side, some in ((ours, a), (theirs, b)) for trial in some):
                return (ours, theirs), [SEVERAL.format(count=len(mix.groups)), COUNTERPARTS]
    return (None, None), [UNLIKE]


def _make_side_mix(own: StepMix, shares: StepMix, ignored_bits: int = 0) -> SideMix:
    groups = (frozenset(kind >> ignored_bits for kind in one.kinds) for one in own.groups)
    return SideMix(tuple(groups), shares.shares, ignored_bits)


def _are_counterparts(mix: StepMix, other: StepMix) -> bool:
    return len(mix.groups) == len(other.groups) and all(
        abs(one - two) <= OTHER_SHARES for one, two in zip(mix.shares, other.shares, strict=True)
    )


def _list_steps_s(side: Sequence[Trial], mix: SideMix | None) -> list[float]:
    """The typical step of each process of a side in seconds. Steps of several kinds count with their shares."""
    variants = [trial.variants[0] for trial in side]
    if mix is not None:
        middles = (map(statistics.median, mix.list_times(one)) for one in variants)
        return [math.fsum(map(operator.mul, mix.shares, some)) for some in middles]
    several = any(len(set(one.kinds)) > 1 for one in variants)
    return [(statistics.fmean if several else statistics.median)(one.times_s) for one in variants]


# The verdict.


LEAST_SCATTER = 0.01
"""The least scatter of processes that is supposed while they are few. Processes may have two levels, by their addresses
for example, and each side may happen to have only one of them."""


def _judge(a_steps_s: Sequence[float], b_steps_s: Sequence[float]) -> Change:
    """Judges the ratio of B's steps to A's. A process counts once."""
    logs = [list(map(math.log, side)) for side in (a_steps_s, b_steps_s)]
    shift = compute_shift(logs[1], logs[0], CONFIDENCE, LEAST_SCATTER)
    a_s = math.exp(shift.base)
    delta_s = a_s * math.expm1(shift.middle)
    if min(map(len, logs)) < LEAST:
        return Change(a_s, a_s + delta_s, delta_s, None, None, UNDECIDED)
    low, high = (math.expm1(min(end, MOST_LOG)) for end in (shift.low, shift.high))
    verdict = judge_ratio(math.exp(shift.middle), 1 + low, 1 + high, EFFECT)
    return Change(a_s, a_s + delta_s, delta_s, a_s * low, a_s * high, verdict)


def _compare_kinds(a: Sequence[Trial], b: Sequence[Trial], mixes: Mixes) -> list[KindChange]:
    """The change of the steps of each kind."""
    ours, theirs = mixes
    if ours is None or theirs is None:
        return []
    times = [
        [list(map(statistics.median, mix.list_times(trial.variants[0]))) for trial in side]
        for side, mix in ((a, ours), (b, theirs))
    ]
    changes, names = [], _name_kinds(ours, a)
    for place, share in enumerate(ours.shares):
        change = _judge(*([process[place] for process in side] for side in times))
        changes.append(KindChange(**vars(change), share=share, name=names[place]))
    return changes


MOST_SIZES = 3
"""The largest number of sizes that name a kind."""


def _name_kinds(mix: SideMix, trials: Sequence[Trial]) -> list[str]:
    """Names each group of kinds by the sizes that only it has: ``size 96``; none if not each one has such a name."""
    known: dict[int, set[int]] = {}
    for one in (one for trial in trials for one in trial.kind_sizes):
        if len(one.sizes) < KEPT_SIZES:  # else some may be missing
            known.setdefault(one.kind >> mix.ignored_bits, set()).update(one.sizes)
    if not all(kind in known for group in mix.groups for kind in group):
        return [""] * len(mix.groups)
    groups = [set[int]().union(*(known[kind] for kind in group)) for group in mix.groups]
    times = Counter(size for group in groups for size in group)
    own = [sorted(size for size in group if times[size] == 1) for group in groups]
    if not all(0 < len(sizes) <= MOST_SIZES for sizes in own):
        return [""] * len(own)
    return [f"size{'s' * (len(sizes) > 1)} {', '.join(map(str, sizes))}" for sizes in own]


# What else the processes show.


REPEATED_STEPS, REPEATED = 3, 1e-3
"""A's processes repeat each other if the norms of the gradients in the first steps agree up to this share."""


def _compare_results(a: Sequence[Trial], b: Sequence[Trial]) -> tuple[list[str], str]:
    """Compares the gradients and losses of the first processes.

    Returns:
        A note, and how B differs from A; nothing if no optimizer stepped, or if A has only one such process.
    """
    ours, theirs = ([trial.digests for trial in side if trial.digests] for side in (a, b))
    if len(ours) < 2 or not theirs:
        return [], ""
    firsts = [[one.norm for one in digests[:REPEATED_STEPS]] for digests in ours]
    if not all(
        math.isclose(norm, other, rel_tol=REPEATED)
        for some in firsts[1:]
        for norm, other in zip(firsts[0], some, strict=False)
    ):
        return ["gradients were not compared: A's processes do not agree with each other; set a seed"], ""
    for digests in theirs:
        if difference := describe_digest_difference(ours, digests):
            return [], difference
    steps = min(map(len, (*ours, *theirs)))
    return [f"the gradients and losses of {plural(steps, 'step')} of the optimizer agree"], ""


LEAST_MEMORY = 0.01
"""The least difference of the peak memory that is said, as a share of A's."""


def _describe_memory(a: Sequence[Trial], b: Sequence[Trial]) -> list[str]:
    peaks = [[trial.variants[0].peak_memory_bytes for trial in side] for side in (a, b)]
    known = [[one for one in side if one is not None] for side in peaks]
    if not all(known):
        return []
    ours, theirs = (statistics.median(side) for side in known)
    if not ours or abs(theirs - ours) < LEAST_MEMORY * ours:
        return []
    return [f"a step takes up to {units.size(round(ours))} of memory in A and {units.size(round(theirs))} in B"]
