"""Reads what the processes of a program observed, from the folder of the capture."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ...errors import InductorBenchError
from ...messages.capture import Observation
from ...messages.steps import DONE, PROFILING, TIMING, ObservedSteps, ObservedTouches
from ...records.code.source import CapturedCode
from ...records.tuning import Config
from ...source.capture.labels import ModuleLabel, label_modules
from ...store.files import read_json
from ...store.formats import codec

STEPS = ".steps.json"
TOUCHES = ".touches.json"
PYTHON_STARTED = "python.started"

PATIENCE_S = 10.0
"""Seconds that a program goes on after its steps are measured, before the user is told of ``--stop``."""

SETTLE_S = 1.0
"""Seconds for the other ranks to say that they are done, after the last one that is known did."""


@dataclass(frozen=True)
class FoundModule:
    """A compiled module that a program loaded.

    ``observations`` has one entry for each process that loaded it. ``twins`` are the real paths of the same module
    on other ranks, where the number of the device is another.
    """

    path: Path
    text: str
    code: CapturedCode | None = None
    observations: tuple[Observation, ...] = ()
    twins: tuple[str, ...] = ()

    @property
    def real_paths(self) -> tuple[str, ...]:
        return (os.path.realpath(self.path), *self.twins)

    @property
    def calls(self) -> int | None:
        """The number of the program's calls over all processes; ``None`` where no process was observed."""
        return sum(seen.calls for seen in self.observations) if self.observations else None

    @property
    def live(self) -> Observation | None:
        """The observation that holds a live profile, if there is one."""
        return next((seen for seen in self.observations if seen.live is not None), None)

    @property
    def threads(self) -> int | None:
        """The number of torch's threads in the program; ``None`` where no process was observed."""
        return next((seen.threads for seen in self.observations if seen.threads is not None), None)

    @property
    def switches(self) -> dict[str, bool] | None:
        """Torch's switches in the program that select library kernels; ``None`` where no process was observed."""
        return next((seen.switches for seen in self.observations), None)

    @property
    def tf32(self) -> bool:
        """Whether float32 products may be computed in TF32."""
        return any(seen.tf32 for seen in self.observations[:1])

    @property
    def configs(self) -> dict[str, Config]:
        """The configs of its Triton kernels in the program, by their variables."""
        return max(self.observations, key=lambda seen: seen.calls).configs if self.observations else {}

    @property
    def cuda_graphs(self) -> bool:
        """Whether the program compiles the module for CUDA graphs."""
        return any(seen.cuda_graphs for seen in self.observations)

    @property
    def max_autotune(self) -> bool:
        """Whether the program compiles the module with max-autotune."""
        return any(seen.max_autotune for seen in self.observations)

    @property
    def live_reason(self) -> str:
        """The reason why the module must be profiled in the program; empty where its file can be profiled."""
        return next((seen.live_reason for seen in self.observations if seen.live_reason), "")

    @property
    def live_error(self) -> str:
        """The reason why a profile in the program failed; empty where it did not fail."""
        return next((seen.live_error for seen in self.observations if seen.live_error), "")


def labelled(modules: Sequence[FoundModule]) -> tuple[tuple[FoundModule, ModuleLabel], ...]:
    """Each module with its label."""
    return tuple(zip(modules, label_modules([(module.text, module.code) for module in modules]), strict=True))


def read_observations(folder: Path) -> dict[str, list[Observation]]:
    """The observations of modules by the real paths of the modules."""
    found: dict[str, list[Observation]] = {}
    for file in sorted(folder.glob("*-*.json"), key=_order):
        if file.name.endswith(".trace.json"):
            continue
        seen = codec.decode(Observation, read_json(file))
        found.setdefault(os.path.realpath(seen.path), []).append(seen)
    return found


def _order(file: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in file.name.split(".")[0].split("-"))


def read_steps(folder: Path) -> tuple[ObservedSteps, ...]:
    """The observed steps of each process that ran a compiled graph, by rank.

    Raises:
        InductorBenchError: a file is damaged.
    """
    found = [codec.decode(ObservedSteps, read_json(file)) for file in folder.glob(f"*{STEPS}")]
    return tuple(sorted(found, key=lambda steps: (steps.rank or 0, steps.pid)))


def read_touches(folder: Path) -> dict[int, ObservedTouches]:
    """The graph calls of one step of each process, by its id. A damaged file counts as missing."""
    found = {}
    for file in folder.glob(f"*{TOUCHES}"):
        with suppress(InductorBenchError, ValueError):
            found[int(file.name.removesuffix(TOUCHES))] = codec.decode(ObservedTouches, read_json(file))
    return found


def started_python(folder: Path) -> bool:
    """Whether a Python process of the program read the capture's configuration."""
    return (folder / PYTHON_STARTED).exists()


class StepWatch:
    """Looks, while the program runs, whether its steps are measured.

    Args:
        folder: the folder of the observations.
        stops: whether the program is ended then.
        tell: called once where the program goes on for :data:`PATIENCE_S` seconds without need.
    """

    def __init__(self, folder: Path, stops: bool, tell: Callable[[], None]) -> None:
        self._folder, self._stops, self._tell = folder, stops, tell
        self._done_s: float | None = None
        self._told = False

    def is_finished(self) -> bool:
        """Whether the program can be ended now."""
        if self._told or not self._is_measured():
            return False
        now_s = time.monotonic()
        self._done_s = self._done_s or now_s
        if self._stops:
            return now_s - self._done_s >= SETTLE_S
        if now_s - self._done_s >= PATIENCE_S:
            self._told = True
            self._tell()
        return False

    def _is_measured(self) -> bool:
        try:
            states = [steps.state for steps in read_steps(self._folder)]
        except InductorBenchError:
            return False
        return DONE in states and not {TIMING, PROFILING} & set(states)
