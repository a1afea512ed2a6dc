"""Interval arithmetic, and storing traces under a size limit."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from inductor_bench.errors import InductorBenchError
from inductor_bench.records.traced import DeviceEvent, Gaps
from inductor_bench.trace.iterations import split_iterations
from inductor_bench.trace.program_trace import compute_busy_time, compute_union_length, gaps, merge_intervals
from inductor_bench.trace.rows import read_trace
from inductor_bench.trace.stored_traces import store_trace

DATA = Path(__file__).parent.parent / "data"
MIXNET = DATA / "h200_torch2.11/mixnet_l_train/forward.trace.json.gz"
CPU = DATA / "cpu_torch2.13/compiled_module_profile.json.gz"


def event(start: float, duration: float, device: int = 0, stream: int = 7) -> DeviceEvent:
    return DeviceEvent("k", "kernel", start, duration, device, stream, 0, -1)


def test_union_counts_every_moment_once() -> None:
    source = random.Random(2)
    for _ in range(300):
        intervals = [(start, start + source.randint(0, 12)) for start in source.choices(range(60), k=10)]
        covered = {moment for start, end in intervals for moment in range(start, end)}
        assert compute_union_length(intervals) == len(covered)
        disjoint = merge_intervals(intervals)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(disjoint))


def test_busy_time_of_overlapping_streams_and_several_devices() -> None:
    events = [event(0, 4), event(2, 4, stream=9), event(10, 1), event(0, 3, device=1)]
    assert compute_busy_time(events) == {0: 7, 1: 3}
    assert compute_busy_time([]) == {}


def test_gaps() -> None:
    events = [event(0, 2), event(1, 3, stream=9), event(6, 1), event(7, 1), event(14, 1), event(100, 1, device=1)]
    assert gaps(events) == Gaps(count=2, median_s=4, longest_s=6)
    assert gaps([]) == Gaps(0, 0.0, 0.0)


def test_activities_that_touch_leave_no_gap_of_rounding() -> None:
    assert gaps([event(0.1, 0.2), event(0.3, 0.1)]).count == 0


def test_recorded_step_is_busy_as_measured() -> None:
    trace = read_trace(MIXNET)
    for run in split_iterations(trace):
        events = [trace.device_events[index] for index in run.device_events]
        busy = compute_busy_time(events)[0]
        assert busy == pytest.approx(sum(found.duration_s for found in events), rel=1e-9)  # one stream, no overlap
        assert busy == pytest.approx(14.6e-3, rel=0.02)
        span = max(found.start_s + found.duration_s for found in events) - events[0].start_s
        idle = gaps(events)
        assert idle.longest_s <= span - busy <= idle.count * idle.longest_s


def load(path: Path) -> dict[str, Any]:
    with gzip.open(path) as file:
        return json.load(file)


def unmatched_flows(document: dict[str, Any]) -> set[int]:
    starts, ends = ({found["id"] for found in document["traceEvents"] if found["ph"] == phase} for phase in ("s", "f"))
    return starts ^ ends


def test_a_trace_that_fits_is_kept_as_it_is(tmp_path: Path) -> None:
    target = tmp_path / "forward.trace.json.gz"
    assert not store_trace(MIXNET, target)
    assert gzip.decompress(target.read_bytes()) == gzip.decompress(MIXNET.read_bytes())
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize(("limit", "kept"), [(300_000, 2), (150_000, 1)])
def test_whole_iterations_are_dropped_from_the_end(limit: int, kept: int, tmp_path: Path) -> None:
    target = tmp_path / "t.json.gz"
    assert not store_trace(MIXNET, target, limit)
    assert target.stat().st_size <= limit
    document, whole = load(target), load(MIXNET)
    assert unmatched_flows(document) == set()
    assert document["deviceProperties"] == whole["deviceProperties"]
    metadata = [found for found in whole["traceEvents"] if found["ph"] == "M"]
    assert [found for found in document["traceEvents"] if found["ph"] == "M"] == metadata
    trace, original = read_trace(target), read_trace(MIXNET)
    assert not trace.truncated
    runs = split_iterations(trace)
    assert len(runs) == kept
    for run, before in zip(runs, split_iterations(original), strict=False):
        mine = [trace.device_events[index] for index in run.device_events]
        theirs = [original.device_events[index] for index in before.device_events]
        assert Counter(found.name for found in mine) == Counter(found.name for found in theirs)
        assert sum(found.duration_s for found in mine) == pytest.approx(sum(found.duration_s for found in theirs))


@pytest.mark.parametrize(("limit", "whole"), [(100_000, True), (30_000, True), (5_000, False), (2_000, False)])
def test_less_than_an_iteration_still_fits_and_opens(limit: int, whole: bool, tmp_path: Path) -> None:
    target = tmp_path / "t.json.gz"
    assert not store_trace(MIXNET, target, limit)
    assert target.stat().st_size <= limit
    assert unmatched_flows(load(target)) == set()
    trace = read_trace(target)
    assert not trace.truncated
    assert (len(trace.device_events) == 795) is whole


def test_no_room_for_the_header_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InductorBenchError, match="header"):
        store_trace(MIXNET, tmp_path / "t.json.gz", 200)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", [0.3, 0.9, 0.99999])
def test_a_cut_trace_is_stored_so_that_it_opens(share: float, tmp_path: Path) -> None:
    text = gzip.decompress(CPU.read_bytes())
    source, target = tmp_path / "cut.json", tmp_path / "t.json.gz"
    source.write_bytes(text[: int(len(text) * share)])
    assert store_trace(source, target), "cut short"
    assert len(load(target)["traceEvents"]) > 20
    whole, part = read_trace(target), read_trace(source)
    assert (whole.host_ops, whole.truncated, part.truncated) == (part.host_ops, False, True)


@pytest.mark.parametrize("said", ["failed with code 35", "no {device} of [0, 1]}]"])
def test_a_trace_with_errors_of_the_profiler_keeps_all_iterations(said: str, tmp_path: Path) -> None:
    source, target = tmp_path / "trace.json", tmp_path / "stored.json.gz"
    source.write_text(json.dumps({**json.loads(gzip.decompress(CPU.read_bytes())), "ERROR": [f"ERROR: {said}"]}))
    assert not store_trace(source, target, iterations=10)
    assert gzip.decompress(target.read_bytes()) == source.read_bytes()


def test_a_small_trace_with_an_end_that_is_no_json_keeps_all_iterations(tmp_path: Path) -> None:
    source, target = tmp_path / "trace.json", tmp_path / "stored.json.gz"
    text = gzip.decompress(CPU.read_bytes()).rstrip()
    source.write_bytes(text[:-1] + b', "ERROR": ["a "quote""]}')
    store_trace(source, target, iterations=10)
    json.loads(gzip.decompress(target.read_bytes()))
    assert len(read_trace(target).host_ops) == len(read_trace(CPU).host_ops)


def test_the_same_trace_is_stored_as_the_same_bytes(tmp_path: Path) -> None:
    one, other = tmp_path / "one.gz", tmp_path / "other.gz"
    store_trace(CPU, one, 2_000)
    store_trace(CPU, other, 2_000)
    assert one.read_bytes() == other.read_bytes()
    assert split_iterations(read_trace(one))


def test_what_cannot_be_stored_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InductorBenchError, match="No such file"):
        store_trace(tmp_path / "absent.json", tmp_path / "t.json.gz")
    with pytest.raises(InductorBenchError, match="cannot store"):
        store_trace(CPU, tmp_path / "absent/t.json.gz")
    broken = tmp_path / "broken.json"
    broken.write_text("{}")
    with pytest.raises(InductorBenchError, match="no traceEvents"):
        store_trace(broken, tmp_path / "t.json.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.json"]
