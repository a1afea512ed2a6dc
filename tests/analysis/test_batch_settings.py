"""Which settings help how many models of a batch, and by how much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from tried_programs import DrawnProgram, menu_row, optimization, searched

from inductor_bench.analysis.optimization.search_results import (
    FEWEST_MODELS,
    SettingSummary,
    compute_mean_saving,
    summarize_settings,
)
from inductor_bench.records.optimization import (
    DIFFERS,
    FASTER,
    KEPT,
    LOST,
    REDUNDANT,
    SAME,
    UNPROVEN,
    UNTRIED,
    MeasuredGain,
    MenuRow,
    Optimization,
    OptimizedProgram,
)

SEARCH = optimization(searched(DrawnProgram(0), []))


def gain(share: float, verdict: str = FASTER) -> MeasuredGain:
    return MeasuredGain(share, share - 0.01, share + 0.01, 0.02, 0.02 * (1 - share), 2, 50, 0.001, verdict)


def row(slug: str, state: str, share: float | None = None, *, proven: bool = True, reason: str = "") -> MenuRow:
    measured = gain(share, FASTER if state in (KEPT, REDUNDANT) else SAME) if share is not None else None
    made = replace(menu_row(slug), state=state, reason=reason)
    return replace(made, proven=measured) if proven else replace(made, screened=measured)


def searches(**models: list[MenuRow]) -> list[tuple[str, Optimization]]:
    return [(name, replace(SEARCH, rows=tuple(rows))) for name, rows in models.items()]


def summaries(**models: list[MenuRow]) -> Mapping[str, SettingSummary]:
    return {one.slug: one for one in summarize_settings(searches(**models))}


def test_a_setting_helps_where_it_is_proven_alone() -> None:
    found = summaries(
        a=[row("x", KEPT, 0.2)],
        b=[row("x", REDUNDANT, 0.1, reason="beside y it saves nothing more")],
        c=[row("x", LOST, 0.001, proven=False)],
        d=[row("x", UNPROVEN, 0.05)],
        e=[row("x", UNTRIED, reason="denied by --deny")],
        f=[replace(row("x", REDUNDANT), reason="it excludes y, which saves more")],
    )["x"]
    assert [name for name, _ in found.helps] == ["a", "b"] and found.kept == 1 and found.unproven == 1
    assert found.tried == ("a", "b", "c", "d", "f"), "what was not tried does not count"
    assert found.saved == (0.2, 0.1, 0.001, 0.05)
    assert found.median == pytest.approx(0.075)


def test_the_interval_of_the_median_needs_enough_models() -> None:
    shares = [0.01 * number for number in range(1, FEWEST_MODELS + 1)]
    models = {f"m{number}": [row("x", KEPT, share)] for number, share in enumerate(shares)}
    assert summaries(**models)["x"].interval == (shares[0], shares[-1])
    del models["m0"]
    assert summaries(**models)["x"].interval is None
    many = {f"m{number}": [row("x", KEPT, number / 1000)] for number in range(1, 42)}
    low, high = summaries(**many)["x"].interval or (0.0, 0.0)
    assert 0.001 < low < 0.021 < high < 0.041, "more models narrow it"


def test_the_interval_holds_the_median_of_all_models() -> None:
    """Of models drawn from a lognormal saving, whose median is 3%, the 95% interval misses it in few draws."""
    import random

    draw, missed = random.Random(3), 0
    for _ in range(300):
        shares = [0.03 * math.exp(draw.gauss(0.0, 1.0)) for _ in range(11)]
        models = {f"m{number}": [row("x", LOST, share, proven=False)] for number, share in enumerate(shares)}
        ends = summaries(**models)["x"].interval
        assert ends is not None
        missed += not ends[0] <= 0.03 <= ends[1]
    assert missed <= 0.05 * 300 + 3 * math.sqrt(0.05 * 0.95 * 300)


def test_failures_and_wrong_numbers_are_counted_by_their_reason() -> None:
    found = summaries(
        a=[row("x", "failed", reason="no such kernel")],
        b=[row("x", "failed", reason="no such kernel")],
        c=[row("x", "failed", reason="out of memory")],
        d=[row("x", DIFFERS, 0.3, reason="the difference is 5.2e+03 times what is tolerated")],
        e=[row("x", DIFFERS, 0.3, reason="the difference is 17 times what is tolerated")],
    )["x"]
    assert (found.failed, found.wrong, found.helps, found.median) == (3, 2, (), None), "a wrong saving is none"
    assert [(one.differs, one.reason, one.models) for one in found.failures] == [
        (False, "no such kernel", ("a", "b")),
        (False, "out of memory", ("c",)),
        (True, "the difference is 5.2e+03 times what is tolerated", ("d", "e")),
    ]


def test_what_helps_most_models_comes_first() -> None:
    found = summarize_settings(
        searches(
            a=[row("rare", KEPT, 0.5), row("often", KEPT, 0.1), row("never", LOST, 0.0), row("broken", "failed")],
            b=[row("rare", LOST, 0.0), row("often", KEPT, 0.1)],
        )
    )
    assert [one.slug for one in found] == ["often", "rare", "never", "broken"]


def test_the_mean_saving_counts_all_complete_searches() -> None:
    winner = OptimizedProgram(("x",), gain(0.19), (("x", 0.0162),))
    found = searches(a=[row("x", KEPT, 0.19)], b=[row("x", LOST, 0.0)], c=[])
    found = [(name, replace(one, winner=winner if name == "a" else None)) for name, one in found]
    found[2] = ("c", replace(found[2][1], is_complete=False))
    assert compute_mean_saving(found) == pytest.approx(0.1), "the square root of 0.81 times 1"
    assert compute_mean_saving(found[2:]) is None and compute_mean_saving([]) is None


def test_a_batch_whose_settings_were_all_refused() -> None:
    program = DrawnProgram(0, failures={"a": "refused by Inductor", "b": "refused by Inductor"})
    names = ("one", "two")
    found = summarize_settings(
        [(name, optimization(searched(program, [menu_row("a"), menu_row("b")]))) for name in names]
    )
    assert [(one.slug, len(one.tried), one.failed, one.saved) for one in found] == [("a", 2, 2, ()), ("b", 2, 2, ())]
    assert all(one.failures[0].models == names for one in found)
