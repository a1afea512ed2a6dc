"""Runs every standalone file of a folder: does it run, do its outputs agree, is its time that in the model?

``python scripts/benchmark_kernels.py DIR [DIR…] [--jobs N] [--at-least SECONDS] [--budget SECONDS] [--json FILE]``.
``inductor-bench extract RUN --references -o DIR`` writes a folder whose files hold references; those of a RUN
itself may have none.
First N processes check the files beside each other, then one process times those that are dear enough, dearest first.
A file's own cold and warm times bracket its time in the model, ± 5%, if the file is faithful.

Every outcome is appended to FILE as one line of JSON as soon as it is known; the last line about a file counts. What
was found is summed up also after a SIGTERM, and a file that takes its process with it costs only itself.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

SLACK = 0.05
PROGRESS_S = 5.0
MOST_JOBS = 8
OUT_OF_MEMORY = "OutOfMemoryError"


@dataclass
class Outcome:
    """What became of one file. ``in_model_s``, ``cold_s`` and ``warm_s`` are seconds per launch, ``weight_s`` those of
    all its launches in an iteration. ``ran`` is ``None`` as long as nobody has tried."""

    run: str
    file: str
    category: str
    in_model_s: float | None = None
    weight_s: float = 0.0
    ran: bool | None = None
    agreed: bool | None = None
    why: str = ""
    cold_s: float | None = None
    warm_s: float | None = None

    @property
    def path(self) -> Path:
        return folder_of(Path(self.run)) / self.file

    @property
    def inside(self) -> bool | None:
        if self.cold_s is None or self.warm_s is None or self.in_model_s is None:
            return None
        low, high = sorted((self.cold_s, self.warm_s))
        return low * (1 - SLACK) <= self.in_model_s <= high * (1 + SLACK)


def folder_of(folder: Path) -> Path:
    """The folder of the standalone files: ``kernels`` in a RUN, or the folder itself."""
    return folder / "kernels" if (folder / "kernels").is_dir() else folder


def read_run(folder: Path) -> tuple[list[Outcome], list[str]]:
    """The files of a RUN, untried, and the kernels without one, with the reason."""
    rows = json.loads((folder_of(folder) / "kernels.json").read_text())
    found = []
    for name in dict.fromkeys(row["file"] for row in rows if row["file"]):
        same = [row for row in rows if row["file"] == name]
        timed = [row for row in same if row["time_s"] and row["calls"]]
        weight, calls = sum(row["time_s"] for row in timed), sum(row["calls"] for row in timed)
        found.append(Outcome(str(folder), name, same[0]["category"], weight / calls if calls else None, weight))
    return found, [f"{row['name'][:60]}: {row['reason']}" for row in rows if row["reason"]]


# The child: reads ``["check" or "time", path]`` from each line of its input and answers with a line of JSON.


def serve() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print is no answer
    for line in sys.stdin:
        task, path = json.loads(line)
        try:
            answer = (check_file if task == "check" else time_file)(Path(path))
        except Exception as error:
            traceback.print_exc()
            answer = {"why": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}", "failed": True}
        print(json.dumps(answer), file=answers, flush=True)
        free_memory()


def check_file(path: Path) -> dict[str, Any]:
    agreed, why = import_file(path).check()
    return {"agreed": agreed, "why": why}


def time_file(path: Path) -> dict[str, Any]:
    module = import_file(path)
    arguments = module.make_arguments()
    if hasattr(module, "FILE"):
        timing = module.FILE.measure(arguments)
    elif hasattr(module, "OPERATOR"):
        measure = module.measure_cuda if module.OPERATOR.device == "cuda" else module.measure_cpu
        timing = measure(module.OPERATOR.launch, arguments, module.OPERATOR.bind)
    else:
        timing = module.measure_cpu(module.KERNEL.launch, arguments, module.KERNEL.bind)
    return {"cold_s": timing["cold"]["median_s"], "warm_s": timing["warm"]["median_s"]}


def import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("standalone_kernel", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def free_memory() -> None:
    """Gives the GPU memory of the last file back: other processes check files on the same GPU."""
    sys.modules.pop("standalone_kernel", None)
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


class Child:
    """A process that tries files. One that has failed, crashed or hung is not trusted with another file."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._process: asyncio.subprocess.Process | None = None

    async def ask(self, task: str, path: Path) -> dict[str, Any]:
        """The answer to a task, with ``failed`` if there is none, and then ``why``."""
        process = self._process = self._process or await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "--serve"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(f"{json.dumps([task, str(path)])}\n".encode())
            line = await asyncio.wait_for(process.stdout.readline(), self._limit_s)
            answer = json.loads(line) if line else {"why": _ending(await process.wait()), "failed": True}
        except asyncio.TimeoutError:
            answer = {"why": f"no answer in {self._limit_s:.0f} s", "failed": True}
        if answer.get("failed"):
            await self.end()
        return answer

    async def end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


def _ending(code: int) -> str:
    return f"the process ended by {signal.Signals(-code).name}" if code < 0 else f"the process ended with status {code}"


