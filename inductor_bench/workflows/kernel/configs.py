"""Times all configurations that Inductor would choose from for a kernel, without choosing a winner."""

from __future__ import annotations

import statistics
import time
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ...autotune.candidates import describe_candidate
from ...autotune.race import RacePlan
from ...autotune.tuner import Tuner, TuningSteps
from ...autotune.variants.protocol import Questions
from ...autotune.variants.triton import triton_variants
from ...errors import InductorBenchError
from ...messages.kernels import Facts, ListTritonConfigs
from ...records.run import Failure
from ...records.tuning import MeasuredKernel, TriedCandidate, Tuning
from .session import KernelSession, failure_of
from .tuning import run_tuners

METHOD = "configs"
ROUNDS = 20


class _OneConfigError(InductorBenchError):
    """The kernel has one configuration only, whose times are measured already."""


class ConfigTimer(Tuner):
    """Times the configurations that Inductor lists in one race from which no candidate is dropped."""

    def _search(self, method: str) -> TuningSteps:
        """Times the listed configurations; yields and receives as :meth:`Tuner._search` does."""
        yield from self._open()
        default = self.candidates[0]
        self._add_candidates(self.variants.listed_by_max_autotune())
        yield from self._compile(self.candidates)
        began = time.monotonic()
        yield from self.timing.prepare(self.candidates[1:])
        entrants = [default, *(one for one in self.candidates[1:] if not one.status)]
        plan = RacePlan(first_rounds=1, finalists=len(entrants), final_rounds=ROUNDS, most_final_rounds=ROUNDS)
        _, result = yield from self._race(entrants, plan)
        for candidate in entrants:
            candidate.in_final = True
        rows = [describe_candidate(one, default, default) for one in self.candidates]
        rows = [replace(row, status="timed") if row.status == "finalist" else row for row in rows]
        default_s = statistics.median(result.runners[0].samples)
        return _make_tuning(self.state, tuple(rows), default_s, time.monotonic() - began)


def list_configs(kernels: Mapping[Path, MeasuredKernel], session: KernelSession) -> Iterator[MeasuredKernel | Failure]:
    """Times the configurations that Inductor chooses from, for each of these kernels.

    Args:
        kernels: the measurements of the kernels, by their files.
        session: the session that measured them.

    Yields:
        Each kernel with its configurations, its own first, or the failure of their timing.
    """
    session.start_budget()
    measured: dict[Hashable, MeasuredKernel] = dict(kernels.items())
    options = session.options
    timers: dict[Hashable, Tuner] = {
        file: ConfigTimer(
            str(file.resolve()),
            _find_listed_variants,
            session.numbers,
            options.state,
            options.timeout_s,
        )
        for file in kernels
    }
    for name, outcome in run_tuners(timers, METHOD, session):
        kernel = measured[name]
        if isinstance(outcome, _OneConfigError):
            yield replace(kernel, tuning=_make_single_tuning(kernel, session.options.state))
        elif isinstance(outcome, Tuning):
            default, *others = outcome.candidates
            rows = (_with_compiled(default, kernel), *others)
            yield replace(kernel, tuning=replace(outcome, candidates=rows))
        else:
            yield failure_of(Path(kernel.file), outcome)


def _find_listed_variants(facts: Facts) -> Questions:
    if facts.language == "triton":
        found = yield ListTritonConfigs
        variants = triton_variants(found if found.tuned else replace(found, max=()))
        if variants.listed_by_max_autotune():
            return variants
    raise _OneConfigError("it has one configuration")


def _make_single_tuning(kernel: MeasuredKernel, state: str) -> Tuning:
    """The tuning of a kernel with one configuration, from the times of its measurement."""
    timing = kernel.warm if state == "warm" and kernel.warm is not None else kernel.cold
    row = TriedCandidate(
        kernel.config,
        "default",
        median_s=timing.median_s,
        samples=timing.samples,
        samples_s=timing.samples_s,
    )
    return _make_tuning(state, (_with_compiled(row, kernel),), timing.median_s)


def _with_compiled(row: TriedCandidate, kernel: MeasuredKernel) -> TriedCandidate:
    """The row of the kernel's own configuration, with the registers, spills and shared memory of its measurement."""
    return replace(
        row,
        registers=kernel.resources.registers,
        spills=kernel.resources.spills,
        shared_memory_bytes=kernel.resources.shared_memory_bytes,
    )


def _make_tuning(state: str, rows: tuple[TriedCandidate, ...], default_s: float, time_s: float = 0.0) -> Tuning:
    return Tuning(
        method=METHOD,
        state=state,
        candidates=rows,
        tried=sum(row.status == "timed" for row in rows),
        default_s=default_s,
        best_s=default_s,
        speedup=1.0,
        verdict="",
        best_config=rows[0].config,
        time_s=time_s,
    )
