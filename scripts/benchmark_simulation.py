"""How true simulated savings are: programs with known changes, each simulated from one profile and then really made.

``python scripts/benchmark_simulation.py [--within S] [--output FILE] [PROGRAM...]`` runs ten programs one after the
other in one process, or those that are named. Each has real work (matrix products, compiled networks, optimizers,
copies, replays of CUDA graphs), and in its step two kernels whose time is known (``torch.cuda._sleep``), a loader that
sleeps, Python that is busy, a value that is read, or a region of small launches.

Of each program some steps are timed with events on the device, and some are profiled. From these alone the simulation
answers what each change makes of the step. Then the program is run with the change and without, in turn. ``simulated``
and ``measured`` are what the step becomes shorter by, in ms; a change counts as ``hit`` if they differ by at most 10%
of what was measured, or by 0.1 ms.

Programs for which no time is left within ``--within`` seconds are listed. Without a GPU the programs are small, have no
kernels, and only the host changes.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.analysis.program_step import MARKERS
from inductor_bench.analysis.simulation.fitting import FittedQueue, SimulatedSaving, fit, saving_of
from inductor_bench.analysis.simulation.predictions import REPLAY_S, REPLAYED_GAP_S
from inductor_bench.analysis.simulation.profiled_queue import ProfiledQueue, queue_of
from inductor_bench.analysis.simulation.queue import (
    BOUNDARY,
    WAIT,
    Replay,
    StepQueue,
    as_graphs,
    on_another_stream,
    with_durations,
    without_host_time,
    without_waits,
    without_works,
)
from inductor_bench.records.evidence import GRAPH_CALL
from inductor_bench.records.program import DATA_LOADING, PYTHON
from inductor_bench.trace.program_trace import read_program_trace
from inductor_bench.trace.program_works import DATA_LOADING_RANGE, find_works
from inductor_bench.worker.capture.recording import Recording, mark_boundary
from inductor_bench.worker.upstream.inductor import profiler_range

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
SPIN = "spin_kernel"
"""A part of the name of the kernel of ``torch.cuda._sleep``."""

WARM, TIMED, PROFILED = (8, 40, 5) if GPU else (2, 8, 3)
TURNS, IN_TURN = (20, 8) if GPU else (4, 4)
"""How often a program runs with a change and without, in turn, and the timed steps of each turn."""

CLOCKS_S = 0.3
"""Seconds of steps before the profile: a device that was idle runs at a lower clock at first."""

HIT_SHARE, HIT_S = 0.1, 0.1e-3
LEAST_S = 25.0
"""Seconds that must be left for a program to be started."""


# A step, and what can be changed in it.


@dataclass(frozen=True)
class Setup:
    """What a step does beside its program's work."""

    first_s: float = 1e-3  # the known kernels: in the middle of the step, and at its end
    last_s: float = 1e-3
    loader_s: float = 0.0  # the host sleeps for data
    busy_s: float = 0.0  # the host is busy in Python
    reads: bool = False  # a value of the device is read at the end
    one_graph: bool = False  # the region is replayed as one CUDA graph
    beside: bool = False  # the last kernel runs on another stream


class Work(NamedTuple):
    """The work of a program: before and after the region, and the region of small launches."""

    before: Callable[[], Any]
    region: Callable[[], Any]
    after: Callable[[], Any]


