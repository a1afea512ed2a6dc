"""The loops within a step, by the calls of its graphs and their work on the device."""

from __future__ import annotations

import pytest

from inductor_bench.analysis.ledger import GraphName, Steps
from inductor_bench.analysis.program_step import RepeatedCalls, find_stretches, split_into_repetitions
from inductor_bench.records.run import GRAPH
from inductor_bench.records.traced import GraphCall, StepWindow, Work


@pytest.mark.parametrize(
    ("calls", "folds"),
    [
        ("P" + "D" * 24, [RepeatedCalls((ord("P"),), 0, 1), RepeatedCalls((ord("D"),), 1, 24)]),
        ("FBFBFB", [RepeatedCalls((ord("F"), ord("B")), 0, 3)]),
        ("FBFB", [RepeatedCalls((ord("F"), ord("B")), 0, 2)]),
        ("FFFBBB", [RepeatedCalls((ord("F"),), 0, 3), RepeatedCalls((ord("B"),), 3, 3)]),
        ("ABC", [RepeatedCalls(tuple(map(ord, "ABC")), 0, 1)]),
        ("FFFBFFFBFFFB", [RepeatedCalls(tuple(map(ord, "FFFB")), 0, 3)]),
        ("FFBB", [RepeatedCalls(tuple(map(ord, "FFBB")), 0, 1)]),
        ("", []),
    ],
)
def test_calls_fold_into_repetitions(calls: str, folds: list[RepeatedCalls]) -> None:
    assert split_into_repetitions([ord(call) for call in calls]) == folds


class Timeline:
    def between(self, start_s: float, end_s: float) -> object:
        raise AssertionError("the stretches need the device's work only")


def steps_of(*orders: str, step_time_s: float = 10.0) -> Steps:
    """Steps of 20 s in which each call's work takes 1 s, a second after the last one; without a profiler 10 s."""
    calls: list[GraphCall] = []
    works: list[Work] = []
    for step, order in enumerate(orders):
        for place, graph in enumerate(order):
            start_s = 20.0 * step + 2 * place
            calls.append(GraphCall(int(graph), len(calls), start_s, start_s + 0.5, "main"))
            works.append(Work(GRAPH, "", start_s, start_s + 1, start_s, start_s, call=len(calls) - 1, graph=int(graph)))
    bounds = tuple(20.0 * step for step in range(len(orders) + 1))
    names = {0: GraphName("prefill", "a"), 1: GraphName("decode", "b")}
    return Steps(step_time_s, StepWindow("main", bounds, bounds), works, calls, Timeline(), names)  # type: ignore[arg-type]


def test_a_request_is_a_call_and_a_loop_of_others() -> None:
    prefill, decode = find_stretches(steps_of("01111", "0111111"))
    assert (prefill.labels, prefill.repetitions, prefill.time_s) == (("prefill",), 1, 0.5)
    assert (decode.labels, decode.graphs, decode.repetitions) == (("decode",), ("b",), 5)
    assert decode.time_s == pytest.approx((7 + 11) / 10 / 2), "from the first work to the last, as long as unprofiled"
    assert decode.busy_time_s == pytest.approx(min(1.0, decode.time_s))


def test_steps_without_repetitions_or_with_different_ones_have_no_loop() -> None:
    assert not list(find_stretches(steps_of("01", "01")))
    assert not list(find_stretches(steps_of("0111", "1110")))
