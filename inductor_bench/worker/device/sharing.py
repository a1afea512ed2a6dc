"""Takes turns at a GPU that the measurements of two models share.

A process uses the GPU in its turn only, and gives the turn up while it imports and compiles.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

from inductor_bench.store.device_turn import DeviceTurn

from ..imports import without_collection
from ..upstream import compiling as upstream
from ..upstream.inductor import import_generated_codes_imports, load_compiled_module


class SharedDevice:
    """The turns of a process at its GPU. All methods do nothing where the GPU is not shared."""

    def __init__(self) -> None:
        self._turn = DeviceTurn()

    def on_wait(self, listener: Callable[[bool], None]) -> None:
        """Calls ``listener`` with ``True`` before each wait for the turn, and with ``False`` after it."""
        self._turn.on_wait = listener

    def use(self) -> None:
        """Waits for the turn, and keeps it until the process ends, leaves it, or compiles."""
        self._turn.take()

    def leave(self) -> None:
        """Gives the turn up until the next :meth:`use`."""
        if not self._turn.held:
            return
        import torch

        try:
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # launched work must end before another's turn begins
        finally:
            self._turn.give_up()

    def leave_while_compiling(self, mode: str | None) -> None:
        """Gives the turn up during each compilation from now on, unless the compilation measures kernels.

        Args:
            mode: the mode of ``torch.compile``; the max-autotune modes measure kernels while they compile.
        """
        searches = (mode or "").startswith("max-autotune") or upstream.searches()
        if self._turn.is_shared and not searches and not upstream.benchmarks_elsewhere():
            upstream.on_compiling(self.leave, self._turn.take)
            self.use_while_compiling()

    def use_while_compiling(self) -> None:
        """Takes the turn for each short use of the GPU by the compiler, unless this process holds it."""
        if self._turn.is_shared:
            upstream.around_use_while_compiling(self.hold)

    @contextlib.contextmanager
    def hold(self) -> Iterator[None]:
        """Uses the GPU inside, for work that ends inside. A use inside of another one belongs to it."""
        if self._turn.held:
            yield
            return
        self._turn.take()
        try:
            yield
        finally:
            self.leave()


def load_in_turn(path: Path) -> ModuleType:
    """Imports a compiled module, then waits for this process's turn at its GPU, and keeps it until the process ends.

    Other processes may use the GPU while the module's kernels are read or compiled, which takes most of the time.
    """
    with without_collection():
        import_generated_codes_imports()
    shared = SharedDevice()
    shared.use_while_compiling()
    module = load_compiled_module(path)
    shared.use()
    return module
