"""The layouts of the folders of results (a run, a batch, a comparison of modes, a search); making, loading, saving."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from ..errors import ANOTHER_FOLDER, PATH_ERRORS, InductorBenchError, UsageError, explain_system_error
from ..interruption import uninterrupted
from ..records.batch_record import Batch
from ..records.comparison import ModeComparison
from ..records.module import ExtractedKernel
from ..records.optimization import Optimization, Trial
from ..records.run import Run
from . import codec
from .files import (
    change_each_text,
    find_file_inside,
    find_free_folder,
    find_leftovers,
    hash_file,
    own_folder,
    read_json,
    refuse_link,
    remove_file,
    write_json,
)
from .lock import LOCK, FolderLock, hold_lock, is_locked

# The index of an extraction: a row for each kernel, in the folder of the kernel files.


INDEX = "kernels.json"


def read_index(folder: Path) -> tuple[ExtractedKernel, ...]:
    """The rows of the kernels whose files are in a folder.

    Raises:
        InductorBenchError: the index is missing or damaged.
    """
    rows = read_json(folder / INDEX)
    if not isinstance(rows, list):
        raise InductorBenchError(f"{folder / INDEX} is not a list of kernels", name="damaged")
    return tuple(codec.decode(ExtractedKernel, row) for row in rows)


def read_rows(folder: Path) -> tuple[ExtractedKernel, ...]:
    """The rows of :func:`read_index`; none if the index cannot be read."""
    try:
        return read_index(folder)
    except InductorBenchError:
        return ()


def is_edited(row: ExtractedKernel, folder: Path) -> bool:
    """Whether the file of a row exists and differs from the file that was written."""
    if row.file is None or row.sha256 is None:
        return False
    return hash_file(folder / row.file) not in (None, row.sha256)


# The layout of a RUN folder; making, loading, saving and removing a run.


RECORD = "record.json"
EVIDENCE = "evidence.json"
"""The file of the observations that are not in the record."""
PAGE = "report.html"
"""The name of the HTML page in the folder of a run, a batch, a comparison, or a comparison of modes."""
_RUN_DAMAGED = "the record is damaged; restore it from a copy of the run, or measure again"


@dataclass(frozen=True)
class RecordFolder:
    """The result folder of a command: a record with relative paths, ``logs/``, and ``.work/`` during the run."""

    path: Path

    RECORD: ClassVar[str]
    """The name of the record's file."""

    @property
    def record(self) -> Path:
        return self.path / self.RECORD

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def work(self) -> Path:
        """Caches and temporary files, which are removed once the result is complete."""
        return self.path / ".work"

    def relative(self, path: Path) -> str:
        return path.relative_to(self.path).as_posix()

    def exists(self) -> bool:
        return self.record.is_file()

    def make(self) -> None:
        """Makes the folder.

        Raises:
            InductorBenchError: it cannot be made.
        """
        with explain_system_error(f"cannot create {self.path}", ANOTHER_FOLDER, "unwritable", PATH_ERRORS):
            self.path.mkdir(parents=True, exist_ok=True)

    def remove_work(self) -> None:
        """Removes the caches and temporary files."""
        if self.work.is_symlink():
            self.work.unlink()
        shutil.rmtree(self.work, ignore_errors=True)

    def read(self, written_by: str, damaged: str) -> Any:
        """The record as plain data.

        Args:
            written_by: the hint if there is no record; it names the command that writes one.
            damaged: the hint if it is damaged.

        Raises:
            InductorBenchError: it is missing, or no JSON.
        """
        is_there = True
        with contextlib.suppress(PermissionError):  # reading the file says that then
            is_there = self.exists()
        if not is_there:
            raise InductorBenchError(f"{self.path} holds no {self.RECORD}", written_by, "no-record")
        try:
            return read_json(self.record)
        except InductorBenchError as error:
            raise InductorBenchError(error.message, error.hint or damaged, error.id) from error


