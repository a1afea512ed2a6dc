"""The table of autotuning methods, from which the options, the help and the searches come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from ..records.tuning import BY_DEFAULT, Config

# The searches: generators that order the configurations of a kernel.
#
# A search yields configurations to try, and is sent the best configuration so far. It takes no measurements itself.


Search = Generator[list[Config], Config, None]

CHUNK = 32
"""Configurations that an exhaustive search tries before it continues from the best so far."""


class Space(Protocol):
    """The configurations of one kernel; ``now`` is the configuration of the file."""

    @property
    def now(self) -> Config:
        """The configuration of the file."""

    def listed_by_default(self) -> list[Config]:
        """The configurations that Inductor tries without max-autotune, except ``now``."""

    def listed_by_max_autotune(self) -> list[Config]:
        """The configurations that Inductor tries with max-autotune, except ``now``. Every search begins with these."""

    def neighbours(self, config: Config) -> list[Config]:
        """The configurations one step away from ``config``."""

    def around(self, config: Config) -> Iterator[Config]:
        """All plausible configurations, those nearest to ``config`` first."""


def try_max_autotune(space: Space) -> Search:
    """Tries the configurations that Inductor lists with max-autotune."""
    yield space.listed_by_max_autotune()


def descend(space: Space) -> Search:
    """Tries max-autotune's configurations, then the neighbours of the best until no neighbour is better."""
    yield from _descend_to_minimum(space)


def exhaust(space: Space) -> Search:
    """Descends, then tries all other configurations, those nearest to the best so far first."""
    best = yield from _descend_to_minimum(space)
    while True:
        found, tried = best, iter(space.around(best))
        while found == best:
            chunk = list(islice(tried, CHUNK))
            if not chunk:
                return
            found = yield chunk
        best = found


def _descend_to_minimum(space: Space) -> Generator[list[Config], Config, Config]:
    """Descends, and returns the configuration whose neighbours are no better."""
    best = yield space.listed_by_max_autotune()
    settled: Config | None = None
    while best != settled:
        settled = best
        best = yield space.neighbours(best)
    return best


@dataclass(frozen=True)
class TuningMethod:
    """One way to autotune a kernel.

    Attributes:
        name: the name on the command line and in the record.
        help: the configurations that it tries, as a clause of ``--help``.
        search: makes the search, which orders the configurations.
        wide: whether it tries Inductor's exhaustive choices for a library call, which take long to compile.
        ends_with_list: whether it tries max-autotune's list and nothing else.
    """

    name: str
    help: str
    search: Callable[[Space], Search]
    wide: bool = False
    ends_with_list: bool = False


METHODS = {
    method.name: method
    for method in (
        TuningMethod(
            name=BY_DEFAULT,
            help="every config of Inductor's max-autotune, on a CPU every single change",
            search=try_max_autotune,
            ends_with_list=True,
        ),
        TuningMethod(
            name="coordesc",
            help="one knob after the other from the best so far",
            search=descend,
        ),
        TuningMethod(
            name="exhaustive",
            help="all combinations",
            search=exhaust,
            wide=True,
        ),
    )
}
"""The methods by name. The first is the method of ``--autotune`` without a value."""
