"""Starting a worker: a verb, a job file in, a result file out. Nothing travels on stdout, because models print."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..records.run import Failure
from ..store.files import read_json, write_json
from .diagnosis import remedy
from .process import ProcessResult, run_process

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class WorkerAnswer:
    """What a worker measured, and how it failed: one of the two, or both where it failed half-way."""

    result: dict[str, Any] | None
    failure: Failure | None


@dataclass(frozen=True)
class WorkerPool:
    """Where and how workers of one run are started.

    Args:
        python: the interpreter that has the user's torch.
        folder: a scratch folder for job and result files.
        environment: the environment that every worker gets.
        timeout_s: the limit of each worker, or ``None``.
    """

    python: str
    folder: Path
    environment: Mapping[str, str]
    timeout_s: float | None = None
    on_line: Callable[[str], None] = lambda line: None

    def call(self, verb: str, job: dict[str, Any], *, name: str, log: Path, **variables: str) -> WorkerAnswer:
        """Runs one verb of ``inductor_bench.worker``.

        Args:
            verb: a verb of the worker's entry.
            job: what the verb takes, as JSON data.
            name: names the job's files, unique in the run.
            log: where the worker's output goes.
            variables: environment variables for this worker only.
        """
        job_file = self.folder / f"{name}.job.json"
        result_file = self.folder / f"{name}.result.json"
        result_file.unlink(missing_ok=True)
        write_json(job_file, job)
        command = [self.python, "-m", "inductor_bench.worker", verb, str(job_file), str(result_file)]
        environment = worker_environment(self.folder, {**self.environment, **variables})
        ended = run_process(command, environment=environment, log=log, timeout_s=self.timeout_s, on_line=self.on_line)
        return _read_result(ended, result_file, stage=verb, subject=name)


def worker_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which an interpreter finds this package, and nothing that it did not find before."""
    path = join_paths(expose_package(folder), environment.get("PYTHONPATH"))
    # The current folder may hold a torch of its own (a source tree) or anything else that hides a module.
    return {**environment, "PYTHONPATH": path, "PYTHONSAFEPATH": "1"}


def default_python() -> str:
    return sys.executable


def expose_package(folder: Path) -> str:
    """A folder for ``PYTHONPATH`` that holds this package and nothing else.

    Another interpreter must find the package without also finding the site-packages that it lies in.
    """
    path = folder / "path"
    link = path / "inductor_bench"
    path.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(PACKAGE, target_is_directory=True)
    return str(path.resolve())


def join_paths(first: str, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first


def _read_result(ended: ProcessResult, result_file: Path, *, stage: str, subject: str) -> WorkerAnswer:
    data = read_json(result_file) if result_file.is_file() else {}
    result = data.get("result")
    said = data.get("failure")
    if said is not None:
        hint = said["hint"] or remedy(said["message"])
        failure = Failure(stage, said["kind"], said["message"], hint, ended.tail(), subject)
    elif result is not None and ended.ok:
        failure = None
    else:
        failure = Failure(stage, ended.kind, f"the worker {ended.outcome}", _HINTS[ended.kind], ended.tail(), subject)
    return WorkerAnswer(result, failure)


_HINTS = {
    "timeout": "give it more time with --timeout SECONDS",
    "signal": "an out-of-memory kill or a crash in native code is likely; the log may say more",
    "exit": "the log may say more",
}