class RunFolder(RecordFolder):
    """One run on disk."""

    RECORD = RECORD

    @property
    def modules(self) -> Path:
        return self.path / "modules"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def kernels(self) -> Path:
        """The standalone files, one per kernel."""
        return self.path / "kernels"

    def file(self, place: str) -> Path:
        """A file of the run by its path in the folder.

        Raises:
            InductorBenchError: the file is gone, is no plain file, or a link leads out of the folder.
        """
        return find_file_inside(self.path, place)

    def optional_file(self, place: str) -> Path | None:
        """The file of :meth:`file`, or ``None`` if nothing exists at that path."""
        return self.file(place) if os.path.lexists(self.path / place) else None

    def save(self, run: Run) -> None:
        """Writes ``record.json`` atomically, after a check that it can be read again.

        Raises:
            InductorBenchError: it cannot be written, or a field is invalid; an earlier record stays unchanged.
        """
        data = codec.encode(run)
        codec.decode(Run, data)
        write_json(self.record, data)

    def load(self) -> Run:
        """Reads ``record.json`` of this or an older format.

        Raises:
            InductorBenchError: the record is missing, damaged, or of a newer format.
        """
        data = self.read("give a RUN folder that `inductor-bench breakdown` wrote", _RUN_DAMAGED)
        if not isinstance(data, dict):
            raise InductorBenchError(f"{self.record} is not a record of inductor-bench", _RUN_DAMAGED, "damaged")
        return codec.decode_record(Run, codec.upgrade(data, str(self.record)), str(self.record), _RUN_DAMAGED)


OPTIMIZED, SEARCH = "optimized", "optimization.json"
"""Names of the folder of a search in its RUN, and of its record."""

OWN_FILES = {
    "": (PAGE, EVIDENCE),
    "modules": ("*.py", "*.provenance.json", "*.layers.json"),
    "kernels": (),  # the files that the index lists, without edited ones
    "traces": ("*.trace.json.gz", "*.details.json", "*.timeline.json", "*.speedscope.json", "operator_costs.json"),
    "logs": ("*.log", "*.p.txt"),
    "tables": ("*.csv",),
    "plots": ("*.png",),
    "tuned": ("tuned.py", "lookup_table.json", "README.md"),
    OPTIMIZED: (SEARCH, PAGE, "apply.py", "README.md", "settings.diff", "pins.json", LOCK),
    f"{OPTIMIZED}/trials": ("*.json",),
    f"{OPTIMIZED}/logs": ("*.log",),
}
"""The files of a run: patterns of names by folder. A folder comes before the folders in it."""


@contextlib.contextmanager
def make_run_folder(
    path: Path | None, title: str, *, force: bool, mark: str = "", tell: Callable[[str], None] = lambda text: None
) -> Iterator[tuple[RunFolder, str]]:
    """Makes the folder of a new run, and holds its lock until the end of the block.

    Args:
        path: the folder; ``None`` for the first free ``runs/<title>-<n>`` below the current folder.
        title: the title of the run; its letters and digits name the folder.
        force: whether an earlier run at ``path`` may be replaced. Only that run's own files are removed, and a search
            that ``optimize`` made in it is kept beside the new run.
        mark: the mark of the processes that this process starts; see :func:`.lock.locked`.
        tell: is called with a message that says where an earlier search is kept.

    Yields:
        The folder, and the mark of the processes that a killed command on this folder left.

    Raises:
        UsageError: ``path`` holds other files, or another command writes it.
        InductorBenchError: the folder cannot be made.
    """
    folder = RunFolder(_make(path, title, force=force))
    with hold_lock(folder.path, mark) as lock:
        _check_replaceable(folder, force=force)  # again: another command may have written it before the lock
        _keep_search(folder, tell)
        remove_run(folder)
        try:
            yield folder, lock.left
        finally:
            with uninterrupted():
                folder.remove_work()


def _make(path: Path | None, title: str, *, force: bool) -> Path:
    with explain_system_error(f"cannot create {path or 'runs/'}", ANOTHER_FOLDER, "unwritable", PATH_ERRORS):
        if path is None:
            return find_free_folder(Path("runs"), title)
        if os.path.lexists(path):
            _check_replaceable(RunFolder(path), force=force)
        path.mkdir(parents=True, exist_ok=True)
    return path


