"""Rules about CUDA graphs in the program: in use, not in use, refused, and the copies of their inputs."""

from __future__ import annotations

from collections.abc import Iterator

from .... import units
from ....records.module import ModuleRecord
from ....records.program import COPY, GRAPH, GRAPH_INPUTS, GUARDS, LAUNCHING, PYTHON
from ...costs.step import graph_use, host_sets_pace, idle_labels, parts_of, runs_on_host
from ..bottleneck import GRAPH_GAIN
from ..evidence import CUDA_GRAPH_MODES, LEAST_SHARE, RunEvidence
from ..finding import CAUTION, FINE, Finding
from ..phrases import join_words, labels, replay_words, slugs
from .words import share_words

MOST_NAMED = 3


def cuda_graphs_in_use(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the graphs whose calls replay CUDA graphs."""
    run = evidence.run
    replayed = [part for part in parts_of(run, GRAPH) if part.replays]
    if replayed:
        calls, replays = sum(part.calls for part in replayed), sum(part.replays for part in replayed)
        names = join_words(list(dict.fromkeys(part.label for part in replayed)), MOST_NAMED)
        of = "each call" if replays >= calls else f"{units.count(replays)} of {units.count(calls)} calls a step"
        found = tuple(dict.fromkeys(part.graph for part in replayed if part.graph))
        yield Finding("cuda-graphs-in-use", f"CUDA graphs replay {names} ({of})", found, level=FINE)


def cuda_graphs_unused(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs that a replay would make faster, in a program whose host sets the pace."""
    run = evidence.run
    if not host_sets_pace(run) or run.request.mode in CUDA_GRAPH_MODES:
        return
    refused = {part.graph for part in parts_of(run, GRAPH) if part.refusal}
    launched = [module for module in run.modules if module.slug not in refused and _is_launched(evidence, module)]
    faster = [module for module in launched if _gain_s(evidence, module) > 0]
    host = idle_labels(run)
    idle_s = sum(host.get(label, 0.0) for label in (LAUNCHING, GUARDS, PYTHON))
    gain = min(idle_s, sum(_gain_s(evidence, module) for module in faster))
    if gain < LEAST_SHARE * evidence.whole.time_s:
        return
    faster.sort(key=lambda module: -_gain_s(evidence, module))
    less = share_words(run, gain)
    times = [replay_words(module) for module in faster]
    are = "is" if len(faster) == 1 else "are"
    text = (
        f"the host sets the pace, and {labels(faster)} {are} launched kernel by kernel: as one CUDA graph a call "
        f"takes, by itself, {join_words(times, MOST_NAMED)}: try mode='reduce-overhead', at most {less} less"
    )
    yield Finding("cuda-graphs-unused", text, slugs(faster), gain_s=gain)


def _is_launched(evidence: RunEvidence, module: ModuleRecord) -> bool:
    use = graph_use(evidence.run, module)
    return use.calls > 0 and not use.replays


def _gain_s(evidence: RunEvidence, module: ModuleRecord) -> float:
    """Seconds of the step that replays of a graph save at most; 0 where a replay is slower or was not measured."""
    times = module.times
    if not times.graph_time_s or not times.wall_time_s or times.graph_time_s > GRAPH_GAIN * times.wall_time_s:
        return 0.0
    return (times.wall_time_s - times.graph_time_s) * graph_use(evidence.run, module).calls


def cuda_graphs_refused(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports graphs for which Inductor uses no CUDA graphs although they were asked for, with its reason."""
    if runs_on_host(evidence.run):
        return
    groups: dict[str, list[str]] = {}
    for part in parts_of(evidence.run, GRAPH):
        if part.refusal:
            groups.setdefault(part.refusal, []).append(part.label)
    for reason, names in groups.items():
        who = join_words(names, MOST_NAMED)
        text = f"Inductor uses no CUDA graphs for {who} although they were asked for: {reason}"
        found = [part.graph for part in parts_of(evidence.run, GRAPH) if part.refusal == reason and part.graph]
        yield Finding("cuda-graphs-refused", text, tuple(dict.fromkeys(found)), level=CAUTION)


def replay_inputs(evidence: RunEvidence) -> Iterator[Finding]:
    """Reports the time in which inputs are copied for replays."""
    run = evidence.run
    copies = [part for part in parts_of(run, COPY) if part.label == GRAPH_INPUTS]
    time_s = sum(part.time_s for part in copies)
    if time_s < LEAST_SHARE * evidence.whole.time_s:
        return
    moved = sum(part.moved_bytes or 0.0 for part in copies)
    amount = f" of {units.size(moved)}" if moved else ""
    text = (
        f"{units.count(sum(part.calls for part in copies))} copies{amount} bring inputs to CUDA graphs, "
        f"{share_words(run, time_s)} a step: torch._dynamo.mark_static_address(tensor) spares a tensor that stays "
        "in place"
    )
    replayed = [module for module in run.modules if graph_use(run, module).replays]
    names = f" ({labels(replayed)})" if 0 < len(replayed) <= MOST_NAMED else ""
    yield Finding("replay-inputs", text + names, slugs(replayed), gain_s=time_s)
