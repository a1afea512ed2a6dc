"""The tables of a batch as CSV, with SI base units in their headers and full names in their cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..analysis.corpus import KernelGroup, ModelSummary
from ..records.category import Category
from .corpus_words import problem_of
from .csvs import table_text

_MODELS: Mapping[str, Callable[[ModelSummary], object]] = {
    "model": lambda row: row.name,
    "target": lambda row: row.model.model.request.target,
    "status": lambda row: "damaged" if row.model.problem else row.model.model.status,
    "batch_size_asked": lambda row: row.model.model.request.batch_size,
    "batch_size": lambda row: row.model.model.batch_size or row.model.model.request.batch_size,
    "attempts": lambda row: row.model.model.attempts,
    "device": lambda row: row.model.model.device,
    "machine": lambda row: row.model.machine,
    "took_s": lambda row: row.model.model.time_s,
    "graphs": lambda row: len(row.model.graphs),
    "time_s": lambda row: row.time_s or None,
    "wall_times_s": lambda row: "; ".join(f"{graph.label}={graph.wall_time_s}" for graph in row.model.graphs),
    "busy_share": lambda row: row.busy_share,
    "launches": lambda row: row.launches if row.parts else None,
    "kernels": lambda row: row.kernels if row.parts else None,
    "top_kernel": lambda row: row.top.name if row.top else None,
    "top_kernel_id": lambda row: row.top.kernel_id if row.top else None,
    "top_kernel_share": lambda row: row.top.time_s / row.time_s if row.top and row.time_s else None,
    "gain_limit_s": lambda row: row.gain_limit_s,
}
_ENDS: Mapping[str, Callable[[ModelSummary], object]] = {
    "stage": lambda row: getattr(problem_of(row), "stage", None),
    "kind": lambda row: getattr(problem_of(row), "kind", None),
    "message": lambda row: getattr(problem_of(row), "message", None),
    "notes": lambda row: "; ".join(row.model.model.notes),
    "run": lambda row: row.model.model.run,
    "log": lambda row: row.model.model.log,
}
_NAMES = KernelGroup._fields.index("models")
_TITLES = {"ids": "kernels", "model": "dearest_in", "kernel_id": "dearest_kernel_id"}


def models_csv(summaries: Sequence[ModelSummary]) -> str:
    """A row for each model that was asked for, measured or not; what is not known is left empty."""
    present = {part for summary in summaries for part, _ in summary.parts}
    shares = [*(category for category in Category if category in present), *([None] if None in present else [])]
    titles = [f"{part.value if part else 'idle'}_share" for part in shares]

    def cells(row: ModelSummary) -> list[object]:
        parts = dict(row.parts)
        middle = [parts.get(part, 0.0 if parts else None) for part in shares]
        return [*(get(row) for get in _MODELS.values()), *middle, *(get(row) for get in _ENDS.values())]

    return table_text((*_MODELS, *titles, *_ENDS), map(cells, summaries))


def groups_csv(groups: Iterable[KernelGroup], key: str) -> str:
    """A row for each group, its key under the title ``key``."""
    rows = ((*group[:_NAMES], len(group.models), *group[_NAMES + 1 :], "; ".join(group.models)) for group in groups)
    titles = [_TITLES.get(name, name) for name in KernelGroup._fields]
    return table_text((key, *titles[1:], "model_names"), rows)
