"""The variants of this process: reads which ones to try, and puts them into torch as it is imported."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from ....messages.observed import CAPTURE_FOLDER, VARIANTS
from ....messages.variant_requests import ORIGINAL, VariantsRequest
from ....store import codec
from ....store.files import read_json
from ...upstream import graph_variants as upstream
from ..step_observer import StepObserver
from .gradients import GradientNotes
from .held import HeldSettings
from .turns import Turns


@dataclass(frozen=True)
class ProcessVariants:
    """What this process has of its variants."""

    folder: Path
    turns: Turns
    gradients: GradientNotes
    held: HeldSettings | None  # of a variant that holds from the start

    def install(self, torch: ModuleType) -> None:
        """Begins; torch has been imported, and neither its compiler nor the program has run."""
        self.turns.optimizers.listen()
        self.gradients.listen()
        upstream.around_backend(lambda original: partial(self.turns.compile, original))
        if self.held is not None:
            self.held.change_torch(torch)
            self.turns.hold()

    def observer(self, on_done: Callable[[], None]) -> StepObserver:
        """The observation of the steps of this process."""
        from .observer import VariantObserver
        from .trial import VariantTrial

        return VariantObserver(
            self.turns, lambda graphs: VariantTrial(self.folder, graphs, self.turns, self.gradients), on_done
        )


_process: list[ProcessVariants] = []


def process_variants() -> ProcessVariants:
    """The variants of this process, which are read once."""
    if not _process:
        request = codec.decode(VariantsRequest, read_json(Path(os.environ[VARIANTS])))
        folder = Path(os.environ[CAPTURE_FOLDER])
        turns = Turns(request, folder)
        held = None
        if turns.held != ORIGINAL:
            held = HeldSettings(turns.settings[turns.held], request.variants[turns.held - 1].switches)
        _process.append(ProcessVariants(folder, turns, GradientNotes(request.losses), held))
    return _process[0]


def install(torch: ModuleType) -> None:
    """Begins in this process; see :meth:`ProcessVariants.install`."""
    process_variants().install(torch)


def change_dynamo(config: Any) -> None:
    """Changes Dynamo's options, if a variant holds from the start; ``config`` has just been imported."""
    held = process_variants().held
    if held is not None:
        held.change_dynamo(config)


def change_loaders(module: Any) -> None:
    """Changes the arguments of DataLoaders, if a variant holds from the start; their module has been imported."""
    held = process_variants().held
    if held is not None:
        held.change_loaders(module)