class Program:
    """A program whose steps can be run in several setups."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._side = torch.cuda.Stream() if GPU else None
        self._graph: Any = None

    def prepare(self, setup: Setup) -> None:
        """Compiles, and captures the region."""
        for _ in range(WARM):
            self.step(setup)
        if GPU:
            torch.cuda.synchronize()
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._work.region()
            torch.cuda.synchronize()

    def step(self, setup: Setup) -> None:
        """One step."""
        if setup.loader_s:
            with torch.profiler.record_function(f"{DATA_LOADING_RANGE}Slow.__next__"):
                time.sleep(setup.loader_s)
        until = time.perf_counter() + setup.busy_s
        while time.perf_counter() < until:
            pass
        self._work.before()
        spin(setup.first_s)
        if setup.one_graph:
            self._graph.replay()
        else:
            with profiler_range(f"{GRAPH_CALL}0"):
                self._work.region()
        value = self._work.after()
        with torch.cuda.stream(self._side) if setup.beside else contextlib.nullcontext():
            spin(setup.last_s)
        if setup.reads:
            value.item()


def synchronize() -> None:
    """Waits for the device."""
    if GPU:
        torch.cuda.synchronize()


_CYCLES_PER_S = 0.0


def spin(seconds: float) -> None:
    """A kernel that takes a time."""
    if GPU and seconds:
        torch.cuda._sleep(round(seconds * _CYCLES_PER_S))


def calibrate() -> None:
    """Measures how many cycles a second has."""
    global _CYCLES_PER_S
    if not GPU:
        return
    for _ in range(3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.cuda._sleep(100_000_000)
        end.record()
        torch.cuda.synchronize()
        _CYCLES_PER_S = 100_000_000 / (begin.elapsed_time(end) / 1e3)


# Changes: made in the setup, and asked of the queue.


class Question(NamedTuple):
    """A change of the setup, and of the queue of a program in the setup before."""

    name: str
    make: Callable[[Setup], Setup]
    ask: Callable[[ProfiledQueue, StepQueue, Setup], StepQueue]


def spins(profiled: ProfiledQueue, names: Sequence[str], last: bool) -> list[int]:
    """The works of the first or of the last known kernel, in each step."""
    found = [place for place, name in enumerate(names) if SPIN in name]
    lanes = len(found) // profiled.queue.steps
    return [place for number, place in enumerate(found) if number % lanes == (lanes - 1 if last else 0)]


def without_loader(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
    """The queue whose host does not load data."""
    shares = {
        number: {place: 1.0 for place, piece in enumerate(action.pieces) if piece.label == DATA_LOADING}
        for number, action in enumerate(queue.actions)
    }
    return without_host_time(queue, shares)


def without_busy(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
    """The queue without the busy part of the longest stretch of Python of each step."""
    shares: dict[int, dict[int, float]] = {}
    longest = (0.0, 0, 0)
    for number, action in enumerate(queue.actions):
        for place, piece in enumerate(action.pieces):
            if piece.label == PYTHON:
                longest = max(longest, (piece.time_s, number, place))
        if action.kind == BOUNDARY:
            time_s, at, place = longest
            if time_s:
                shares.setdefault(at, {})[place] = min(1.0, setup.busy_s / time_s)
            longest = (0.0, 0, 0)
    return without_host_time(queue, shares)


def without_reading(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
    """The queue whose host waits for nothing."""
    return without_waits(queue, {number for number, action in enumerate(queue.actions) if action.kind == WAIT})


def with_one_graph(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
    """The queue whose region is one launch."""
    calls = [actions for _, actions in sorted(profiled.calls.items())]
    return as_graphs(queue, [Replay(actions, REPLAY_S, REPLAYED_GAP_S, REPLAY_S) for actions in calls])


def scaled(name: str, factor: float, *, first: bool = True, last: bool = True) -> Question:
    """Known kernels that take so many times as long; 0 removes them and their launches."""

    def make(setup: Setup) -> Setup:
        more = {"first_s": setup.first_s * factor} if first else {}
        return replace(setup, **more, **({"last_s": setup.last_s * factor} if last else {}))

    def ask(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
        names = event_names(profiled)
        places = [
            place for wanted, at in ((first, False), (last, True)) if wanted for place in spins(profiled, names, at)
        ]
        return with_durations(queue, dict.fromkeys(places, factor)) if factor else without_works(queue, places)

    return Question(name, make, ask)


def beside(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
    """The queue whose last known kernel runs on another stream."""
    return on_another_stream(queue, spins(profiled, event_names(profiled), last=True))


_NAMES: dict[int, list[str]] = {}


def event_names(profiled: ProfiledQueue) -> list[str]:
    """The names of the kernels of a queue's works."""
    return _NAMES[id(profiled)]


