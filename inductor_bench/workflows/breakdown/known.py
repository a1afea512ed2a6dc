"""Takes over the tunings that are known from other runs, and keeps those of this run for others."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from ...devices.table import device_of
from ...errors import InductorBenchError
from ...records.failure import NO_CANDIDATES
from ...records.retune import FASTER, Retune, TuningOrigin
from ...records.retunes.pins import AnyPin, CppPin, LibraryPin, TritonPin, pins_by_kind
from ...records.run import Environment, Run
from ...records.tuning import ModelCalls
from ...source.standalone.edit import recorded_facts
from ...store.cache.tunings import (
    KnownTuning,
    TuningKey,
    TuningPlace,
    load_tuning,
    save_tuning,
)
from ...store.files import read_text
from ...store.folder import RunFolder
from ..apply.pins import make_pin
from ..kernel.advice import is_of_busy_machine

BUDGET = "budget"
_PLACES = ("storage", "offset")
"""Keys of a launch that say where a tensor lies, which is not the same in every run."""


@dataclass(frozen=True)
class KnownTunings:
    """The tunings of the store that fit the kernels of a run.

    Attributes:
        run: the record of the run.
        folder: its folder.
        state: the times that are compared: ``cold`` or ``warm``.
    """

    run: Run
    folder: RunFolder
    state: str

    def find(self, row: Retune, *, among_many: bool) -> Retune | None:
        """The row with its known tuning; ``None`` where none is known.

        Args:
            row: a retune without a result.
            among_many: whether a search counts that ended because other kernels could win more.
        """
        key = self._key(row, self.run.environment)
        known = load_tuning(key) if key is not None else None
        if known is None:
            return None
        if known.failure is not None:
            return replace(row, failure=replace(known.failure, subject=row.name), known_from=known.origin)
        if known.kernel is None or known.kernel.tuning is None or (known.kernel.tuning.cut_short and not among_many):
            return None
        kernel = replace(known.kernel, name=row.name, file=row.file or "")
        return replace(row, kernel=kernel, known_from=known.origin)

    def keep(self, row: Retune, environment: Environment) -> bool:
        """Keeps a tuning that was measured in an environment; returns ``False`` where it could not be written.

        What the budget cut short, and what was measured beside another job or on a busy machine, is left for another
        time. A verdict takes the place of an earlier one, also where it is that nothing is decided.
        """
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        origin = TuningOrigin(self.run.run_id, self.run.title, now)
        kernel, failure = row.kernel, row.failure
        if failure is not None and failure.kind == NO_CANDIDATES:
            key = self._key(row, environment)
            return key is None or save_tuning(KnownTuning(key, None, origin, failure=failure))
        if kernel is None or kernel.tuning is None or kernel.shared_device or kernel.edited:
            return True
        if kernel.tuning.cut_short == BUDGET or is_of_busy_machine(kernel.tuning):
            return True
        key = self._key(row, environment)
        kept = replace(kernel, file="", original=ModelCalls())
        return key is None or save_tuning(KnownTuning(key, kept, origin, *self._pins(row)))

    def _pins(self, row: Retune) -> tuple[TritonPin | None, CppPin | None, LibraryPin | None]:
        """The pin of a winner, by its kind."""
        pins: list[AnyPin] = []
        if row.tuning is not None and row.tuning.verdict == FASTER:
            with contextlib.suppress(InductorBenchError):
                pins.append(make_pin(row, self.folder)[0])
        triton, cpp, library = pins_by_kind(pins)
        return next(iter(triton), None), next(iter(cpp), None), next(iter(library), None)

    def _key(self, row: Retune, environment: Environment) -> TuningKey | None:
        """The key of a kernel in an environment; ``None`` where its file or the environment cannot be told."""
        module = next((module for module in self.run.modules if module.label in row.graphs), None)
        if module is None or row.file is None or not environment.versions.torch:
            return None
        device = device_of(module.device)
        name = device.name_in(environment)
        try:
            launch = digest_launch(read_text(self.folder.path / row.file))
        except InductorBenchError:
            return None
        if name is None or launch is None:
            return None
        threads = f" {environment.host.threads} threads" if device.runs_on_host else ""
        place = TuningPlace(name + threads, environment.versions.torch, environment.versions.triton or "")
        return TuningKey(place, row.kernel_id, launch, row.method, self.state)


@functools.lru_cache(maxsize=1024)
def digest_launch(text: str) -> str | None:
    """A hash of the sizes and scalars, and of the kinds of values, with which a standalone file launches its kernel.

    ``None`` where the file records none in a form that this function reads.
    """
    try:
        launch = recorded_facts(text).get("launch")
    except InductorBenchError:
        return None
    if not isinstance(launch, Mapping):
        return None
    sizes = _sizes([launch.get("arguments"), launch.get("keywords")])
    kinds = [one["values"]["kind"] for one in launch.get("storages") or ()]
    if "positive" in kinds:  # a tuning with NaNs says nothing of one without
        sizes.append(kinds)
    return hashlib.sha256(json.dumps(sizes, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _sizes(item: Any) -> Any:
    if isinstance(item, Mapping):
        return {str(key): _sizes(value) for key, value in item.items() if key not in _PLACES}
    if isinstance(item, Sequence) and not isinstance(item, str):
        return [_sizes(each) for each in item]
    return item
