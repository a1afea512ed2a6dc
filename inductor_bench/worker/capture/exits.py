"""Saves what an observed process knows at its end, however it ends itself."""

from __future__ import annotations

import atexit
import functools
import os
from collections.abc import Callable
from typing import NoReturn


def save_at_exit(finish: Callable[[], None], save: Callable[[], None]) -> None:
    """Calls ``save`` at the end of this process, and ``finish`` and ``save`` before ``os._exit``.

    ``os._exit`` calls no exit handlers. A forked child ends with it, and saves nothing.
    """
    atexit.register(save)
    owner, leave = os.getpid(), os._exit

    @functools.wraps(leave)
    def save_and_leave(status: int) -> NoReturn:
        if os.getpid() == owner:
            finish()
            save()
        leave(status)

    os._exit = save_and_leave
