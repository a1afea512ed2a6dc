"""How true this tool's times are: every target of accuracy, repeatability and cost, measured on the device at hand.

``python scripts/benchmark_accuracy.py RUN [--budget SECONDS] [--output DIR] [--only STEP]``, where RUN is the folder
of a breakdown; its ``kernels/`` are measured. DIR gets ``outcomes.jsonl`` (a line as soon as something is known),
``accuracy.json`` (the table, and all outcomes) and ``accuracy.png`` (errors against the profiler). What there is when
the budget is spent, or after a SIGTERM or Ctrl-C, is summed up. ``--read`` sums up the outcomes in DIR once more and
measures nothing.

``kernel``   the time of some 50 kernels by this tool, by Inductor's benchmarker and by Triton's ``do_bench``, each
             against the profiler under the same protocol, and against the time in the model
``ratio``    the ratio of the times of two configurations, likewise
``repeat``   the median by fresh timers
``itself``   races of a configuration against itself
``gap``      races of two kernels that are 2% apart
``cost``     device time of a candidate
``retune``   a retune by the library: what was checked before it was timed
``builds``   compiling candidates with 1 to 8 workers; needs no GPU

``--load N`` keeps N processes at work meanwhile, as the compile pool of a retune does: the same targets hold.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from accuracy.outcomes import STEPS, Outcome, Row, read_outcomes, summarize, table

ROOT = Path(__file__).resolve().parent.parent
MOST_PROCESSES = 5
LOAD = """
import ast
text = "\\n".join(f"def f{n}(x):\\n    return [each + {n} for each in range(x) if each % {n + 1}]" for n in range(2000))
while True:
    compile(ast.parse(text), "load", "exec")
"""
"""A program that uses one core and its caches as a compiler does."""

GRACE_S = 15.0
"""What a trial that has begun in time may take beyond the budget."""


class Stopped(Exception):
    """By a SIGTERM or Ctrl-C."""


def measure(options: argparse.Namespace, outcomes: Path) -> None:
    """Lets a process measure, and another one go on if that is lost.

    Raises:
        Stopped: by a signal.
    """
    begin = time.monotonic()
    outcomes.unlink(missing_ok=True)
    job = outcomes.with_name("job.json")
    steps = options.only or list(STEPS)
    facts = {"run": str(options.run), "begin": begin, "budget_s": options.budget, "steps": steps}
    job.write_text(json.dumps({**facts, "outcomes": str(outcomes)}))
    for _ in range(MOST_PROCESSES):
        known = read_outcomes(outcomes)
        child = subprocess.Popen(
            [options.python, "-m", "accuracy.device", str(job)],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(
                    [str(ROOT), str(ROOT / "scripts"), *filter(None, [os.environ.get("PYTHONPATH")])]
                ),
            },
            stdout=sys.stderr,
            start_new_session=True,  # Ctrl-C is for this process
        )
        try:
            status = child.wait(max(begin + options.budget + GRACE_S - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            return
        finally:
            end(child)
        if status == 0:
            return
        print(f"the process that measures ended with status {status}", file=sys.stderr)
        if read_outcomes(outcomes) == known:
            return


def end(child: subprocess.Popen[Any]) -> None:
    """Ends a process at once; its workers end when their pipes do."""
    child.kill()
    child.wait()


@contextmanager
def loaded(count: int) -> Iterator[None]:
    """Keeps processes at work that use a core each."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.callback(end, subprocess.Popen([sys.executable, "-c", LOAD], start_new_session=True))
        yield


@contextmanager
def stoppable() -> Iterator[None]:
    """Turns SIGTERM and Ctrl-C into :class:`Stopped`, once."""

    def stop(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def report(outcomes: list[Outcome], folder: Path) -> list[Row]:
    """Prints the table and what went wrong, and writes the files."""
    from accuracy.plot import draw_errors

    rows = summarize(outcomes)
    device = next((one for one in outcomes if one["step"] == "device" and "name" in one), {})
    about = f"{device.get('name', 'unknown device')} · torch {device.get('torch', '?')}"
    print(f"\n{about}\n\n{table(rows)}\n")
    for line in list_failures(outcomes):
        print(line)
    facts = {"about": about, "rows": [vars(row) for row in rows], "outcomes": outcomes}
    (folder / "accuracy.json").write_text(json.dumps(facts, indent=1) + "\n")
    picture = draw_errors(outcomes, about)
    if picture is not None:
        (folder / "accuracy.png").write_bytes(picture)
    return rows


def list_failures(outcomes: list[Outcome]) -> Iterator[str]:
    """What was not measured and why, one line for each step and kind of failure."""
    done = {(one["step"], one["subject"]) for one in outcomes if not one.get("begun")}
    failed: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for one in outcomes:
        if "why" in one or (one.get("begun") and (one["step"], one["subject"]) not in done):
            why = one.get("why", "it did not end")
            failed.setdefault((one["step"], why.split(":")[0]), []).append((one["subject"], why))
    for (step, _), each in failed.items():
        (subject, why), others = each[0], f" and {len(each) - 1} more" if len(each) > 1 else ""
        yield f"not measured: {step} {subject[:60]}{others}: {why[:160]}"


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a breakdown")
    parser.add_argument("--budget", type=float, default=240.0, help="seconds for all steps together (240)")
    parser.add_argument("--output", type=Path, default=Path("runs/accuracy"), help="what is written (runs/accuracy)")
    parser.add_argument("--only", choices=STEPS, action="append", help="this step; may be given again")
    parser.add_argument("--python", default=sys.executable, help="the interpreter that measures (this one)")
    parser.add_argument("--load", type=int, default=0, help="processes that use a core each meanwhile (0)")
    parser.add_argument("--read", action="store_true", help="sum up what was measured before")
    options = parser.parse_args()
    outcomes = options.output / "outcomes.jsonl"
    if options.read and not outcomes.is_file():
        parser.error(f"{outcomes} is not there: leave --read away to measure")
    if not options.read and not (options.run / "kernels" / "kernels.json").is_file():
        parser.error(f"{options.run} has no kernels/kernels.json: give the folder that a breakdown wrote")
    return options


def main() -> int:
    options = read_options()
    options.output.mkdir(parents=True, exist_ok=True)
    outcomes, finished = options.output / "outcomes.jsonl", True
    if not options.read:
        try:
            with stoppable(), loaded(options.load):
                measure(options, outcomes)
        except Stopped:
            finished = False
    rows = report(read_outcomes(outcomes), options.output)
    return 0 if finished and rows and all(row.reached is not False for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
