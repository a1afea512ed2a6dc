"""The table of autotuning methods, from which the options, the help and the searches come."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from ..records.retune import BY_DEFAULT, Config

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

    def nearest_first(self, config: Config) -> Iterator[Config]:
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
        found, tried = best, iter(space.nearest_first(best))
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
    """One way to autotune a kernel."""

    name: str  # the name on the command line and in the record
    help: str  # the configurations that it tries, as a clause of ``--help``
    search: Callable[[Space], Search]  # makes the search, which orders the configurations
    wide: bool = False  # whether it tries Inductor's exhaustive choices for a library call, which take long to compile
    ends_with_list: bool = False  # whether it tries max-autotune's list and nothing else


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


# What a kernel can win for the step, and when the search for it stops being worth its time. Pure functions.


UNKNOWN_HEADROOM = 0.5
"""Share of a kernel's time that counts as its most possible gain if no roof is known."""

SLACK = 0.03
"""Share of a kernel's time that is added to its gain limit: its time in the step and its roof are not exact."""

LEFT_AT_LEAST = 0.05
"""Share of a candidate's time that may be left to win whatever the roof says."""

NEGLIGIBLE = 0.02
"""Kernels are not retuned if together they can save at most this share of what all kernels can save."""

MUCH_LEFT_AFTER_GAIN, MUCH_LEFT_WITHOUT = 2, 4
"""A search goes on after little gain while at least this multiple of the least gain is left to win: the first number
after candidates that gained something, the second after candidates that gained nothing. With these numbers, simulated
searches of 146 kernels of mixnet_l found 97.9% of what searches to the end found, with 74% of the candidates."""

FEW = 32
"""Number of kernels up to which each is tuned to the end of its search."""

GENERATED_COST_S = 0.25
LIBRARY_COST_S = 20.0
"""Usual seconds for the search of a generated kernel, and of a library call, whose choices Inductor compiles first."""

LIBRARY_PRIOR = 0.2
"""Expected gain of a library call as a share of that of a generated kernel with the same gain limit."""


@dataclass(frozen=True)
class TuningPriority:
    """What is at stake with one kernel."""

    time_s: float  # its seconds in one step
    # seconds of the step that would be saved at its roof; ``None`` if no roof is known
    gain_limit_s: float | None = None
    is_library_call: bool = False  # whether it is a library call

    @property
    def largest_gain_s(self) -> float:
        """The seconds of the step that the kernel can win at most."""
        limit = UNKNOWN_HEADROOM * self.time_s if self.gain_limit_s is None else self.gain_limit_s
        return min(limit + SLACK * self.time_s, self.time_s)

    @property
    def rank(self) -> float:
        """The expected saving by seconds of search: the kernel with the largest rank is tuned first."""
        return (
            self.largest_gain_s * LIBRARY_PRIOR / LIBRARY_COST_S
            if self.is_library_call
            else self.largest_gain_s / GENERATED_COST_S
        )

    def left_s(self, relative_time: float) -> float:
        """The seconds of the step that are left to win beyond a candidate with this time, relative to the default's."""
        now_s = relative_time * self.time_s
        return max(self.largest_gain_s - (self.time_s - now_s), LEFT_AT_LEAST * now_s)


@dataclass(frozen=True)
class Pruning:
    """Decides when the search of one kernel ends early."""

    stake: TuningPriority  # what is at stake with the kernel
    least_s: float  # seconds of the step below which a further gain is not searched for

    def ends(self, before: float, now: float) -> bool:
        """Whether to end the search after candidates that moved the best relative time from ``before`` to ``now``.

        It ends when little is left to win, and when little was gained unless much is left: a search that goes step by
        step may gain little by one step and much by the next.
        """
        left_s, gained_s = self.stake.left_s(now), (before - now) * self.stake.time_s
        much = MUCH_LEFT_AFTER_GAIN if gained_s > 0 else MUCH_LEFT_WITHOUT
        return left_s < self.least_s or (gained_s < self.least_s and left_s < much * self.least_s)


def find_least(stakes: Collection[TuningPriority]) -> float:
    """The gain in seconds of the step below which generated kernels are left as they are; 0 for few kernels.

    The kernels that can win less than this can win ``NEGLIGIBLE`` of what all can, all together.
    """
    ranked = sorted(stake.largest_gain_s for stake in stakes if not stake.is_library_call)
    if len(ranked) <= FEW:
        return 0.0
    left = NEGLIGIBLE * sum(ranked)
    for largest_gain_s in ranked:
        left -= largest_gain_s
        if left < 0:
            return largest_gain_s
    return 0.0
