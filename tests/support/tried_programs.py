"""A program whose step times are drawn, so that a search for settings can be run without a program."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from inductor_bench.analysis.optimization.judging import compute_original_step_s
from inductor_bench.analysis.optimization.search import OptimizationSearch
from inductor_bench.analysis.optimization.trial_plans import TrialPlan
from inductor_bench.records.base import Failure
from inductor_bench.records.batch_record import Batch, BatchModel, BatchResults, ModelResult
from inductor_bench.records.optimization import (
    INDUCTOR,
    NOTHING,
    ORIGINAL,
    PLACEBO,
    SUGGESTED,
    MenuRow,
    Optimization,
    ProgramSetting,
    StepDigest,
    Trial,
    TrialVariant,
    VariantCheck,
)
from inductor_bench.records.request import BreakdownRequest, ModelRequest
from inductor_bench.records.run import Environment, Versions
from inductor_bench.worker.capture.variants.trial import schedule_of


def menu_row(slug: str, *, alternates: bool = True, numbers: str = NOTHING, setting: str = "") -> MenuRow:
    """A row that sets one option."""
    settings = (ProgramSetting(INDUCTOR, setting or slug, "True"),)
    return MenuRow(slug, slug, settings, "kernels", numbers, alternates, "kernels", bound=0.5)


@dataclass
class DrawnProgram:
    """Answers the plans of a search.

    ``savings`` has the true share that each row saves, ``pairs`` what two rows save together beyond that. ``scatter``
    is the standard deviation of steps, ``between`` that of a callable from process to process, ``levels`` that of whole
    processes; ``slow_host`` is the share of processes in which all but the rows of ``savings`` take 20% longer;
    ``drift`` is the growth of the step over a process, ``outliers`` the share of steps that take longer.
    A variant has ``held`` steps in each of its turns, which are disturbed together by ``shared``. Each further device
    is slower by the logarithm ``slower``. A variant compiles for ``compile_s``, and for the share ``cached`` of that if
    it was compiled ahead; ``dies_ahead`` end the processes that compile them ahead. A process takes ``seconds``. With
    ``start_s`` it takes these, its compilations, ``check_s`` for each variant and its steps; all share a cache then.
    Steps are of ``kinds`` in any order, each that many times as long; variants save only in the first kind. With
    ``is_cyclic`` the kinds come in this order, variants take turns as in the real schedule, and save in all kinds.
    Variants of ``own_kinds`` have kinds of their own.
    """

    seed: int = 0
    savings: Mapping[str, float] = field(default_factory=dict)
    pairs: Mapping[tuple[str, str], float] = field(default_factory=dict)
    step_s: float = 0.02
    scatter: float = 0.01
    between: float = 0.001
    levels: float = 0.02
    slow_host: float = 0.0
    drift: float = 0.0
    outliers: float = 0.02
    held: int = 1
    shared: float = 0.0
    failures: Mapping[str, str] = field(default_factory=dict)
    dies: Sequence[str] = ()
    wrong: Sequence[str] = ()
    is_compared: bool = True
    kills: Mapping[str, str] = field(default_factory=dict)
    loss_differs: Sequence[str] = ()
    memory: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 60.0
    most: int = 60
    slower: float = 0.1
    compile_s: float = 10.0
    cached: float = 1.0
    dies_ahead: Sequence[str] = ()
    start_s: float = 0.0
    check_s: float = 0.0
    kinds: Sequence[float] = ()
    is_cyclic: bool = False
    own_kinds: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.asked: list[TrialPlan] = []
        self.rounds = 0
        self.compiled: set[str] = set()

    def run(self, plan: TrialPlan) -> Trial:
        """What the process measures."""
        self.asked.append(plan)
        if plan.only_compiles:
            return self._compile(plan)
        names = [ORIGINAL, *plan.slugs] if plan.alternates else list(plan.slugs)
        killed = [name for name in names if self.kills.get(name) == plan.purpose]
        dead = killed[0] if killed else next((name for name in names if set(name.split("+")) & set(self.dies)), None)
        if dead is not None:
            found = (TrialVariant(dead, failure="the process died"),) if dead in plan.slugs else ()
            failure = Failure("optimize", "exit", "the program died")
            trial = Trial(plan.name, plan.purpose, plan.alternates, plan.slugs, found, failure=failure, time_s=5.0)
            return replace(trial, gpu=str(plan.lane))
        count = min(self.most, max(plan.least, int(plan.timed_s / self.step_s)))
        level = math.exp(self.random.gauss(0.0, self.levels) + plan.lane * self.slower) * self.step_s
        offsets = {name: self._log(name) + self.random.gauss(0.0, self.between) for name in names}
        if self.slow_host and self.random.random() < self.slow_host:
            offsets = {name: log + 0.18 * (not self.savings.get(name)) for name, log in offsets.items()}
        times: dict[str, list[float]] = {name: [] for name in names}
        places: dict[str, list[int]] = {name: [] for name in names}
        kinds: dict[str, list[int]] = {name: [] for name in names}
        together = 0.0
        for place, name in enumerate(self._schedule(names, count) if self.is_cyclic else self._order(names, count)):
            if not name:
                continue
            share = place / (count * len(names))
            if place % self.held == 0:
                together = self.random.gauss(0.0, self.shared)
            long = 1.5 if self.random.random() < self.outliers else 1.0
            kind = 0 if not self.kinds else place % len(self.kinds) if self.is_cyclic else self._draw_kind()
            offset = offsets[name] if kind == 0 or self.is_cyclic else 0.0
            noise = self.random.gauss(offset + self.drift * share, self.scatter) + together
            times[name].append(level * math.exp(noise) * long * (self.kinds[kind] if self.kinds else 1.0))
            kinds[name].append(kind + 1000 * (name in self.own_kinds))
            places[name].append(place + place // self.held)
        shared, self.compiled = self.compiled, set() if plan.cold else self.compiled
        variants = tuple(self._variant(name, times[name], places[name], kinds[name]) for name in names)
        digests = self._digests(plan) if plan.losses and self.is_compared else ()
        took_s = self.seconds
        if self.start_s:
            self.compiled.update(names)
            took_s = self.start_s + sum(one.compile_time_s for one in variants)
            took_s += plan.alternates * self.check_s * len(names) + sum(map(sum, times.values()))
            took_s += len(digests) * self.step_s
        self.compiled = shared
        return Trial(
            plan.name,
            plan.purpose,
            plan.alternates,
            plan.slugs,
            variants,
            digests,
            took_s,
            "cuda",
            "optimizer",
            cold=plan.cold,
            gpu=str(plan.lane),
        )

    def _compile(self, plan: TrialPlan) -> Trial:
        """A process that only compiles: one variant after the other, until one of them ends it."""
        trial = Trial(plan.name, plan.purpose, True, plan.slugs, time_s=self.seconds, gpu=str(plan.lane))
        if set(plan.slugs) & set(self.dies_ahead):
            return replace(trial, failure=Failure("optimize", "exit", "the program died"))
        names = (ORIGINAL, *plan.slugs)
        known = self.compiled if self.start_s else ()
        took_s = {name: self.compile_s * (self.cached if name in known else 1.0) for name in names}
        self.compiled.update(names if self.start_s else plan.slugs)
        variants = tuple(TrialVariant(name, compile_time_s=took_s[name]) for name in names)
        time_s = self.start_s + sum(took_s.values()) if self.start_s else self.seconds
        return replace(trial, variants=variants, time_s=time_s)

    def _log(self, name: str) -> float:
        rows = [] if name in (ORIGINAL, PLACEBO) else name.split("+")
        together = [share for pair, share in self.pairs.items() if set(pair) <= set(rows)]
        return sum(math.log(1 - share) for share in [*(self.savings.get(row, 0.0) for row in rows), *together])

    def _order(self, names: Sequence[str], count: int) -> list[str]:
        order: list[str] = []
        for _ in range(math.ceil(count / self.held)):
            turn = list(names)
            self.random.shuffle(turn)
            order += [name for name in turn for _ in range(self.held)]
        return order

    def _draw_kind(self) -> int:
        return self.random.randrange(len(self.kinds))

    def _schedule(self, names: Sequence[str], count: int) -> list[str]:
        """The variant of each step of the real schedule; an empty text for steps that are not timed."""
        schedule = schedule_of(range(1, len(names)), count, runs_on_host=True)
        return [names[step.variant] if step.is_timed else "" for step in schedule]

    def _variant(self, name: str, times: Sequence[float], places: Sequence[int], kinds: Sequence[int]) -> TrialVariant:
        rows = name.split("+")
        failure = next((self.failures[row] for row in rows if row in self.failures), "")
        checks = (
            VariantCheck("0/0", 2, 3, 50.0 if set(rows) & set(self.wrong) else 0.5, 0.1, is_compared=self.is_compared),
        )
        memory = next((self.memory[row] for row in rows if row in self.memory), 10**9)
        if failure:
            return TrialVariant(name, failure=failure)
        compile_s = self.compile_s * (self.cached if name in self.compiled else 1.0)
        kinds = kinds if self.kinds else kinds[:1]
        return TrialVariant(name, tuple(times), tuple(places), tuple(kinds), compile_s, memory, checks=checks)

    def _digests(self, plan: TrialPlan) -> tuple[StepDigest, ...]:
        rows = {row for slug in plan.slugs for row in slug.split("+")}
        factor = 1.5 if rows & set(self.loss_differs) else 1.0
        return tuple(StepDigest(step, factor, (1.0, 2.0), factor / (1 + step)) for step in range(plan.losses))


def searched(
    program: DrawnProgram, rows: Sequence[MenuRow], budget_s: float = 3600.0, **fields: Any
) -> OptimizationSearch:
    """A search that has come to its end."""
    search = OptimizationSearch(rows, program.step_s, budget_s, **fields)
    plans = search.plans()
    try:
        asked = next(plans)
        while True:
            program.rounds += 1
            asked = plans.send([program.run(plan) for plan in asked])
    except StopIteration:
        return search


def optimization(search: OptimizationSearch, **fields: object) -> Optimization:
    """The record of a search."""
    found = Optimization(
        format=1,
        tool_version="0.1.0",
        created="2026-11-26T12:00:00+00:00",
        command="inductor-bench optimize train.py",
        target="train.py",
        title="train.py",
        request=BreakdownRequest("train.py", "script"),
        environment=Environment(Versions("3.12", "2.11.0")),
        step_time_s=0.02,
        measured_step_s=compute_original_step_s(search.trials),
        budget_s=1200.0,
        rows=search.rows,
        trials=tuple(search.trials),
        winner=search.winner,
        spent_s=search.spent_s,
        is_complete=True,
    )
    return replace(found, **fields)  # type: ignore[arg-type]


ROWS = [
    *(menu_row(name) for name in ("cudagraphs", "fused-optimizer", "combo-kernels", "crash", "wrong")),
    replace(menu_row("tf32"), reason="it changes the precision of numbers; give --allow tf32 to try it"),
    replace(menu_row("guards"), state=SUGGESTED, reason="only you can promise it", settings=(), bound=0.02),
]


def searched_batch() -> BatchResults:
    """A batch of ten models: of seven most settings help, of one none, of one the search failed, of one it goes on."""
    batch = Batch(1, "0.1.0", "2026-11-26T12:00:00+00:00", "inductor-bench batch suite.txt --optimize", "suite.txt")
    models = []
    for number in range(8):
        savings = {"cudagraphs": 0.02 * number, "fused-optimizer": 0.1} if number else {}
        crashes = {"crash": "no such kernel"} if number % 2 else {}
        program = DrawnProgram(number, savings, failures=crashes, wrong=("wrong",) if number < 2 else (), most=30)
        row = BatchModel(ModelRequest(f"timm:model_{number}", name=f"model_{number}"), "done", run=f"models/{number}")
        models.append(ModelResult(row, search=optimization(searched(program, ROWS))))
    failure = Failure("optimize", "exit", "models/lost has no step of the program", "mark the ends of its steps")
    lost = BatchModel(ModelRequest("timm:lost", name="lost"), "partial", failure=failure)
    going = BatchModel(ModelRequest("timm:going", name="going"), "unoptimized", run="models/going")
    begun = replace(optimization(searched(DrawnProgram(0), ROWS[:1])), is_complete=False, winner=None)
    models += [ModelResult(lost), ModelResult(going, search=begun)]
    return BatchResults(replace(batch, models=tuple(one.model for one in models)), tuple(models))


def two_winners() -> OptimizationSearch:
    program = DrawnProgram(
        0, {"cudagraphs": 0.1, "fused-optimizer": 0.05}, failures={"crash": "no such kernel"}, wrong=("wrong",)
    )
    return searched(program, ROWS)