HALF, TWICE, GONE = (
    scaled("first kernel at half", 0.5, last=False),
    scaled("last kernel twice", 2, first=False),
    scaled("last kernel gone", 0, first=False),
)
BOTH = scaled("both kernels at a tenth", 0.1)
LOADER = Question("no loader", lambda setup: replace(setup, loader_s=0.0), without_loader)
BUSY = Question("no busy Python", lambda setup: replace(setup, busy_s=0.0), without_busy)
READS = Question("no value read", lambda setup: replace(setup, reads=False), without_reading)
ONE = Question("region as one graph", lambda setup: replace(setup, one_graph=True), with_one_graph)
BESIDE = Question("last kernel on another stream", lambda setup: replace(setup, beside=True), beside)
KERNELS = (HALF, TWICE, GONE, BOTH)


# The programs.


def _chain(count: int, size: int) -> Callable[[], Any]:
    """Many small launches."""
    x = torch.randn(size, size, device=DEVICE)
    y = torch.empty_like(x)

    def run() -> Any:
        for _ in range(count):
            torch.add(x, 1.0, out=y)
        return y

    return run


def _products(count: int, size: int) -> Callable[[], Any]:
    """Matrix products."""
    a = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    b = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    out = torch.empty_like(a)

    def run() -> Any:
        for _ in range(count):
            torch.mm(a, b, out=out)
        return out[0, 0]

    return run


def _training(model: nn.Module, x: torch.Tensor, *, micro: int = 1, fused: bool | None = None) -> Callable[[], Any]:
    """A training step of a compiled model."""
    model = model.to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    inputs = x.to(DEVICE)

    def run() -> Any:
        optimizer.zero_grad()
        loss = torch.zeros((), device=DEVICE)
        for _ in range(micro):
            loss = compiled(inputs).float().square().mean()
            loss.backward()
        optimizer.step()
        return loss.detach()

    return run


def _network(width: int, layers: int) -> nn.Module:
    blocks = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))]
    return nn.Sequential(*blocks)


def _replayed(run: Callable[[], Any]) -> Callable[[], Any]:
    """The same, replayed as a CUDA graph of the program's own."""
    if not GPU:
        return run
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = run()

    def replay() -> Any:
        graph.replay()
        return value

    return replay


def _copies(megabytes: int, *, pinned: bool) -> Callable[[], Any]:
    """A batch that is copied to the device."""
    batch = torch.randn(megabytes * 262_144, pin_memory=pinned and GPU)
    target = torch.empty_like(batch, device=DEVICE)

    def run() -> Any:
        target.copy_(batch, non_blocking=pinned)
        return target[0]

    return run


