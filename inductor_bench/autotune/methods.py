"""The table of autotuning methods, from which the options, the help and the searches come."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..records.tuning import BY_DEFAULT, Config
from .search import Search, Space, descend, exhaust, try_max_autotune


@dataclass(frozen=True)
class Method:
    """One way to autotune a kernel.

    Attributes:
        name: the name on the command line and in the record.
        help: the configurations that it tries, as a clause of ``--help``.
        search: makes the search, which orders the configurations.
        untimed: the configurations that it tries without timing; ``None`` where its search depends on times.
        wide: whether it tries Inductor's exhaustive choices for a library call, which take long to compile.
        ends_with_list: whether it tries max-autotune's list and nothing else.
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
            search=try_max_autotune,
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
"""The methods by name. The first is the method of ``--autotune`` without a value."""
