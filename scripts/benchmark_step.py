"""How true the figures of a program's step are, and what the observation costs.

``python scripts/benchmark_step.py [--rounds N] [--keep FOLDER] PROGRAM...``, where PROGRAM is a file of
``scripts/programs``, or ``distributed.py ddp`` in quotes, which torchrun starts in two processes.

``step``      the tool's timed window against the program's own times of the same steps in the same process; beside it
              the program's stopwatch in ``--rounds`` processes without the tool, which vary.
``profiled``  the same for the profiled window.
``busy``      the tool's busy time against the profiler's own totals in a process without the tool. Of several ranks it
              is the least busy one of each side: all others wait for it, and a collective that waits is busy. Which
              rank that is can change from process to process, as the slower host can.
``parts``     the sum of the parts' shares.
``tied``      the share of the compiled graphs' device time that is tied to a kernel and a call.
``observed``  blocks of steps with the observation's hooks against blocks without them, interleaved in one process. In
              programs with a loop of their own (``Laps``) they are short, and as many as the program has steps for.

``--rounds 0`` is for programs that compile for minutes: it runs only the breakdown, and after the tool's window the
observed program itself profiles ten steps for ``busy``. ``--no-cost`` leaves out ``observed``.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.analysis.program_step import MARKERS
from inductor_bench.analysis.statistics import CONFIDENCE, compute_paired_ratio
from inductor_bench.errors import InductorBenchError
from inductor_bench.messages.observed import REQUEST, request_text
from inductor_bench.records.evidence import BOUNDARY, TIMING
from inductor_bench.records.request import BreakdownRequest
from inductor_bench.trace.program_trace import find_window, read_program_trace

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "scripts" / "programs"
SITE = ROOT / "inductor_bench" / "worker" / "capture" / "site"
STEPS = 120
BLOCK_S = 0.3
SKIP = 10
ENDLESS = 10**9

Ranks = Sequence[Mapping[str, Any]]
"""What each rank of a program printed; one if it has a single process."""


@dataclass(frozen=True)
class Check:
    """One figure of a program: whether it reaches its target, and what was measured in words."""

    name: str
    reached: bool
    words: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=2, help="processes without the tool")
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--cost-only", action="store_true", help="no breakdown: only what the observation costs")
    either.add_argument("--no-cost", action="store_true", help="leaves out what the observation costs")
    parser.add_argument("--keep", type=Path, help="the folder for the RUNs")
    options = parser.parse_args()
    reached = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for program in options.programs:
            run = None if options.cost_only else folder / Path(program.split()[0]).stem
            for check in measure(command_of(program), run, options.rounds, cost=not options.no_cost):
                reached &= check.reached
                verdict = "reached" if check.reached else "missed"
                print(f"{program:20} {check.name:10} {verdict:8} {check.words}", flush=True)
    return 0 if reached else 1


def command_of(program: str) -> list[str]:
    name, *arguments = shlex.split(program)
    start = [sys.executable]
    if arguments:
        start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    return [*start, str(PROGRAMS / name), *arguments]


def measure(command: list[str], run: Path | None, rounds: int, *, cost: bool = True) -> Iterator[Check]:
    """The checks of one program; without ``run`` only what the observation costs, without ``cost`` all but that."""
    alone = [stopwatch(command, PROFILE="1") for _ in range(rounds)]
    if run is not None:
        yield from compare(command, run, alone)
    if alone and cost:
        yield check_cost(command, statistics.median(slowest(ranks)["step_s"] for ranks in alone))


def compare(command: list[str], run: Path, alone: Sequence[Ranks]) -> Iterator[Check]:
    """Breaks the program down and compares the figures with the program's own.

    Args:
        command: what starts the program.
        run: the folder of the breakdown.
        alone: what the ranks printed in each process without the tool. If there is none, the observed program
            profiles itself after the tool's window.
    """
    tool = [sys.executable, "-m", "inductor_bench", "breakdown", "-o", str(run), "--force", "--", *command]
    with tempfile.TemporaryDirectory() as ends:
        variables = os.environ | {"STEPS": str(STEPS), "STEP_ENDS": ends} | ({} if alone else {"PROFILE": "1"})
        subprocess.run(tool, cwd=ROOT, env=variables, stdout=sys.stderr, check=False)
        program = json.loads((run / "record.json").read_text(encoding="utf-8"))["program"]
        leading = next(rank for rank in program["ranks"] if rank["step_times_s"] == program["step_times_s"])
        clocks = json.loads((Path(ends) / f"{leading['pid']}.json").read_text(encoding="utf-8"))
    own_s = clocks["device_s"] or clocks["host_s"]
    blocks = ", ".join(f"{1e3 * slowest(ranks)['step_s']:.3f}" for ranks in alone)
    beside = f"; {blocks} ms without tool" if alone else ""
    yield check_times("step", program["settled_after"], program["step_times_s"], own_s, beside)
    first, times = profiled_times(run / leading["trace"])
    yield check_times("profiled", first, times, own_s)
    own = alone[-1] if alone else printed((run / "logs" / "program.log").read_text(encoding="utf-8"))
    yield from check_busy([rank["busy_time_s"] for rank in program["ranks"]], own)
    parts = sum(part["share"] for part in program["parts"])
    yield Check("parts", abs(parts - 1) <= 0.01, f"{parts:.4f}")
    shares = [rank["tied_share"] for rank in program["ranks"] if rank["tied_share"] is not None]
    if shares:
        yield Check("tied", min(shares) >= 0.995, f"{min(shares):.4f}")


def profiled_times(path: Path) -> tuple[int, Sequence[float]]:
    """The number of the first profiled step and the times of all, by the tool's trace; none if it holds no step."""
    try:
        trace = read_program_trace(path, MARKERS)
    except InductorBenchError as error:
        sys.exit(f"{path}: {error.message}")
    window = find_window(trace, MARKERS)
    if window is None:
        return 0, ()
    first = next(op.name for op in trace.trace.host_ops if op.name.startswith(BOUNDARY))
    times = [end - begin for begin, end in zip(window.bounds, window.bounds[1:], strict=False)]
    return int(first.removeprefix(BOUNDARY)), times


