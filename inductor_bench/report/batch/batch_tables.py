"""The tables of a batch: for queries, where each column has a type and a description, and as CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from ...analysis.batch_aggregation import (
    KernelGroup,
    ModelSummary,
    compute_suite_time_s,
    group_kernels,
    key_by_family,
    key_by_id,
    summarize_model,
    waits_for_host,
)
from ...analysis.optimization.search_results import SettingSummary, summarize_settings
from ...records.base import NUMBER, TEXT, WHOLE, YES_NO, Category, Failure, QueryColumn, QueryTable
from ...records.batch_record import BatchResults, GraphResult
from ...records.optimization import Optimization
from ...records.run import Run
from ..formats import View, write_csv
from ..run.run_summary import run_summary


class Field(NamedTuple):
    """The definition of a column."""

    type: str  # the type of the values
    about: str  # the description
    # returns the value of a row; or the path of the value from the row; empty if it is the name of the column
    get: Callable[[Any], object] | str = ""

    def getter(self, name: str) -> Callable[[Any], object]:
        """Returns what gives a row's value: ``None`` if a part of the path is not there."""
        if not isinstance(self.get, str):
            return self.get
        path = self.get or name
        return partial(_follow, path.split(".")) if "." in path else attrgetter(path)


def _follow(path: Sequence[str], row: Any) -> object:
    for name in path:
        row = getattr(row, name) if row is not None else None
    return row


def find_problem(summary: ModelSummary) -> Failure | None:
    """Returns the failure that leaves a model without a row, or with an incomplete one."""
    return summary.model.problem or summary.model.model.failure


class _Part(NamedTuple):
    """The time of one category of a graph in seconds; the category may be ``idle``."""

    category: str
    time_s: float


_Row = tuple[str, GraphResult, Any]
"""The name of the model, the graph, and one item of the graph, such as a kernel."""

_Columns = tuple[QueryColumn, ...]

_SUITE = "share of the suite's time: one step or iteration of each model"

