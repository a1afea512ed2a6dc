"""Batches of one list, each on the GPUs that it names: does a second GPU double the pace, and does a batch that is
killed again and again find what the others find?

``python scripts/benchmark_batch.py LIST --one 0 --two 1,2 [--killed 3] [--seconds S] [--output FOLDER] [-- OPTIONS OF
batch]``. Those that name different GPUs run at the same time, so that what else goes on on the machine is the same for
all; one that names a GPU of another waits for it (``--one 0 --two 0,1 --killed 0,1`` on a machine of two). All have as
many threads for each model. Every model is written down when it is done; after S seconds what still runs is stopped.
The third batch is killed with SIGKILL three times.

A batch's time is that of its whole list. The pace is that of each GPU between its first and its last model, added up,
of those models that both batches have done: what comes before the first is the same for any number of GPUs.
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
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from inductor_bench.launch.batch_executors import OMP_THREADS, compile_threads, count_jobs_at_once
from inductor_bench.launch.worker import COMPILE_THREADS, count_usable_cores

ROOT = Path(__file__).resolve().parents[1]
LOOK_S = 0.5
KILLS = 3
KILL_AFTER_S = (30.0, 120.0)
END_S = 30.0
PACE = 1.8


@dataclass
class Driver:
    """One batch and the process that works at it; ``done_s`` says when each of its models was done, and ``places``
    where. ``ended_s`` is when the whole list was. Both count from ``began``, its first start."""

    name: str
    devices: str
    words: Sequence[str]
    folder: Path
    kills: list[float] = field(default_factory=list)
    done_s: dict[str, float] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    ended_s: float | None = None
    process: subprocess.Popen[bytes] | None = None
    began: float | None = None
    started: float = 0.0

    @property
    def gpus(self) -> set[str]:
        return set(self.devices.split(","))

    def start(self) -> None:
        self.started = time.monotonic()
        self.began = self.began or self.started
        words = ["batch", *self.words, "--devices", self.devices, "-o", str(self.folder), "--no-plots"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with self.folder.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "inductor_bench", *words], stdout=log, stderr=log, env=environment
            )

    def look(self) -> bool:
        """Takes down what is done, kills what is to be killed now, and says whether it goes on."""
        assert self.process is not None and self.began is not None
        now_s = time.monotonic() - self.began
        has_ended = self.process.poll() is not None  # before what is done is read, or its last model could be missed
        for name, device in done_models(self.folder):
            self.done_s.setdefault(name, now_s)
            self.places.setdefault(name, device)
        if has_ended:
            self.ended_s = self.ended_s or now_s
            return False
        if self.kills and time.monotonic() - self.started > self.kills[0]:
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


def done_models(folder: Path) -> list[tuple[str, str]]:
    try:
        rows = json.loads((folder / "batch.json").read_text())["models"]
    except (OSError, ValueError):  # not there yet
        return []
    return [(row["request"]["name"], row["device"]) for row in rows if row["status"] == "done"]


def pace(driver: Driver, among: Collection[str]) -> float | None:
    """Models per second among these, summed over the GPUs, each between its first and its last; ``None`` if one had
    fewer."""
    total = 0.0
    for device in driver.devices.split(","):
        times = sorted(driver.done_s[name] for name in among if driver.places[name] == device)
        if len(times) < 2 or times[-1] == times[0]:
            return None
        total += (len(times) - 1) / (times[-1] - times[0])
    return total


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


def run(drivers: Sequence[Driver], seconds: float) -> None:
    """Runs each batch as soon as none before it needs its GPUs, until all have ended or the time for all is up."""
    end = time.monotonic() + seconds
    waiting, running = list(drivers), list[Driver]()
    try:
        while (waiting or running) and time.monotonic() < end:
            taken = {gpu for driver in running for gpu in driver.gpus}
            for driver in [*waiting]:
                if not taken & driver.gpus:
                    driver.start()
                    waiting.remove(driver)
                    running.append(driver)
                taken |= driver.gpus
            running = [driver for driver in running if driver.look()]
            time.sleep(LOOK_S)
    finally:
        for driver in running:
            driver.stop()


def report(one: Driver, two: Driver, killed: Driver | None) -> Iterator[str]:
    for driver in (one, two, *([killed] if killed else [])):
        stopped = "was stopped" if driver.began is not None else "was not begun"
        end = f"ended after {driver.ended_s:.0f} s" if driver.ended_s is not None else stopped
        yield f"{driver.name:8} GPU {driver.devices:8} {len(driver.done_s):3} done, {end}"
    if one.ended_s is not None and two.ended_s is not None and one.done_s.keys() == two.done_s.keys() != set():
        yield f"two GPUs against one, the whole list: {judged(one.ended_s / two.ended_s)}"
    both = one.done_s.keys() & two.done_s.keys()
    slow, fast = pace(one, both), pace(two, both)
    if slow and fast:
        each = f"{1 / slow:.1f} s and {1 / fast:.1f} s from one of {len(both)} models to the next"
        yield f"two GPUs against one, pace: {judged(fast / slow)}, {each}"
    pairs = [(one, two), *([(two, killed), (one, killed)] if killed else [])]
    for first, second in pairs:
        for name, same, ratio in compare(first, second):
            words = "the same kernels" if same else "OTHER KERNELS"
            yield f"{first.name} and {second.name}: {name}: {words}, wall time {ratio:.3f}x"


def judged(ratio: float) -> str:
    return f"{ratio:.2f}x (target {PACE}x){'' if ratio >= PACE else '  NOT REACHED'}"


def read_arguments(words: Sequence[str]) -> argparse.Namespace:
    """The arguments, with what stands after ``--`` as ``options``, which argparse mistakes among options."""
    end = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("list", type=Path)
    parser.add_argument("--one", required=True, help="the GPU of the first batch")
    parser.add_argument("--two", required=True, help="those of the second")
    parser.add_argument("--killed", help="those of a third, which is killed")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="stop after so many in all (default: never)"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/batch"))
    given = parser.parse_args(words[:end])
    given.options = words[end + 1 :]
    return given


def main() -> int:
    given = read_arguments(sys.argv[1:])
    given.output.mkdir(parents=True, exist_ok=True)
    gpus = sorted(set(",".join(filter(None, (given.one, given.two, given.killed))).split(",")))
    at_once = count_jobs_at_once(count_usable_cores(), gpus)
    threads = compile_threads(count_usable_cores(), len(gpus), at_once)
    for name in (COMPILE_THREADS, OMP_THREADS) if threads is not None else ():
        os.environ.setdefault(name, str(threads))
    words = [str(given.list), *given.options]
    one = Driver("one", given.one, words, given.output / "one")
    two = Driver("two", given.two, words, given.output / "two")
    killed = None
    if given.killed:
        moments = [random.uniform(*KILL_AFTER_S) for _ in range(KILLS)]
        print("killed after", ", ".join(f"{moment:.0f} s" for moment in moments), flush=True)
        killed = Driver("killed", given.killed, words, given.output / "killed", moments)
    run([one, two, *([killed] if killed else [])], given.seconds)
    print(*report(one, two, killed), sep="\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
