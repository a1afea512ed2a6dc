"""When the ranks of a program did not change their variants together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tried_programs import DrawnProgram, menu_row

from inductor_bench.analysis.optimization.search import OptimizationSearch
from inductor_bench.analysis.optimization.trial_plans import TrialCandidate, TrialPlan
from inductor_bench.launch.process import ProcessResult
from inductor_bench.messages.variant_requests import TRIED, TriedVariants, VariantSample
from inductor_bench.records.base import Failure
from inductor_bench.records.optimization import FAILED, PLACEBO, RANKS, Trial
from inductor_bench.store import codec
from inductor_bench.workflows.optimizing.rank_agreement import describe_disagreement
from inductor_bench.workflows.optimizing.tried_program import read_trial

SAMPLES = tuple(VariantSample(place % 2, 0.01, place) for place in range(8))


def rank(number: int | None, **fields: object) -> TriedVariants:
    found = TriedVariants(
        100 + (number or 0), "cpu", "done", number, 2, 2, 9, ((0, 50), (40, 130)), "optimizer", SAMPLES
    )
    return replace(found, **fields)  # type: ignore[arg-type]


def test_ranks_that_are_equally_far_agree() -> None:
    assert describe_disagreement([rank(0), rank(1)]) == ""
    assert describe_disagreement([]) == "" and describe_disagreement([rank(None, ranks=1, world=1)]) == ""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (rank(1, begin=11), "began to change variants at different steps, 9 and 11"),
        (rank(1, source="pattern"), "end in different ways: optimizer and pattern"),
        (rank(1, collectives=((0, 52), (40, 132))), "ranks 0 and 1 were 2 collectives apart"),
    ],
)
def test_ranks_that_are_not_equally_far_are_seen(other: TriedVariants, said: str) -> None:
    assert said in describe_disagreement([rank(0), other])


@pytest.mark.parametrize(
    "collectives",
    [((0, 50), (40, 210)), ((0, 50),), ((3, 60), (40, 132)), ()],
    ids=["pipeline", "early", "late", "none"],
)
def test_numbers_of_collectives_that_cannot_be_compared_say_nothing(collectives: tuple[tuple[int, int], ...]) -> None:
    assert describe_disagreement([rank(0), rank(1, collectives=collectives)]) == ""


def test_ranks_that_are_missing_or_elsewhere_are_seen() -> None:
    assert describe_disagreement([rank(0)]).startswith("only 1 of 2 ranks ran steps")
    assert describe_disagreement([rank(0, world=8), rank(1, world=8)]).startswith("6 of 8 ranks run on other machines")
    alone = [replace(rank(None, ranks=1, world=1), pid=pid) for pid in (1, 2)]
    assert describe_disagreement(alone).startswith("2 processes exchange data and have no LOCAL_RANK")
    assert describe_disagreement([replace(one, collectives=()) for one in alone]) == "", (
        "they are programs of their own"
    )


def test_no_result_is_claimed_where_ranks_disagree(tmp_path: Path) -> None:
    plan = TrialPlan("01-screen", "screen", (TrialCandidate(PLACEBO),), True, 1.0, 24)
    for one in (rank(0), rank(1, begin=11)):
        (tmp_path / f"{one.pid}{TRIED}").write_text(json.dumps(codec.encode(one)))
    ended = ProcessResult(0, None, False, 3.0, tmp_path / "log")
    trial = read_trial(plan, tmp_path, ended, 3.0)
    assert not trial.variants and trial.failure is not None and trial.failure.kind == RANKS
    assert trial.failure.message.startswith("the ranks do not agree: ranks 0 and 1 began")
    stalled = read_trial(plan, tmp_path, ended, 3.0, "placebo compiles for more than 9 s")
    assert stalled.failure is None, "what was given up has not come to its end"


def test_a_search_of_ranks_that_disagree_ends_soon() -> None:
    program = DrawnProgram(0)
    rows = [menu_row(f"row-{number}") for number in range(8)]
    search = OptimizationSearch(rows, program.step_s, 3600.0)
    plans = search.plans()
    (plan,) = next(plans)
    failure = Failure("optimize", RANKS, "the ranks do not agree: x")
    with pytest.raises(StopIteration):
        plans.send([Trial(plan.name, plan.purpose, True, plan.slugs, failure=failure)])
    assert {(row.state, row.reason) for row in search.rows} == {(FAILED, failure.message)} and search.winner is None
