"""How true the figures of a program's step are, and what the observation costs.

``python scripts/benchmark_step.py [--rounds N] [--keep FOLDER] PROGRAM...``, where PROGRAM is a file of
``scripts/programs``, or ``distributed.py ddp`` in quotes, which torchrun starts in two processes.

``step``      the tool's step time against the program's own stopwatch, the median of ``--rounds`` processes by itself.
``busy``      the tool's busy time against the profiler's own totals in a process without the tool.
``parts``     the sum of the parts' shares.
``tied``      the share of the compiled graphs' device time that is tied to a kernel and a call.
``observed``  the stopwatch of an observed process, in its timed window, against one by itself; interleaved.
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "scripts" / "programs"
SITE = ROOT / "inductor_bench" / "worker" / "capture" / "site"
WARM_UP = 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+", metavar="PROGRAM")
    parser.add_argument("--rounds", type=int, default=2, help="processes by themselves, and observed ones, in turn")
    parser.add_argument("--cost-only", action="store_true", help="no breakdown: only what the observation costs")
    parser.add_argument("--keep", type=Path, help="the folder for the RUNs")
    options = parser.parse_args()
    reached = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        for program in options.programs:
            run = None if options.cost_only else folder / Path(program.split()[0]).stem
            row = measure(command_of(program), run, options.rounds)
            reached &= show(program, row)
    return 0 if reached else 1


def command_of(program: str) -> list[str]:
    name, *arguments = shlex.split(program)
    start = [sys.executable]
    if arguments:
        start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    return [*start, str(PROGRAMS / name), *arguments]


def measure(command: list[str], run: Path | None, rounds: int) -> dict[str, float]:
    """The figures of one program, seconds and shares; without ``run`` only what the observation costs."""
    alone, observed, plain = [], [], {}
    for _ in range(rounds):
        plain = stopwatch(command, PROFILE="1")
        alone.append(plain["step_s"])
        with tempfile.TemporaryDirectory() as capture:
            path = os.pathsep.join((str(SITE), str(ROOT)))
            window = {"INDUCTOR_BENCH_SKIP_STEPS": str(WARM_UP), "INDUCTOR_BENCH_TIMED_STEPS": "1000000"}
            observed.append(stopwatch(command, PYTHONPATH=path, INDUCTOR_BENCH_CAPTURE=capture, **window)["step_s"])
    row = {"observed": statistics.median(observed) / statistics.median(alone), "lowest": min(observed) / min(alone)}
    print(json.dumps({"alone_s": alone, "observed_s": observed}), flush=True)
    if run is None:
        return row
    tool = [sys.executable, "-m", "inductor_bench", "breakdown", "-o", str(run), "--force", "--", *command]
    subprocess.run(tool, cwd=ROOT, env=os.environ | {"STEPS": "120"}, check=False)
    program = json.loads((run / "record.json").read_text())["program"]
    return row | {
        "step_s": program["step_time_s"],
        "stopwatch_s": statistics.median(alone),
        "busy_s": program["busy_time_s"] or 0.0,
        "profiler_busy_s": plain["busy_s"],
        "parts": sum(part["share"] for part in program["parts"]),
        "tied": min(rank["tied_share"] or 0.0 for rank in program["ranks"]),
    }


def stopwatch(command: list[str], **variables: str) -> dict[str, Any]:
    """What the stopwatch of a program prints; of several processes that of the slowest."""
    environment = {**os.environ, **variables}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = [
        json.loads(line.split(maxsplit=1)[1]) for line in ended.stdout.splitlines() if line.startswith("stopwatch")
    ]
    if not found:
        sys.exit(f"{shlex.join(command)} failed:\n{ended.stdout[-2000:]}\n{ended.stderr[-2000:]}")
    return max(found, key=lambda one: float(one["step_s"]))


def show(program: str, row: dict[str, float]) -> bool:
    """Prints the row of a program, and returns whether every target is reached."""
    checks = [("observed", row["observed"] <= 1.01, f"{row['observed']:.3f} (median), {row['lowest']:.3f} (lowest)")]
    if "step_s" in row:
        step, busy = row["step_s"] / row["stopwatch_s"], row["busy_s"] / (row["profiler_busy_s"] or row["busy_s"])
        checks += [
            ("step", abs(step - 1) <= 0.02, f"{1e3 * row['step_s']:.3f} ms, {step:.3f} of the stopwatch"),
            ("busy", abs(busy - 1) <= 0.01, f"{1e3 * row['busy_s']:.3f} ms, {busy:.3f} of the profiler"),
            ("parts", abs(row["parts"] - 1) <= 0.01, f"{row['parts']:.4f}"),
            ("tied", row["tied"] >= 0.995, f"{row['tied']:.4f}"),
        ]
    for name, good, words in checks:
        print(f"{program:20} {name:10} {'reached' if good else 'missed ':8} {words}", flush=True)
    return all(good for _, good, _ in checks)


if __name__ == "__main__":
    sys.exit(main())
