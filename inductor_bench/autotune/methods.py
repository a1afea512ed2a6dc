"""The methods by which a kernel is autotuned: one row for each, from which options, help and searches come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..records.tuning import BY_DEFAULT, Config
from .search import Search, Space, descend, exhaust, try_max


@dataclass(frozen=True)
class Method:
    """One way to autotune a kernel.

    Attributes:
        name: what a user types, and what the record has.
        help: what it tries, as a clause of ``--help``.
        search: the order in which configurations are tried.
        untimed: what it tries where nothing is timed; ``None`` where its search follows times.
        wide: whether it wants the wide list of a library call's choices, which takes long to compile.
        ends_with_list: whether it ends with what max-autotune lists.
    """

    name: str
    help: str
    search: Callable[[Space], Search]
    untimed: Callable[[Space], Iterable[Config]] | None = None
    wide: bool = False
    ends_with_list: bool = False


METHODS = {
    method.name: method
    for method in (
        Method(
            name=BY_DEFAULT,
            help="every config of Inductor's max-autotune, on a CPU every single change",
            search=try_max,
            untimed=lambda space: space.listed_by_max_autotune(),
            ends_with_list=True,
        ),
        Method(
            name="coordesc",
            help="one knob after the other from the best so far",
            search=descend,
        ),
        Method(
            name="exhaustive",
            help="all combinations",
            search=exhaust,
            untimed=lambda space: space.around(space.now),
            wide=True,
        ),
    )
}
"""By name. The first is what ``--autotune`` means by itself."""
