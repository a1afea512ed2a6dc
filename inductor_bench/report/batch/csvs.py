"""Renders the tables of a batch as CSV, with SI base units in the headers and full names in the cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...analysis.batch_aggregation import KernelGroup, ModelSummary
from ...records.category import Category
from ..csvs import table_text
from .tables import MODELS

_NAMES = KernelGroup._fields.index("models")
_TITLES = {"ids": "kernels", "model": "dearest_in", "kernel_id": "dearest_kernel_id"}


def models_csv(summaries: Sequence[ModelSummary]) -> str:
    """Renders a row for each requested model, measured or not. Cells of unknown values are empty."""
    present = {part for summary in summaries for part, _ in summary.parts}
    newer = sorted((part for part in present - {None, *Category} if part), key=lambda part: part.value)
    shares = [*(category for category in Category if category in present), *newer, *([None] * (None in present))]
    titles = [f"{part.value if part else 'idle'}_share" for part in shares]
    getters = [field.getter(name) for name, field in MODELS.items()]

    def cells(row: ModelSummary) -> list[object]:
        parts = dict(row.parts)
        wall_times = "; ".join(f"{graph.label}={graph.wall_time_s}" for graph in row.model.compiled_graphs)
        return [
            *(get(row) for get in getters),
            wall_times,
            *(parts.get(part, 0.0 if parts else None) for part in shares),
        ]

    return table_text((*MODELS, "wall_times_s", *titles), map(cells, summaries))


def groups_csv(groups: Iterable[KernelGroup], key: str) -> str:
    """Renders a row for each group of kernels. The column ``key`` holds the group's key."""
    rows = ((*group[:_NAMES], len(group.models), *group[_NAMES + 1 :], "; ".join(group.models)) for group in groups)
    titles = [_TITLES.get(name, name) for name in KernelGroup._fields]
    return table_text((key, *titles[1:], "model_names"), rows)