MODELS: Mapping[str, Field] = {
    "model": Field(TEXT, "its name, unique in the batch", "name"),
    "target": Field(TEXT, "what was asked for", "model.model.request.target"),
    "status": Field(
        TEXT,
        "done, partial, failed, skipped, waiting, running, measured (not yet retuned), unoptimized (settings not yet "
        "searched), damaged, or newer (than this version reads)",
    ),
    "training": Field(YES_NO, "whether with a backward pass, if given", "model.model.request.training"),
    "amp": Field(TEXT, "the type of autocast", "model.model.request.amp"),
    "mode": Field(TEXT, "the mode of torch.compile", "model.model.request.mode"),
    "batch_size_asked": Field(WHOLE, "the batch size in the list", "model.model.request.batch_size"),
    "batch_size": Field(
        WHOLE,
        "the batch size of the measurement",
        lambda row: row.model.model.batch_size or row.model.model.request.batch_size,
    ),
    "attempts": Field(WHOLE, "how often it was tried", "model.model.attempts"),
    "device": Field(TEXT, "the device of the machine", "model.model.device"),
    "machine": Field(TEXT, "device and versions", "model.machine"),
    "took_s": Field(NUMBER, "duration of its measurement", "model.model.time_s"),
    "graphs": Field(WHOLE, "number of compiled graphs", lambda row: len(row.model.compiled_graphs)),
    "time_s": Field(
        NUMBER, "time of one step; without a step, of an iteration of each graph", lambda row: row.time_s or None
    ),
    "busy_share": Field(NUMBER, "share of its time in which the device worked"),
    "launches": Field(NUMBER, "launches in one step or iteration", lambda row: row.launches if row.parts else None),
    "kernels": Field(WHOLE, "number of different kernels", lambda row: row.kernels if row.parts else None),
    "top_kernel": Field(TEXT, "the kernel that takes most time", "top.name"),
    "top_kernel_id": Field(TEXT, "its kernel_id", "top.kernel_id"),
    "top_kernel_share": Field(
        NUMBER, "share of the model's time", lambda row: row.top.time_s / row.time_s if row.top and row.time_s else None
    ),
    "gain_limit_s": Field(NUMBER, "upper bound of what its generated kernels could save"),
    "retuned": Field(
        WHOLE, "number of retuned kernels, if requested", lambda row: len(row.retunes.rows) if row.retunes else None
    ),
    "retuned_faster": Field(WHOLE, "number of those that are faster", "retunes.faster"),
    "saving_s": Field(NUMBER, "projection of what they save", "retunes.saving_s"),
    "proven_saving_s": Field(NUMBER, "what they save in its step, measured", "model.proven.saving_s"),
    "proof": Field(TEXT, "its verdict: saves, slower, …", "model.proven.verdict"),
    "optimized_before_s": Field(
        NUMBER, "time of a step before the settings that stay", "model.search.winner.gain.before_s"
    ),
    "optimized_s": Field(NUMBER, "time of a step with the settings that stay", "model.search.winner.gain.after_s"),
    "optimized_saving": Field(NUMBER, "share of the step that they save", "model.search.winner.gain.share"),
    "optimized_saving_low": Field(NUMBER, "lower end of its 99.9% interval", "model.search.winner.gain.low"),
    "optimized_saving_high": Field(NUMBER, "upper end of its 99.9% interval", "model.search.winner.gain.high"),
    "settings": Field(
        TEXT,
        "the settings that stay",
        lambda row: "; ".join(row.model.search.winner.slugs) if row.model.search and row.model.search.winner else None,
    ),
    "settings_tried": Field(
        WHOLE,
        "number of settings that were tried, if requested",
        lambda row: len(row.model.search.tried) if row.model.search else None,
    ),
    "stage": Field(TEXT, "where it failed", lambda row: getattr(find_problem(row), "stage", None)),
    "kind": Field(TEXT, "how it failed", lambda row: getattr(find_problem(row), "kind", None)),
    "message": Field(TEXT, "what failed", lambda row: getattr(find_problem(row), "message", None)),
    "notes": Field(TEXT, "what was changed to measure it", lambda row: "; ".join(row.model.model.notes)),
    "doubt": Field(TEXT, "why its figures do not count, and it has no gain limits", "model.doubt"),
    "run": Field(TEXT, "path of its RUN folder in the batch's", "model.model.run"),
    "log": Field(TEXT, "path of its log in the batch's folder", "model.model.log"),
}
"""Columns of a :class:`ModelSummary`, in the table ``models`` and in ``summary.csv``."""


