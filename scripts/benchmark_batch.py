"""Batches of one list beside each other, each on GPUs of its own: does a second GPU double the pace, and does a batch
that is killed again and again find what the others find?

``python scripts/benchmark_batch.py LIST --one 0 --two 1,2 [--killed 3] [--finish 0,1,2,3] [--seconds S]
[--output FOLDER] [-- OPTIONS OF batch]``. The batches run at the same time, with as many threads to compile for each
GPU, so that what else goes on on the machine is the same for all. Every model is written down when it is done; after S
seconds the batches are stopped. ``--finish`` continues the batch of ``--two`` on these GPUs to the end of the list.

The pace is that between the first and the last model that was done: what comes before the first is the same for any
number of GPUs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.launch.local import COMPILE_THREADS, compile_threads, usable_cores

ROOT = Path(__file__).resolve().parents[1]
LOOK_S = 0.5
KILLS = 3
KILL_AFTER_S = (20.0, 60.0)
END_S = 30.0
PACE = 1.8


@dataclass
class Driver:
    """One batch and the process that works at it; ``done_s`` says when each of its models was done."""

    name: str
    devices: str
    words: Sequence[str]
    folder: Path
    kills: list[float] = field(default_factory=list)
    done_s: dict[str, float] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0

    def start(self) -> None:
        self.began = time.monotonic()
        words = ["batch", *self.words, "--devices", self.devices, "-o", str(self.folder), "--no-plots"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with self.folder.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "inductor_bench", *words], stdout=log, stderr=log, env=environment
            )

    def look(self, now_s: float) -> bool:
        """Takes down what is done, kills what is to be killed now, and says whether it goes on."""
        assert self.process is not None
        for name in done_models(self.folder):
            self.done_s.setdefault(name, now_s)
        if self.process.poll() is not None:
            return False
        if self.kills and time.monotonic() - self.began > self.kills[0]:
            self.kills.pop(0)
            self.process.kill()
            self.process.wait()
            self.start()
        return True

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_S)
        self.process.kill()


def done_models(folder: Path) -> list[str]:
    try:
        rows = json.loads((folder / "batch.json").read_text())["models"]
    except (OSError, ValueError):  # not there yet
        return []
    return [row["request"]["name"] for row in rows if row["status"] == "done"]


def pace(done_s: dict[str, float]) -> float | None:
    """Models per second between the first and the last that was done; ``None`` with fewer than two moments."""
    times = sorted(done_s.values())
    return (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 and times[-1] > times[0] else None


def found_in(folder: Path, name: str) -> tuple[Any, list[float]]:
    """What a model came to: each graph's kernels with their ids and calls; and the graphs' wall times."""
    modules = json.loads((folder / "models" / name / "record.json").read_text())["modules"]
    fields = ("name", "kernel_id", "category", "calls")
    found = [
        (module["label"], sorted([kernel[key] for key in fields] for kernel in module["kernels"])) for module in modules
    ]
    return found, [module["wall_time_s"] for module in modules]


def compare(first: Driver, second: Driver) -> Iterator[tuple[str, bool, float]]:
    """Each model that both have: its name, whether it came to the same, and the ratio of its wall times."""
    for name in sorted(first.done_s.keys() & second.done_s.keys()):
        (one, times), (other, others) = (found_in(driver.folder, name) for driver in (first, second))
        yield name, one == other, sum(others) / sum(times)


def run(drivers: Sequence[Driver], seconds: float) -> float:
    """Runs batches beside each other until all have ended or the time is up; returns how long that was."""
    began = time.monotonic()
    for driver in drivers:
        driver.start()
    try:
        while sum(driver.look(time.monotonic() - began) for driver in drivers):
            if time.monotonic() - began > seconds:
                break
            time.sleep(LOOK_S)
    finally:
        for driver in drivers:
            driver.stop()
    return time.monotonic() - began


def report(one: Driver, two: Driver, killed: Driver | None) -> Iterator[str]:
    for driver in (one, two, *([killed] if killed else [])):
        rate = pace(driver.done_s)
        yield f"{driver.name:8} GPU {driver.devices:8} {len(driver.done_s):3} done" + (
            f"  {1 / rate:6.1f} s for each after the first" if rate else ""
        )
    slow, fast = pace(one.done_s), pace(two.done_s)
    if slow and fast:
        reached = "" if fast / slow >= PACE else "  NOT REACHED"
        yield f"two GPUs against one: {fast / slow:.2f}x (target {PACE}x){reached}"
    pairs = [(one, two), *([(two, killed), (one, killed)] if killed else [])]
    for first, second in pairs:
        for name, same, ratio in compare(first, second):
            words = "the same kernels" if same else "OTHER KERNELS"
            yield f"{first.name} and {second.name}: {name}: {words}, wall time {ratio:.3f}x"


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--one", required=True, help="the GPU of the first batch")
    parser.add_argument("--two", required=True, help="those of the second")
    parser.add_argument("--killed", help="that of a third, which is killed")
    parser.add_argument("--killed-models", action="append", default=[], help="only these there; may be given again")
    parser.add_argument("--finish", help="the GPUs on which the second is continued")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--finish-seconds", type=float, default=600.0)
    parser.add_argument("--output", type=Path, default=Path("runs/batch"))
    parser.add_argument("options", nargs="*", help="of batch, after --")
    return parser.parse_args()


def main() -> int:
    given = read_arguments()
    given.output.mkdir(parents=True, exist_ok=True)
    gpus = len({device for each in (given.one, given.two, given.killed or "") for device in each.split(",") if device})
    os.environ.setdefault(COMPILE_THREADS, str(compile_threads(usable_cores(), gpus, overlap=True)))
    words = [str(given.list), *given.options]
    one = Driver("one", given.one, words, given.output / "one")
    two = Driver("two", given.two, words, given.output / "two")
    killed = None
    if given.killed:
        only = [word for name in given.killed_models for word in ("--filter", name)]
        moments = [random.uniform(*KILL_AFTER_S) for _ in range(KILLS)]
        print("killed after", ", ".join(f"{moment:.0f} s" for moment in moments), flush=True)
        killed = Driver("killed", given.killed, [*words, *only], given.output / "killed", moments)
    taken = run([one, two, *([killed] if killed else [])], given.seconds)
    print(f"{taken:.0f} s", *report(one, two, killed), sep="\n", flush=True)
    if given.finish:
        rest = Driver("two", given.finish, words, two.folder)
        taken = run([rest], given.finish_seconds)
        print(f"continued on GPU {given.finish} for {taken:.0f} s: {len(rest.done_s)} done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
