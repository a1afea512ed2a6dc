"""Statistics of any samples: intervals hold their middle, and verdicts have two sides."""

from __future__ import annotations

import math
import statistics

from hypothesis import assume, given
from hypothesis import strategies as st

from inductor_bench.analysis import mode_conclusion
from inductor_bench.analysis import statistics as own

times = st.floats(1e-9, 1e4)
samples = st.lists(times, min_size=1, max_size=60)
OPPOSITE = {"faster": "slower", "slower": "faster", "same": "same", "undecided": "undecided"}


@given(samples, st.floats(0.5, 0.9999))
def test_the_interval_of_a_median_holds_it_and_widens_with_the_confidence(
    found: list[float], confidence: float
) -> None:
    low, high = own.compute_median_interval(found, confidence)
    assert low <= statistics.median(found) <= high
    assert low in found and high in found
    wider = own.compute_median_interval(found, (1 + confidence) / 2)
    assert wider[0] <= low and high <= wider[1]


@given(samples)
def test_a_summary_is_in_the_order_of_its_figures(found: list[float]) -> None:
    timing = own.summarize(found)
    assert timing.min_s <= timing.low_s <= timing.median_s <= timing.high_s <= max(found)
    assert timing.mad_s >= 0 and timing.samples == len(found)


@given(st.lists(st.tuples(times, times), min_size=1, max_size=40))
def test_one_side_is_faster_only_if_the_other_is_slower(pairs: list[tuple[float, float]]) -> None:
    a, b = [one for one, _ in pairs], [other for _, other in pairs]
    forth, back = own.find_verdict(own.compute_paired_ratio(a, b)), own.find_verdict(own.compute_paired_ratio(b, a))
    assert {forth, back} != {"faster"} and {forth, back} != {"slower"}
    assert forth in OPPOSITE and back in OPPOSITE


@given(samples)
def test_samples_compared_with_themselves_are_neither_faster_nor_slower(found: list[float]) -> None:
    assert own.find_verdict(own.compute_paired_ratio(found, found)) in ("same", "undecided")


@given(st.lists(times, max_size=60))
def test_drift_is_finite_and_sure_only_beyond_the_limit(found: list[float]) -> None:
    drift = own.find_drift(found)
    assert math.isfinite(drift.change) and (not drift.sure or abs(drift.change) >= own.DRIFT)


@given(st.lists(times, max_size=20), st.sampled_from([mode_conclusion.SHOWN, mode_conclusion.DECIDING]))
def test_the_interval_of_processes_holds_their_mean(found: list[float], confidence: float) -> None:
    interval = mode_conclusion.compute_geometric_interval(found, confidence)
    assert (interval is None) == (len(found) < 2)
    if interval is not None:
        assert interval.low <= interval.mean <= interval.high
        assert interval.low > 0 or (interval.low == 0.0 and interval.mean / interval.high < 1e-100)
        assert mode_conclusion.decide_step_verdict(interval) in OPPOSITE


@given(st.lists(times, min_size=2, max_size=9), st.floats(1.0, 1e6))
def test_a_wider_noise_never_narrows_the_interval(found: list[float], factor: float) -> None:
    narrow = mode_conclusion.compute_geometric_interval(found, mode_conclusion.DECIDING, 0.01)
    wide = mode_conclusion.compute_geometric_interval(found, mode_conclusion.DECIDING, min(0.01 * factor, 5.0))
    assume(narrow is not None and wide is not None)
    assert narrow is not None and wide is not None
    assert wide.low <= narrow.low * (1 + 1e-9) and narrow.high <= wide.high * (1 + 1e-9)