_GRAPHS: Mapping[str, Field] = {
    "device": Field(TEXT, "cuda or cpu"),
    "time_s": Field(NUMBER, "time in one step; without a step, of an iteration: wall time, or busy time if longer"),
    "wall_time_s": Field(NUMBER, "median of its runs outside the program, unprofiled"),
    "idle_time_s": Field(NUMBER, "wall time outside kernels; the row `outside of graphs` has the step's", "idle_s"),
    "busy_share": Field(NUMBER, "share of its time in which the device worked"),
    "launches": Field(NUMBER, "launches in one step or iteration"),
    "kernels": Field(WHOLE, "number of different kernels", lambda graph: len(graph.kernels)),
    "waits_for_host": Field(YES_NO, "the GPU mostly waits, so faster kernels save little", waits_for_host),
}
_CATEGORIES: Mapping[str, Field] = {
    "category": Field(TEXT, "as in the table `kernels`; `idle` is the time in which no kernel runs"),
    "time_s": Field(NUMBER, "time of all its kernels in one step or iteration"),
}
_KERNELS: Mapping[str, Field] = {
    "name": Field(TEXT, "its name in the module or in the library"),
    "kernel_id": Field(TEXT, "an id: the same for the same kernel in any model"),
    "family_id": Field(TEXT, "an id: the same for kernels that differ only in their sizes"),
    "category": Field(TEXT, "pointwise, reduction, extern_gemm, …", "category.value"),
    "operator": Field(TEXT, "the ATen call of a library kernel"),
    "calls": Field(NUMBER, "launches in one step or iteration"),
    "time_s": Field(NUMBER, "device time of all calls in one step or iteration"),
    "bound": Field(TEXT, "the roof: memory, cache, compute, latency or unknown"),
    "peak_share": Field(NUMBER, "share of that roof"),
    "gain_limit_s": Field(NUMBER, "upper bound: what it would save at that roof"),
    "moved_bytes": Field(NUMBER, "bytes of all calls in one step or iteration, each buffer once"),
    "flops": Field(NUMBER, "FLOPs of all calls in one step or iteration"),
    "dtype": Field(TEXT, "type that it computes in"),
    "registers": Field(WHOLE, "registers of a thread"),
    "spills": Field(WHOLE, "spilled registers of a thread"),
    "occupancy": Field(NUMBER, "the profiler's estimate, 0 to 1"),
    "tuned_default_s": Field(NUMBER, "retuned: time of a cold call with the default config", "retune.tuned_default_s"),
    "tuned_best_s": Field(NUMBER, "retuned: time of a cold call with the best config", "retune.tuned_best_s"),
    "speedup": Field(NUMBER, "retuned: speedup of the best config over the default", "retune.speedup"),
    "verdict": Field(TEXT, "retuned: faster, or why it stays as it is", "retune.verdict"),
    "saving_s": Field(NUMBER, "retuned: projected saving in one step or iteration", "retune.saving_s"),
}
_STEP: Mapping[str, Field] = {
    "step_calls": Field(NUMBER, "calls in one step of the program; if this is set, calls and all times are of a step"),
    "step_time_s": Field(NUMBER, "device time of one step, replays of CUDA graphs included"),
    "step_share": Field(NUMBER, "share of the step's wall time"),
}
"""Further columns of ``kernels``, after :data:`_KERNELS`, if a program's step was profiled."""

_FAMILIES: Mapping[str, Field] = {
    "family_id": Field(TEXT, "as in kernels", "key"),
    "name": Field(TEXT, "of its most expensive kernel"),
    "dearest_kernel_id": Field(TEXT, "of its most expensive kernel", "kernel_id"),
    "dearest_in": Field(TEXT, "the model that has that kernel", "model"),
    "category": Field(TEXT, "of its most expensive kernel"),
    "operator": Field(TEXT, "of its most expensive kernel"),
    "bound": Field(TEXT, "of its most expensive kernel"),
    "kernels": Field(WHOLE, "number of different kernels", "ids"),
    "models": Field(WHOLE, "number of models that have such a kernel", lambda row: len(row.models)),
    "launches": Field(NUMBER, "launches in one step or iteration, summed over the models"),
    "time_s": Field(NUMBER, "time in one step or iteration, summed over the models"),
    "share": Field(NUMBER, _SUITE),
    "peak_share": Field(NUMBER, "share of their roofs, mean weighted by time"),
    "gain_limit_s": Field(NUMBER, "upper bound of the gain, without graphs that wait for their host"),
    "speedup": Field(NUMBER, "retuned: largest speedup, 1 if none was faster"),
    "saving_s": Field(NUMBER, "retuned: projected saving in one step or iteration, summed over the models"),
}
_RETUNES: Mapping[str, Field] = {
    "name": Field(TEXT, "as in kernels, or of a library call"),
    "kernel_id": Field(TEXT, "as in kernels, or of the library call"),
    "category": Field(TEXT, "as in kernels", "category.value"),
    "graphs": Field(TEXT, "the graphs that launch it", lambda retune: "; ".join(retune.graphs)),
    "calls": Field(NUMBER, "launches in one step or iteration"),
    "time_s": Field(NUMBER, "device time of all calls in one step or iteration"),
    "file": Field(TEXT, "path of its standalone file in the RUN folder"),
    "method": Field(TEXT, "how it was tuned, as in --autotune"),
    "tuned_default_s": Field(NUMBER, "time of a cold call with the default config"),
    "tuned_best_s": Field(NUMBER, "time of a cold call with the best config"),
    "speedup": Field(NUMBER, "speedup of the best config over the default"),
    "verdict": Field(TEXT, "faster, or why it stays as it is"),
    "saving_s": Field(NUMBER, "projected saving in one step or iteration"),
    "problem": Field(TEXT, "why it has no result"),
    "caution": Field(TEXT, "what is wrong with the measurement"),
    "obstacle": Field(TEXT, "why apply does not put a faster config into a program"),
}

