"""The layout of a RUN folder, and how one is made, opened and saved."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import InductorBenchError, UsageError
from ..records.run import Run
from . import codec, schema
from .files import read_json, write_json

RECORD = "record.json"
_DAMAGED = "the record is damaged; take it from a copy of the run, or measure again"


@dataclass(frozen=True)
class RunFolder:
    """One run on disk. Everything inside is referred to by paths relative to ``path``."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path / RECORD

    @property
    def modules(self) -> Path:
        return self.path / "modules"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def kernels(self) -> Path:
        """One standalone file per kernel."""
        return self.path / "kernels"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def work(self) -> Path:
        """Caches and temporary files of the run in progress; removed at its end."""
        return self.path / ".work"

    def relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keeps others that ask for the same from the record meanwhile.

        Raises:
            UsageError: another command has it.
        """
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            with contextlib.suppress(OSError):  # of a file system without locks
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UsageError(f"another command is retuning {self.path}", "wait for it to end") from None
            yield
        finally:
            os.close(descriptor)

    def save(self, run: Run) -> None:
        """Writes ``record.json`` atomically."""
        write_json(self.record, codec.encode(run))

    def load(self) -> Run:
        """Reads ``record.json``, of this or an older format.

        Raises:
            InductorBenchError: it is missing, damaged, or of a newer format.
        """
        if not self.record.is_file():
            raise InductorBenchError(
                f"{self.path} holds no {RECORD}", "give a RUN folder that `inductor-bench breakdown` wrote"
            )
        try:
            data = read_json(self.record)
        except InductorBenchError as error:
            raise InductorBenchError(error.message, error.hint or _DAMAGED) from error
        if not isinstance(data, dict):
            raise InductorBenchError(f"{self.record} is not a record of inductor-bench", _DAMAGED)
        data = schema.upgrade(data, str(self.record))
        try:
            return codec.decode(Run, data)
        except InductorBenchError as error:
            raise InductorBenchError(f"{self.record}: {error.message}", error.hint or _DAMAGED) from error


def create_run_folder(path: Path | None, title: str, *, force: bool) -> RunFolder:
    """Makes the folder of a new run.

    Args:
        path: where, or ``None`` for the first free ``runs/<title>-<n>`` below the current folder.
        title: what the run is about; its letters and digits name the folder.
        force: whether an earlier run at ``path`` may be replaced. Nothing but an earlier run ever is.

    Raises:
        UsageError: something is at ``path`` already.
        InductorBenchError: the folder cannot be made.
    """
    try:
        if path is None:
            return RunFolder(_first_free(Path("runs"), title))
        if path.exists():
            _clear(path, force=force)
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InductorBenchError(f"cannot create {path or 'runs/'}: {error.strerror or error}") from error
    return RunFolder(path)


def _clear(path: Path, *, force: bool) -> None:
    if not path.is_dir():
        raise UsageError(f"{path} exists and is not a folder", "choose another folder with -o")
    if not any(path.iterdir()):
        return
    if not (path / RECORD).is_file() and not (path / ".work").is_dir():
        raise UsageError(f"{path} is not empty and is not a run of inductor-bench", "choose another folder with -o")
    if not force:
        raise UsageError(f"{path} holds an earlier run", "replace it with --force, or choose another folder with -o")
    for item in path.iterdir():
        shutil.rmtree(item) if item.is_dir() and not item.is_symlink() else item.unlink()


def _first_free(parent: Path, title: str) -> Path:
    stem = re.sub(r"[^A-Za-z0-9_.]+", "-", title).strip("-.")[:60] or "run"
    number = 1
    while True:
        path = parent / f"{stem}-{number}"
        try:
            path.mkdir(parents=True)
            return path
        except FileExistsError:
            number += 1
