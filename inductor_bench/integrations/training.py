"""Observes a training through the callbacks of a library, from its begin until its steps are measured."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from ..report.run.observed_run import ObservedRun
    from ..workflows.observe import ObservedBlock


class ObservedTraining:
    """The common part of the callbacks: the observed block of a training, which ends once its steps are measured.

    Then it prints the screen of the run. A second training with the same callback is not observed.

    Args:
        output, name, force, samples: as for ``inductor_bench.observe``.

    Attributes:
        run: the observation, as ``inductor_bench.observe`` returns it; ``None`` before the training.
    """

    def __init__(
        self,
        output: str | os.PathLike[str] | None = None,
        *,
        name: str = "",
        force: bool = False,
        samples: bool = True,
    ) -> None:
        self._output, self._name, self._force, self._samples = output, name, force, samples
        self._block: ObservedBlock | None = None
        self.run: ObservedRun | None = None

    def begin(self) -> None:
        """Begins the block.

        Raises:
            InductorBenchError: another block is observed, or the folder is in use.
        """
        from .. import observe

        if self.run is not None:
            return
        block = observe(self._output, name=self._name, force=self._force, samples=self._samples)
        block.yields = True
        self.run = block.__enter__()
        self._block = block if self.run.folder is not None else None

    def step(self) -> None:
        """Marks the end of a step."""
        from .. import step

        step()
        if self._block is not None and self._block.run.is_measured:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """Ends the block. If the training failed, ``error`` is its exception. May be called again."""
        block, self._block = self._block, None
        if block is None:
            return
        block.__exit__(type(error) if error is not None else None, error, None)
        print(block.run)
