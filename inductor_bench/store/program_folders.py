"""The result folders of several processes of one program: a comparison of modes, a search for settings."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from ..errors import ANOTHER_FOLDER, InductorBenchError, UsageError
from ..records.comparison import ModeComparison
from ..records.optimization import Optimization, Trial
from . import codec
from .files import change_each_text, find_leftovers, own_folder, read_json, refuse_link, remove_file, write_json
from .folder import OPTIMIZED, PAGE, SEARCH, RecordFolder
from .lock import LOCK

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

    def remove_work(self) -> None:
        """Removes the caches."""
        if self.work.is_symlink():
            self.work.unlink()
        shutil.rmtree(self.work, ignore_errors=True)

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
