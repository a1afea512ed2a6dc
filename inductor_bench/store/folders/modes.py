"""The layout of the folder of a comparison of modes; saving and loading its record."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ANOTHER_FOLDER, InductorBenchError, UsageError
from ...records.modes.comparison import ModeComparison
from ..files import leftovers_of, read_json, refuse_link, write_json
from ..folder import PAGE
from ..formats import codec, schema
from ..lock import LOCK

COMPARISON = "modes.json"
FORMAT = 1
_DAMAGED = "take it from a copy, or measure again with --force"


@dataclass(frozen=True)
class ModesFolder:
    """One comparison on disk: ``modes.json``, its page, ``records/`` with what each process observed, and ``logs/``."""

    path: Path

    @property
    def record(self) -> Path:
        return self.path / COMPARISON

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def records(self) -> Path:
        return self.path / "records"

    @property
    def work(self) -> Path:
        """Caches and temporary files; they stay until the comparison is complete, so that it can go on."""
        return self.path / ".work"

    def exists(self) -> bool:
        return self.record.is_file()

    def make(self) -> None:
        """Makes the folder.

        Raises:
            UsageError: it holds files that are none of a comparison.
            InductorBenchError: it cannot be made.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InductorBenchError(f"cannot create {self.path}: {reason}", ANOTHER_FOLDER) from error
        own = {LOCK, self.work.name, self.records.name, self.logs.name}
        own.update(left.name for left in leftovers_of(self.record))
        if not self.exists() and any(item.name not in own for item in self.path.iterdir()):
            raise UsageError(f"{self.path} is not empty and holds no comparison of modes", ANOTHER_FOLDER)

    def clear(self) -> None:
        """Removes an earlier comparison: its own files, and no others.

        Raises:
            InductorBenchError: a folder is a symbolic link.
        """
        for folder, pattern in ((self.records, "*.json"), (self.logs, "*.log")):
            refuse_link(folder)
            for file in folder.glob(pattern):
                file.unlink(missing_ok=True)
        self.remove_work()
        (self.path / PAGE).unlink(missing_ok=True)
        self.record.unlink(missing_ok=True)

    def remove_work(self) -> None:
        """Removes the caches."""
        if self.work.is_symlink():
            self.work.unlink()
        shutil.rmtree(self.work, ignore_errors=True)

    def save(self, comparison: ModeComparison, hide: Callable[[str], str]) -> None:
        """Writes ``modes.json`` atomically; ``hide`` takes the secrets out of each text."""
        write_json(self.record, _each_text(codec.encode(comparison), hide))

    def save_observed(self, name: str, observed: object, hide: Callable[[str], str]) -> None:
        """Writes what a process observed into ``records/``, without secrets."""
        write_json(self.records / f"{name}.json", _each_text(codec.encode(observed), hide))

    def load(self) -> ModeComparison:
        """Reads ``modes.json``.

        Raises:
            InductorBenchError: it is missing, damaged, or of a newer format.
        """
        if not self.exists():
            raise InductorBenchError(f"{self.path} holds no {COMPARISON}", "inductor-bench modes TARGET writes one")
        data = read_json(self.record)
        schema.check_format(data, FORMAT, str(self.record), "a comparison of modes", _DAMAGED)
        return schema.decode_record(ModeComparison, data, str(self.record), _DAMAGED)


def _each_text(data: Any, change: Callable[[str], str]) -> Any:
    if isinstance(data, str):
        return change(data)
    if isinstance(data, list):
        return [_each_text(item, change) for item in data]
    if isinstance(data, dict):
        return {key: _each_text(value, change) for key, value in data.items()}
    return data
