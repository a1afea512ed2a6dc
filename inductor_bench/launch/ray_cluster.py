"""The process between a batch and a Ray cluster: ``… ADDRESS SCRATCH REQUESTS ANSWERS``. Only this file imports Ray.

If a cluster cannot be reached or dies, Ray may hang or end its process, so it runs in a process of its own. Requests
and answers are lines of JSON on file descriptors; a request is a :class:`.messages.ClusterJob`. At the end of the
requests this process ends all jobs on the cluster and removes the scratch folder, also after the batch was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import select
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from ..devices.nvidia import VISIBLE_GPUS
from ..devices.protocol import CPU
from ..store import codec
from ..store.files import ensure_private_folder
from ..store.folder import RunFolder, remove_run
from .batch_executors import ClusterJob, JobEnd, Order
from .worker import PACKAGE

# A job on a machine of a cluster: it runs in a scratch folder there, and its files are sent back in pieces.
#
# A Ray actor is made of :class:`NodeJob`.


PIECE_BYTES = 8 << 20
JOB_POLL_S = 1.0
"""Seconds for which one poll waits for the end of the job. Shorter polls would disturb the measurement."""

Piece = list[tuple[str, bytes]]
"""Files, or consecutive parts of files, with their paths in the RUN."""


class NodeJob:
    """One job, from its start to its last file."""

    def __init__(self) -> None:
        self._scratch, self._lock = make_scratch()
        self._read = 0
        self._pieces: Iterator[Piece] = iter(())

    def put(self, piece: Piece) -> None:
        """Stores a piece of an existing RUN, before the job that extends the RUN starts."""
        append_to_files(self._scratch / "run", piece)

    def begin(self, order: Order, program: Mapping[str, bytes], gpu: bool) -> str:
        """Starts the job. Returns the name of its device, ``HOST:GPU`` or ``HOST:cpu``.

        Args:
            order: what to run.
            program: the bytes of the program's files by path.
            gpu: whether the job has a GPU.
        """
        from .process import ChildProcess  # here, so that a machine without a package reports it when a job starts

        for name, data in program.items():
            path = _place(self._scratch / "program", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        (self._scratch / "program").mkdir(exist_ok=True)
        os.chdir(self._scratch / "program")
        self._timeout_s, self._began = order.timeout_s, time.monotonic()
        words = [word.replace("{run}", str(self._scratch / "run")) for word in order.words]
        self._child = ChildProcess(
            [sys.executable, *order.entry, *words],
            environment=self._environment(order.variables),
            log=self._scratch / "log",
            inherited=(self._lock,),
        )
        return f"{socket.gethostname()}:{os.environ.get(VISIBLE_GPUS) if gpu else CPU.type}"

    def look(self) -> tuple[bytes, JobEnd | None]:
        """Returns the output since the last call, and the result of the job; the result is ``None`` before the job's
        end."""
        over = self._child.wait(JOB_POLL_S)
        ended = None
        if over or (self._timeout_s is not None and time.monotonic() - self._began > self._timeout_s):
            result = self._child.end(timed_out=not over)
            ended = JobEnd(result.exit_code, result.signal_name, result.timed_out, result.time_s)
            self._pieces = read_pieces(self._scratch / "run")
        with (self._scratch / "log").open("rb") as stream:
            stream.seek(self._read)
            printed = stream.read()
        self._read += len(printed)
        return printed, ended

    def piece(self) -> Piece:
        """Returns the next piece of the RUN; an empty list after the last one."""
        return next(self._pieces, [])

    def close(self) -> None:
        """Ends the job and removes its scratch folder."""
        if hasattr(self, "_child"):
            self._child.end()
        os.chdir("/")
        remove_scratch(self._scratch)

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        from .batch_executors import OFFLINE
        from .worker import expose_package, join_paths

        inherited = {name: value for name, value in os.environ.items() if name not in RAYS}
        path = join_paths(expose_package(self._scratch), inherited.get("PYTHONPATH"))
        return {**inherited, **OFFLINE, **variables, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


RAYS = frozenset({"OMP_NUM_THREADS"})
"""Variables that Ray sets for its actors and that would change the measurement."""


def make_scratch() -> tuple[Path, int]:
    """Makes a scratch folder, and removes unused ones. Returns the folder and the descriptor of its lock.

    If another user has taken the name of the parent folder, the new folder has an unguessable name elsewhere.
    """
    parent = Path(tempfile.gettempdir()) / f"inductor-bench-nodes-{os.getuid()}"
    if not ensure_private_folder(parent, forbidden_bits=0o077):
        path = Path(tempfile.mkdtemp(prefix="inductor-bench-node-"))
        return path, _lock(path)
    for lock in parent.glob("*.lock"):
        with contextlib.suppress(OSError), lock.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # succeeds if its owner was killed
            remove_scratch(lock.with_suffix(""))
    while True:
        path = parent / uuid.uuid4().hex
        with contextlib.suppress(BlockingIOError):  # another process is removing unused folders
            descriptor = _lock(path)
            path.mkdir()
            return path, descriptor


def _lock(path: Path) -> int:
    """Takes the lock of a scratch folder. Returns its descriptor."""
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise
    return descriptor


def remove_scratch(path: Path) -> None:
    """Removes a scratch folder and its lock."""
    shutil.rmtree(path, ignore_errors=True)
    path.with_suffix(".lock").unlink(missing_ok=True)


def read_program(file: Path) -> dict[str, bytes]:
    """Returns the Python files that a program can import from its folder, with packages: the bytes by relative path."""
    files = sorted(file.parent.glob("*.py"))
    packages = [path.parent for path in sorted(file.parent.glob("*/__init__.py"))]
    files += [path for package in packages for path in sorted(package.rglob("*.py"))]
    return {path.relative_to(file.parent).as_posix(): path.read_bytes() for path in files if path.is_file()}


def read_pieces(folder: Path) -> Iterator[Piece]:
    """Yields all files of a folder except those in a folder ``.work``, in pieces of about :data:`PIECE_BYTES`."""
    piece: Piece = []
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or ".work" in name.parts:
            continue
        for data in _split_into_parts(path):
            piece.append((name.as_posix(), data))
            size += len(data)
            if size >= PIECE_BYTES:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


def _split_into_parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield stream.read(PIECE_BYTES)  # one part for an empty file too
        yield from iter(lambda: stream.read(PIECE_BYTES), b"")


def append_to_files(folder: Path, piece: Piece) -> None:
    """Appends the parts of a piece to the files of a folder.

    Raises:
        ValueError: a name, which comes from another machine, leads out of the folder.
    """
    for name, data in piece:
        path = _place(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as stream:
            stream.write(data)


def _place(folder: Path, name: str) -> Path:
    """The path of a file in a folder."""
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is not the name of a file in a folder")
    return folder / path


REQUEST_POLL_S = 0.2
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
        """Advances every job for which Ray has a result."""
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
                    self._say(
                        "broken", message=f"a machine of the Ray cluster cannot run models: {cause}", hint=INSTALL
                    )
                elif not attempt.over:
                    ray.kill(attempt.actor)  # a machine that was out of reach for some time must not continue the job
                    self._say("lost", name=attempt.job.name, reason=_take_first_line(cause or error))

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
            append_to_files(arriving, piece)
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


def _take_first_line(error: BaseException) -> str:
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
        if select.select([requests], [], [], REQUEST_POLL_S)[0]:
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
