"""How true simulated savings are: programs with known changes, each simulated from one profile and then really made.

``python scripts/benchmark_simulation.py [--within S] [--keep FOLDER] [PROGRAM...]`` runs ten programs one after the
other in one process, or those that are named. Each has real work (matrix products, compiled networks, optimizers,
copies, replays of CUDA graphs), and in its step two kernels whose time is known (``torch.cuda._sleep``), a loader that
sleeps, Python that is busy, a value that is read, or a region of small launches.

Of each program some steps are profiled. Then it runs with each change and without, in turn. From the profile and the
times of the unchanged steps alone (on the device, on the host, and of the host in the region, as the tool times calls
of compiled graphs) the simulation answers what the change makes of the step. ``simulated`` and ``measured`` are what
the step becomes shorter by, in ms, the latter with the standard error of its turns. A change counts as ``hit`` if they
differ by at most 10% of what was measured, or by 0.1 ms.

``--keep`` keeps the profiles and ``answers.json`` in a folder, and ``--again FOLDER`` judges these once more with the
simulation as it is now, on any machine.

Programs for which no time is left within ``--within`` seconds are listed. Without a GPU the programs are small, have no
kernels, and only the host changes.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.analysis.program_step import MARKERS
from inductor_bench.analysis.simulation.fitting import TimedCalls, compute_saving, fit
from inductor_bench.analysis.simulation.predictions import LAUNCH_S, REPLAYED_GAP_S, compute_replay_gap_s
from inductor_bench.analysis.simulation.profiled_queue import ProfiledQueue, build_profiled_queue
from inductor_bench.analysis.simulation.queue import (
    BOUNDARY,
    WAIT,
    Replay,
    StepQueue,
    remove_host_time,
    remove_tasks,
    remove_waits,
    replay_as_graphs,
    scale_durations,
)
from inductor_bench.records.evidence import GRAPH_CALL
from inductor_bench.records.run import DATA_LOADING, PYTHON
from inductor_bench.trace.program_trace import read_program_trace
from inductor_bench.trace.program_works import DATA_LOADING_RANGE, find_works
from inductor_bench.worker.capture.step_recording import Recording, mark_boundary
from inductor_bench.worker.profile.module_profile import GRAPH_REPLAYS
from inductor_bench.worker.upstream.inductor import open_profiler_range
from scripts.simulated_work import (
    GPU,
    attention,
    chain,
    convolutions,
    copies,
    network,
    nothing,
    products,
    replayed,
    training,
)

SPIN = "spin_kernel"
"""A part of the name of the kernel of ``torch.cuda._sleep``."""

WARM, TIMED, PROFILED = (8, 40, 5) if GPU else (2, 8, 3)
TURNS, IN_TURN = (36, 8) if GPU else (4, 4)
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
    replay_s: float | None = None  # what one replay of the region takes by itself


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
        self.regions_s: list[float] = []  # the host's time in the region, in the last steps

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

    def time_replay(self) -> float | None:
        """The median seconds of a replay of the region by itself, as the tool times a module; ``None`` on a CPU."""
        if self._graph is None:
            return None
        times_s = []
        for _ in range(GRAPH_REPLAYS):
            torch.cuda.synchronize()
            begin_s = time.perf_counter()
            self._graph.replay()
            torch.cuda.synchronize()
            times_s.append(time.perf_counter() - begin_s)
        return statistics.median(times_s)

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
        begin_s = time.perf_counter()
        if setup.one_graph:
            self._graph.replay()
        else:
            with open_profiler_range(f"{GRAPH_CALL}0"):
                self._work.region()
        self.regions_s.append(time.perf_counter() - begin_s)
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
    return remove_host_time(queue, shares)


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
    return remove_host_time(queue, shares)


def without_reading(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
    """The queue whose host waits for nothing."""
    return remove_waits(queue, {number for number, action in enumerate(queue.actions) if action.kind == WAIT})


def with_one_graph(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
    """The queue whose region is one launch."""
    replays = []
    for _, actions in sorted(profiled.calls.items()):
        works = [queue.works[place] for number in actions for place in queue.actions[number].work_indices]
        busy_s, gap_s = math.fsum(work.duration_s for work in works), REPLAYED_GAP_S
        if setup.replay_s is not None:
            gap_s = compute_replay_gap_s(setup.replay_s, busy_s, len(works))
        replays.append(Replay(actions, LAUNCH_S, gap_s, LAUNCH_S))
    return replay_as_graphs(queue, replays)


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
        return scale_durations(queue, dict.fromkeys(places, factor)) if factor else remove_tasks(queue, places)

    return Question(name, make, ask)


def move_to_another_stream(queue: StepQueue, places: Collection[int]) -> StepQueue:
    """The queue in which these works run on a stream of their own, and nothing but the host waits for them."""
    lane = 1 + max((work.lane for work in queue.works), default=0)
    moved = frozenset(places)
    return replace(
        queue,
        works=tuple(
            work._replace(lane=lane, after=()) if place in moved else work for place, work in enumerate(queue.works)
        ),
    )


def beside(profiled: ProfiledQueue, queue: StepQueue, setup: Setup) -> StepQueue:
    """The queue whose last known kernel runs on another stream."""
    return move_to_another_stream(queue, spins(profiled, event_names(profiled), last=True))


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
            products(_small(8), 4096 if GPU else 64), chain(_small(50), 64), products(_small(4), 4096 if GPU else 64)
        ),
        Setup(2e-3, 2e-3),
        (*KERNELS, ONE, BESIDE),
    ),
    "launches": Row(  # the host sets the pace
        lambda: Work(chain(_small(400), 64), chain(_small(500), 64), nothing),
        Setup(0.5e-3, 0.5e-3, busy_s=1e-3),
        (HALF, GONE, TWICE, ONE, BUSY, BESIDE),
    ),
    "eager": Row(
        lambda: Work(attention(_small(6)), chain(_small(300), 64), attention(_small(4))),
        Setup(1e-3, 1e-3, reads=True),
        (HALF, TWICE, GONE, READS, ONE, BESIDE),
    ),
    "train": Row(
        lambda: Work(
            training(network(1024, 6), torch.randn(4096 if GPU else 8, 1024)), chain(_small(200), 64), nothing
        ),
        Setup(1e-3, 1.5e-3, busy_s=2e-3),
        (HALF, TWICE, BOTH, ONE, BUSY, GONE),
    ),
    "accumulate": Row(
        lambda: Work(
            training(network(512, 4), torch.randn(512 if GPU else 8, 512), micro=4), chain(_small(100), 64), nothing
        ),
        Setup(2e-3, 2e-3, reads=True),
        (HALF, TWICE, BOTH, GONE, READS, BESIDE),
    ),
    "loader": Row(
        lambda: Work(
            copies(_small(64), pinned=False), chain(_small(100), 64), products(_small(6), 4096 if GPU else 64)
        ),
        Setup(1e-3, 1e-3, loader_s=12e-3),
        (LOADER, HALF, TWICE, GONE, ONE, BOTH),
    ),
    "sleeper": Row(
        lambda: Work(products(_small(10), 4096 if GPU else 64), chain(_small(200), 64), nothing),
        Setup(1e-3, 2e-3, loader_s=4e-3, reads=True),
        (LOADER, READS, HALF, TWICE, GONE, BESIDE),
    ),
    "replay": Row(
        lambda: Work(
            replayed(chain(_small(300), 256)),
            chain(_small(200), 64),
            replayed(products(_small(4), 2048 if GPU else 64)),
        ),
        Setup(0.5e-3, 0.5e-3, busy_s=0.5e-3),
        (HALF, TWICE, GONE, BOTH, ONE, BUSY),
    ),
    "pinned": Row(
        lambda: Work(
            copies(_small(128), pinned=True),
            chain(_small(150), 64),
            training(network(512, 3), torch.randn(256 if GPU else 8, 512), fused=True if GPU else None),
        ),
        Setup(1e-3, 1e-3, busy_s=1e-3),
        (HALF, TWICE, BOTH, GONE, ONE, BUSY),
    ),
    "convolutions": Row(
        lambda: Work(convolutions(), chain(_small(250), 64), nothing),
        Setup(1.5e-3, 1.5e-3, loader_s=3e-3, reads=True),
        (LOADER, READS, HALF, TWICE, ONE, BESIDE),
    ),
}
"""Ten programs with six changes each."""


# Measures.


class Timed(NamedTuple):
    """The median step on the device's clock and on the host's, and the host's time in the region, in seconds."""

    step_s: float
    host_s: float
    region_s: float


