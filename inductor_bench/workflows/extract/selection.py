"""The selection of kernels: by name, by category, or the most expensive ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ...errors import UsageError
from ...records.category import Category
from .candidates import Candidate, list_candidates
from .lost import list_lost_kernels
from .module import ModuleKernels


@dataclass(frozen=True)
class Selection:
    """The selected kernels: by a glob over names, by a category, and the ``top`` most expensive ones."""

    glob: str | None = None
    category: Category | None = None
    top: int | None = None

    @property
    def words(self) -> str:
        """The selection as command-line options."""
        parts = (("--kernel", self.glob), ("--category", self.category.value if self.category else None))
        return " ".join(f"{option} {value!r}" for option, value in parts if value is not None)

    def choose(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The selected candidates: with ``top`` the most expensive first, otherwise in their order."""
        chosen = [
            one
            for one in candidates
            if (self.glob is None or fnmatchcase(one.header.name, self.glob))
            and (self.category is None or one.header.category is self.category)
        ]
        if self.top is None:
            return chosen
        return sorted(chosen, key=lambda one: -(one.header.time_s or 0.0))[: self.top]


def choose_kernels(modules: Sequence[ModuleKernels], selection: Selection) -> list[Candidate]:
    """The selected kernels of the modules.

    Raises:
        UsageError: the modules have kernels, but the selection is empty.
    """
    candidates = [one for module in modules for one in (*list_candidates(module), *list_lost_kernels(module))]
    chosen = selection.choose(candidates)
    if candidates and not chosen:
        categories = ", ".join(sorted({one.header.category.value for one in candidates}))
        raise UsageError(
            f"none of the {len(candidates)} kernels fits {selection.words}",
            f"--list shows them all; their categories: {categories}",
        )
    return chosen
