"""A program that shares its GPU with another model's measurement: it uses the GPU in its turn only, and leaves the turn
to the other while it compiles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from inductor_bench.store.device_turn import DeviceTurn

from . import upstream_compiling as upstream


class SharedDevice:
    """The turns of a program at its GPU. Where nobody shares it nothing of this does anything."""

    def __init__(self) -> None:
        self._turn = DeviceTurn()

    def use(self) -> None:
        """Waits for the turn. It is kept from then on, but for the time that something is compiled."""
        self._turn.take()

    def leave_while_compiling(self, mode: str | None) -> None:
        """Gives the turn up whenever something is compiled from now on, where it is known when a GPU is needed there.

        Args:
            mode: of ``torch.compile``; those that look for the best kernel measure all the time.
        """
        searches = (mode or "").startswith("max-autotune") or upstream.searches()
        if self._turn.is_shared and not searches and not upstream.benchmarks_elsewhere():
            upstream.on_compiling(self._leave, self._turn.take)
            upstream.around_use_while_compiling(self._using)

    def _leave(self) -> None:
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # what was launched before must not run in another's turn
        self._turn.give_up()

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """Has the turn for something short that the compiler does."""
        if not self._turn.is_shared or self._turn.held:
            yield
            return
        self._turn.take()
        try:
            yield
        finally:
            self._leave()
