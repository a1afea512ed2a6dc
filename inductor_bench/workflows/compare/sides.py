"""Opens what ``compare`` is given: RUN folders, zipped RUNs, and the texts of their kernels."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...errors import InductorBenchError, UsageError
from ...records.run import Run
from ...source.module.reader import read_module
from ...store.batch import BATCH
from ...store.folder import RECORD, RunFolder
from ...store.formats.archive import unpacked_run
from ..modules.targets import find


@dataclass(frozen=True)
class OpenedRun:
    """A run with the folder that holds its files; ``name`` is the path that the user gave."""

    name: str
    run: Run
    folder: RunFolder


@contextlib.contextmanager
def opened_run(path: Path) -> Iterator[OpenedRun]:
    """A run of a RUN folder, of its ``record.json``, or of a zip file, whose unpacked files last for the block.

    Raises:
        UsageError: there is nothing of the kind.
        InductorBenchError: its record cannot be read.
    """
    if path.is_file() and path.name != RECORD:
        with unpacked_run(path) as folder:
            try:
                run = RunFolder(folder).load()
            except InductorBenchError as error:
                raise InductorBenchError(error.message.replace(str(folder / RECORD), str(path)), error.hint) from error
            yield OpenedRun(str(path), run, RunFolder(folder))
        return
    folder = path.parent if path.name == RECORD else path
    yield OpenedRun(str(path), RunFolder(folder).load(), RunFolder(folder))


def is_batch(path: Path) -> bool:
    """Whether a path is a batch folder."""
    return os.path.isfile(path / BATCH)


def check_run(path: Path) -> None:
    """Checks that a path may be a run.

    Raises:
        UsageError: nothing is there, it cannot be looked up, or it is a Python file.
    """
    if not find(path):
        raise UsageError(
            f"there is no {path}", "give two RUN folders, two zipped RUNs or two batches; `breakdown` writes RUNs"
        )
    if path.suffix == ".py":
        raise UsageError(f"{path} is a program and no run", "give one program: it is run for both sides")


class KernelTexts(Mapping[tuple[str, str], str]):
    """The texts of a run's kernels by graph and name, from its modules. A module is read when it is asked for first.

    Kernels of a module that cannot be read are missing.
    """

    def __init__(self, opened: OpenedRun) -> None:
        self._folder = opened.folder
        self._places = {module.label: module.file for module in opened.run.modules if module.file}
        self._texts: dict[str, dict[str, str]] = {}

    def __getitem__(self, key: tuple[str, str]) -> str:
        graph, name = key
        if graph not in self._texts:
            self._texts[graph] = self._read(graph)
        return self._texts[graph][name]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((graph, name) for graph in self._places for name in self._texts.get(graph, {}))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _read(self, graph: str) -> dict[str, str]:
        place = self._places.get(graph)
        try:
            text = self._folder.file(place).read_text(encoding="utf-8", errors="replace") if place else ""
            kernels = read_module(text).kernels if text else ()
        except (InductorBenchError, OSError):
            return {}
        return {name: kernel.source for kernel in kernels for name in (kernel.name, kernel.event_name)}