def _check_replaceable(folder: RunFolder, *, force: bool) -> None:
    """Checks that a new run may use a folder: it is empty, or with ``force`` it holds an earlier run."""
    path = folder.path
    if not path.is_dir():
        raise UsageError(f"{path} exists and is not a folder", ANOTHER_FOLDER, "folder-in-use")
    if not any(item.name != LOCK for item in path.iterdir()):
        return
    reason = _explain_irreplaceable(folder)
    if reason:
        raise UsageError(
            f"{path} is not empty and is not a run of inductor-bench: {reason}", ANOTHER_FOLDER, "folder-in-use"
        )
    if not force:
        hint = "replace it with --force, or choose another folder with -o"
        raise UsageError(f"{path} holds an earlier run", hint, "folder-in-use")


def _explain_irreplaceable(folder: RunFolder) -> str:
    """Says why a folder may hold files of the user; empty for a folder that only holds a run."""
    real = folder.path.resolve()
    if real in (Path.home(), Path.cwd(), *Path.cwd().parents):
        return "it is the home folder, or the current folder or above it"
    if folder.path.is_symlink():
        return f"it is a symbolic link to {real}"
    for name in ("batch.json", ".git"):
        if os.path.lexists(real / name):
            return f"it holds {name}"
    if _was_killed(folder):
        return ""
    try:
        folder.load()
    except InductorBenchError as error:
        return error.message
    return ""


def _was_killed(folder: RunFolder) -> bool:
    """Whether a folder holds only the lock and own files of a run that was killed before it had a record."""
    lock = folder.path / LOCK
    if folder.record.exists() or not lock.is_file():
        return False
    own = {lock, folder.work, *find_leftovers(folder.record), *_own_files(folder)}
    own.update(folder.path / name for name in OWN_FILES)
    kept = {*folder.path.glob(f"{OPTIMIZED}-*")}
    return all(path in own or {folder.work, *kept} & {path, *path.parents} for path in folder.path.rglob("*"))


def _keep_search(folder: RunFolder, tell: Callable[[str], None]) -> None:
    """Moves the search of a replaced run to ``optimized-<n>``: it took minutes, and is about that run's steps."""
    search = folder.path / OPTIMIZED
    if search.is_symlink() or not (search / SEARCH).is_file():
        return
    if is_locked(search):
        raise UsageError(f"a search runs in {search}", "wait for its end, or " + ANOTHER_FOLDER, "folder-in-use")
    with explain_system_error(f"cannot move {search}", ANOTHER_FOLDER, "unwritable"):
        kept = find_free_folder(folder.path, search.name)
        search.replace(kept)
    tell(f"the search of the earlier run is kept: inductor-bench report {shlex.quote(str(kept))}")


def remove_run(folder: RunFolder) -> None:
    """Removes a run's own files and its scratch folder. Other files stay, and so do edited kernel files.

    Raises:
        InductorBenchError: a file cannot be removed.
    """
    with explain_system_error(f"cannot remove {folder.path}", ANOTHER_FOLDER, "unwritable"):
        for path in _own_files(folder):
            path.unlink(missing_ok=True)
        for name in filter(None, reversed(OWN_FILES)):
            _remove_empty(folder.path / name)
        folder.remove_work()
        for path in (*find_leftovers(folder.record), folder.record):  # last, because the record identifies the run
            path.unlink(missing_ok=True)
        _remove_empty(folder.path)


def _own_files(folder: RunFolder) -> Iterator[Path]:
    for name, patterns in OWN_FILES.items():
        place = folder.path / name
        if place.is_symlink():
            yield place
        elif place.is_dir():
            for pattern in patterns:
                yield from _list_files(place.glob(pattern))
                yield from _list_files(place.glob(f".{pattern}.????????"))  # temporary files of a killed command
    if not folder.kernels.is_symlink():
        yield from _own_kernels(folder.kernels)


def _own_kernels(kernels: Path) -> Iterator[Path]:
    for row in read_rows(kernels):
        if not is_edited(row, kernels):
            yield from _list_files(kernels / name for name in (row.file, row.values) if name)
    yield from _list_files([kernels / INDEX])


def _list_files(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in list(paths) if path.is_symlink() or path.is_file())