def _attention(layers: int) -> Callable[[], Any]:
    """Attention and products without compilation: many operators of a few launches."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), layers).to(DEVICE).eval()
    x = torch.randn(8, 64, 256, device=DEVICE)

    def run() -> Any:
        with torch.no_grad():
            return model(x)[0, 0, 0]

    return run


def _convolutions() -> Callable[[], Any]:
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return _training(model, torch.randn(32 if GPU else 1, 3, 64, 64))


def _nothing() -> Any:
    return torch.zeros((), device=DEVICE)


class Row(NamedTuple):
    """A program: how its work is made, its setup, and its changes."""

    make: Callable[[], Work]
    setup: Setup
    questions: tuple[Question, ...]


def _small(number: int) -> int:
    return number if GPU else max(1, number // 50)


PROGRAMS: dict[str, Row] = {
    "device": Row(  # the device sets the pace, the host runs ahead
        lambda: Work(
            _products(_small(8), 4096 if GPU else 64), _chain(_small(50), 64), _products(_small(4), 4096 if GPU else 64)
        ),
        Setup(2e-3, 2e-3),
        (*KERNELS, ONE, BESIDE),
    ),
    "launches": Row(  # the host sets the pace
        lambda: Work(_chain(_small(400), 64), _chain(_small(500), 64), _nothing),
        Setup(0.5e-3, 0.5e-3, busy_s=1e-3),
        (HALF, GONE, TWICE, ONE, BUSY, BESIDE),
    ),
    "eager": Row(
        lambda: Work(_attention(_small(6)), _chain(_small(300), 64), _attention(_small(4))),
        Setup(1e-3, 1e-3, reads=True),
        (HALF, TWICE, GONE, READS, ONE, BESIDE),
    ),
    "train": Row(
        lambda: Work(
            _training(_network(1024, 6), torch.randn(4096 if GPU else 8, 1024)), _chain(_small(200), 64), _nothing
        ),
        Setup(1e-3, 1.5e-3, busy_s=2e-3),
        (HALF, TWICE, BOTH, ONE, BUSY, GONE),
    ),
    "accumulate": Row(
        lambda: Work(
            _training(_network(512, 4), torch.randn(512 if GPU else 8, 512), micro=4), _chain(_small(100), 64), _nothing
        ),
        Setup(2e-3, 2e-3, reads=True),
        (HALF, TWICE, BOTH, GONE, READS, BESIDE),
    ),
    "loader": Row(
        lambda: Work(
            _copies(_small(64), pinned=False), _chain(_small(100), 64), _products(_small(6), 4096 if GPU else 64)
        ),
        Setup(1e-3, 1e-3, loader_s=12e-3),
        (LOADER, HALF, TWICE, GONE, ONE, BOTH),
    ),
    "sleeper": Row(
        lambda: Work(_products(_small(10), 4096 if GPU else 64), _chain(_small(200), 64), _nothing),
        Setup(1e-3, 2e-3, loader_s=4e-3, reads=True),
        (LOADER, READS, HALF, TWICE, GONE, BESIDE),
    ),
    "replay": Row(
        lambda: Work(
            _replayed(_chain(_small(300), 256)),
            _chain(_small(200), 64),
            _replayed(_products(_small(4), 2048 if GPU else 64)),
        ),
        Setup(0.5e-3, 0.5e-3, busy_s=0.5e-3),
        (HALF, TWICE, GONE, BOTH, ONE, BUSY),
    ),
    "pinned": Row(
        lambda: Work(
            _copies(_small(128), pinned=True),
            _chain(_small(150), 64),
            _training(_network(512, 3), torch.randn(256 if GPU else 8, 512), fused=True if GPU else None),
        ),
        Setup(1e-3, 1e-3, busy_s=1e-3),
        (HALF, TWICE, BOTH, GONE, ONE, BUSY),
    ),
    "convolutions": Row(
        lambda: Work(_convolutions(), _chain(_small(250), 64), _nothing),
        Setup(1.5e-3, 1.5e-3, loader_s=3e-3, reads=True),
        (LOADER, READS, HALF, TWICE, ONE, BESIDE),
    ),
}
"""Ten programs with six changes each."""


# Measures.


class Timed(NamedTuple):
    """The mean step on the device's clock, and the median on the host's, in seconds."""

    step_s: float
    host_s: float


def timed(program: Program, setup: Setup, steps: int = TIMED, warm: int = WARM) -> Timed:
    """Times steps after a few others."""
    for _ in range(warm):
        program.step(setup)
    events, moments = [], []
    for number in range(steps + 1):
        moments.append(time.perf_counter())
        if GPU:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            events.append(event)
        if number < steps:
            program.step(setup)
    synchronize()
    host_s = [end - begin for begin, end in pairwise(moments)]
    steps_s = [begin.elapsed_time(end) / 1e3 for begin, end in pairwise(events)] if GPU else host_s
    return Timed(statistics.median(steps_s), statistics.median(host_s))


def in_turn(program: Program, one: Setup, other: Setup) -> float:
    """The seconds by which a step is shorter in the other setup; a drift of the machine cancels."""
    sides: dict[Setup, list[float]] = {one: [], other: []}
    for turn in range(TURNS):
        for setup in (one, other) if turn % 2 else (other, one):
            sides[setup].append(timed(program, setup, IN_TURN, WARM // 4).step_s)
    return statistics.median(first - second for first, second in zip(sides[one], sides[other], strict=True))


def profiled(program: Program, setup: Setup, folder: Path) -> ProfiledQueue:
    """The queue of a few profiled steps."""
    path = folder / "steps.json"
    recording = Recording(path)
    recording.prepare()
    end = time.perf_counter() + CLOCKS_S
    while time.perf_counter() < end:
        program.step(setup)
        synchronize()
    recording.start()
    for number in range(PROFILED):
        mark_boundary(number)
        program.step(setup)
    mark_boundary(PROFILED)
    recording.export()
    trace = read_program_trace(path, MARKERS)
    found = find_works(trace, MARKERS, {}, on_host=False)
    if found is None:
        raise RuntimeError("the profile holds no whole step")
    queue = queue_of(trace, found, MARKERS)
    _NAMES[id(queue)] = [trace.trace.device_events[work.event].name for work in queue.works]
    return queue


@dataclass(frozen=True)
class Answer:
    """A change: what was simulated and what was measured, in seconds of the step."""

    program: str
    change: str
    step_s: float
    simulated_s: float
    uncertainty_s: float
    measured_s: float
    hit: bool


def answers(name: str, row: Row) -> Iterator[Answer]:
    """Each change of a program."""
    program = Program(row.make())
    program.prepare(row.setup)
    before = timed(program, row.setup)
    with tempfile.TemporaryDirectory() as folder:
        queue = profiled(program, row.setup, Path(folder))
    fitted: FittedQueue = fit(queue.queue, before.step_s, (), before.host_s)
    told = ", ".join(f"{host.event_cost_s * 1e6:.1f} µs a range, x{host.scale:.2f}" for host in fitted.hosts)
    print(f"{name}: {before.step_s * 1e3:.3f} ms a step, host {before.host_s * 1e3:.3f} ms; fitted: {told}", flush=True)
    for question in row.questions:
        if not GPU and question not in (LOADER, BUSY):
            continue
        saving: SimulatedSaving = saving_of(fitted, question.ask(queue, fitted.queue, row.setup))
        changed = question.make(row.setup)
        measured_s = in_turn(program, row.setup, changed)
        off_s = abs(saving.time_s - measured_s)
        hit = off_s <= max(HIT_S, HIT_SHARE * abs(measured_s))
        yield Answer(name, question.name, before.step_s, saving.time_s, saving.uncertainty_s, measured_s, hit)


def line(answer: Answer) -> str:
    """A row of the table."""
    times = (answer.step_s, answer.simulated_s, answer.uncertainty_s, answer.measured_s)
    step, simulated, uncertain, measured = (f"{1e3 * one:8.3f}" for one in times)
    told = f"{step}  {simulated} ±{uncertain}  {measured}  {'hit' if answer.hit else 'MISS'}"
    return f"{answer.program:13}{answer.change:31}{told}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], metavar="PROGRAM")
    parser.add_argument("--within", type=float, default=480.0, metavar="S")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the table as JSON")
    asked = parser.parse_args()
    faulthandler.enable()
    begin = time.monotonic()
    calibrate()
    found: list[Answer] = []
    left = []
    for name in asked.programs or PROGRAMS:
        if time.monotonic() - begin > asked.within - LEAST_S:
            left.append(name)
            continue
        torch._dynamo.reset()
        for answer in answers(name, PROGRAMS[name]):
            found.append(answer)
            print(line(answer), flush=True)
    where = torch.cuda.get_device_name() if GPU else "CPU"
    print(
        f"\n{where}, torch {torch.__version__}: {sum(one.hit for one in found)} of {len(found)} changes hit", flush=True
    )
    if left:
        print(f"no time was left for {', '.join(left)}")
    if asked.output:
        asked.output.write_text(json.dumps([asdict(one) for one in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
