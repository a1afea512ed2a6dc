"""The layout of the folder of a search for faster settings; saving and loading its record and its trials."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import ANOTHER_FOLDER, InductorBenchError, UsageError
from ..records.optimization import Optimization, Trial
from . import codec as schema
from .files import each_text, leftovers_of, read_json, refuse_link, remove_file, write_json
from .folder import PAGE
from .lock import LOCK

RECORD = "optimization.json"
FORMAT = 1
APPLY, LINES, DIFF = "apply.py", "README.md", "settings.diff"
"""What is written for the user: a module, the lines to paste, and the change of the program's file."""

_DAMAGED = "take it from a copy, or search again with --force"


@dataclass(frozen=True)
class OptimizationFolder:
    """One search on disk: its record and page, ``trials/`` with what each process measured, and ``logs/``."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path / RECORD

    @property
    def trials(self) -> Path:
        return self.path / "trials"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def pins(self) -> Path:
        """The configs of the RUN's retunes, as processes take them."""
        return self.path / "pins.json"

    @property
    def work(self) -> Path:
        """Caches and temporary files; they stay until the search has ended, so that it can go on."""
        return self.path / ".work"

    def exists(self) -> bool:
        return self.record.is_file()

    def make(self) -> None:
        """Makes the folder.

        Raises:
            UsageError: it holds files that are none of a search.
            InductorBenchError: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InductorBenchError(f"cannot create {self.path}: {reason}", ANOTHER_FOLDER) from error
        own = {LOCK, self.work.name, self.trials.name, self.logs.name}
        own.update(left.name for left in leftovers_of(self.record))
        if not self.exists() and any(item.name not in own for item in self.path.iterdir()):
            raise UsageError(f"{self.path} is not empty and holds no search of `optimize`", ANOTHER_FOLDER)

    def clear(self) -> None:
        """Removes an earlier search: its own files, and no others.

        Raises:
            InductorBenchError: a folder is a symbolic link.
        """
        for folder, pattern in ((self.trials, "*.json"), (self.logs, "*.log")):
            refuse_link(folder)
            for file in folder.glob(pattern):
                file.unlink(missing_ok=True)
        self.remove_work()
        for name in (PAGE, APPLY, LINES, DIFF, self.pins.name):
            remove_file(self.path / name)
        self.record.unlink(missing_ok=True)

    def remove_work(self) -> None:
        """Removes the caches."""
        if self.work.is_symlink():
            self.work.unlink()
        shutil.rmtree(self.work, ignore_errors=True)

    def save(self, found: Optimization, hide: Callable[[str], str]) -> None:
        """Writes the record atomically, without the times of single steps; ``hide`` takes the secrets out of texts."""
        write_json(
            self.record, each_text(schema.encode(replace(found, trials=tuple(map(summary, found.trials)))), hide)
        )

    def load(self) -> Optimization:
        """Reads the record.

        Raises:
            InductorBenchError: it is missing, damaged, or of a newer format.
        """
        if not self.exists():
            raise InductorBenchError(f"{self.path} holds no {RECORD}", "inductor-bench optimize TARGET writes one")
        data = read_json(self.record)
        schema.check_format(data, FORMAT, str(self.record), "a search of `optimize`", _DAMAGED)
        return schema.decode_record(Optimization, data, str(self.record), _DAMAGED)

    def save_trial(self, trial: Trial, hide: Callable[[str], str]) -> None:
        """Writes what a process measured."""
        write_json(self.trials / f"{trial.name}.json", each_text(schema.encode(trial), hide))

    def load_trial(self, name: str) -> Trial | None:
        """What a process of an earlier command measured; ``None`` if there was none, or if its file is damaged."""
        file = self.trials / f"{name}.json"
        if not file.is_file():
            return None
        try:
            return schema.decode(Trial, read_json(file))
        except InductorBenchError:
            return None


def summary(trial: Trial) -> Trial:
    """A trial without the times of single steps, which its own file has."""
    variants = tuple(replace(one, times_s=(), places=()) for one in trial.variants)
    return replace(trial, variants=variants, digests=())
