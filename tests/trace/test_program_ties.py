"""Ties of a program's device events to kernels and calls: launches and replays of a module recorded on an H200."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from inductor_bench.analysis.kernel_aggregation import KernelFacts, aggregate_kernels
from inductor_bench.analysis.ledger import make_kernel_key, sum_step_kernels
from inductor_bench.records.evidence import BOUNDARY, GRAPH_CALL
from inductor_bench.records.module import Kernel
from inductor_bench.records.traced import Work
from inductor_bench.trace.program_trace import find_window, has_lost_steps, read_program_trace
from inductor_bench.trace.program_works import KnownGraph, ProgramWorks, find_works
from inductor_bench.trace.stored_traces import EventNote, annotate_trace, make_event_key, store_program_trace
from tests.support import h200
from tests.support.program_traces import MARKERS

NAMES = ("gpu_kinds/0_forward", "gpu_kinds/0_backward", "mixnet_l_p10/forward")
STEP_US = 1e5


def program_of(name: str, folder: Path, *, replayed: bool = False, changed: bool = False) -> Path:
    """A program of three steps that call a module twice each; as recorded, or as replays of a CUDA graph.

    With ``changed``, the library's kernels have other names than in the module by itself.
    """
    events = json.loads(gzip.decompress((h200.FOLDER / f"{name}.trace.json.gz").read_bytes()))["traceEvents"]
    run = h200.iterations_of(name)[2]
    trace = h200.trace_of(name)
    first = min(float(one["ts"]) for one in events if one.get("ph") == "X" and one.get("cat") in KINDS)
    begin, end = run.start_s * 1e6 + first, run.end_s * 1e6 + first
    correlations = {trace.device_events[place].correlation for place in run.device_events}
    mine = [one for one in events if one.get("ph") == "X" and _belongs(one, begin, end, correlations)]
    found: list[dict[str, Any]] = []
    for step in range(4):
        found.append(_host(f"{BOUNDARY}{step}", step * STEP_US, 1, 10**6 + step))
        for call in range(2 if step < 3 else 0):
            number = 2 * step + call
            start = step * STEP_US + call * STEP_US / 2 + 10
            found.append(_host(f"{GRAPH_CALL}0", start, end - begin + 100, 10**7 + number))
            found += _replay(mine, start, begin, number) if replayed else _again(mine, start, begin, number)
    for one in found:
        if changed and one["cat"] == "kernel" and not one["name"].startswith("triton"):
            one["name"] += "_other"
    path = folder / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": found, "traceName": "t"}, indent=1))
    return path


KINDS = ("cpu_op", "kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver")
THREAD = {"pid": 433, "tid": 433}
DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def _host(name: str, ts: float, dur: float, external: int) -> dict[str, Any]:
    arguments = {"External id": external}
    return {"ph": "X", "cat": "cpu_op", "name": name, **THREAD, "ts": ts, "dur": dur, "args": arguments}


def _belongs(event: dict[str, Any], begin: float, end: float, correlations: set[int]) -> bool:
    if event.get("cat") in DEVICE:
        return event["args"]["correlation"] in correlations
    return event.get("cat") in KINDS and begin - 0.01 <= float(event["ts"]) <= end


def _again(events: list[dict[str, Any]], start: float, begin: float, number: int) -> list[dict[str, Any]]:
    found = []
    for one in events:
        arguments = dict(one["args"])
        for key in ("External id", "correlation"):
            if key in arguments:
                arguments[key] += number * 100_000
        thread = {} if one["cat"] in DEVICE else THREAD
        found.append({**one, **thread, "ts": round(float(one["ts"]) - begin + start + 1, 3), "args": arguments})
    return found


def _replay(events: list[dict[str, Any]], start: float, begin: float, number: int) -> list[dict[str, Any]]:
    launch = {"correlation": number + 1, "cbid": 311}
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", **THREAD, "ts": start + 2}
    found = [{**call, "dur": 3, "args": launch}]
    for one in events:
        if one["cat"] in DEVICE:
            arguments = {key: value for key, value in one["args"].items() if key != "External id"}
            arguments["correlation"] = number + 1
            found.append({**one, "ts": round(float(one["ts"]) - begin + start + 5, 3), "args": arguments})
    return found


def works_of(path: Path, name: str, *, alone: bool = True) -> ProgramWorks:
    launches = tuple(one for one in h200.activities_of(name) if one.iteration == 1) if alone else ()
    graphs = {0: KnownGraph(h200.source_of(name), launches)}
    found = find_works(read_program_trace(path, MARKERS), MARKERS, graphs, on_host=False)
    assert found is not None
    return found


def known(work: Work) -> tuple[Any, ...] | None:
    one = work.activity
    return None if one is None else (one.call, one.kernel, one.operator, one.kind)


def alone(name: str) -> list[tuple[Any, ...]]:
    """The call, kernel and operator of each device event of the module by itself."""
    activities = [one for one in h200.activities_of(name) if one.iteration == 2]
    return [(one.call, one.kernel, one.operator, one.kind) for one in activities]


@pytest.mark.parametrize("name", NAMES)
def test_launches_in_a_program_are_tied_as_in_the_module_by_itself(name: str, tmp_path: Path) -> None:
    found = works_of(program_of(name, tmp_path), name)
    assert [known(work) for work in found.works] == alone(name) * 6
    assert {(work.kind, work.graph, work.replayed) for work in found.works} == {("graph", 0, False)}
    assert found.window.step_count == 2 and len(found.calls) == 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("changed", [False, True])
def test_replays_are_tied_by_their_order(name: str, changed: bool, tmp_path: Path) -> None:
    found = works_of(program_of(name, tmp_path, replayed=True, changed=changed), name)
    assert [known(work) for work in found.works] == alone(name) * 6
    assert all(work.replayed for work in found.works)
    assert [work.call for work in found.works] == sorted(work.call for work in found.works)


@pytest.mark.parametrize("name", NAMES)
def test_replays_of_a_module_that_never_ran_by_itself_are_tied_by_its_text(name: str, tmp_path: Path) -> None:
    found = works_of(program_of(name, tmp_path, replayed=True), name, alone=False)
    wanted = alone(name) * 6
    generated = [(work.activity, want) for work, want in zip(found.works, wanted, strict=True) if want[1] is not None]
    assert all(one is not None and one.kernel == want[1] for one, want in generated)


def rows_of(name: str) -> tuple[Kernel, ...]:
    return aggregate_kernels(h200.activities_of(name), 10, range(10), KernelFacts())


@pytest.mark.parametrize("replayed", [False, True])
def test_kernels_of_a_step_have_the_rows_of_the_module(replayed: bool, tmp_path: Path) -> None:
    name = "gpu_kinds/0_forward"
    found = works_of(program_of(name, tmp_path, replayed=replayed), name)
    uses = sum_step_kernels({"forward": found.activities[0]}, found.window.step_count)
    rows = {("forward", make_kernel_key(kernel)): kernel for kernel in rows_of(name)}
    assert uses.keys() == rows.keys()
    for key, use in uses.items():
        assert use.calls == pytest.approx(2 * rows[key].calls)
        assert use.time_s == pytest.approx(2 * rows[key].samples_s[2])


def test_the_stored_trace_names_graph_kernel_and_line(tmp_path: Path) -> None:
    name = "gpu_kinds/0_forward"
    path = program_of(name, tmp_path)
    program = read_program_trace(path, MARKERS)
    found = works_of(path, name)
    target = tmp_path / "step.trace.json.gz"
    store_program_trace(path, target, MARKERS)
    for line, layer in (("of an earlier analysis: 5", "Old"), ("a.py:3 in f", "Net.layers.0")):
        annotate_trace(
            target,
            {
                make_event_key(program, work.event): EventNote(
                    "graph forward", f'kernel "{work.event}"', "", line, layer
                )
                for work in found.works
            },
        )
    stored = json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]
    assert len(stored) == len(json.loads(path.read_text())["traceEvents"])
    work = sorted((one for one in stored if one["cat"] in DEVICE), key=lambda one: one["ts"])
    assert [one["args"]["module kernel"] for one in work] == [f'kernel "{index}"' for index in range(len(work))]
    assert all(one["args"]["part"] == "graph forward" for one in work)
    assert all(one["args"]["source line"] == "a.py:3 in f" and "operator" not in one["args"] for one in work)
    assert all(one["args"]["layer"] == "Net.layers.0" and "correlation" in one["args"] for one in work)


def test_a_large_trace_loses_its_last_steps(tmp_path: Path) -> None:
    name = "gpu_kinds/0_forward"
    path = program_of(name, tmp_path)
    target = tmp_path / "step.trace.json.gz"
    whole = tmp_path / "whole.json.gz"
    store_program_trace(path, whole, MARKERS)
    limit = int(whole.stat().st_size * 0.8)
    store_program_trace(path, target, MARKERS, limit)
    stored = json.loads(gzip.decompress(target.read_bytes()))["traceEvents"]
    assert target.stat().st_size <= limit
    assert {one["name"] for one in stored if one["name"].startswith(BOUNDARY)} == {f"{BOUNDARY}{n}" for n in range(3)}
    window = find_window(read_program_trace(target, MARKERS), MARKERS)
    assert window is not None and window.step_count == 2, "what is kept is whole steps"
    assert has_lost_steps(read_program_trace(target, MARKERS), MARKERS, 3)
    assert not has_lost_steps(read_program_trace(whole, MARKERS), MARKERS, 3)