def timed(program: Program, setup: Setup, steps: int = TIMED, warm: int = WARM) -> Timed:
    """Times steps after a few others."""
    for _ in range(warm):
        program.step(setup)
    program.regions_s.clear()
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
    return Timed(statistics.median(steps_s), statistics.median(host_s), statistics.median(program.regions_s))


class Measured(NamedTuple):
    """The seconds by which a step is shorter in another setup, their standard error, and the unchanged step."""

    shorter_s: float
    error_s: float
    unchanged: Timed


def in_turn(program: Program, one: Setup, other: Setup) -> Measured:
    """Measures a change; a drift of the machine cancels."""
    sides: dict[Setup, list[Timed]] = {one: [], other: []}
    for turn in range(TURNS):
        for setup in (one, other) if turn % 2 else (other, one):
            sides[setup].append(timed(program, setup, IN_TURN, WARM // 4))
    shorter = [first.step_s - second.step_s for first, second in zip(sides[one], sides[other], strict=True)]
    error_s = math.sqrt(math.pi / 2) * statistics.stdev(shorter) / math.sqrt(len(shorter))
    unchanged = Timed(*(statistics.median(times) for times in zip(*sides[one], strict=True)))
    return Measured(statistics.median(shorter), error_s, unchanged)


def profile(program: Program, setup: Setup, path: Path) -> None:
    """Records a few steps."""
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


def read_queue(path: Path) -> ProfiledQueue:
    """The queue of recorded steps."""
    trace = read_program_trace(path, MARKERS)
    found = find_works(trace, MARKERS, {}, on_host=False)
    if found is None:
        raise RuntimeError("the profile holds no whole step")
    queue = build_profiled_queue(trace, found, MARKERS)
    _NAMES[id(queue)] = [trace.trace.device_events[work.event].name for work in queue.works]
    return queue


@dataclass(frozen=True)
class Answer:
    """A change: what was simulated and what was measured, in seconds of the step."""

    program: str
    change: str
    unchanged: Timed
    simulated_s: float
    uncertainty_s: float
    measured_s: float
    error_s: float  # the standard error of what was measured
    hit: bool
    replay_s: float | None = None  # of the region by itself


def answers(name: str, row: Row, folder: Path) -> Iterator[Answer]:
    """Each change of a program. Its profile is written into a folder."""
    program = Program(row.make())
    program.prepare(row.setup)
    profile(program, row.setup, folder / f"{name}.json")
    simulator = Simulator(name, row, folder, program.time_replay())
    for question in row.questions:
        if not GPU and question not in (LOADER, BUSY):
            continue
        yield simulator.answer(question, in_turn(program, row.setup, question.make(row.setup)))


class Simulator:
    """The simulation of a program by its profile."""

    def __init__(self, name: str, row: Row, folder: Path, replay_s: float | None) -> None:
        self._name, self._setup = name, replace(row.setup, replay_s=replay_s)
        self._queue = read_queue(folder / f"{name}.json")

    def answer(self, question: Question, found: Measured) -> Answer:
        """What is simulated of a change, beside what was measured."""
        before = found.unchanged
        calls = [TimedCalls(self._queue.calls.keys(), before.region_s)]
        fitted = fit(self._queue.queue, before.step_s, (), before.host_s, calls)
        saving = compute_saving(fitted, question.ask(self._queue, fitted.queue, self._setup))
        hit = abs(saving.time_s - found.shorter_s) <= max(HIT_S, HIT_SHARE * abs(found.shorter_s))
        simulated, measured = (saving.time_s, saving.uncertainty_s), (found.shorter_s, found.error_s)
        return Answer(self._name, question.name, before, *simulated, *measured, hit, self._setup.replay_s)


def judge_again(folder: Path) -> Iterator[Answer]:
    """The kept answers with what is simulated now."""
    kept = [Answer(**one) for one in json.loads((folder / "answers.json").read_text())]
    for name, group in groupby(kept, key=lambda one: one.program):
        answers_of = list(group)
        simulator = Simulator(name, PROGRAMS[name], folder, answers_of[0].replay_s)
        by_name = {question.name: question for question in PROGRAMS[name].questions}
        for one in answers_of:
            found = Measured(one.measured_s, one.error_s, Timed(*one.unchanged))
            yield simulator.answer(by_name[one.change], found)


def line(answer: Answer) -> str:
    """A row of the table."""
    times = (*answer.unchanged, answer.simulated_s, answer.uncertainty_s, answer.measured_s, answer.error_s)
    step, host, region, simulated, uncertain, measured, error = (f"{1e3 * one:8.3f}" for one in times)
    told = f"{step}{host}{region}  {simulated} ±{uncertain}  {measured} ±{error}  {'hit' if answer.hit else 'MISS'}"
    return f"{answer.program:13}{answer.change:31}{told}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="*", choices=[*PROGRAMS, []], metavar="PROGRAM")
    parser.add_argument("--within", type=float, default=480.0, metavar="S")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--keep", type=Path, metavar="FOLDER", help="for the profiles and the answers")
    either.add_argument("--again", type=Path, metavar="FOLDER", help="judges what is kept in it, and measures nothing")
    asked = parser.parse_args()
    faulthandler.enable()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found: list[Answer] = []
        for answer in judge_again(asked.again) if asked.again else measured(asked.programs, folder, asked.within):
            found.append(answer)
            print(line(answer), flush=True)
            if not asked.again:
                (folder / "answers.json").write_text(json.dumps([asdict(one) for one in found], indent=1))
    where = "kept" if asked.again else torch.cuda.get_device_name() if GPU else "CPU"
    print(f"\n{where}, torch {torch.__version__}: {sum(one.hit for one in found)} of {len(found)} changes hit")
    return 0


def measured(names: Sequence[str], folder: Path, within_s: float) -> Iterator[Answer]:
    """The answers of programs, as far as the time lasts."""
    begin = time.monotonic()
    calibrate()
    for name in names or PROGRAMS:
        if time.monotonic() - begin > within_s - LEAST_S:
            print(f"{name}: no time was left", flush=True)
            continue
        torch._dynamo.reset()
        yield from answers(name, PROGRAMS[name], folder)


if __name__ == "__main__":
    sys.exit(main())
