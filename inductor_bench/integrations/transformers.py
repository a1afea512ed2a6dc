"""The callback of transformers' ``Trainer``: ``Trainer(…, callbacks=[InductorBenchCallback()])``."""

from __future__ import annotations

import os
from typing import Any

from transformers import TrainerCallback

from .training import ObservedTraining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..report.run.observed_run import ObservedRun


class InductorBenchCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Observes the steps of a training until they are measured, writes a RUN, and prints its screen.

    The training waits for some seconds meanwhile, in which each compiled module runs by itself in another process. A
    step ends with its optimizer's step, as the ``Trainer`` counts it.

    Args:
        output, name, force, samples: as for ``inductor_bench.observe``.

    Raises:
        InductorBenchError: at the begin of the training: another block is observed, or the folder is in use.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        force: bool = False,
        samples: bool = True,
    ) -> None:
        self._training = ObservedTraining(output, name=name, force=force, samples=samples)

    @property
    def run(self) -> ObservedRun | None:
        """What was observed, as ``inductor_bench.observe`` gives it; ``None`` before the training."""
        return self._training.run

    def on_train_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self._training.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self._training.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self._training.end()
