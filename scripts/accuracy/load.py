"""Busy processes that start and stop at random beside a measurement."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
from collections.abc import Iterator

MOST_PROCESSES = 8
SHORTEST_S, LONGEST_S = 1.0, 20.0
"""The most processes at a time, and the shortest and the longest time in seconds for which their number stays."""

_SPIN = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))\n"
"""A process that works until its parent ends."""


@contextlib.contextmanager
def random_load(seed: int, most: int = MOST_PROCESSES) -> Iterator[list[int]]:
    """Keeps 0 to ``most`` processes busy for the block; the numbers and their times come from the seed.

    Yields:
        The numbers of processes so far, the present one last.
    """
    draw, ended, numbers = random.Random(seed), threading.Event(), [0]

    def vary() -> None:
        busy: list[subprocess.Popen[bytes]] = []
        while not ended.wait(draw.uniform(SHORTEST_S, LONGEST_S) if len(numbers) > 1 else 0):
            wanted = draw.randint(0, most)
            while len(busy) > wanted:
                _end(busy.pop())
            busy += (subprocess.Popen([sys.executable, "-c", _SPIN]) for _ in range(wanted - len(busy)))
            numbers.append(wanted)
        for one in busy:
            _end(one)

    thread = threading.Thread(target=vary)
    thread.start()
    try:
        yield numbers
    finally:
        ended.set()
        thread.join()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