def check_times(name: str, first: int, times_s: Sequence[float], own_s: Sequence[float], more: str = "") -> Check:
    """Compares the tool's times of consecutive steps with the program's own.

    The first and the last step are left out. The tool works at the window's begin and end, a part of a step before or
    after the step's end in the program: that work lies in a step of the one and not of the other.

    Args:
        name: of the check.
        first: the number of the first of the steps. Step 0 is the program's first one.
        times_s: the tool's times.
        own_s: the end of each of the program's steps by its own clock.
        more: what the words also say.
    """
    steps = len(times_s) - 2
    if steps < 1:
        return Check(name, False, f"{len(times_s)} steps are too few")
    tool = sum(times_s[1:-1]) / steps
    own = (own_s[first + steps] - own_s[first]) / steps
    words = f"{1e3 * tool:.3f} ms, {tool / own:.4f} of the program's own {1e3 * own:.3f} ms for the same {steps} steps"
    return Check(name, abs(tool / own - 1) <= 0.02, words + more)


def check_busy(tool_s: Sequence[float | None], own: Ranks) -> Iterator[Check]:
    """Compares the busy times of the least busy ranks; nothing if a side has none, as on a CPU.

    Args:
        tool_s: the tool's busy time of each rank, ``None`` without a profile.
        own: what the ranks printed with ``PROFILE``.
    """
    found, profiled = [busy for busy in tool_s if busy], [rank["busy_s"] for rank in own if rank.get("busy_s")]
    if found and profiled:
        ratio = min(found) / min(profiled)
        of = f" of the least busy of {len(profiled)} ranks" if len(profiled) > 1 else ""
        words = f"{1e3 * min(found):.3f} ms{of}, {ratio:.4f} of the profiler's {1e3 * min(profiled):.3f} ms"
        yield Check("busy", abs(ratio - 1) <= 0.01, words)


def check_cost(command: list[str], step_s: float) -> Check:
    """Times steps with and without the observation's hooks; its window is open throughout."""
    with tempfile.TemporaryDirectory() as capture:
        variables = {
            "PYTHONPATH": os.pathsep.join((str(SITE), str(ROOT))),
            "INDUCTOR_BENCH_CAPTURE": capture,
            REQUEST: request_text(BreakdownRequest(skip=SKIP, steps=ENDLESS, samples=False)),
            "INTERLEAVE": str(max(1, round(BLOCK_S / step_s))),
        }
        times = slowest(stopwatch(command, **variables))
        states = {json.loads(file.read_text())["state"] for file in Path(capture).glob("*.steps.json")}
    if states != {TIMING}:
        return Check("observed", False, f"the observation was not in its window but {', '.join(states) or 'absent'}")
    if not times.get("observed_s"):
        return Check("observed", False, "the program has too few steps")
    ratio = compute_paired_ratio(times["observed_s"], times["unobserved_s"], CONFIDENCE)
    unobserved = statistics.median(times["unobserved_s"])
    words = (
        f"{ratio.median:.4f} [{ratio.low:.4f}, {ratio.high:.4f}] of {1e3 * unobserved:.3f} ms, {ratio.pairs} pairs: "
        f"{1e6 * (ratio.median - 1) * unobserved:+.1f} µs a step"
    )
    return Check("observed", ratio.median <= 1.01, words)


def stopwatch(command: list[str], **variables: str) -> Ranks:
    """What the stopwatch of a program prints in each of its ranks."""
    environment = {**os.environ, **variables}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = printed(ended.stdout)
    if not found:
        sys.exit(f"{shlex.join(command)} failed:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}")
    return found


def printed(text: str) -> Ranks:
    """The stopwatch's lines in the output of a program, by rank."""
    lines = (line.split(maxsplit=1)[1] for line in text.splitlines() if line.startswith("stopwatch "))
    return sorted(map(json.loads, lines), key=lambda one: int(one["rank"]))


def slowest(ranks: Ranks) -> Mapping[str, Any]:
    """What the rank with the longest step printed."""
    return max(ranks, key=lambda one: float(one["step_s"]))


if __name__ == "__main__":
    sys.exit(main())
