"""The processes of a search: the names of their variants, the time that they take, and what they compile ahead.

Compilation takes most of a search's time, and torch compiles the variants of a process one after the other. Processes
that only compile share a cache with the one that is timed, which finds its variants there. Nothing is timed meanwhile.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ... import units
from ...records.code import total_s
from ...records.optimization import OPTIMIZER, ORIGINAL, PLACEBO, WARMING, MenuRow, ProgramSetting, Trial
from ...records.run import GRAPH, Run
from ..step_costs import runs_on_host
from .step_facts import StepFacts

AT_ONCE = 8
"""The largest number of rows that share a process in the ranking."""


@dataclass(frozen=True)
class TrialCandidate:
    """A variant of the program that a process is to run."""

    slug: str
    settings: tuple[ProgramSetting, ...] = ()


@dataclass(frozen=True)
class TrialPlan:
    """A process that is to be run."""

    name: str  # of its files
    purpose: str  # as in ``Trial``
    candidates: tuple[TrialCandidate, ...]  # the variants beside the original; a single one if nothing alternates
    alternates: bool
    timed_s: float  # seconds of timed steps of each variant
    least: int  # the least number of timed steps of each
    losses: int = 0  # the number of optimizer steps whose gradients are kept
    cold: bool = False  # whether it compiles with empty caches
    lane: int = 0  # the place of its device among those of the search
    beside: int = 1  # the number of processes that run at once on its device; more than 1 if they only compile
    limit_s: float | None = None  # seconds after which it is ended; ``None`` for no limit

    @property
    def slugs(self) -> tuple[str, ...]:
        """The names of the variants."""
        return tuple(one.slug for one in self.candidates)

    @property
    def only_compiles(self) -> bool:
        """Whether it compiles ahead, and nothing is timed."""
        return self.purpose == WARMING


def have_conflict(a: MenuRow, b: MenuRow) -> bool:
    """Whether two rows cannot be combined: they set the same thing, or both say how an optimizer steps."""
    names = [{(one.kind, one.setting) for one in row.settings} for row in (a, b)]
    optimizers = all(any(one.kind == OPTIMIZER for one in row.settings) for row in (a, b))
    return bool(names[0] & names[1]) or optimizers


def name_variant(slugs: Sequence[str]) -> str:
    """The name of the variant with these rows."""
    return "+".join(slugs) or ORIGINAL


def leave_out(slugs: Sequence[str], slug: str) -> tuple[str, ...]:
    """These rows without one of them."""
    return tuple(one for one in slugs if one != slug)


def list_prefixes(slugs: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """The first row, the first two, …"""
    return (tuple(slugs[:count]) for count in range(1, len(slugs) + 1))


def split_slugs(slugs: Sequence[str]) -> list[tuple[str, ...]]:
    """Returns the combinations that show what each row adds to the others: the first rows, and all rows but one."""
    return list(dict.fromkeys([*list_prefixes(slugs), *(leave_out(slugs, slug) for slug in slugs)]))


# The distribution of rows over several devices.


def assign_rows_to_processes(slugs: Sequence[str], lanes: int, at_once: int = AT_ONCE) -> list[list[str]]:
    """Returns the rows of each process of the ranking, in order. Each device gets the same number of rows."""
    found: list[list[str]] = []
    for begin in range(0, len(slugs), at_once * lanes):
        block = slugs[begin : begin + at_once * lanes]
        found += [list(block[lane::lanes]) for lane in range(min(lanes, len(block)))]
    return found


def plan_screening_turns(slugs: Sequence[str], lanes: int) -> list[list[str]]:
    """For each device the rows that it runs in turn with the original.

    Several rows run between two runs of the original. If there are more devices than rows, some run a row once more.
    """
    found = []
    for lane in range(lanes):
        own = slugs[lane::lanes] or [slugs[lane % len(slugs)]]
        turn = [ORIGINAL, *own, *([ORIGINAL] if lanes == 1 or len(own) > 1 else [])]
        found.append(turn if lane < len(slugs) else turn[::-1])
    return found


def alternate_names(names: Sequence[str], lanes: int) -> list[list[str]]:
    """The rounds in which all of these names run at least twice, and as often on each device: A B B A.

    Every second device runs them backwards. Each device runs all of them, because a comparison stays on one device.
    """
    backwards = names[::-1]
    if lanes == 1:
        return [[name] for name in (*names, *backwards)]
    return [[(backwards if lane % 2 else names)[place] for lane in range(lanes)] for place in range(len(names))]


def list_first_runs(turns: Sequence[Sequence[str]]) -> list[list[bool]]:
    """For each process of such rounds, whether it is the first with its name."""
    seen: set[str] = set()
    found = []
    for turn in turns:
        found.append([name not in {*seen, *turn[:lane]} for lane, name in enumerate(turn)])
        seen.update(turn)
    return found


USUAL_SHARES = {
    **{"cudagraphs": 0.8, "optimizer": 0.7, "functions": 0.4, "cpp-wrapper": 0.3, "freezing": 0.3, "layout": 0.3},
    **{"loader": 0.8, "allocator": 0.5, "dynamic": 0.1, "threads": 0.5, "convolutions": 0.2, "attention": 0.3},
    **{"max-autotune": 0.2, "memory": 0.3, "kernels": 0.1, "padding": 0.1, "tf32": 0.6, "reduced-precision": 0.1},
    **{"bf16": 0.6},
}
"""The part of its bound that a row is expected to save, by group; in other groups the whole bound. A bound is the
largest possible saving: CUDA graphs end nearly all waits for launches, but kernels far from their limits mostly stay
far from them."""

COSTLY, COSTS_MORE = ("max-autotune", "cpp-wrapper"), 4.0
"""Groups whose rows compile for minutes, and how many other rows could be ranked in that time."""

CACHED = 0.15
"""Share of a compilation that is left when its graphs come from a cache (measured: 0.02 to 0.13)."""

START_S = 15.0
"""The estimated seconds until a program runs and its steps are found, before any process has shown it."""

TIMED_SHARE = 1.6
"""Seconds of steps for one timed second: the first step of a turn does not count, and the original has more turns."""

START_VARIANTS = 4
"""The number of variants whose comparison and steps take as long as starting the program (measured: 4 to 6)."""


def compute_expected_share(row: MenuRow) -> float:
    """Returns the share of the step that a row is expected to save. A row that the user adds comes first."""
    if row.group not in USUAL_SHARES:
        return 1.0 if row.bound is None else row.bound
    return USUAL_SHARES[row.group] * (1.0 if row.bound is None else row.bound)


def sort_by_expected_saving(rows: Iterable[MenuRow]) -> list[MenuRow]:
    """Sorts rows in the order in which they are tried: the largest expected saving per time first."""

    def compute_rank(row: MenuRow) -> float:
        return -compute_expected_share(row) / (COSTS_MORE if row.is_costly or row.group in COSTLY else 1.0)

    return sorted(rows, key=compute_rank)


GIVEN_UP = "given up: it {what}"
"""Why a variant failed that took too long for a piece of its work, as ``compiles for more than 60 s``."""

LONG_COMPILATION = 0.25
"""If a setting compiles for more than this share of a search's time, the search says so."""


