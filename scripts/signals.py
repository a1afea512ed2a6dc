"""Signals to every verb at random moments: nobody may live on, nothing may hang, and the same command must go on.

Each verb runs a small program on the CPU again and again in one folder, so that it begins with what the last signal
left. A signal is SIGINT, SIGTERM, SIGHUP, SIGQUIT or SIGKILL; its moment lies between the start of the command and the
end of an undisturbed one. After each signal `report` reads the record; at the end the command must come to its end.

A table comes last. The exit code is 0 only if nothing was wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from retuned_runs import write_winners

from inductor_bench.store.folder import RunFolder

ROOT = Path(__file__).resolve().parent.parent
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
NEW = "NEW"
"""A word of a command line that stands for the name of a new folder."""

START_S = time.monotonic()
"""When this script began, by the monotonic clock."""

TRIAL = "INDUCTOR_BENCH_SIGNALS"
"""Environment variable: the trial to which a process belongs."""

SETTLED_S = 2.0
"""Seconds after the end of a command after which nothing of it may be left."""

HUNG_S = 60.0
"""Seconds after a signal after which a command counts as hung."""

MODEL = """
import torch

def mlp():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 8), torch.nn.Tanh())
    return model, (torch.ones(32, 64),)
"""
PROGRAM = """
import torch
from model import mlp
model, inputs = mlp()
compiled, optimizer = torch.compile(model), torch.optim.SGD(model.parameters())
for _ in range(300):
    compiled(*inputs).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
RUN = ("breakdown", "model.py:mlp", "--training", "--device", "cpu", "--no-plots", "-o", "made")
"""The run that the other verbs are given."""

AUTOTUNE = ("breakdown", "model.py:mlp", "--device", "cpu", "--autotune")
PYTHON = (sys.executable, "train.py")


@dataclass(frozen=True)
class Lane:
    """A verb: its words, the records that it writes, the verb that reads each, and how an undisturbed command ends.

    What another command of the same words reads by itself is not named.
    """

    words: tuple[str, ...]
    writes: str = ""
    reads: tuple[str, ...] = ("report", "--no-plots")
    code: int = 0


LANES = {
    "breakdown a script": Lane(("breakdown", "train.py", "--no-plots", "--force", "-o", "run"), "run/record.json"),
    "breakdown a command": Lane(("breakdown", "--no-plots", "--force", "-o", "run", "--", *PYTHON), "run/record.json"),
    "breakdown modules": Lane(
        ("breakdown", "made/modules/forward.py", "made/modules/backward.py", "--no-plots", "--force", "-o", "run"),
        "run/record.json",
    ),
    "breakdown and retune": Lane(
        (*AUTOTUNE, "--top", "1", "--budget", "4", "--no-plots", "--force", "-o", "run"),
        "run/record.json",
    ),
    "batch": Lane(("batch", "list.txt", "--device", "cpu", "--no-plots", "-o", "batch"), "batch/batch.json"),
    "modes": Lane(
        ("modes", "train.py", "--mode", "eager", "--mode", "default", "--rounds", "1", "--steps", "20", "-o", "modes"),
    ),
    "optimize": Lane(
        ("optimize", "made", "--budget", "60", "--deny", "cpp-wrapper,max-autotune", "--force"),
        "made/optimized/optimization.json",
    ),
    "compare": Lane(("compare", "train.py", "--runs", "1", "--force", "-o", "compared"), "compared/*/record.json"),
    "extract": Lane(("extract", "made/modules/forward.py", "-o", NEW)),
    "kernel": Lane(("kernel", "made#cpp_*", "--autotune", "--budget", "4")),
    "apply": Lane(("apply", "made", "--", *PYTHON), "made/record.json"),
    "apply --verify": Lane(("apply", "made", "--verify", "--stop", "--", *PYTHON), "made/record.json"),
}


@dataclass
class Tally:
    """What became of the signals to one verb."""

    name: str
    trials: int = 0
    faults: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0

    def fault(self, kind: str, text: str) -> None:
        self.kinds[kind] += 1
        self.faults.append(f"{self.name}: {kind}: {text}")
        print(self.faults[-1], file=sys.stderr, flush=True)


