"""Findings about graphs in which the device waits, and about CPU graphs with a large host share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ... import units
from ...records.module import ModuleRecord
from ...records.run import Run
from ..step_costs import compute_whole_time_s
from .compile_findings import recompiles_often
from .finding import (
    CUDA_GRAPH_MODES,
    GRAPH_GAIN,
    LEAST_SHARE,
    Finding,
    Rule,
    RunEvidence,
    compute_idle_per_launch,
    compute_idle_s,
    describe_replay,
    join_labels,
    join_words,
    list_slugs,
    replay_gain_s,
)

# Pure functions. A rule reports only what the record holds evidence for, in one finding for all graphs concerned.


MOST_NAMED = 2  # largest number of graphs that one sentence names


def find_launch_bound_graphs(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs in which the GPU waits for launches.

    There is no finding for a program that recompiles often: CUDA graphs would be recorded as often.
    """
    run, graphs = evidence.run, evidence.graphs_with("launch-bound")
    if not graphs or (run.program is not None and recompiles_often(run)):
        return
    faster = [m for m in graphs if replay_gain_s(m) > (1 - GRAPH_GAIN) * (m.times.wall_time_s or 0.0)]
    if len(graphs) == 1:
        only, times = graphs[0], graphs[0].times
        launches = f" in {units.count(only.launches)} launches" if only.launches else ""
        text = (
            f"{only.label} is launch-bound: the GPU works {units.whole_percent(times.busy_share)} of "
            f"{units.seconds(times.wall_time_s)}{launches}"
        )
        if faster:
            ratio = (times.wall_time_s or 0.0) / (times.graph_time_s or 1.0)
            text += f"; as one CUDA graph {units.seconds(times.graph_time_s)} ({ratio:.1f}x)"
    else:
        text = f"{_count_graphs(graphs, run)} are launch-bound: the GPU works {_describe_busy_share(graphs)}"
        text += f"; as one CUDA graph {_describe_replays(faster)}" if faster else ""
    text += _advise_on_cuda_graph(graphs, faster, run.request.mode)
    gain = sum((replay_gain_s(m) if m.times.graph_time_s else compute_idle_s(m)) * _count_calls(m) for m in graphs)
    yield Finding("launch-bound", f"{text}. Until then faster kernels save little", list_slugs(graphs), gain_s=gain)


def _advise_on_cuda_graph(graphs: list[ModuleRecord], faster: list[ModuleRecord], mode: str | None) -> str:
    if mode in CUDA_GRAPH_MODES:
        return f"; the program replays CUDA graphs (mode='{mode}'), but a graph by itself was timed without them"
    if faster:
        return ": try mode='reduce-overhead'"
    if all(module.times.graph_time_s for module in graphs):
        return "; one CUDA graph takes as long, so only a larger batch can help"
    return ": try mode='reduce-overhead' (CUDA graphs) or a larger batch"


def _count_graphs(graphs: list[ModuleRecord], run: Run) -> str:
    number, every = len(graphs), len(run.modules)
    if number <= 2:
        return join_labels(graphs)
    return f"all {number} graphs" if number == every else f"{number} of {every} graphs"


def _describe_busy_share(graphs: list[ModuleRecord]) -> str:
    times = [(module.times, module.label) for module in graphs]
    words = [f"{units.whole_percent(t.busy_share)} of {units.seconds(t.wall_time_s)} ({label})" for t, label in times]
    return join_words(words, MOST_NAMED)


def _describe_idle_time(graphs: list[ModuleRecord]) -> str:
    times = [(one.label, one.times.busy_share or 0, one.times.wall_time_s) for one in graphs]
    words = [(f"{units.whole_percent(1 - busy)} of {units.seconds(wall)}", label) for label, busy, wall in times]
    return join_words([f"{said} ({label})" if len(graphs) > 1 else said for said, label in words], MOST_NAMED)


