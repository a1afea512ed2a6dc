"""The process that measures for ``benchmark_accuracy.py``: ``python -m accuracy.device JOB``, a file of JSON.

Every outcome is a line of JSON that is written as soon as it is known, and every trial is announced before, so that
the next process can go on behind the trial that took this one with it.
"""

from __future__ import annotations

import gc
import itertools
import json
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from benchmark_kernels import Outcome as RunFile
from benchmark_kernels import read_run

from . import times, trials
from .outcomes import CLASSES, STEPS, Outcome, TimeClass, choose_files, class_of, read_outcomes

RATIOS = 8
REPEATS = 3  # kernels of each class
TRIALS, TRIAL_KERNELS = 200, 8
GAP_TIMES_S, GAP_TRIALS = (10e-6, 30e-6, 100e-6), 30
COSTS, RETUNES = 6, 6
BUILT_FILES, WORKERS = 24, (1, 2, 4, 8)


class Log:
    """The outcomes so far, those of earlier processes included, and how long each step may go on."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._path, begin, budget_s = Path(job["outcomes"]), job["begin"], job["budget_s"]
        self._step = "device"
        self._seen = {(one["step"], one["subject"]) for one in read_outcomes(self._path)}
        whole, spent = sum(STEPS[step] for step in job["steps"]), 0.0
        self._limits: dict[str, float] = {}
        for step in STEPS:
            spent += STEPS[step] if step in job["steps"] else 0.0
            self._limits[step] = begin + budget_s * spent / whole if step in job["steps"] else 0.0

    def attempt(self, step: str, subject: str, measure: Callable[[], Outcome]) -> None:
        """Measures one thing, unless that was tried before or the step has had its time."""
        if (step, subject) in self._seen or time.monotonic() >= self._limits.get(step, math.inf):
            return
        if step != self._step:
            self._step = step
            print(f"{step}, {self.left_s(step):.0f} s", file=sys.stderr, flush=True)
        self.write(step, subject, begun=True)
        try:
            found = measure()
        except Exception as error:
            found = {"why": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
        self.write(step, subject, **found)
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # raises if the device can no longer be used by this process

    def write(self, step: str, subject: str, **facts: Any) -> None:
        with self._path.open("a", encoding="utf-8") as stream:
            print(json.dumps({"step": step, "subject": subject, **facts}), file=stream)

    def left_s(self, step: str) -> float:
        return max(self._limits[step] - time.monotonic(), 0.0)


def main(job: dict[str, Any]) -> None:
    gc.freeze()
    log, folder = Log(job), Path(job["run"])
    log.attempt("device", "", describe_device)
    files = choose_files(read_run(folder)[0])
    if not pick(files, 1):
        sys.exit(f"{folder} has no Triton kernels of 1 to 400 µs: give the RUN of a model that ran on a GPU")
    for one in files:
        log.attempt("kernel", one.file, partial(times.time_kernel, one))
    for one in pick(files, RATIOS, CLASSES[2]):
        log.attempt("ratio", one.file, partial(times.compare_configs, one.path))
    for each in CLASSES:
        for one in pick(files, REPEATS, each):
            log.attempt("repeat", one.file, partial(times.repeat_medians, one.path))
    for number, one in itertools.product(range(TRIALS // TRIAL_KERNELS), pick(files, TRIAL_KERNELS)):
        log.attempt("itself", f"{one.file} {number}", partial(trials.race_itself, one.path))
    for number, time_s in itertools.product(range(GAP_TRIALS), GAP_TIMES_S):
        log.attempt("gap", f"{time_s * 1e6:.0f} µs, {number}", partial(trials.race_gap, nearest(files, time_s), time_s))
    for one in pick(files, COSTS):
        log.attempt("cost", one.file, partial(trials.count_costs, one.path))
    paths = [one.path for one in dearest(folder, max(RETUNES, BUILT_FILES))]
    log.attempt("retune", f"{RETUNES} kernels", partial(trials.retune, paths[:RETUNES], log.left_s("retune")))
    for workers in WORKERS:
        if workers <= (os.cpu_count() or 1):
            log.attempt("builds", f"{workers} workers", partial(trials.build_all, paths[:BUILT_FILES], workers))


def describe_device() -> Outcome:
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return {"name": name, "torch": str(torch.__version__)}


def pick(files: Sequence[RunFile], count: int, each: TimeClass | None = None) -> list[RunFile]:
    """The first Triton files (of one class), which are spread as all are."""
    generated = [one for one in files if one.file.startswith("triton_") and one.in_model_s]
    return [one for one in generated if each is None or class_of(one.in_model_s or 0.0) is each][:count]


def nearest(files: Sequence[RunFile], time_s: float) -> Path:
    return min(pick(files, len(files)), key=lambda one: abs(math.log((one.in_model_s or 1.0) / time_s))).path


def dearest(folder: Path, count: int) -> list[RunFile]:
    """The Triton files that take most time in the model, every category in turn."""
    files = [one for one in read_run(folder)[0] if one.file.startswith("triton_")]
    ranked = sorted(files, key=lambda one: (-one.weight_s, one.file))
    places = {one.file: [other for other in ranked if other.category == one.category].index(one) for one in ranked}
    return sorted(ranked, key=lambda one: places[one.file])[:count]


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
