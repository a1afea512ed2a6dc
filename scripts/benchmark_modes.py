"""Whether ``modes`` says what the program's own stopwatch says: ``python scripts/benchmark_modes.py PROGRAM``.

PROGRAM is a file of ``scripts/programs``. Its stopwatch times blocks of steps in the same processes, from the warm-up
until the process is ended, and prints each. Held against them is the tool's step time in the last round, in which
nothing is profiled, and the order of the rows. Printed beside is where the time of each process went. OPTIONS after
``--`` are those of ``inductor-bench modes``.

After ``--limit`` seconds, or by Ctrl-C, it is interrupted; the rows that it has measured until then are held against
the stopwatch.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.records.comparison import ModeProcess, ModeRow
from inductor_bench.store.folder import ModesFolder

ROOT = Path(__file__).resolve().parent.parent
WITHIN = 0.02
"""Largest error of a step, as a share of it."""
BLOCK = "block "
"""The beginning of the stopwatch's line of a block."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--block", type=int, default=20, help="steps in a block of the stopwatch (20)")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="of all rows together (none)")
    parser.add_argument("--keep", type=Path, help="the folder for the comparison")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:end])
    with tempfile.TemporaryDirectory() as temporary:
        folder = ModesFolder(options.keep or Path(temporary) / "modes")
        target = str(ROOT / "scripts" / "programs" / options.program)
        command = [sys.executable, "-m", "inductor_bench", "modes", "-o", str(folder.path), *words[end + 1 :], target]
        paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "BLOCK_STEPS": str(options.block), "PYTHONPATH": paths}
        run_until(command, environment, options.limit)
        if not folder.exists():
            return 1
        results = [*check_rows(folder)]
    return 0 if results and all(results) else 1


def run_until(command: Sequence[str], environment: Mapping[str, str], limit_s: float | None) -> None:
    """Runs a command, and interrupts it after a time, or if this script is interrupted or ended."""
    with subprocess.Popen(command, env=environment) as process:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: process.send_signal(signal.SIGINT))
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)


def check_rows(folder: ModesFolder) -> Iterator[bool]:
    """Prints each row's step beside the stopwatch's, and whether both put the rows in the same order."""
    found: list[tuple[float, float, str]] = []
    for number, row in enumerate(folder.load().rows, start=1):
        if row.failure is not None or not row.processes:
            print(f"{row.name:28} {row.failure.message if row.failure is not None else 'not measured'}", flush=True)
            continue
        for one in row.processes:
            print(f"{row.name:28} round {one.round + 1}: {time_of(one)}", flush=True)
        blocks = blocks_of(folder, number, row)
        if not blocks:
            print(f"{row.name:28} the stopwatch printed no block", flush=True)
            yield False
            continue
        tool_s, own_s = row.processes[-1].step_time_s, statistics.median(blocks)
        good = abs(tool_s / own_s - 1) <= WITHIN
        words = f"{1e3 * tool_s:.4g} ms, by its stopwatch {1e3 * own_s:.4g} ms ({len(blocks)} blocks)"
        print(f"{row.name:28} {'good' if good else 'BAD':5} {words}, {tool_s / own_s:.4f}", flush=True)
        found.append((tool_s, own_s, row.name))
        yield good
    by_tool = sorted(found)
    swapped = [(one[2], other[2]) for one, other in pairwise(by_tool) if one[1] > other[1] * (1 + WITHIN)]
    print(f"order: {' < '.join(name for *_, name in by_tool)}; by its stopwatch {swapped or 'the same'}", flush=True)
    yield not swapped


def time_of(process: ModeProcess) -> str:
    """Where the seconds of a process went, in words."""
    compiled_s, timed_s = process.compile_time_s or 0.0, sum(process.step_times_s)
    rest_s = process.time_s - compiled_s - timed_s
    again = f"{process.compiled_graphs} graphs compiled in it" if process.compiled_graphs else "nothing compiled in it"
    return (
        f"{process.time_s:.1f} s, of which compilation or its caches {compiled_s:.1f} s ({again}), "
        f"timed steps {timed_s:.1f} s, imports, other steps, profile and end {rest_s:.1f} s"
    )


def blocks_of(folder: ModesFolder, number: int, row: ModeRow) -> list[float]:
    """The seconds per step of each block in the last process of a row."""
    log = next(folder.logs.glob(f"{number}-*-{row.processes[-1].round + 1}.log"))
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [float(line.removeprefix(BLOCK)) for line in lines if line.startswith(BLOCK)]


if __name__ == "__main__":
    sys.exit(main())