def _describe_replays(graphs: list[ModuleRecord]) -> str:
    words = [describe_replay(module) for module in graphs]
    return join_words(words, MOST_NAMED if len(words) <= MOST_NAMED else 1)


def find_host_bound_graphs(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs in which the GPU waits for the host longer than launches explain."""
    graphs = evidence.graphs_with("host-bound")
    if not graphs:
        return
    waits = join_words([f"{units.seconds(compute_idle_per_launch(m))} ({m.label})" for m in graphs], MOST_NAMED)
    text = (
        f"{join_labels(graphs)} {_choose_verb(graphs, 'waits', 'wait')} for the host: the GPU "
        f"works {_describe_busy_share(graphs)}, idle "
        f"{waits} per launch, more than a launch costs. Look in the trace for synchronisation, copies to or from the "
        "host, or slow Python between kernels"
    )
    yield Finding(
        "host-bound", text, list_slugs(graphs), gain_s=sum(compute_idle_s(m) * _count_calls(m) for m in graphs)
    )


def find_faster_replays(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs that are faster as one CUDA graph."""
    graphs = evidence.graphs_with("cuda-graph")
    if not graphs:
        return
    run = evidence.run
    saved = sum(replay_gain_s(module) for module in graphs)
    if saved < LEAST_SHARE * compute_whole_time_s(run) or run.request.mode in CUDA_GRAPH_MODES:
        return
    text = (
        f"as one CUDA graph {_describe_replays(graphs)}, {units.seconds(saved)} less "
        f"({units.percent(saved / compute_whole_time_s(run))}): try mode='reduce-overhead'"
    )
    yield Finding(
        "cuda-graph", text, list_slugs(graphs), gain_s=sum(replay_gain_s(m) * _count_calls(m) for m in graphs)
    )


def find_gaps(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs with gaps in which the GPU is idle."""
    graphs = evidence.graphs_with("gaps")
    if not graphs:
        return
    run = evidence.run
    if sum(compute_idle_s(module) for module in graphs) < LEAST_SHARE * compute_whole_time_s(run):
        return
    idle = _describe_idle_time(graphs)
    text = f"{join_labels(graphs)} {_choose_verb(graphs, 'leaves', 'leave')} the GPU idle for {idle}"
    gap = graphs[0].times.idle
    if len(graphs) == 1 and gap is not None and gap.count:
        text += f": {units.count(gap.count)} gaps, the longest {units.seconds(gap.longest_s)}"
    yield Finding("gaps", text, list_slugs(graphs), gain_s=sum(compute_idle_s(m) * _count_calls(m) for m in graphs))


def find_host_share(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports CPU graphs that spend much of their time outside kernels."""
    graphs = evidence.graphs_with("host-share")
    if not graphs:
        return
    idle = _describe_idle_time(graphs)
    text = (
        f"{join_labels(graphs)} {_choose_verb(graphs, 'spends', 'spend')} {idle} outside kernels (the "
        "Python wrapper, allocation, dispatch): a larger batch or TORCHINDUCTOR_CPP_WRAPPER=1 can help"
    )
    yield Finding(
        "host-share", text, list_slugs(graphs), gain_s=sum(compute_idle_s(m) * _count_calls(m) for m in graphs)
    )


def _choose_verb(graphs: Iterable[ModuleRecord], one: str, many: str) -> str:
    return one if len(list(graphs)) == 1 else many


def _count_calls(module: ModuleRecord) -> int:
    return module.program_calls or 1


RULES = (
    Rule(("launch-bound",), find_launch_bound_graphs),
    Rule(("host-bound",), find_host_bound_graphs),
    Rule(("cuda-graph",), find_faster_replays),
    Rule(("gaps",), find_gaps),
    Rule(("host-share",), find_host_share),
)


def is_anything_waiting(evidence: RunEvidence) -> bool:
    """Whether any rule of this file reports a finding."""
    return any(True for rule in RULES for _ in rule.find(evidence))
