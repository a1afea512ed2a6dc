"""The values that launches really read: files that a worker wrote, and that stand beside the kernels' files later."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import units
from ...errors import InductorBenchError
from ...records.code.details import Details
from ...records.code.launch import Launch
from ...records.run import Failure
from ...source.module.identity import launch_key
from ...store.files import copy_file
from ...store.folder import RunFolder

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class RecordedValues:
    """A launch with its values, what it writes when it is called with them, and the file of those values.

    ``movable`` says whether the file may be taken away from where it lies.
    """

    launch: Launch
    reference: Mapping[str, Any]
    path: Path
    movable: bool

    def place(self, target: Path) -> None:
        """Puts the file where a kernel's standalone file expects it.

        Raises:
            InductorBenchError: the file is gone or a link, or the disk is full.
        """
        if self.path.is_symlink() or not self.path.is_file():
            raise InductorBenchError(f"its recorded values are gone: {self.path}")
        if self.movable:
            with contextlib.suppress(OSError):
                os.replace(self.path, target)
                return
        copy_file(self.path, target)

    def launch_from(self, file: str) -> Launch:
        """The launch with its values in a file of that name."""
        storages = tuple(
            replace(storage, values=replace(storage.values, file=file)) if storage.values.file else storage
            for storage in self.launch.storages
        )
        return replace(self.launch, storages=storages)


@dataclass(frozen=True)
class ModuleValues:
    """The launches of a module whose values were recorded.

    ``launches`` and their ``references`` go by :func:`launch_key`. Their files lie in ``folder``, under the names that
    the launches give, or under those that ``names`` has for kernels once they stand beside these.
    """

    launches: Mapping[Hashable, Launch]
    references: Mapping[Hashable, Mapping[str, Any]]
    folder: Path
    names: Mapping[str, str] | None = None

    def find(self, kernel: str, launch: Launch) -> RecordedValues | None:
        """What was recorded of a launch of the kernel."""
        key = launch_key(launch)
        found = self.launches.get(key)
        if found is None:
            return None
        file = self.names.get(kernel) if self.names is not None else _file_of(found)
        if file is None:
            return None
        return RecordedValues(found, self.references.get(key, {}), self.folder / file, movable=self.names is None)


def read_values(details: Details, folder: Path, names: Mapping[str, str] | None = None) -> ModuleValues:
    """The recorded values that a worker told of: its ``recorded`` and ``recorded_references``."""
    recorded = details.recorded or ()
    keys = [launch_key(launch) for launch in recorded]
    return ModuleValues(
        dict(zip(keys, recorded, strict=True)),
        dict(zip(keys, details.recorded_references, strict=False)),
        folder,
        names,
    )


def values_work(folder: RunFolder) -> Path:
    """Where the workers of a RUN in the making put recorded values, a folder for each module."""
    return folder.work / "values"


def values_failure(details: Details, subject: str) -> Failure | None:
    """Why the recording stopped half-way, if it did."""
    error = details.values_error
    return Failure("values", "write", error.message, error.hint, subject=subject) if error else None


def drawn_note(launch: Launch) -> str:
    """In words, how much of what a launch reads is drawn and not recorded; empty where nothing is."""
    read = [storage for storage in launch.storages if storage.values.kind != "zeros"]
    drawn = sum(storage.size_bytes for storage in read if storage.values.kind != "recorded")
    whole = sum(storage.size_bytes for storage in read)
    return f"{units.size(drawn)} of the {units.size(whole)} that it reads are drawn" if drawn else ""


def _file_of(launch: Launch) -> str | None:
    return next((storage.values.file for storage in launch.storages if storage.values.file), None)