def main() -> int:
    options = _parse()
    for number in SIGNALS[:-1]:  # under nohup SIGHUP is ignored, by the commands, too
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**6)
    print(f"seed {seed}", file=sys.stderr, flush=True)
    names = options.verb or list(LANES)
    counts = [options.count // len(names) + (place < options.count % len(names)) for place in range(len(names))]
    with tempfile.TemporaryDirectory(prefix="inductor-bench-signals-") as temporary:
        home = Path(temporary)
        made = prepare(home)
        tallies = {name: Tally(name) for name in names}
        with ThreadPoolExecutor(options.jobs) as pool:
            lanes = [
                pool.submit(run_lane, tallies[name], home, made, count, random.Random(f"{seed} {name}"), options.until)
                for name, count in zip(names, counts, strict=True)
            ]
        for lane in lanes:
            lane.result()
    print(table([*tallies.values()], seed))
    return 1 if any(tally.faults for tally in tallies.values()) else 0


def prepare(home: Path) -> Path:
    """A folder with the programs and a RUN that has winners; each verb gets a copy."""
    folder = home / "prepared"
    folder.mkdir()
    (folder / "train.py").write_text(PROGRAM)
    (folder / "model.py").write_text(MODEL)
    (folder / "list.txt").write_text("model.py:mlp\ntrain.py\n")
    ended = subprocess.run(command(RUN), cwd=folder, env=environment(home), capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stdout + ended.stderr)
    write_winners(RunFolder(folder / "made"), flags="unroll")
    return folder


def run_lane(tally: Tally, home: Path, made: Path, count: int, draw: random.Random, until_s: float | None) -> None:
    """Sends so many signals to one verb, and then lets it come to its end."""
    lane, folder = LANES[tally.name], home / tally.name.replace(" ", "-")
    subprocess.run(["cp", "-a", made, folder], check=True)
    begin = time.monotonic()
    whole(lane, folder, home, tally, "an undisturbed command")
    taken_s = time.monotonic() - begin
    for _ in range(count):
        if until_s is not None and time.monotonic() - START_S > until_s:
            break
        number = draw.choice(SIGNALS)
        after_s = draw.uniform(0.0, taken_s)
        trial(lane, folder, home, tally, number, f"after {after_s:.2f} s", partial(wait_for, after_s))
        tally.trials += 1
    whole(lane, folder, home, tally, "the last command")
    print(f"{tally.name}: {tally.trials} signals, {len(tally.faults)} faults", file=sys.stderr, flush=True)


def whole(lane: Lane, folder: Path, home: Path, tally: Tally, what: str) -> None:
    ended = subprocess.run(
        command(lane.words), cwd=folder, env=environment(home), capture_output=True, text=True, check=False
    )
    if ended.returncode != lane.code:
        tally.fault("refused", f"{what} ended with {ended.returncode}: {last_lines(ended.stdout + ended.stderr)}")


def wait_for(after_s: float, child: subprocess.Popen[bytes], said: Path) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(after_s)


def trial(
    lane: Lane,
    folder: Path,
    home: Path,
    tally: Tally,
    number: signal.Signals,
    when: str,
    wait: Callable[[subprocess.Popen[bytes], Path], None],
) -> None:
    """Starts the command, sends it a signal after a wait, and looks at what is left.

    ``wait`` is given the command's process and the file with its output; ``when`` says in words how long it waits.
    """
    mark = uuid.uuid4().hex
    where = f"{number.name} {when}"
    said = folder / "said"
    with said.open("w") as stream, contextlib.ExitStack() as ends:
        child = subprocess.Popen(
            command(lane.words), cwd=folder, env=environment(home, mark), stdin=subprocess.DEVNULL, stdout=stream,
            stderr=stream, start_new_session=True,
        )  # fmt: skip
        ends.callback(end_all, mark)
        wait(child, said)
        begin = time.monotonic()
        if child.poll() is None:
            child.send_signal(number)
        try:
            child.wait(HUNG_S)
        except subprocess.TimeoutExpired:
            stack = Path(f"/proc/{child.pid}/wchan").read_text()
            tally.fault("hung", f"{where}; waits in {stack}; {last_lines(said.read_text())}")
            child.kill()
            child.wait()
            end_all(mark)
        tally.longest_s = max(tally.longest_s, time.monotonic() - begin)
        time.sleep(SETTLED_S)
        left = list(living(mark))
        if left:
            tally.fault("left", f"{where}: {left}")
    text = said.read_text()
    if child.returncode not in (0, lane.code, 130, 143, -number):
        tally.fault("refused", f"{where} ended with {child.returncode}: {last_lines(text)}")
    # The program of "apply" has the same terminal, and ends with a traceback of its own.
    if "Traceback" in text and "inductor_bench/cli/" in text.split("Traceback", 1)[1]:
        tally.fault("traceback", f"{where}: {last_lines(text, 12)}")
    for record in folder.glob(lane.writes) if lane.writes else ():
        words = command((lane.reads[0], str(record.parent), *lane.reads[1:]))
        shown = subprocess.run(words, cwd=folder, env=environment(home), capture_output=True, text=True, check=False)
        if shown.returncode:
            tally.fault("unread", f"{where}: {last_lines(shown.stdout + shown.stderr)}")


def living(mark: str) -> Iterator[str]:
    """The processes of a trial that are there, and no zombies."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{TRIAL}={mark}".encode() in (path / "environ").read_bytes().split(b"\0"):
                yield f"{path.name} {(path / 'cmdline').read_bytes().replace(bytes(1), b' ').decode()[:120]}"


def end_all(mark: str) -> None:
    for process in list(living(mark)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(process.split()[0]), signal.SIGKILL)


def command(words: Sequence[str]) -> list[str]:
    new = f"new-{uuid.uuid4().hex}"
    return [sys.executable, "-m", "inductor_bench", *(new if word == NEW else word for word in words)]


def environment(home: Path, mark: str = "") -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "INDUCTOR_BENCH_CACHE": str(home / "cache"), TRIAL: mark}


def last_lines(text: str, count: int = 4) -> str:
    return " | ".join(text.strip().splitlines()[-count:])


KINDS = ("left", "hung", "unread", "refused", "traceback")


def table(tallies: Sequence[Tally], seed: int) -> str:
    """One row for each verb, and then each fault."""
    rows = [f"{'verb':24}{'signals':>8}{''.join(f'{kind:>11}' for kind in KINDS)}{'longest':>10}"]
    for tally in tallies:
        numbers = "".join(f"{tally.kinds[kind]:>11}" for kind in KINDS)
        rows.append(f"{tally.name:24}{tally.trials:>8}{numbers}{tally.longest_s:>8.1f} s")
    rows.append(f"{sum(tally.trials for tally in tallies)} signals, seed {seed}; longest: from a signal to the end")
    return "\n".join([*rows, *(fault for tally in tallies for fault in tally.faults)])


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=55, help="how many signals (default 55)")
    parser.add_argument("--seed", type=int, help="what they are drawn from (default: a new one)")
    parser.add_argument("--jobs", type=int, default=2, help="how many verbs at once (default 2)")
    parser.add_argument("--verb", action="append", choices=list(LANES), help="only this one; may be given again")
    parser.add_argument("--until", type=float, metavar="SECONDS", help="begin no signal after so many seconds")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
