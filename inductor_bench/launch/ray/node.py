"""A job on a machine of a cluster: it runs in a scratch folder there, and its files are sent back in pieces.

:mod:`.cluster` makes a Ray actor of :class:`NodeJob`; this file does not import Ray.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from ...devices.cpu import CPU
from ...devices.nvidia.visible import VISIBLE_GPUS
from ...store.files import ensure_private_folder
from .messages import JobEnd, Order

PIECE_BYTES = 8 << 20
POLL_S = 1.0
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
        """Stores a piece of the RUN that the job extends, before the job starts."""
        write_piece(self._scratch / "run", piece)

    def begin(self, order: Order, program: Mapping[str, bytes], gpu: bool) -> str:
        """Starts the job. Returns its device, ``HOST:GPU`` or ``HOST:cpu``.

        Args:
            order: what to run.
            program: the bytes of the program's files by path.
            gpu: whether the job has a GPU.
        """
        from ..process import ChildProcess  # here, so that a machine without a package reports it when a job starts

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
        """The output since the last call, and the result of the job after its end, ``None`` before."""
        over = self._child.wait(POLL_S)
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
        """The next piece of the RUN; an empty list after the last one."""
        return next(self._pieces, [])

    def close(self) -> None:
        """Ends the job and removes its scratch folder."""
        if hasattr(self, "_child"):
            self._child.end()
        os.chdir("/")
        remove_scratch(self._scratch)

    def _environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        from ..jobs import OFFLINE
        from ..worker import expose_package, join_paths

        inherited = {name: value for name, value in os.environ.items() if name not in RAYS}
        path = join_paths(expose_package(self._scratch), inherited.get("PYTHONPATH"))
        return {**inherited, **OFFLINE, **variables, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}


RAYS = frozenset({"OMP_NUM_THREADS"})
"""Variables that Ray sets for its actors and that would change the measurement."""


def make_scratch() -> tuple[Path, int]:
    """Makes a scratch folder, and removes unused scratch folders. Returns it with the descriptor of its lock.

    Where another user has taken the name of the parent folder, the new folder has an unguessable name elsewhere.
    """
    parent = Path(tempfile.gettempdir()) / f"inductor-bench-nodes-{os.getuid()}"
    if not ensure_private_folder(parent, forbidden_bits=0o077):
        path = Path(tempfile.mkdtemp(prefix="inductor-bench-node-"))
        return path, _lock(path)
    for lock in parent.glob("*.lock"):
        with contextlib.suppress(OSError), lock.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)  # succeeds where its owner was killed
            remove_scratch(lock.with_suffix(""))
    while True:
        path = parent / uuid.uuid4().hex
        with contextlib.suppress(BlockingIOError):  # another process is removing unused folders
            descriptor = _lock(path)
            path.mkdir()
            return path, descriptor


def _lock(path: Path) -> int:
    """Takes the lock of a scratch folder. Returns its descriptor.

    Raises:
        BlockingIOError: another process holds it.
    """
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
    """The Python files that a program can import from its folder, packages included: bytes by relative path."""
    files = sorted(file.parent.glob("*.py"))
    packages = [path.parent for path in sorted(file.parent.glob("*/__init__.py"))]
    files += [path for package in packages for path in sorted(package.rglob("*.py"))]
    return {path.relative_to(file.parent).as_posix(): path.read_bytes() for path in files if path.is_file()}


def read_pieces(folder: Path) -> Iterator[Piece]:
    """All files of a folder except ``.work``, in pieces of about :data:`PIECE_BYTES`."""
    piece: Piece = []
    size = 0
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if not path.is_file() or name.parts[0] == ".work":
            continue
        for data in _parts(path):
            piece.append((name.as_posix(), data))
            size += len(data)
            if size >= PIECE_BYTES:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


def _parts(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield stream.read(PIECE_BYTES)  # one part for an empty file too
        yield from iter(lambda: stream.read(PIECE_BYTES), b"")


def write_piece(folder: Path, piece: Piece) -> None:
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
    """The path of a file in a folder.

    Raises:
        ValueError: the name leads out of the folder.
    """
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise ValueError(f"{name!r} is no name of a file in a folder")
    return folder / path
