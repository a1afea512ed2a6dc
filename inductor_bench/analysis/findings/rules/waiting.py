"""Rules about whole graphs: idle time of the device, threads, graph breaks and recompilations.

Pure functions from a record to findings. A rule speaks only where the record holds the evidence, and once for all
graphs of which the same is true.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .... import units
from ....records.run import ModuleRecord, Run
from ...times import weight_s, whole_time_s
from ..finding import CAUTION, NOTE, Finding, labels, listed, plural, short_paths, slugs

LAUNCH_BOUND = 0.7  # busy share below which a graph is bound by its launches or its host
GAPS = 0.9  # busy share below which idle gaps are reported
LONG_WAIT_S = 100e-6  # idle time per launch that no launch overhead explains
GRAPH_GAIN = 0.98  # share of the wall time below which a CUDA graph replay is reported as a gain
LEAST_SHARE = 0.01  # smallest share of the whole time that is reported
HOST_SHARE = 0.15
MOST_NAMED = 2  # graphs named in one sentence
MOST_REASON = 150  # characters of Dynamo's reason for one graph break

_CUDA_GRAPH_MODES = ("reduce-overhead", "max-autotune")
_REASON_NOISE = re.compile(r"^\d+/\d+: |\s*\bMessage: None\b\.?|\s*\bHint: .*$")


def waiting(run: Run) -> Iterator[Finding]:
    """Graphs in which the device waits for the host, and CPU graphs with a large host share."""
    groups: dict[str, list[ModuleRecord]] = {}
    for module in sorted(run.modules, key=weight_s, reverse=True):
        groups.setdefault(bottleneck(module), []).append(module)
    if "launch-bound" in groups:
        yield _launch_bound(groups["launch-bound"], run)
    if "host-bound" in groups:
        yield _host_bound(groups["host-bound"])
    if "cuda-graph" in groups:
        yield from _cuda_graph(groups["cuda-graph"], run)
    if "gaps" in groups:
        yield from _gaps(groups["gaps"], run)
    if "host-share" in groups:
        yield _host_share(groups["host-share"])


def bottleneck(module: ModuleRecord) -> str:
    """A graph's bottleneck beside its kernels: ``launch-bound``, ``host-bound``, ``cuda-graph`` (a replay as one CUDA
    graph is faster), ``gaps``, ``host-share`` (on a CPU), or an empty string where there is none or it is not known."""
    if not module.wall_time_s or module.busy_share is None:
        return ""
    if module.device == "cpu":
        return "host-share" if 1 - module.busy_share >= HOST_SHARE else ""
    if module.busy_share < LAUNCH_BOUND:
        return "host-bound" if _idle_per_launch(module) > LONG_WAIT_S else "launch-bound"
    if replay_gain_s(module) > (1 - GRAPH_GAIN) * module.wall_time_s:
        return "cuda-graph"
    return "gaps" if module.busy_share < GAPS else ""


def replay_gain_s(module: ModuleRecord) -> float:
    """What one iteration saves as one CUDA graph, in seconds; 0 where that was not measured or is no gain."""
    if not module.graph_time_s or not module.wall_time_s:
        return 0.0
    return max(0.0, module.wall_time_s - module.graph_time_s)


def _idle_s(module: ModuleRecord) -> float:
    return (module.wall_time_s or 0.0) * max(0.0, 1 - (module.busy_share or 0.0))


def _idle_per_launch(module: ModuleRecord) -> float:
    return _idle_s(module) / module.launches if module.launches else 0.0


def _calls(module: ModuleRecord) -> int:
    return module.program_calls or 1


def _launch_bound(graphs: list[ModuleRecord], run: Run) -> Finding:
    faster = [m for m in graphs if replay_gain_s(m) > (1 - GRAPH_GAIN) * (m.wall_time_s or 0.0)]
    if len(graphs) == 1:
        only = graphs[0]
        launches = f" in {units.count(only.launches)} launches" if only.launches else ""
        text = (
            f"{only.label} is launch-bound: the GPU works {units.whole_percent(only.busy_share)} of "
            f"{units.seconds(only.wall_time_s)}{launches}"
        )
        if faster:
            times = (only.wall_time_s or 0.0) / (only.graph_time_s or 1.0)
            text += f"; as one CUDA graph {units.seconds(only.graph_time_s)} ({times:.1f}x)"
    else:
        text = f"{_graph_count(graphs, run)} are launch-bound: the GPU works {_busy(graphs)}"
        text += f"; as one CUDA graph {_replays(faster)}" if faster else ""
    text += _graph_advice(graphs, faster, run.request.mode)
    gain = sum((replay_gain_s(m) if m.graph_time_s else _idle_s(m)) * _calls(m) for m in graphs)
    return Finding("launch-bound", f"{text}. Until then faster kernels win little", slugs(graphs), gain_s=gain)


def _graph_advice(graphs: list[ModuleRecord], faster: list[ModuleRecord], mode: str | None) -> str:
    if mode in _CUDA_GRAPH_MODES:
        return f"; mode='{mode}' replays CUDA graphs in the program, which timing a graph by itself leaves out"
    if faster:
        return ": try mode='reduce-overhead'"
    if all(module.graph_time_s for module in graphs):
        return "; one CUDA graph takes as long, so a larger batch is what can help"
    return ": try mode='reduce-overhead' (CUDA graphs) or a larger batch"


def _graph_count(graphs: list[ModuleRecord], run: Run) -> str:
    number, every = len(graphs), len(run.modules)
    if number <= 2:
        return labels(graphs)
    return f"all {number} graphs" if number == every else f"{number} of {every} graphs"


def _busy(graphs: list[ModuleRecord]) -> str:
    words = [f"{units.whole_percent(m.busy_share)} of {units.seconds(m.wall_time_s)} ({m.label})" for m in graphs]
    return listed(words, MOST_NAMED)


def _replays(graphs: list[ModuleRecord]) -> str:
    words = [f"{units.seconds(m.graph_time_s)} instead of {units.seconds(m.wall_time_s)} ({m.label})" for m in graphs]
    return listed(words, MOST_NAMED if len(words) <= MOST_NAMED else 1)


def _host_bound(graphs: list[ModuleRecord]) -> Finding:
    waits = listed([f"{units.seconds(_idle_per_launch(m))} ({m.label})" for m in graphs], MOST_NAMED)
    text = (
        f"{labels(graphs)} {_verb(graphs, 'waits', 'wait')} for the host: the GPU works {_busy(graphs)}, idle "
        f"{waits} per launch, which is more than launching costs: look in the trace for synchronisation, copies to or "
        "from the host, or slow Python between kernels"
    )
    return Finding("host-bound", text, slugs(graphs), gain_s=sum(_idle_s(m) * _calls(m) for m in graphs))


def _cuda_graph(graphs: list[ModuleRecord], run: Run) -> Iterator[Finding]:
    saved = sum(replay_gain_s(module) for module in graphs)
    if saved < LEAST_SHARE * whole_time_s(run) or run.request.mode in _CUDA_GRAPH_MODES:
        return
    text = (
        f"as one CUDA graph {_replays(graphs)}, {units.seconds(saved)} less "
        f"({units.percent(saved / whole_time_s(run))}): try mode='reduce-overhead'"
    )
    yield Finding("cuda-graph", text, slugs(graphs), gain_s=sum(replay_gain_s(m) * _calls(m) for m in graphs))


def _gaps(graphs: list[ModuleRecord], run: Run) -> Iterator[Finding]:
    if sum(_idle_s(module) for module in graphs) < LEAST_SHARE * whole_time_s(run):
        return
    words = [f"{units.whole_percent(1 - (m.busy_share or 0))} of {units.seconds(m.wall_time_s)}" for m in graphs]
    if len(graphs) > 1:
        words = [f"{word} ({module.label})" for word, module in zip(words, graphs, strict=True)]
    text = f"{labels(graphs)} {_verb(graphs, 'leaves', 'leave')} the GPU idle for {listed(words, MOST_NAMED)}"
    gap = graphs[0].idle
    if len(graphs) == 1 and gap is not None and gap.count:
        text += f": {units.count(gap.count)} gaps, the longest {units.seconds(gap.longest_s)}"
    yield Finding("gaps", text, slugs(graphs), gain_s=sum(_idle_s(m) * _calls(m) for m in graphs))


def _host_share(graphs: list[ModuleRecord]) -> Finding:
    words = [f"{units.whole_percent(1 - (m.busy_share or 0))} of {units.seconds(m.wall_time_s)}" for m in graphs]
    if len(graphs) > 1:
        words = [f"{word} ({module.label})" for word, module in zip(words, graphs, strict=True)]
    text = (
        f"{labels(graphs)} {_verb(graphs, 'spends', 'spend')} {listed(words, MOST_NAMED)} outside kernels (the Python "
        "wrapper, allocation, dispatch): a larger batch or TORCHINDUCTOR_CPP_WRAPPER=1 can help"
    )
    return Finding("host-share", text, slugs(graphs), gain_s=sum(_idle_s(m) * _calls(m) for m in graphs))


def _verb(graphs: Iterable[ModuleRecord], one: str, many: str) -> str:
    return one if len(list(graphs)) == 1 else many


def threads(run: Run) -> Iterator[Finding]:
    """CPU graphs that ran on one thread of several."""
    single = [m for m in run.modules if m.device == "cpu" and m.threads == 1]
    if single and run.environment.cpu_count > 1:
        cpus = f"{run.environment.cpu_count} CPUs"
        text = f"{labels(single)} ran on 1 thread of {cpus} (OMP_NUM_THREADS, torch.set_num_threads)"
        yield Finding("threads", text, slugs(single), level=CAUTION)


def compilation(run: Run) -> Iterator[Finding]:
    """Graph breaks, recompilations, and modules that only one of the two ways of capture found."""
    breaks, recompiles = run.capture.graph_breaks, run.capture.recompiles
    if breaks:
        # A break inside of torch itself (its optimizers have one) is not the user's to mend.
        own = [text for text in breaks if "/site-packages/torch/" not in text.replace("\\", "/").partition(": ")[0]]
        inside = "" if own else ", in torch's own code"
        said = listed([_short_reason(text) for text in own or breaks], 2)
        text = f"{plural(len(breaks), 'graph break')}{inside}: {said}"
        yield Finding("graph-breaks", text, level=CAUTION if own else NOTE)
    if recompiles:
        said = listed(list(dict.fromkeys(_short_reason(reason) for reason in recompiles)), 2)
        text = f"{plural(len(recompiles), 'recompilation')}: {said}"
        if any("size" in reason or "stride" in reason for reason in recompiles):
            text += "; dynamic=True or torch._dynamo.mark_dynamic compiles once for all sizes"
        yield Finding("recompiles", text, level=CAUTION)
    if run.capture.disagreement:
        text = f"the printed module lines and the structured trace disagree: {run.capture.disagreement}"
        yield Finding("capture", text, level=CAUTION)


def _short_reason(text: str) -> str:
    """``file:line: reason`` with a short path and without Dynamo's placeholders."""
    place, colon, reason = short_paths(" ".join(text.split())).partition(": ")
    reason = _REASON_NOISE.sub("", reason).strip()
    # A headline and its explanation are joined by a colon; which of the two says more is not known.
    said = reason.replace(": ", " (", 1).rstrip(".") + ")" if reason.count(": ") == 1 else reason.rstrip(".")
    said = said if len(said) <= MOST_REASON else said[:MOST_REASON] + "…"
    return f"{place}: {said}" if colon and said else place + said
