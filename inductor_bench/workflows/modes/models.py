"""Compares the modes of each model of a list, one model after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ...errors import ANOTHER_FOLDER, InductorBenchError, UsageError
from ...records.batches.batch import ModelRequest
from ...records.modes.models import ModelModes, ModesByModel
from ...records.run import Failure
from ...store.files import own_folder
from ...store.folder import PAGE
from ...store.folders.modes import ModesFolder
from ..batch.list_options import YAML, merge
from ..batch.list_text import read_list
from ..options import BreakdownOptions
from ..progress import Progress
from .process import STAGE
from .run import ModesInterrupted, ModesOptions, run_modes

LISTS = (".txt", *YAML)


class ListInterrupted(KeyboardInterrupt):
    """The user stopped the comparisons of a list; ``found`` holds those that were begun, the last one in part."""

    def __init__(self, found: ModesByModel, folder: Path) -> None:
        super().__init__(f"interrupted; what was measured until then is in {folder}; the same command goes on")
        self.found = found


def is_list(options: BreakdownOptions) -> bool:
    """Whether the target is a list of models."""
    return len(options.targets) == 1 and Path(options.targets[0]).suffix in LISTS


def folder_of(options: BreakdownOptions) -> Path:
    """The folder of all comparisons of a list."""
    return options.output or Path("modes") / Path(options.targets[0]).stem


def run_list(options: ModesOptions, progress: Progress) -> ModesByModel:
    """Compares the modes of each model, or goes on with what was interrupted. One that fails does not end the others.

    Raises:
        UsageError: the list cannot be read, or the folder holds other files.
        InductorBenchError: the folder cannot be made, or is a symbolic link.
        ListInterrupted: the user stopped it; it holds what was measured before, and so do the folders.
    """
    program = options.program
    requests = merge(read_list(Path(program.targets[0])), _own_options(program))
    _make_folder(folder_of(program), {Path(request.name).parts[0] for request in requests})
    found: list[ModelModes] = []
    try:
        for model in _compare_each(options, requests, progress):
            found.append(model)
    except KeyboardInterrupt as stop:
        raise ListInterrupted(ModesByModel(program.targets[0], tuple(found)), folder_of(program)) from stop
    return ModesByModel(program.targets[0], tuple(found))


def _make_folder(folder: Path, models: set[str]) -> None:
    """Makes the folder of the list's comparisons, which holds folders of comparisons and their page only."""
    others = [item for item in own_folder(folder).iterdir() if item.name not in {PAGE, *models}]
    if not all(ModesFolder(item).exists() for item in others):
        raise UsageError(f"{folder} is not empty and holds no comparison of modes of models", ANOTHER_FOLDER)


def _own_options(program: BreakdownOptions) -> dict[str, object]:
    """The options of the command line, which precede those of the list."""
    names = ("training", "batch_size", "amp", "dynamic", "device", "timeout_s")
    return {name: getattr(program, name) for name in names} | {"seed": program.seed or None}


def _compare_each(options: ModesOptions, requests: list[ModelRequest], progress: Progress) -> Iterator[ModelModes]:
    folder = folder_of(options.program)
    for number, request in enumerate(requests, 1):
        progress.note(f"model {number} of {len(requests)}: {request.name}")
        program = replace(
            options.program,
            targets=(request.target,),
            arguments=request.arguments,
            training=request.training,
            batch_size=request.batch_size,
            amp=request.amp,
            dynamic=request.dynamic,
            device=request.device,
            seed=request.seed or 0,
            timeout_s=request.timeout_s,
            output=folder / request.name,
        )
        try:
            yield ModelModes(request.name, run_modes(replace(options, program=program), progress).comparison)
        except ModesInterrupted as stop:
            yield ModelModes(request.name, stop.outcome.comparison)
            raise
        except InductorBenchError as error:
            progress.note(f"{request.name}: {error.message}")
            yield ModelModes(request.name, failure=Failure(STAGE, "invalid", error.message, error.hint))