def describe_long_compilations(trial: Trial, budget_s: float) -> Iterator[str]:
    """Says which variants of a process compiled for much of a search's time, or were given up when they did."""
    for one in trial.variants:
        given_up = one.failure.startswith(GIVEN_UP.format(what="compiles"))
        time_s = trial.time_s if given_up else one.compile_time_s
        if one.slug in trial.slugs and time_s > LONG_COMPILATION * budget_s:
            times = f"{units.duration(time_s)} of {units.duration(budget_s)}"
            said = f"{one.slug} compiled for {times}"
            yield f"{trial.name} took {times}, because {one.slug} compiled until it was given up" if given_up else said


class ProcessCosts:
    """What processes take.

    Args:
        compile_s: seconds in which the program's own graphs compile; 0 if that is unknown.
    """

    def __init__(self, compile_s: float = 0.0) -> None:
        self._usual_s = compile_s
        self._timed: list[Trial] = []
        self._cold_s: dict[str, float] = {}
        self._first_s: dict[str, float] = {}  # with the caches of the search
        self._cached_s: dict[str, float] = {}  # in the last process that found it in a cache

    def note_times(self, trials: Iterable[Trial]) -> None:
        """Notes the times of processes. The longest compilation of a variant counts as cold."""
        for trial in trials:
            for one in trial.variants:
                if one.slug in self._cold_s and not trial.cold:
                    self._cached_s[one.slug] = one.compile_time_s
                self._cold_s[one.slug] = max(one.compile_time_s, self._cold_s.get(one.slug, 0.0))
                if not trial.cold:
                    self._first_s[one.slug] = max(one.compile_time_s, self._first_s.get(one.slug, 0.0))
            if trial.purpose != WARMING:
                self._timed.append(trial)

    def first_s(self, slug: str) -> float | None:
        """Seconds in which a variant was first compiled, with the caches of the search."""
        return self._first_s.get(slug) or None

    def new_s(self) -> float:
        """Seconds in which a variant compiles that no process has compiled."""
        known = [time_s for slug, time_s in self._cold_s.items() if slug != ORIGINAL and time_s]
        return statistics.median(known) if known else self._usual_s

    def compile_s(self, slug: str) -> float:
        """Seconds in which a variant compiles, or is taken from the cache."""
        return CACHED * self._cold_s[slug] if slug in self._cold_s else self.new_s()

    def turns_s(self, slugs: Sequence[str], timed_s: float, *, cached: bool = False) -> float:
        """Seconds of a process in which these variants take turns with the original and the placebo.

        Args:
            slugs: the variants, without both.
            timed_s: seconds of timed steps of each.
            cached: whether other processes compile all of them before.
        """
        names = [ORIGINAL, PLACEBO, *slugs]
        compiled_s = CACHED * self.new_s() * len(names) if cached else math.fsum(map(self.compile_s, names))
        return self._rest_s(len(names)) + compiled_s + TIMED_SHARE * timed_s * len(names)

    def usual_process_s(self, purpose: str) -> float:
        """Seconds of a process with one variant from its start to its end."""
        known = [trial for trial in self._timed if not trial.alternates]
        alike = [trial.time_s for trial in known if trial.purpose == purpose]
        if known:
            return statistics.median(alike or [trial.time_s for trial in known])
        return self._rest_s(1) + self.compile_s(ORIGINAL)

    def one_variant_process_s(self, slug: str, stepped_s: float, *, cold: bool) -> float:
        """Seconds of a whole run of a variant: the program's start, its compilation, its steps.

        Args:
            slug: the variant.
            stepped_s: seconds of its steps.
            cold: whether it compiles with empty caches; else they have all of its graphs.
        """
        compiled_s = self._cold_s.get(slug, self.new_s())
        if not cold:
            compiled_s = self._cached_s.get(slug, CACHED * compiled_s)
        alike = [trial for trial in self._timed if not trial.alternates and trial.failure is None]
        known = [_rest_of(trial) for trial in alike if trial.cold == cold]
        return (statistics.median(known) if known else self._rest_s(1, cold=cold)) + compiled_s + stepped_s

    def _rest_s(self, variants: int, *, cold: bool = False) -> float:
        """Returns the seconds of a process with this number of variants in which it neither compiles nor times steps.

        With empty caches this is the longest known time, because a part of a compilation belongs to no variant.
        """
        known = [
            _rest_of(trial) / (START_VARIANTS + len(trial.slugs) + 1)
            for trial in self._timed
            if trial.alternates and trial.failure is None
        ]
        typical = max if cold else statistics.median_low  # of two processes, the first may have taken longer to start
        return (typical(known) if known else START_S / START_VARIANTS) * (START_VARIANTS + variants)


