"""How long each phase of a worker's job took."""

from __future__ import annotations

import time


class Phases:
    """The seconds of each phase of a job, from its begin on."""

    def __init__(self) -> None:
        self.times_s: dict[str, float] = {}
        self._began_s = time.monotonic()

    def end(self, name: str) -> None:
        """Ends a phase, and begins the next one."""
        now_s = time.monotonic()
        self.times_s[name], self._began_s = round(now_s - self._began_s, 3), now_s
