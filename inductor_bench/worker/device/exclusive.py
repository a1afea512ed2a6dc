"""The turns of this process at its device, which other workers of the same retune may share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from inductor_bench.store.device_turn import DeviceTurn

_TURN = DeviceTurn()


@contextmanager
def exclusive() -> Iterator[None]:
    """Uses the device while no other process of the retune does. All work that is launched inside must end inside.

    A use inside of another one belongs to it.
    """
    if _TURN.held:
        yield
        return
    with _TURN:
        yield