def _remove_empty(path: Path) -> None:
    with contextlib.suppress(OSError):  # it holds other files, or is missing
        path.rmdir()


# The layout of a batch folder: the batch's record, one RUN for each model, and the folder's lock.


BATCH = "batch.json"
FORMAT = 1

_BATCH_DAMAGED = (
    "restore it from a copy; the RUN folders under models/ are whole, each can be shown with `inductor-bench report`"
)


def _leave_out_unset(data: Any) -> Any:
    """Removes from a decoded batch the ``null`` values that earlier versions wrote for options not in the list."""
    models = data["models"] if isinstance(data.get("models"), list) else []
    for model in models:
        request = model.get("request") if isinstance(model, dict) else None
        if isinstance(request, dict):
            model["request"] = {key: value for key, value in request.items() if value is not None}
    return data


class BatchFolder(RecordFolder):
    """One batch on disk."""

    RECORD = BATCH

    @property
    def models(self) -> Path:
        return self.path / "models"

    def run(self, name: str) -> RunFolder:
        """The RUN folder of a model."""
        return RunFolder(self.models / name)

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def is_new(self) -> bool:
        """Whether the folder is missing, or holds only files of a batch that was killed before its record was saved."""
        left = {self.path / LOCK, *find_leftovers(self.record)}
        return not self.path.exists() or left.issuperset(self.path.iterdir())

    def save(self, batch: Batch) -> None:
        """Writes ``batch.json`` atomically."""
        write_json(self.record, codec.encode(batch))

    def load(self) -> Batch:
        """Reads ``batch.json``.

        Raises:
            InductorBenchError: it is missing, damaged, or of a newer format.
        """
        data = self.read("give a folder that `inductor-bench batch` wrote", _BATCH_DAMAGED)
        codec.check_format(data, FORMAT, str(self.record), "a batch of inductor-bench", _BATCH_DAMAGED)
        return codec.decode_record(Batch, _leave_out_unset(data), str(self.record), _BATCH_DAMAGED)

    @contextlib.contextmanager
    def locked(self, mark: str = "") -> Iterator[FolderLock]:
        """Makes the folder and holds its lock in the block; see :func:`.lock.locked`.

        The measuring processes inherit the descriptor, so that the folder stays locked until they have ended too.

        Args:
            mark: the mark of the processes that this process starts.

        Raises:
            UsageError: another command writes this folder.
            InductorBenchError: the folder cannot be made.
        """
        self.make()
        with hold_lock(self.path, mark) as lock:
            for left in find_leftovers(self.record):
                left.unlink(missing_ok=True)
            yield lock

    def is_locked(self) -> bool:
        """Whether a running batch holds this folder's lock."""
        return is_locked(self.path)


Result = TypeVar("Result", ModeComparison, Optimization)


