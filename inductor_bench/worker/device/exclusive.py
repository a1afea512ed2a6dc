"""The turns of this process at its device, which other workers of the same retune may share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from .sharing import SharedDevice

_DEVICE = SharedDevice()


def exclusive() -> AbstractContextManager[None]:
    """Uses the device while no other worker of the retune does. All work that is launched inside ends inside.

    A use inside of another one belongs to it.
    """
    return _DEVICE.hold()


def on_wait(listener: Callable[[bool], None]) -> None:
    """Calls ``listener`` with ``True`` before each wait for the device, and with ``False`` after it."""
    _DEVICE.on_wait(listener)
