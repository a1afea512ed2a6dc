"""A process that shares its GPU with another model's measurement: it uses the GPU in its turn only, and leaves the turn
to the other while it imports and compiles."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from inductor_bench.store.device_turn import DeviceTurn

from ..imports import without_collection
from ..upstream import compiling as upstream
from ..upstream.inductor import import_generated_codes_imports, load_compiled_module


class SharedDevice:
    """The turns of a process at its GPU. Where nobody shares it nothing of this does anything."""

    def __init__(self) -> None:
        self._turn = DeviceTurn()

    def use(self) -> None:
        """Waits for the turn. It is kept until the process ends, but for when it leaves or compiles something."""
        self._turn.take()

    def leave(self) -> None:
        """Lets others use the GPU while this process does not."""
        if not self._turn.held:
            return
        import torch

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()  # what was launched before must not run in another's turn
        self._turn.give_up()

    def leave_while_compiling(self, mode: str | None) -> None:
        """Gives the turn up whenever something is compiled from now on, where it is known when a GPU is needed there.

        Args:
            mode: of ``torch.compile``; those that look for the best kernel measure all the time.
        """
        searches = (mode or "").startswith("max-autotune") or upstream.searches()
        if self._turn.is_shared and not searches and not upstream.benchmarks_elsewhere():
            upstream.on_compiling(self.leave, self._turn.take)
            self.use_while_compiling()

    def use_while_compiling(self) -> None:
        """Takes the turn, where it is not ours, for each of the short uses that the compiler makes of the GPU."""
        if self._turn.is_shared:
            upstream.around_use_while_compiling(self._using)

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        if self._turn.held:
            yield
            return
        self._turn.take()
        try:
            yield
        finally:
            self.leave()


def load_in_turn(path: Path) -> ModuleType:
    """Imports a compiled module, and takes this process's turn at its GPU, which is kept until the process ends.

    While its kernels are read or compiled, which takes most of the time, the GPU is left to others.
    """
    with without_collection():
        import_generated_codes_imports()
    shared = SharedDevice()
    shared.use_while_compiling()
    module = load_compiled_module(path)
    shared.use()
    return module