class ProgramFolder(RecordFolder, ABC, Generic[Result]):
    """One result on disk: record, page, measurements of each process, ``logs/``, and caches until it is complete."""

    FORMAT: ClassVar[int]
    """The number of the record's format."""

    HOLDS: ClassVar[str]
    """What the folder holds, in words: ``comparison of modes``."""

    VERB: ClassVar[str]
    """The verb that writes it."""

    AGAIN: ClassVar[str]
    """The words for what the command repeats with ``--force``."""

    KIND: ClassVar[type[Any]]
    """The class of the record."""

    @property
    @abstractmethod
    def processes(self) -> Path:
        """The folder with a file for each process."""

    @property
    def _files(self) -> Sequence[Path]:
        """Further files of this tool in the folder."""
        return ()

    def make(self) -> None:
        """Makes the folder.

        Raises:
            UsageError: it holds files of something else.
            InductorBenchError: it cannot be made.
        """
        super().make()
        own = {LOCK, self.work.name, self.processes.name, self.logs.name}
        own.update(left.name for left in find_leftovers(self.record))
        if not self.exists() and any(item.name not in own for item in self.path.iterdir()):
            raise UsageError(f"{self.path} is not empty and holds no {self.HOLDS}", ANOTHER_FOLDER, "folder-in-use")

    def make_inside(self) -> None:
        """Makes the folders that processes write into.

        Raises:
            InductorBenchError: one of them cannot be made, or is a symbolic link.
        """
        for folder in (self.work, self.processes, self.logs):
            own_folder(folder)

    def clear(self) -> None:
        """Removes an earlier result: its own files, and no others.

        Raises:
            InductorBenchError: a folder is a symbolic link, or a file cannot be removed.
        """
        for folder, pattern in ((self.processes, "*.json"), (self.logs, "*.log")):
            refuse_link(folder)
            for file in folder.glob(pattern):
                file.unlink(missing_ok=True)
        self.remove_work()
        for file in (self.path / PAGE, *self._files):
            remove_file(file)
        self.record.unlink(missing_ok=True)

    def save(self, found: Result, hide: Callable[[str], str]) -> None:
        """Writes the record atomically; ``hide`` takes the secrets out of each text."""
        write_json(self.record, change_each_text(codec.encode(found), hide))

    def save_process(self, name: str, found: object, hide: Callable[[str], str]) -> None:
        """Writes what a process measured, without secrets."""
        write_json(self.processes / f"{name}.json", change_each_text(codec.encode(found), hide))

    def load(self) -> Result:
        """Reads the record.

        Raises:
            InductorBenchError: it is missing, damaged, or of a newer format.
        """
        damaged = f"restore it from a copy, or {self.AGAIN} again with --force"
        data = self.read(f"inductor-bench {self.VERB} TARGET writes one", damaged)
        codec.check_format(data, self.FORMAT, str(self.record), f"a {self.HOLDS}", damaged)
        found: Result = codec.decode_record(self.KIND, data, str(self.record), damaged)
        return found


class ModesFolder(ProgramFolder[ModeComparison]):
    """A comparison of modes: ``modes.json``, its page, ``records/`` with what each process observed, and ``logs/``."""

    RECORD, FORMAT, KIND = "modes.json", 1, ModeComparison
    HOLDS, VERB, AGAIN = "comparison of modes", "modes", "measure"

    @property
    def processes(self) -> Path:
        return self.path / "records"


class OptimizationFolder(ProgramFolder[Optimization]):
    """A search: ``optimization.json``, its page, ``trials/`` with what each process measured, ``logs/``, and files."""

    RECORD, FORMAT, KIND = SEARCH, 1, Optimization
    HOLDS, VERB, AGAIN = "search of `optimize`", "optimize", "search"

    APPLY, LINES, DIFF = "apply.py", "README.md", "settings.diff"
    """The files for the user: a module, the lines to paste, and the change of the program's file."""

    @property
    def processes(self) -> Path:
        return self.path / "trials"

    @property
    def pins(self) -> Path:
        """The configs of the RUN's retunes, as processes take them."""
        return self.path / "pins.json"

    @property
    def _files(self) -> Sequence[Path]:
        return (self.path / self.APPLY, self.path / self.LINES, self.path / self.DIFF, self.pins)

    def save(self, found: Optimization, hide: Callable[[str], str]) -> None:
        """Writes the record atomically, without the times of single steps; ``hide`` takes the secrets out of texts."""
        super().save(replace(found, trials=tuple(map(summarise_trial, found.trials))), hide)

    def load_trial(self, name: str) -> Trial | None:
        """What a process of an earlier command measured; ``None`` if there was none, or if its file is damaged."""
        file = self.processes / f"{name}.json"
        if not file.is_file():
            return None
        try:
            return codec.decode(Trial, read_json(file))
        except InductorBenchError:
            return None

    def remove_trial(self, name: str) -> None:
        """Removes what a process measured, so that a process of this name runs again."""
        remove_file(self.processes / f"{name}.json")


def load_search(run: Path) -> Optimization | None:
    """The search of a RUN; ``None`` without one.

    Raises:
        InductorBenchError: it is damaged, or of a newer format.
    """
    folder = OptimizationFolder(run / OPTIMIZED)
    return folder.load() if folder.exists() else None


def summarise_trial(trial: Trial) -> Trial:
    """A trial without the times of single steps, which its own file has."""
    variants = tuple(replace(one, times_s=(), places=(), kinds=()) for one in trial.variants)
    return replace(trial, variants=variants, digests=())
