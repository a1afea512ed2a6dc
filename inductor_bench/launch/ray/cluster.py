"""The process between a batch and a Ray cluster: ``… ADDRESS SCRATCH REQUESTS ANSWERS``. Only this file imports Ray.

Where a cluster cannot be reached or dies, Ray may hang or end its process, so that it runs apart from the batch's.
Requests and answers are lines of JSON on file descriptors; a request is a :class:`.messages.ClusterJob`. At the end of
the requests this process ends all jobs on the cluster and removes the scratch folder, also after the batch was killed.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import sys
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from ...store.folder import RunFolder, remove_run
from ...store.formats import codec
from ..worker import PACKAGE
from .messages import ClusterJob
from .node import NodeJob, read_pieces, read_program, write_piece

POLL_S = 0.2
"""Seconds between two polls of the jobs."""

NODES_S = 2.0
"""Seconds between two counts of the machines."""

PATIENCE_S = 60.0
"""Seconds for which a cluster may lack a machine on which a job fits."""

CLOSE_S = 10.0
"""Maximum seconds to wait for the end of the jobs."""

INSTALL = "every machine of the cluster needs what inductor-bench needs: pip install inductor-bench"

Steps = Generator[Any, Any, None]
"""The steps of a job: a generator that yields a reference to wait for, and receives its value."""


@dataclass
class _Attempt:
    job: ClusterJob
    actor: Any
    cpus: float
    steps: Steps = field(init=False)
    began: bool = False
    over: bool = False


@dataclass
class Cluster:
    """Runs jobs on the machines of a Ray cluster. Ray schedules them: each on one GPU, or each on one machine."""

    answers: Any
    _attempts: dict[Any, _Attempt] = field(default_factory=dict)
    _gpus: float = 0
    _machines: tuple[float, ...] = ()
    _counted: float = 0.0
    _fitting: float = 0.0

    def connect(self, address: str) -> None:
        """Connects to a cluster.

        Raises:
            ConnectionError, ValueError, RuntimeError: Ray cannot connect to the address.
        """
        os.chdir("/")  # Ray's workers import from the current folder of the connecting process
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"py_modules": [str(PACKAGE)], "excludes": ["__pycache__"]},
        )
        self._count_machines()
        self._fitting = self._counted

    def start(self, job: ClusterJob) -> None:
        """Starts a job as soon as Ray finds a machine for it."""
        # A job for the CPU takes a whole machine of the largest kind, so that times of different jobs are comparable.
        cpus = 1.0 if job.gpu else max(self._machines, default=1.0)
        options = {"num_gpus": int(job.gpu), "num_cpus": cpus, "max_restarts": 0, "scheduling_strategy": "SPREAD"}
        actor = ray.remote(NodeJob).options(**options).remote()
        attempt = _Attempt(job, actor, cpus)
        attempt.steps = self._follow(attempt)
        self._attempts[next(attempt.steps)] = attempt

    def poll(self) -> None:
        """Advances every job whose reference has a value."""
        references = list(self._attempts)
        if not references:
            return
        for reference in ray.wait(references, num_returns=len(references), timeout=0)[0]:
            attempt = self._attempts.pop(reference)
            try:
                with contextlib.suppress(StopIteration):
                    self._attempts[attempt.steps.send(ray.get(reference))] = attempt
            except RayError as error:
                cause = error.cause if isinstance(error, RayTaskError) else None
                if isinstance(cause, ImportError):
                    self._say("broken", message=f"a machine of the Ray cluster runs no model: {cause}", hint=INSTALL)
                elif not attempt.over:
                    ray.kill(attempt.actor)  # a machine that is out of reach for a time must not continue the job
                    self._say("lost", name=attempt.job.name, reason=_first_line(cause or error))

    def check_machines(self) -> None:
        """Counts the machines every ``NODES_S`` seconds, and moves jobs whose machines are gone."""
        if time.monotonic() - self._counted < NODES_S:
            return
        self._count_machines()
        for reference, attempt in list(self._attempts.items()):
            if not attempt.began and attempt.cpus > max(self._machines, default=attempt.cpus):
                del self._attempts[reference]  # the largest machines are gone: restart on the largest of the others
                ray.kill(attempt.actor)
                self.start(attempt.job)
        if all(self._gpus if attempt.job.gpu else self._machines for attempt in self._attempts.values()):
            self._fitting = self._counted
        elif self._counted - self._fitting > PATIENCE_S:
            what = "GPU" if self._machines else "machine"
            self._say("broken", message=f"the Ray cluster has no {what} any more", hint="start it again")

    def close(self) -> None:
        """Ends all jobs."""
        closing = [attempt.actor.close.remote() for attempt in self._attempts.values() if attempt.began]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=CLOSE_S)
        ray.shutdown()

    def _follow(self, attempt: _Attempt) -> Steps:
        job, actor = attempt.job, attempt.actor
        for piece in read_pieces(Path(job.run)) if job.goes_on else ():
            yield actor.put.remote(piece)
        program = read_program(Path(job.program)) if job.program else {}
        device = yield actor.begin.remote(job.order, program, job.gpu)
        attempt.began = True
        self._say("began", name=job.name, device=device)
        ended, log = None, Path(job.log)
        log.parent.mkdir(parents=True, exist_ok=True)
        while ended is None:
            printed, ended = yield actor.look.remote()
            if printed:
                with log.open("ab") as stream:
                    stream.write(printed)
                self._say("output", lines=printed.decode(errors="replace").splitlines())
        arriving, run = Path(job.arriving), Path(job.run)
        shutil.rmtree(arriving, ignore_errors=True)
        while piece := (yield actor.piece.remote()):
            write_piece(arriving, piece)
        remove_run(RunFolder(run))
        if arriving.is_dir():
            shutil.copytree(arriving, run, dirs_exist_ok=True)
            shutil.rmtree(arriving)
        attempt.over = True
        self._say("ended", name=job.name, result=asdict(ended))
        yield actor.close.remote()
        ray.kill(actor)

    def _count_machines(self) -> None:
        self._counted = time.monotonic()
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        before = (self._gpus, self._machines)
        self._machines = tuple(there["CPU"] for there in alive if there.get("CPU"))
        self._gpus = sum(there.get("GPU", 0.0) for there in alive)
        if (self._gpus, self._machines) != before:
            whole = self._machines.count(max(self._machines, default=0.0))
            self._say("machines", gpus=int(self._gpus), slots=int(self._gpus) or whole or 1)

    def _say(self, what: str, **more: Any) -> None:
        self.answers.write(json.dumps({"what": what, **more}) + "\n")
        self.answers.flush()


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def main(arguments: list[str]) -> int:
    address, folder, requests, answers = arguments
    with contextlib.suppress(BrokenPipeError), os.fdopen(int(answers), "w") as stream:
        cluster = Cluster(stream)
        try:
            cluster.connect(address)
        except (ConnectionError, ValueError, RuntimeError, RayError) as error:
            stream.write(json.dumps({"what": "refused", "message": str(error).strip()}) + "\n")
            return 1
        with contextlib.suppress(BrokenPipeError):  # the batch was killed
            _serve(cluster, int(requests))
        cluster.close()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


def _serve(cluster: Cluster, requests: int) -> None:
    pending = b""
    while True:
        if select.select([requests], [], [], POLL_S)[0]:
            data = os.read(requests, 1 << 20)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                cluster.start(codec.decode(ClusterJob, json.loads(line)))
        cluster.poll()
        cluster.check_machines()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
