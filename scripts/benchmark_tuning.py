"""How fast the kernels of a RUN are retuned, and where the time goes: ``python scripts/benchmark_tuning.py RUN``.

RUN is the folder of a breakdown on this machine's GPU; it is copied, and the copies are retuned. For each number of
kernels (``--top``, by default 20 and all) it prints a table of phases, the kernels and candidates, the saving for one
step, and the wall time, of the first time and of the second time, when all tunings are known. DIR gets what it prints
as ``tuning.txt``, ``tuning.json`` with all figures, and with ``--profile`` the profile of the worker that times.

``--unlimited`` retunes all kernels without pruning first, slowly, so that the share of its saving can be told.
``--library`` retunes calls of libraries in place of generated kernels.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import pstats
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from inductor_bench import units
from inductor_bench.analysis.batch_aggregation import list_retunes
from inductor_bench.autotune import methods, tuner
from inductor_bench.autotune.pipeline import Pipeline
from inductor_bench.launch import worker as sessions
from inductor_bench.launch.worker import WorkerSession
from inductor_bench.messages.job_requests import WorkerRequest
from inductor_bench.records.base import Category
from inductor_bench.records.request import BreakdownRequest, RetuneRequest
from inductor_bench.store.folder import RunFolder
from inductor_bench.workflows.kernels import kernel_session as kernel_sessions
from inductor_bench.workflows.kernels import retuning
from inductor_bench.workflows.kernels.retuning import autotune_run

ALL = 100_000
LIBRARY = (Category.EXTERN_GEMM, Category.EXTERN_CONV)
PHASES = {
    "TellEnvironment": "starting",
    "TellArchitecture": "starting",
    "GetReady": "starting",
    "FindDeviceUse": "starting",
    "Load": "loading",
    "Vary": "loading",
    "Prepare": "loading and checking",
    "Sample": "sampling",
    "ListLibraryConfigs": "listing library calls",
    "Drop": "freeing",
}
MOST_SLOW = 8


@dataclass
class Clock:
    """Seconds by phase of the workers that time and of the compile pool, from this process.

    Attributes:
        phases: seconds in which a worker that times answered, by request, summed over these workers.
        requests: number of their requests.
        timers: number of workers that time.
        samples: number of samples.
        retaken: number of attempts at a sample that were repeated.
        pool: seconds of the pool's workers, by request, summed over the workers.
        waiting_s: seconds in which no worker that times was at work.
        first_sample_s: seconds from the start to the first sample.
        closing_s: seconds in which the workers ended.
        timeline: the worker, the request, and the seconds of its begin and end from the start.
    """

    began: float = field(default_factory=time.monotonic)
    phases: dict[str, float] = field(default_factory=dict)
    requests: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    retaken: int = 0
    pool: dict[str, float] = field(default_factory=dict)
    pool_requests: dict[str, int] = field(default_factory=dict)
    waiting_s: float = 0.0
    saving_s: float = 0.0
    saves: int = 0
    first_sample_s: float | None = None
    closing_s: float = 0.0
    timers: int = 0
    pool_size: int = 0
    pool_first_s: float | None = None
    pool_last_s: float = 0.0
    timeline: list[tuple[str, str, float, float]] = field(default_factory=list)


@contextmanager
def watched(clock: Clock, profile: Path | None) -> Iterator[None]:
    """Counts the time of all sessions into ``clock``; with ``profile`` the worker that times writes its profile."""
    posted: dict[int, tuple[str, float]] = {}
    timing: set[int] = set()
    names: dict[int, str] = {}
    post, collect, start = WorkerSession.post, WorkerSession.collect, kernel_sessions.KernelSession.start
    wait, close = Pipeline._wait, kernel_sessions.KernelSession.close

    def new_start(self: Any, name: str, **variables: str) -> WorkerSession:
        with ExitStack() as stack:
            if name == "measure" and profile is not None:  # the first of them
                words = sessions.list_module_words
                run = (*words("cProfile"), "-o", str(profile), "-m")
                stack.enter_context(mock.patch.object(sessions, "list_module_words", lambda module: (*run, module)))
            made = start(self, name, **variables)
        names[id(made)] = name
        if name.startswith("measure"):
            timing.add(id(made))
            clock.timers += 1
        else:
            clock.pool_size += 1
        return made

    def new_post(self: WorkerSession, request: WorkerRequest[Any], timeout_s: float | None = None) -> None:
        name = type(request).__name__
        posted[id(self)] = (name, time.monotonic())
        if id(self) in timing and name == "Sample":
            clock.samples += len(request.order)  # type: ignore[attr-defined]
            clock.first_sample_s = clock.first_sample_s or time.monotonic() - clock.began
        post(self, request, timeout_s)

    def new_collect(self: WorkerSession) -> Any:
        answer = None
        try:
            answer = collect(self)
            return answer
        finally:
            name, since = posted.pop(id(self), ("?", time.monotonic()))
            clock.timeline.append((names.get(id(self), ""), name, since - clock.began, time.monotonic() - clock.began))
            into, count = (clock.phases, clock.requests) if id(self) in timing else (clock.pool, clock.pool_requests)
            into[name] = into.get(name, 0.0) + time.monotonic() - since
            count[name] = count.get(name, 0) + 1
            if id(self) not in timing:
                clock.pool_last_s = time.monotonic() - clock.began
                clock.pool_first_s = clock.pool_first_s or since - clock.began
            clock.retaken += getattr(answer, "retaken", 0)

    def new_wait(self: Pipeline) -> None:
        began, idle = time.monotonic(), all(slot.asked is None for slot in self._slots)
        wait(self)
        if idle:
            clock.waiting_s += time.monotonic() - began

    def new_close(self: kernel_sessions.KernelSession) -> None:
        began = time.monotonic()
        close(self)
        clock.closing_s += time.monotonic() - began

    with ExitStack() as stack:
        for target, name, function in (
            (kernel_sessions.KernelSession, "close", new_close),
            (WorkerSession, "post", new_post),
            (WorkerSession, "collect", new_collect),
            (kernel_sessions.KernelSession, "start", new_start),
            (Pipeline, "_wait", new_wait),
        ):
            stack.enter_context(mock.patch.object(target, name, function))
        yield


class Quiet:
    """A listener that prints the progress of each ten seconds to stderr."""

    def __init__(self) -> None:
        self._said = time.monotonic()

    def stage(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    def update(self, text: str) -> None:
        if time.monotonic() - self._said > 10:
            self._said = time.monotonic()
            print(f"    {text}", file=sys.stderr, flush=True)

    note = stage

    def output(self, line: str) -> None:
        pass


@dataclass
class Trial:
    """The result of one retune of a copy of the RUN."""

    name: str
    wall_s: float
    clock: Clock
    rows: int = 0
    faster: int = 0
    problems: dict[str, int] = field(default_factory=dict)
    candidates: int = 0
    tried: int = 0
    statuses: dict[str, int] = field(default_factory=dict)
    saving_s: float = 0.0
    time_s: float = 0.0
    failures: list[str] = field(default_factory=list)
    savings: dict[str, float] = field(default_factory=dict)
    slow: list[str] = field(default_factory=list)
    seconds_by_kernel: list[float] = field(default_factory=list)


def retune(copy: Path, name: str, options: argparse.Namespace, top: int, profile: Path | None = None) -> Trial:
    """Retunes a RUN in place, and tells how long each phase took."""
    folder, clock = RunFolder(copy), Clock()
    print(f"{name}:", file=sys.stderr)

    def keep(run: Any) -> None:
        began = time.monotonic()
        folder.save(run)
        clock.saving_s, clock.saves = clock.saving_s + time.monotonic() - began, clock.saves + 1

    wanted = RetuneRequest(options.method, top, options.budget)
    began = time.monotonic()
    with watched(clock, profile):
        run = autotune_run(
            folder.load(), folder, BreakdownRequest(str(copy), retune=wanted, python=sys.executable), Quiet(), keep
        )
    trial = Trial(name, time.monotonic() - began, clock, failures=[failure.message for failure in run.failures])
    summary, statuses, problems = list_retunes(run), Counter[str](), Counter[str]()
    for one in run.retunes:
        problems.update([one.row.problem] if one.row.problem else [])
        trial.savings[one.kernel_id] = one.row.saving_s or 0.0
        trial.time_s += one.time_s
        if one.tuning is not None:
            statuses.update(row.status for row in one.tuning.candidates)
            trial.tried += one.tuning.tried
            trial.candidates += len(one.tuning.candidates)
            trial.seconds_by_kernel.append(one.tuning.time_s)
    trial.rows, trial.statuses, trial.problems = len(run.retunes), dict(statuses), dict(problems)
    if summary is not None:
        trial.faster, trial.saving_s = summary.faster, sum(row.saving_s or 0.0 for row in summary.rows)
    tuned = sorted((one for one in run.retunes if one.tuning), key=lambda one: -one.tuning.time_s)  # type: ignore[union-attr]
    for one in tuned[:MOST_SLOW]:
        assert one.tuning is not None
        trial.slow.append(
            f"{one.tuning.time_s:6.2f} s  {len(one.tuning.candidates):3d} candidates  "
            f"{units.seconds(one.tuning.default_s):>9} a call  {one.name[:70]}"
        )
    return trial


def describe(trial: Trial) -> Iterator[str]:
    """The table of one trial."""
    clock, wall_s = trial.clock, trial.wall_s
    yield f"\n{trial.name}: {wall_s:.1f} s"
    yield (
        f"  {trial.rows} kernels, {trial.faster} faster; {trial.candidates} candidates, {trial.tried} timed; saves "
        f"{trial.saving_s * 1e3:.3f} ms of {trial.time_s * 1e3:.3f} ms a step"
    )
    yield f"  statuses: {', '.join(f'{count} {name}' for name, count in sorted(trial.statuses.items()))}"
    for problem, count in sorted(trial.problems.items(), key=lambda item: -item[1])[:6]:
        yield f"  without a result: {count} x {problem[:110]}"
    for failure in trial.failures:
        yield f"  FAILED: {failure}"
    timers = max(clock.timers, 1)
    yield f"  the {timers} workers that time, a share of the time of all"
    groups: dict[str, float] = defaultdict(float)
    for request, time_s in clock.phases.items():
        groups[PHASES.get(request, request)] += time_s
    for phase, time_s in sorted(groups.items(), key=lambda item: -item[1]):
        yield f"    {phase:<26}{time_s:8.2f} s {time_s / wall_s / timers:5.0%}"
    yield f"    {'none of them is at work':<26}{clock.waiting_s:8.2f} s {clock.waiting_s / wall_s:5.0%}"
    for request, time_s in sorted(clock.phases.items(), key=lambda item: -item[1]):
        count = clock.requests[request]
        yield f"      {request:<20}{count:6d} requests {time_s / max(count, 1) * 1e3:9.2f} ms each"
    sample_s = clock.phases.get("Sample", 0.0) / max(clock.samples, 1)
    first = f"{clock.first_sample_s:.1f} s" if clock.first_sample_s else "never"
    yield (
        f"      {clock.samples} samples, {sample_s * 1e3:.2f} ms each, first after {first}; {clock.retaken} attempts "
        f"repeated; record saved {clock.saves} times in {clock.saving_s:.2f} s; closed in {clock.closing_s:.2f} s"
    )
    if clock.pool_size:
        span_s = clock.pool_last_s - (clock.pool_first_s or 0.0)
        busy = sum(clock.pool.values()) / max(clock.pool_size * span_s, 1e-9)
        yield (
            f"  the compile pool: {clock.pool_size} workers, busy {busy:.0%} of {span_s:.1f} s, from "
            f"{clock.pool_first_s or 0.0:.1f} to {clock.pool_last_s:.1f} s"
        )
        for request, time_s in sorted(clock.pool.items(), key=lambda item: -item[1]):
            count = clock.pool_requests[request]
            yield f"      {request:<20}{count:6d} requests {time_s / max(count, 1) * 1e3:9.2f} ms each {time_s:9.1f} s"
    if trial.seconds_by_kernel:
        seconds = sorted(trial.seconds_by_kernel)
        yield (
            f"  checks and races of one kernel: median {statistics.median(seconds) * 1e3:.0f} ms, 90% "
            f"{seconds[int(0.9 * (len(seconds) - 1))] * 1e3:.0f} ms; the slowest:"
        )
        yield from (f"    {line}" for line in trial.slow)


def copy_run(run: Path, folder: Path, name: str) -> Path:
    """A copy of a RUN without its retunes."""
    copy = folder / name
    shutil.copytree(run, copy, ignore=shutil.ignore_patterns(".lock", ".work", "report.html", "plots", "__pycache__"))
    made = RunFolder(copy)
    made.save(replace(made.load(), retunes=(), failures=()))
    return copy


def run_unlimited(copy: Path, options: argparse.Namespace) -> Trial:
    """Retunes all kernels to the end of each search, with the usual screenings and without a budget."""
    options = argparse.Namespace(**{**vars(options), "budget": None})
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(methods.Pruning, "ends", lambda self, before, now: False))
        stack.enter_context(mock.patch.object(methods, "NEGLIGIBLE", 0.0))
        stack.enter_context(mock.patch.object(tuner, "QUICK_SCREENING", tuner.SCREENING))
        return retune(copy, "all, unlimited", options, ALL)


def describe_profile(profile: Path) -> Iterator[str]:
    """Where the worker that times spends its time, by its own and by cumulative time."""
    if not profile.is_file():
        return
    for order in ("tottime", "cumulative"):
        stream = io.StringIO()
        pstats.Stats(str(profile), stream=stream).strip_dirs().sort_stats(order).print_stats(45)
        yield f"\nthe worker that times, by {order}"
        yield from (line for line in stream.getvalue().splitlines() if line.strip())


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", metavar="RUN", type=Path, help="the folder of a breakdown")
    parser.add_argument("--top", action="append", help="number of kernels, or `all`; may be given again (20, all)")
    parser.add_argument("--method", default="coordesc", help="the method (coordesc)")
    parser.add_argument("--budget", type=float, help="seconds for each pruned retune (no limit)")
    parser.add_argument("--unlimited", action="store_true", help="also retune all kernels without pruning")
    parser.add_argument("--library", action="store_true", help="retune products and convolutions of libraries")
    parser.add_argument(
        "--keep", type=Path, help="a folder for the retuned RUNs: `first` of the last --top, `unlimited`"
    )
    parser.add_argument(
        "--profile", action="store_true", help="profile the worker that times, in another trial of the last --top"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/tuning"), help="what is written (runs/tuning)")
    return parser.parse_args()


def main() -> int:
    options = read_options()
    options.output.mkdir(parents=True, exist_ok=True)
    trials: list[Trial] = []
    lines: list[str] = []

    def say(made: Iterator[str]) -> None:
        for line in made:
            lines.append(line)
            print(line, flush=True)
        (options.output / "tuning.txt").write_text("\n".join(lines) + "\n")
        (options.output / "tuning.json").write_text(json.dumps([asdict(trial) for trial in trials], indent=1) + "\n")

    def trial(name: str, made: Callable[[], Trial]) -> Trial:
        trials.append(made())
        say(describe(trials[-1]))
        return trials[-1]

    listed = retuning.list_most_expensive
    retuning.list_most_expensive = (
        lambda run, folder, wanted: [  # type: ignore[assignment]
            row
            for row in listed(run, folder, replace(wanted, top=ALL))
            if (row.category in LIBRARY if options.library else not row.category.is_library)
        ][: wanted.top]
    )
    with tempfile.TemporaryDirectory(prefix="inductor-bench-tuning-") as scratch:
        folder = Path(scratch)
        os.environ["INDUCTOR_BENCH_CACHE"] = str(folder / "cache")
        for top in options.top or ["20", "all"]:
            count = ALL if top == "all" else int(top)
            for name in (f"{top}, first time", f"{top}, second time"):
                copy = copy_run(options.run, folder, name.replace(", ", "-").replace(" ", "-"))
                trial(name, lambda copy=copy, name=name, count=count: retune(copy, name, options, count))  # type: ignore[misc]
            shutil.rmtree(folder / "cache", ignore_errors=True)
        last = trials[-2]
        if options.keep:
            shutil.copytree(folder / f"{top}-first-time", options.keep / "first")
        if options.profile:
            profile = options.output / "worker.prof"
            copy = copy_run(options.run, folder, "profiled")
            name = f"{top}, profiled"
            trial(name, lambda: retune(copy, name, options, count, profile.resolve()))
            say(describe_profile(profile))
            shutil.rmtree(folder / "cache", ignore_errors=True)
        if options.unlimited:
            copy = copy_run(options.run, folder, "unlimited")
            full = trial("all, unlimited", lambda: run_unlimited(copy, options))
            if options.keep:
                shutil.copytree(copy, options.keep / "unlimited")
            say(iter([f"\n{last.name} has {last.saving_s / max(full.saving_s, 1e-12):.1%} of the unlimited saving"]))
            lost = {name: saving_s - last.savings.get(name, 0.0) for name, saving_s in full.savings.items()}
            for name, lost_s in sorted(lost.items(), key=lambda item: -item[1])[:10]:
                say(iter([f"  lost {lost_s * 1e6:7.1f} us with {name}"]))
    return 1 if any(one.failures for one in trials) else 0


if __name__ == "__main__":
    sys.exit(main())