class Trial:
    """Tries files and keeps what is known of them: in ``outcomes``, and line by line in a file of JSON lines."""

    def __init__(self, outcomes: list[Outcome], options: argparse.Namespace, lines: TextIO) -> None:
        self.outcomes = outcomes
        self.dear = [one for one in outcomes if one.in_model_s is not None and one.in_model_s >= options.at_least]
        self._options = options
        self._lines = lines
        self._began = self._said = time.monotonic()

    async def run(self) -> None:
        if self._options.checks:
            await self._try_each("check", self.outcomes, self._options.jobs)
            # What found no room beside the others may find it by itself.
            await self._try_each("check", [one for one in self.outcomes if OUT_OF_MEMORY in one.why], 1)
        sound = [one for one in self.dear if one.ran or not self._options.checks]
        sound.sort(key=lambda one: -one.weight_s)
        await self._try_each("time", sound, 1, time.monotonic() + self._options.budget)

    async def _try_each(self, task: str, chosen: list[Outcome], jobs: int, deadline: float = float("inf")) -> None:
        left = iter(chosen)
        done = 0

        async def work() -> None:
            nonlocal done
            child = Child(self._options.limit)
            try:
                for outcome in left:
                    if time.monotonic() >= deadline:
                        break
                    self._note(task, outcome, await child.ask(task, outcome.path))
                    done += 1
                    self._say(f"{task}: {done} of {len(chosen)} files")
            finally:
                await child.end()

        await asyncio.gather(*(work() for _ in range(min(jobs, len(chosen)))))

    def _note(self, task: str, outcome: Outcome, answer: dict[str, Any]) -> None:
        failed = answer.pop("failed", False)
        if task == "check":
            outcome.ran = not failed
        for name, value in answer.items():
            setattr(outcome, name, value)
        print(json.dumps({**asdict(outcome), "inside": outcome.inside}), file=self._lines, flush=True)

    def _say(self, text: str) -> None:
        now = time.monotonic()
        if now - self._said >= PROGRESS_S:
            self._said = now
            print(f"{text}, {now - self._began:.0f} s", file=sys.stderr, flush=True)


def summarize(trial: Trial) -> Iterable[str]:
    outcomes = trial.outcomes
    total = Counter(one.category for one in outcomes)
    ran = Counter(one.category for one in outcomes if one.ran)
    agreed = Counter(one.category for one in outcomes if one.agreed)
    yield f"{len(outcomes)} files"
    for category, count in total.most_common():
        yield f"  {category:<22} {ran[category]:4d} of {count} run, {agreed[category]:4d} agree with the reference"
    untried = sum(one.ran is None for one in outcomes)
    if untried:
        yield f"  {untried} files were not tried: stopped before"
    for one in outcomes:
        if one.ran is not None and one.agreed is not True:
            word = "FAILED" if not one.ran else "unchecked" if one.agreed is None else "DIFFERS"
            yield f"  {word} {one.file[:70]}: {one.why[:150]}"
    yield from summarize_times(trial.dear)


def summarize_times(dear: list[Outcome]) -> Iterable[str]:
    judged = sorted((one for one in dear if one.inside is not None), key=lambda one: -one.weight_s)
    weight, every = sum(one.weight_s for one in judged), sum(one.weight_s for one in dear)
    untimed = len(dear) - len(judged)
    if untimed:
        yield f"  {untimed} of {len(dear)} kernels were not timed ({1 - weight / every:.1%} of their time)"
    if judged:
        inside = sum(one.weight_s for one in judged if one.inside)
        yield f"  in-model time inside [warm, cold] ± 5%: {inside / weight:.1%} of kernel time ({len(judged)} kernels)"
    for one in judged:
        if not one.inside:
            model, warm, cold = (f"{seconds * 1e6:8.2f}" for seconds in (one.in_model_s, one.warm_s, one.cold_s))
            yield f"    outside: {one.file[:58]:<58} model {model} µs  warm {warm}  cold {cold}"


async def run_until_stopped(trial: Trial) -> bool:
    """Whether the trial came to its end: SIGTERM and Ctrl-C stop it."""
    work = asyncio.ensure_future(trial.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        await work
    except asyncio.CancelledError:
        return False
    return True


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", metavar="RUN", type=Path, nargs="+")
    jobs = min(os.cpu_count() or 1, MOST_JOBS)
    parser.add_argument("--jobs", type=int, default=jobs, help=f"processes that check files ({jobs})")
    parser.add_argument("--no-checks", dest="checks", action="store_false", help="time the files only")
    parser.add_argument("--at-least", type=float, default=10e-6, help="seconds a launch; shorter ones are not timed")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds for the timing as a whole (120)")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one file, then it has failed (120)")
    parser.add_argument("--json", type=Path, help="append every outcome here, one line of JSON each")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    outcomes: list[Outcome] = []
    for folder in options.folders:
        files, without = read_run(folder)
        outcomes += files
        for reason in without:
            print(f"no file: {reason}")
    with open(options.json or os.devnull, "a", encoding="utf-8") as lines:
        trial = Trial(outcomes, options, lines)
        finished = asyncio.run(run_until_stopped(trial))
    print("\n".join(summarize(trial)))
    return 0 if finished and all(one.ran and one.agreed is not False for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(serve() if sys.argv[1:] == ["--serve"] else main())