def _rest_of(trial: Trial) -> float:
    """Seconds of a process in which it neither compiled nor ran steps. Steps whose gradients are kept count, too."""
    stepped_s = math.fsum(time_s for one in trial.variants for time_s in one.times_s)
    count = sum(len(one.times_s) for one in trial.variants)
    noted_s = len(trial.digests) * stepped_s / count if count else 0.0
    return max(0.0, trial.time_s - trial.compile_time_s - stepped_s - noted_s)


def compute_round_time_s(trials: Sequence[Trial]) -> float:
    """Seconds of processes that ran at once; those of one device ran one after the other, unless they only compiled."""
    times_s: defaultdict[str, float] = defaultdict(float)
    for trial in trials:
        before_s = times_s[trial.gpu]
        times_s[trial.gpu] = max(before_s, trial.time_s) if trial.purpose == WARMING else before_s + trial.time_s
    return max(times_s.values(), default=0.0)


CORES, LEAST_CORES, MOST_PROCESSES = 4, 8, 8
"""Cores for each process that compiles ahead, the fewest cores for any, and the most processes on one device."""

LEAST_VARIANTS = 3
"""The smallest number of variants that are compiled ahead. Fewer variants are compiled by the process that times
them."""

LONG_WORDS = ("autotune", "coordinate_descent")
"""Parts of the names of settings with which torch times many configs of each kernel while it compiles. A UNet
compiled for longer than 144 s on an H200 with one of them: 8 s for each product."""

