"""Which variants are compiled ahead, in how many processes at once, before a process times them.

Compilation is what a search costs, and torch compiles the variants of one process one after the other. Processes that
only compile share a cache with the one that is timed, which finds its variants there. Nothing is timed meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from ... import units
from ...records.code import total_s
from ...records.optimization import PLACEBO, WARMING, Trial
from ...records.run import GRAPH, Run
from ..step_costs import runs_on_host
from .costs import CACHED, START_S, ProcessCosts
from .step_facts import StepFacts
from .trial_plans import TrialCandidate, TrialPlan

CORES, LEAST_CORES, MOST_PROCESSES = 4, 8, 8
"""Cores for each process that compiles ahead, cores without which none does, and the most of them on one device."""

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
    """What a search has compiled, and what it compiles ahead.

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
        """That of a program; see :func:`plan_processes_ahead`."""
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
        self.obstacle = f"{units.duration(time_s)} were left, too few for further processes"
        return None

    @property
    def _knows_placebo(self) -> bool:
        return PLACEBO in self._asked

    def plans(self, groups: Sequence[Sequence[TrialCandidate]], number: int, time_s: float) -> tuple[TrialPlan, ...]:
        """The next processes that compile what no earlier process has compiled; none if that does not pay.

        Before all others, one process compiles the original and the placebo: what torch decides by timing kernels is
        decided on a quiet device, and the others take it from the cache. A process that is timed does so, too.

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
        """Whether as many processes at once save more time than it takes to start them, if that can be told."""
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
        """Notes what processes have compiled, and what that took."""
        self.costs.note_times(trials)
        timed = (trial for trial in trials if trial.purpose != WARMING and not trial.cold and trial.alternates)
        self._asked.update(one.slug for trial in timed for one in trial.variants)
