"""Recorded values of launches: files that a worker writes, and that later lie beside the kernels' standalone files."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ... import units
from ...errors import InductorBenchError
from ...records.code.details import Details, Reference
from ...records.code.launch import Launch
from ...records.run import Failure
from ...source.module.identity import launch_key
from ...store.files import copy_file
from ...store.folder import RunFolder

SUFFIX = ".safetensors"


@dataclass(frozen=True)
class RecordedValues:
    """A launch with its recorded values, the reference of its outputs, and the file of the values.

    ``movable`` says whether the file may be moved from its place.
    """

    launch: Launch
    reference: Reference
    path: Path
    movable: bool

    def place(self, target: Path) -> None:
        """Puts the file where a kernel's standalone file expects it.

        Raises:
            InductorBenchError: the file is missing or a link, or the disk is full.
        """
        if self.path.is_symlink() or not self.path.is_file():
            raise InductorBenchError(f"its recorded values are gone: {self.path}")
        if self.movable:
            with contextlib.suppress(OSError):
                os.replace(self.path, target)
                return
        copy_file(self.path, target)

    def launch_from(self, file: str) -> Launch:
        """The launch with its values in a file of this name."""
        storages = tuple(
            replace(storage, values=replace(storage.values, file=file)) if storage.values.file else storage
            for storage in self.launch.storages
        )
        return replace(self.launch, storages=storages)


@dataclass(frozen=True)
class ModuleValues:
    """The launches of a module whose values were recorded.

    ``launches`` and their ``references`` are keyed by :func:`launch_key`. The files lie in ``folder``, under the names
    in the launches, or under the names in ``names`` for kernels whose standalone files they lie beside.
    """

    launches: Mapping[Hashable, Launch]
    references: Mapping[Hashable, Reference]
    folder: Path
    names: Mapping[str, str] | None = None

    def find(self, kernel: str, launch: Launch) -> RecordedValues | None:
        """The recorded values of a launch of the kernel."""
        key = launch_key(launch)
        found = self.launches.get(key)
        if found is None:
            return None
        file = self.names.get(kernel) if self.names is not None else _file_of(found)
        if file is None:
            return None
        reference = self.references.get(key, Reference())
        return RecordedValues(found, reference, self.folder / file, movable=self.names is None)


def read_values(details: Details, folder: Path, names: Mapping[str, str] | None = None) -> ModuleValues:
    """The recorded values of a module: its ``recorded`` launches and ``recorded_references``."""
    recorded = details.recorded or ()
    keys = [launch_key(launch) for launch in recorded]
    return ModuleValues(
        dict(zip(keys, recorded, strict=True)),
        dict(zip(keys, details.recorded_references, strict=False)),
        folder,
        names,
    )


def values_work(folder: RunFolder) -> Path:
    """The folder in which the workers of an unfinished RUN write recorded values, one folder for each module."""
    return folder.work / "values"


def values_failure(details: Details, subject: str) -> Failure | None:
    """The failure that stopped the recording of values, if any."""
    error = details.values_error
    return Failure("values", "write", error.message, error.hint, subject=subject) if error else None


def drawn_note(launch: Launch) -> str:
    """A note on the share of a launch's values that is drawn instead of recorded; empty where all are recorded."""
    read = [storage for storage in launch.storages if storage.values.kind != "zeros"]
    drawn = sum(storage.size_bytes for storage in read if storage.values.kind != "recorded")
    whole = sum(storage.size_bytes for storage in read)
    return f"{units.size(drawn)} of the {units.size(whole)} that it reads are drawn" if drawn else ""


def _file_of(launch: Launch) -> str | None:
    return next((storage.values.file for storage in launch.storages if storage.values.file), None)
