"""Trainings on two GPUs, recorded: DDP on H100s and FSDP2 on H200s. Read by the tool, and by hand for comparison.

The traces are those of two steps of ``scripts/programs/distributed.py``, without the arguments that nothing reads, and
with process and thread ids of their own; those on H100s also count their times from the begin of the trace, and of the
first step, which the tool leaves out, they hold the optimizer alone.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from program_traces import MARKERS

from inductor_bench.analysis.kernel_aggregation import compute_tied_share
from inductor_bench.analysis.ledger import GraphName, Steps, make_ledger
from inductor_bench.records.evidence import BOUNDARY, ObservedSteps
from inductor_bench.records.run import RankSteps
from inductor_bench.source.module_reader import read_module
from inductor_bench.store import codec
from inductor_bench.trace.program_trace import read_program_trace
from inductor_bench.trace.program_works import KnownGraph, ProgramWorks, find_works

DATA = Path(__file__).resolve().parent.parent / "data"


class Training(NamedTuple):
    """A recording: its folder, its graphs in the order of their numbers, and the prefix of their files by rank."""

    folder: Path
    graphs: tuple[str, ...]
    prefix: str = ""


DDP = Training(DATA / "h100_torch2.11" / "programs" / "ddp", ("forward", "forward-2", "backward-2", "backward"))
FSDP = Training(DATA / "h200_torch2.11" / "programs" / "fsdp", ("forward", "backward"), "{}-")


@dataclass(frozen=True)
class RecordedRank:
    """What the tool finds in a rank's trace."""

    steps: RankSteps
    works: ProgramWorks


@cache
def rank_of(training: Training, rank: int, text: int | None = None) -> RecordedRank:
    """The step of a rank. Its graphs are tied by the texts of the rank ``text``, which is itself unless given."""
    folder, texts = (training.folder, training.prefix.format(rank if text is None else text))
    seen = codec.decode(ObservedSteps, json.loads(gzip.decompress((folder / f"{rank}.steps.json.gz").read_bytes())))
    sources = (
        gzip.decompress((folder / f"{texts}{n}.py.gz").read_bytes()).decode() for n in range(len(training.graphs))
    )
    graphs = {number: KnownGraph(read_module(source)) for number, source in enumerate(sources)}
    program = read_program_trace(folder / f"steps-{rank}.trace.json.gz", MARKERS)
    found = find_works(program, MARKERS, graphs, on_host=False)
    assert found is not None
    step_s = seen.window_s / len(seen.step_times_s)
    names = {number: GraphName(name, name) for number, name in enumerate(training.graphs)}
    optimizers = found.optimizer_calls
    ledger = make_ledger(
        Steps(step_s, found.window, found.works, found.calls, found.timeline, names, optimizer_calls=optimizers)
    )
    steps = RankSteps(
        rank=rank,
        pid=seen.pid,
        device=seen.device,
        step_times_s=seen.step_times_s,
        step_time_s=step_s,
        busy_time_s=ledger.busy_time_s,
        profiled_step_time_s=ledger.profiled_step_time_s,
        profiled_steps=found.window.step_count,
        tied_share=compute_tied_share(found),
        parts=ledger.parts,
    )
    return RecordedRank(steps, found)


class CountedByHand(NamedTuple):
    """Seconds of a profiled step of a rank, by the intervals of its trace alone."""

    profiled_s: float
    busy_s: float
    work_s: float
    exposed_s: float
    collectives_s: float
    collectives: float


def count_by_hand(training: Training, rank: int) -> CountedByHand:
    """Sweeps over the microseconds of the raw events, with none of the tool's code."""
    text = gzip.decompress((training.folder / f"steps-{rank}.trace.json.gz").read_bytes())
    events = [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]
    device = [event for event in events if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    calls = {e["args"].get("correlation"): e["ts"] for e in events if e["cat"] in ("cuda_runtime", "cuda_driver")}
    launched = {id(event): calls.get(event["args"]["correlation"], event["ts"]) for event in device}
    marks = sorted(event["ts"] for event in events if event["name"].startswith(BOUNDARY))
    bounds = [max([m, *(e["ts"] + e["dur"] for e in device if launched[id(e)] < m)]) for m in marks]
    start, end, steps = bounds[1], bounds[-1], len(marks) - 2

    def covered(kept: list[dict[str, Any]]) -> float:
        total, until = 0.0, start
        for event in sorted(kept, key=lambda event: event["ts"]):
            stop = min(end, event["ts"] + event["dur"])
            total += max(0.0, stop - max(until, event["ts"]))
            until = max(until, stop)
        return total / steps / 1e6

    ours = [event for event in device if event["name"].startswith("ncclDevKernel")]
    computing = [event for event in device if event["cat"] == "kernel" and event not in ours]
    computing += [event for event in device if event["cat"] == "gpu_memset"]
    of_window = [event for event in ours if marks[1] <= launched[id(event)] < marks[-1]]
    return CountedByHand(
        profiled_s=(end - start) / steps / 1e6,
        busy_s=covered(device),
        work_s=covered(computing),
        exposed_s=covered([*computing, *ours]) - covered(computing),
        collectives_s=sum(event["dur"] for event in of_window) / steps / 1e6,
        collectives=len(of_window) / steps,
    )