_SETTINGS: Mapping[str, Field] = {
    "setting": Field(TEXT, "its name", "slug"),
    "title": Field(TEXT, "what it is, in words"),
    "setting_group": Field(TEXT, "its name for --allow and --deny", "group"),
    "tried": Field(WHOLE, "number of models in which it ran", lambda one: len(one.tried)),
    "helps": Field(
        WHOLE, "number of models that this setting alone is proven to make faster", lambda one: len(one.helps)
    ),
    "kept": Field(WHOLE, "number of the models in which it ran whose final settings include it"),
    "timed": Field(WHOLE, "number of models in which it was timed", lambda one: len(one.saved)),
    "median_saving": Field(NUMBER, "median over these models of the share of the step saved", "median"),
    "low": Field(
        NUMBER, "lower end of its 95% interval; NULL with few models", lambda one: (one.interval or [None] * 2)[0]
    ),
    "high": Field(NUMBER, "upper end of its 95% interval", lambda one: (one.interval or [None] * 2)[1]),
    "least": Field(NUMBER, "least saving in one of these models", lambda one: min(one.saved, default=None)),
    "most": Field(NUMBER, "largest saving in one of these models", lambda one: max(one.saved, default=None)),
    "unproven": Field(WHOLE, "number of models in which the time was too short to decide"),
    "failed": Field(WHOLE, "number of models in which it was refused or failed"),
    "wrong": Field(WHOLE, "number of models whose outputs or gradients it changed"),
    "helped_models": Field(TEXT, "their names", lambda one: "; ".join(name for name, _ in one.helps)),
    "tried_models": Field(TEXT, "the names of those in which it ran", lambda one: "; ".join(one.tried)),
    "reasons": Field(TEXT, "why it failed or was wrong, and where", lambda one: "; ".join(describe_failure(one))),
}
"""Columns of a :class:`SettingSummary`, in the table ``settings`` and in ``settings.csv``."""


def describe_failure(one: SettingSummary) -> Iterator[str]:
    """``failed in a, b: no such kernel``, for each reason."""
    for failure in one.failures:
        what = "numbers differ in" if failure.differs else "failed in"
        yield f"{what} {', '.join(failure.models)}: {failure.reason}"


def make_settings_csv(settings: Iterable[SettingSummary]) -> str:
    """Renders a row for each setting; savings are shares of a model's step."""
    getters = [field.getter(name) for name, field in _SETTINGS.items()]
    return write_csv(tuple(_SETTINGS), ([get(one) for get in getters] for one in settings))


