"""The callback of Lightning's ``Trainer``: ``Trainer(…, callbacks=[InductorBenchCallback()])``."""

from __future__ import annotations

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


class InductorBenchCallback(ObservedTraining, Callback):  # type: ignore[misc, unused-ignore]
    """Observes the steps of a training until they are measured, writes a RUN, and prints its screen.

    The training waits for some seconds meanwhile, in which each compiled module runs by itself in another process. A
    step ends with each batch after which the optimizer stepped.

    Args:
        output, name, force, samples: as for ``inductor_bench.observe``.

    Raises:
        InductorBenchError: at the begin of the training: another block is observed, or the folder is in use.
    """

    _steps = 0  # those of the optimizer, when the last batch ended

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._steps = trainer.global_step
        self.begin()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if trainer.global_step != self._steps:
            self._steps = trainer.global_step
            self.step()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.end(exception)
