"""The callback of transformers' ``Trainer``: ``Trainer(…, callbacks=[InductorBenchCallback()])``."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from .training import ObservedTraining


class InductorBenchCallback(ObservedTraining, TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Observes the steps of a training until they are measured, writes a RUN, and prints its screen.

    The training waits for some seconds meanwhile, in which each compiled module runs by itself in another process. A
    step ends with its optimizer's step, as the ``Trainer`` counts it.

    Args:
        output, name, force, samples: as for ``inductor_bench.observe``.

    Raises:
        InductorBenchError: at the begin of the training: another block is observed, or the folder is in use.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self.step()

    def on_train_end(self, args: Any, state: Any, control: Any, **keywords: Any) -> None:
        self.end()