TIMING_WORDS = (*LONG_WORDS, "multi_kernel", "benchmark")
"""Parts of the names of settings with which torch times kernels while it compiles."""

SHARE, LEAST_S = 0.7, 10.0
"""The share of the time that is left in which variants may be compiled ahead, and seconds below which none are."""

RESERVE, CONTEXT_BYTES = 0.2, 1 << 30
"""The share of a device's memory that processes running at the same time leave free, and the memory that each takes
beside its tensors."""


class ProcessesAhead(NamedTuple):
    """How many processes may compile at once for each device of a search; fewer than 2 for none, and why."""

    number: int
    obstacle: str = ""


def plan_processes_ahead(run: Run, cores: int, lanes: int) -> ProcessesAhead:
    """The processes that may compile at once for each device of a search.

    Args:
        run: the program. Nothing is compiled ahead for one of several ranks.
        cores: the cores that the search may use.
        lanes: the number of devices of the search, which share the cores.
    """
    if run.program is not None and len(run.program.ranks) > 1:
        return ProcessesAhead(0, "the program has several processes")
    wanted = min(cores // CORES // lanes, MOST_PROCESSES)
    if cores < LEAST_CORES or wanted < 2:
        gpus = f" for {lanes} GPUs" if lanes > 1 else ""
        return ProcessesAhead(0, f"there are {cores} cores{gpus}, and {LEAST_CORES * lanes} are needed")
    fit = _count_processes_that_fit(run)
    if fit is None:
        if runs_on_host(run):
            return ProcessesAhead(wanted)
        return ProcessesAhead(0, "the RUN does not say how much memory the program takes")
    if fit < 2:
        return ProcessesAhead(
            0, f"the program takes {units.size(_estimate_memory(run))}, and two would not fit into memory"
        )
    return ProcessesAhead(min(wanted, fit))


def _count_processes_that_fit(run: Run) -> int | None:
    """The number of processes that fit into the device's memory; ``None`` if the RUN does not say it."""
    environment, each = run.environment, _estimate_memory(run)
    on_host = runs_on_host(run)
    whole = environment.host.memory_bytes if on_host else environment.device.accelerator_memory_bytes
    return int((1 - RESERVE) * whole / (each + CONTEXT_BYTES)) if whole and each else None


def _estimate_memory(run: Run) -> float:
    """Bytes that the program takes: its peak in the RUN, or an estimate from its modules; 0 if both are unknown.

    In runs of their own, a forward and a backward graph count with the weights and activations of each, which is about
    what a step takes with its gradients and its optimizer's state. While a program trains, the activations of all calls
    in a step are kept.
    """
    if run.program is not None and run.program.peak_memory_bytes:
        return run.program.peak_memory_bytes
    peaks = {module.slug: module.peak_memory_bytes or 0 for module in run.modules}
    if runs_on_host(run):  # the memory of the whole process
        return max(peaks.values(), default=0)
    parts = run.program.parts if run.program is not None and StepFacts(run).trains else ()
    calls = {part.graph: part.calls for part in parts if part.kind == GRAPH}
    return math.fsum(peak * max(1.0, calls.get(slug, 1.0)) for slug, peak in peaks.items())


def times_kernels(candidate: TrialCandidate) -> bool:
    """Whether compiling a variant times kernels to choose among them, which needs the device alone."""
    return _has_words(candidate, TIMING_WORDS)


def compiles_long(candidate: TrialCandidate) -> bool:
    """Whether compiling a variant takes so long that it may be given up, and ends its process."""
    return _has_words(candidate, LONG_WORDS)


def _has_words(candidate: TrialCandidate, words: Sequence[str]) -> bool:
    return any(word in one.setting + one.value for one in candidate.settings for word in words)


class CompileAhead:
    """The variants that a search has compiled, and those that it compiles ahead.

    Args:
        processes: the number of processes that may compile at once for each device; less than 2 for none.
        compile_s: seconds in which the program's own graphs compile; 0 if that is unknown.
    """

    def __init__(self, processes: int = 0, compile_s: float = 0.0) -> None:
        self._processes, self._compile_s = processes, compile_s
        self._asked: set[str] = set()
        self.obstacle = ""
        """Why nothing was compiled ahead although it would have saved time, in words."""
        self.costs = ProcessCosts(compile_s)
        """What processes take."""

    @classmethod
    def of(cls, run: Run, cores: int, lanes: int) -> CompileAhead:
        """What compiles ahead for a program; see :func:`plan_processes_ahead`."""
        found = plan_processes_ahead(run, cores, lanes)
        ahead = cls(found.number, total_s(run.capture.compile_phases))
        ahead.obstacle = found.obstacle
        return ahead

    def expected_s(self, groups: Sequence[Sequence[TrialCandidate]], time_s: float) -> float | None:
        """Seconds in which the next processes would compile ahead; ``None`` if none would.

        Args:
            groups: the variants that are timed next, on each device.
            time_s: seconds that are left.
        """
        parts = self._parts(groups)
        if not parts or not self._pays(parts):
            return None
        most = max(len(part) for _, part in parts)
        own_s = self._compile_s * (CACHED if self._knows_placebo else 1.0)
        expected_s = START_S + own_s + most * (self.costs.new_s() or self._compile_s)
        if not self._knows_placebo:
            expected_s += START_S + self._compile_s
        if max(LEAST_S, expected_s) <= SHARE * time_s:
            return expected_s
        self.obstacle = self.obstacle or f"{units.duration(time_s)} were left, too few for further processes"
        return None

    @property
    def _knows_placebo(self) -> bool:
        return PLACEBO in self._asked

    def plans(self, groups: Sequence[Sequence[TrialCandidate]], number: int, time_s: float) -> tuple[TrialPlan, ...]:
        """The next processes that compile what no earlier process has compiled; none if this would not save time.

        First, one process compiles the original and the placebo. So torch times kernels on a quiet device, and the
        other processes take its choices from the cache. A timed process can do this as well.

        Args:
            groups: the variants that are timed next, on each device.
            number: the number of the first process.
            time_s: seconds that are left.
        """
        parts = self._parts(groups) if self.expected_s(groups, time_s) is not None else []
        if parts and not self._knows_placebo:
            parts = [(0, [TrialCandidate(PLACEBO)])]
            self._asked.add(PLACEBO)
        else:
            self._asked.update(one.slug for group in groups for one in group)
        return tuple(
            TrialPlan(
                f"{number + place:02}-{WARMING}",
                WARMING,
                tuple(part),
                alternates=True,
                timed_s=0.0,
                least=0,
                lane=lane,
                beside=sum(1 for other, _ in parts if other == lane),
                limit_s=SHARE * time_s,
            )
            for place, (lane, part) in enumerate(parts)
        )

    def _parts(self, groups: Sequence[Sequence[TrialCandidate]]) -> list[tuple[int, Sequence[TrialCandidate]]]:
        """The variants of each process that would compile, with its device."""
        return [(lane, part) for lane, share in enumerate(self._shares(groups)) for part in self._divided(share)]

    def _divided(self, share: Sequence[TrialCandidate]) -> list[Sequence[TrialCandidate]]:
        """The variants of each of a device's processes; nothing if they are too few."""
        count = min(self._processes, len(share))
        if count < 2 or len(share) < LEAST_VARIANTS:
            return []
        return [share[first::count] for first in range(count)]

    def _pays(self, parts: Sequence[tuple[int, Sequence[TrialCandidate]]]) -> bool:
        """Whether this number of processes at once saves more time than starting them takes, as far as known."""
        lanes = [[len(part) for lane, part in parts if lane == other] for other in {lane for lane, _ in parts}]
        saved = max((sum(sizes) - max(sizes) for sizes in lanes), default=0)
        rounds = 1 if self._knows_placebo else 2
        return not self._compile_s or saved * self._compile_s > rounds * START_S

    def _shares(self, groups: Sequence[Sequence[TrialCandidate]]) -> list[list[TrialCandidate]]:
        """The variants that each device compiles: those of its own processes, and each variant on one device only."""
        shares: list[list[TrialCandidate]] = [[] for _ in groups]
        new = {one.slug: one for group in groups for one in group if one.slug not in {PLACEBO, *self._asked}}
        for slug, one in new.items():
            if times_kernels(one):
                continue
            having = [lane for lane, group in enumerate(groups) if any(other.slug == slug for other in group)]
            shares[min(having, key=lambda lane: len(shares[lane]))].append(one)
        return shares

    def note_compile_times(self, trials: Sequence[Trial]) -> None:
        """Notes which variants processes have compiled, and how long that took."""
        self.costs.note_times(trials)
        timed = (trial for trial in trials if trial.purpose != WARMING and not trial.cold and trial.alternates)
        self._asked.update(one.slug for trial in timed for one in trial.variants)
