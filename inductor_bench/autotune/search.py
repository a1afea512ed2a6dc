"""In what order the configurations of a kernel are tried.

A search is a conversation: it yields configurations to try, and is sent the best of all so far. It measures nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import Protocol

from ..records.tuning import Config

Search = Generator[list[Config], Config, None]

CHUNK = 32
"""How many are tried before an exhaustive search looks again for where the best is."""


class Space(Protocol):
    """The configurations of one kernel."""

    @property
    def now(self) -> Config:
        """That of the file as it stands."""

    def listed_by_default(self) -> list[Config]:
        """Those that Inductor itself tries, beside ``now``."""

    def listed_by_max_autotune(self) -> list[Config]:
        """Those that Inductor tries with max-autotune, beside ``now``. Every search begins with these."""

    def neighbours(self, config: Config) -> list[Config]:
        """Those one step away."""

    def around(self, config: Config) -> Iterator[Config]:
        """All that make sense, the nearest first."""


def try_max(space: Space) -> Search:
    """What Inductor's heuristics list with max-autotune."""
    yield space.listed_by_max_autotune()


def descend(space: Space) -> Search:
    """Max-autotune's, then the neighbours of the best, until no neighbour is better."""
    yield from _settle(space)


def exhaust(space: Space) -> Search:
    """First the descent, then everything else, the nearest to the best so far first."""
    best = yield from _settle(space)
    while True:
        found, tried = best, iter(space.around(best))
        while found == best:
            chunk = list(islice(tried, CHUNK))
            if not chunk:
                return
            found = yield chunk
        best = found


def _settle(space: Space) -> Generator[list[Config], Config, Config]:
    best = yield space.listed_by_max_autotune()
    settled: Config | None = None
    while best != settled:
        settled = best
        best = yield space.neighbours(best)
    return best
