"""The callback of Lightning's ``Trainer``: ``Trainer(…, callbacks=[InductorBenchCallback()])``."""

from __future__ import annotations

import os
import sys
from typing import Any

if "pytorch_lightning" in sys.modules:  # the older name of the same library
    from pytorch_lightning import Callback
else:
    try:
        from lightning.pytorch import Callback  # type: ignore[assignment, unused-ignore]
    except ImportError:
        from pytorch_lightning import Callback

from .training import ObservedTraining

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..report.run.observed_run import ObservedRun


class InductorBenchCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Observes the steps of a training until they are measured, writes a RUN, and prints its screen.

    The training waits for some seconds meanwhile, in which each compiled module runs by itself in another process. A
    step ends with each batch after which the optimizer stepped.

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
        self._steps = 0

    @property
    def run(self) -> ObservedRun | None:
        """What was observed, as ``inductor_bench.observe`` gives it; ``None`` before the training."""
        return self._training.run

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._steps = trainer.global_step
        self._training.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step != self._steps:
            self._steps = trainer.global_step
            self._training.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._training.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._training.end(exception)