def make_batch_tables(
    summaries: Sequence[ModelSummary],
    families: Sequence[KernelGroup],
    suite_s: float,
    settings: Sequence[SettingSummary] = (),
) -> tuple[QueryTable, ...]:
    """Makes all tables.

    Args:
        summaries: the models.
        families: the groups of kernels by family.
        suite_s: the time in seconds that shares of the suite refer to.
        settings: the settings that were tried.
    """
    graphs = [(row.name, graph, graph) for row in summaries for graph in row.model.graphs]
    parts = [(model, graph, part) for model, graph, _ in graphs for part in _list_parts(graph)]
    kernels = [(model, graph, kernel) for model, graph, _ in graphs for kernel in graph.kernels]
    retunes = [(row.name, retune) for row in summaries for retune in row.model.retunes]
    in_step = any(kernel.step_time_s is not None for _, _, kernel in kernels)
    fields = {**_KERNELS, **_STEP} if in_step else _KERNELS
    of_suite = partial(_key_by_suite, suite_s=suite_s)
    return (
        QueryTable("models", "for each model that was asked for", _list_columns(MODELS, summaries)),
        QueryTable(
            "graphs",
            "for each graph of a model, and the rest of its step",
            _list_item_columns(_GRAPHS, graphs, of_suite),
        ),
        QueryTable(
            "categories",
            "for each category of a graph, and its idle time",
            _list_item_columns(_CATEGORIES, parts, of_suite, _key_by_graph),
        ),
        QueryTable(
            "kernels",
            "for each kernel of a graph of a model",
            _list_item_columns(fields, kernels, of_suite, _key_by_graph),
        ),
        QueryTable("families", "for kernels of one structure, all models together", _list_columns(_FAMILIES, families)),
        QueryTable(
            "retunes",
            "for each kernel that `--autotune` retuned",
            (_key_by_model(retunes), *_list_columns(_RETUNES, [retune for _, retune in retunes])),
        ),
        QueryTable(
            "settings", "for each setting that `--optimize` tried in any model", _list_columns(_SETTINGS, settings)
        ),
    )


def _list_parts(graph: GraphResult) -> Iterator[_Part]:
    for category, time_s in graph.categories:
        yield _Part(category.value, time_s)
    if graph.idle_s is not None:
        yield _Part("idle", graph.idle_s)


def _list_item_columns(
    fields: Mapping[str, Field], rows: Sequence[_Row], *shares: Callable[[Sequence[_Row]], QueryColumn]
) -> _Columns:
    """Makes the columns for items of graphs: the model and the graph, the item's fields, and shares beside its time."""
    own = _list_columns(fields, [item for _, _, item in rows])
    labels = QueryColumn("graph", TEXT, "its label, unique in the model", [graph.label for _, graph, _ in rows])
    beside = list(fields).index("time_s") + 1
    return (_key_by_model(rows), labels, *own[:beside], *(share(rows) for share in shares), *own[beside:])


def _key_by_graph(rows: Sequence[_Row]) -> QueryColumn:
    values = [item.time_s / graph.time_s if graph.time_s else None for _, graph, item in rows]
    return QueryColumn("graph_share", NUMBER, "share of its graph's time", values)


def _key_by_suite(rows: Sequence[_Row], suite_s: float) -> QueryColumn:
    values = [item.time_s / suite_s if suite_s else None for _, _, item in rows]
    return QueryColumn("share", NUMBER, _SUITE, values)


def _key_by_model(rows: Sequence[tuple[Any, ...]]) -> QueryColumn:
    return QueryColumn("model", TEXT, "as in models", [row[0] for row in rows])


def _list_columns(fields: Mapping[str, Field], rows: Sequence[Any]) -> _Columns:
    columns = []
    for name, field in fields.items():
        values = map(field.getter(name), rows)
        column = [value or None for value in values] if field.type == TEXT else list(values)
        columns.append(QueryColumn(name, field.type, field.about, column))
    return tuple(columns)


@dataclass(frozen=True)
class BatchView:
    """The results of a batch. Each aggregation is computed once for all formats."""

    results: BatchResults

    @cached_property
    def models(self) -> list[ModelSummary]:
        return [summarize_model(model) for model in self.results.models]

    @cached_property
    def families(self) -> list[KernelGroup]:
        return group_kernels(self.results, key_by_family)

    @cached_property
    def kernels(self) -> list[KernelGroup]:
        return group_kernels(self.results, key_by_id)

    @cached_property
    def suite_s(self) -> float:
        """Seconds of one step or iteration of all measured models."""
        return compute_suite_time_s(self.results)

    @cached_property
    def searches(self) -> list[tuple[str, Optimization]]:
        """The searches for settings, each with the name of its model."""
        return [(one.name, one.model.search) for one in self.models if one.model.search is not None]

    @cached_property
    def settings(self) -> list[SettingSummary]:
        return summarize_settings(self.searches)

    def tables(self) -> tuple[QueryTable, ...]:
        """Returns the tables for queries: models, graphs, categories, kernels, families, retunes, settings."""
        return make_batch_tables(self.models, self.families, self.suite_s, self.settings)


# --- what the screens of the runs say ---------------------------------------------------------------------------------


_HEADLINES: Mapping[str, Field] = {
    "id": Field(TEXT, "what kind of first line it is", "headline_id"),
    "text": Field(TEXT, "the first line of the run's screen", "headline"),
}
_STEP_PARTS: Mapping[str, Field] = {
    "id": Field(TEXT, "an id: the same for the same part in other runs"),
    "kind": Field(TEXT, "graph, eager, optimizer, collective, copy or idle"),
    "label": Field(TEXT, "its name on the screen"),
    "calls": Field(NUMBER, "calls in a step"),
    "time_s": Field(NUMBER, "time of the step"),
    "share": Field(NUMBER, "share of the step"),
    "place": Field(TEXT, "the line or the module, or how a graph is launched"),
}
_FINDINGS: Mapping[str, Field] = {
    "id": Field(TEXT, "the same for the same statement about the same graphs and kernels"),
    "kind": Field(TEXT, "a fixed name"),
    "level": Field(TEXT, "advice, caution, note or fine"),
    "text": Field(TEXT, "the statement"),
    "saving_s": Field(NUMBER, "what the step saves at most"),
    "graphs": Field(TEXT, "slugs of the graphs that it is about", lambda row: "; ".join(row.graphs)),
    "kernels": Field(TEXT, "names of the kernels that it is about", lambda row: "; ".join(row.kernels)),
    "command": Field(TEXT, "the command that tries it"),
}
_COMMANDS: Mapping[str, Field] = {
    "id": Field(TEXT, "the verb and the options, without values"),
    "command": Field(TEXT, "what to type"),
    "why": Field(TEXT, "what it does"),
}
SUMMARY_TABLES = ("headline", "parts", "findings", "next_commands")
"""The tables of :func:`make_summary_tables`."""


def make_summary_tables(runs: Iterable[tuple[str, Run, Path]]) -> tuple[QueryTable, ...]:
    """What the screen of each run says: its first line, parts, findings and next commands.

    Args:
        runs: the name of each model, its record, and its folder as the user would type it.
    """
    found = [(name, run_summary(run, View(folder=folder))) for name, run, folder in runs]
    parts = [(name, one) for name, summary in found for one in summary.parts]
    findings = [(name, one) for name, summary in found for one in summary.findings]
    commands = [(name, one) for name, summary in found for one in summary.next_commands]
    rows: Sequence[tuple[str, Mapping[str, Field], Sequence[tuple[str, Any]]]] = (
        ("for the first line of each model's screen", _HEADLINES, found),
        ("for each part of a model's step, the longest first", _STEP_PARTS, parts),
        ("for each finding of a model, in the order of its screen", _FINDINGS, findings),
        ("for each command to type next, the most useful of a model first", _COMMANDS, commands),
    )
    return tuple(
        QueryTable(name, about, (_key_by_model(pairs), *_list_columns(fields, [one for _, one in pairs])))
        for name, (about, fields, pairs) in zip(SUMMARY_TABLES, rows, strict=True)
    )


# --- CSV -------------------------------------------------------------------------------------------------------------

_NAMES = KernelGroup._fields.index("models")
_TITLES = {"ids": "kernels", "model": "dearest_in", "kernel_id": "dearest_kernel_id"}


def make_models_csv(summaries: Sequence[ModelSummary]) -> str:
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

    return write_csv((*MODELS, "wall_times_s", *titles), map(cells, summaries))


def make_groups_csv(groups: Iterable[KernelGroup], key: str) -> str:
    """Renders a row for each group of kernels. The column ``key`` holds the group's key."""
    rows = ((*group[:_NAMES], len(group.models), *group[_NAMES + 1 :], "; ".join(group.models)) for group in groups)
    titles = [_TITLES.get(name, name) for name in KernelGroup._fields]
    return write_csv((key, *titles[1:], "model_names"), rows)
