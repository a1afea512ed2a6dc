"""Renders a record as CSV tables, with SI base units in the headers and full names in the cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from ...analysis.step_costs import graph_use, module_time_s, step_of
from ...records.kernel import Kernel
from ...records.module import ModuleRecord
from ...records.retune import RetuneRow
from ...records.run import Run
from ...store.files import own_folder, write_text
from ..csvs import table_text
from .run_words import idle_name, rank

_MODULES: Mapping[str, Callable[[ModuleRecord], object]] = {
    "graph": lambda module: module.label,
    "slug": lambda module: module.slug,
    "role": lambda module: module.role,
    "device": lambda module: module.device,
    "method": lambda module: module.measurement.method,
    "method_reason": lambda module: module.measurement.method_reason,
    "dynamic": lambda module: module.dynamic,
    "file": lambda module: module.file,
    "wall_time_s": lambda module: module.times.wall_time_s,
    "busy_time_s": lambda module: module.times.busy_time_s,
    "busy_share": lambda module: module.times.busy_share,
    "idle_time_s": lambda module: module.times.idle.time_s if module.times.idle else None,
    "profiled_time_s": lambda module: module.times.profiled_time_s,
    "graph_time_s": lambda module: module.times.graph_time_s,
    "launches": lambda module: module.launches,
    "peak_memory_bytes": lambda module: module.peak_memory_bytes,
    "program_calls": lambda module: module.program_calls,
    "iterations": lambda module: module.profiled.iterations,
    "outlier_iterations": lambda module: module.profiled.outlier_iterations,
    "threads": lambda module: module.threads,
    "kernels": lambda module: len(module.kernels),
    "trace": lambda module: module.outputs.trace,
}
_KERNELS: Mapping[str, Callable[[Kernel], object]] = {
    "name": lambda kernel: kernel.name,
    "kernel_id": lambda kernel: kernel.kernel_id,
    "category": lambda kernel: kernel.category.value,
    "calls": lambda kernel: kernel.calls,
    "time_s": lambda kernel: kernel.time_s,
    "share": lambda kernel: kernel.share,
    "wall_share": lambda kernel: kernel.wall_share,
    "moved_bytes": lambda kernel: kernel.work.moved_bytes,
    "bandwidth_bytes_per_s": lambda kernel: kernel.roof.bandwidth,
    "flops": lambda kernel: kernel.work.flops,
    "flop_rate_per_s": lambda kernel: kernel.roof.flop_rate,
    "dtype": lambda kernel: kernel.work.dtype,
    "peak_share": lambda kernel: kernel.roof.peak_share,
    "bound": lambda kernel: kernel.roof.bound,
    "gain_limit_s": lambda kernel: kernel.roof.gain_limit_s,
    "unjudged": lambda kernel: kernel.unjudged,
    "operator": lambda kernel: kernel.operator,
    "aten_ops": lambda kernel: "; ".join(kernel.origin.aten_ops),
    "source_nodes": lambda kernel: "; ".join(kernel.origin.source_nodes),
    "source_lines": lambda kernel: "; ".join(
        f"{line.file}:{line.line} {line.function}" for line in kernel.origin.source_lines
    ),
    "layers": lambda kernel: "; ".join(kernel.origin.layers),
    "registers": lambda kernel: kernel.compiled.registers,
    "spills": lambda kernel: kernel.compiled.spills,
    "shared_memory_bytes": lambda kernel: kernel.compiled.shared_memory_bytes,
    "occupancy": lambda kernel: kernel.launch.occupancy,
    "grid": lambda kernel: _sizes(kernel.launch.grid),
    "block": lambda kernel: _sizes(kernel.launch.block),
    "config": lambda kernel: " ".join(f"{key}={value}" for key, value in kernel.compiled.config.items()),
    "file": lambda kernel: kernel.file,
    "line": lambda kernel: kernel.line,
    "kernel_hash": lambda kernel: kernel.kernel_hash,
}
_STEP_GRAPHS = ("step_calls", "step_time_s", "step_share", "step_replays", "step_launches")
"""Columns of ``modules.csv`` in a run with a program's step: the graph's calls, seconds, and share of the step."""

_STEP_KERNELS: Mapping[str, Callable[[Kernel], object]] = {
    "step_calls": lambda kernel: kernel.step_calls,
    "step_time_s": lambda kernel: kernel.step_time_s,
    "step_share": lambda kernel: kernel.step_share,
    "step_saving_s": lambda kernel: kernel.saving.step_saving_s,
    "step_saving_uncertainty_s": lambda kernel: kernel.saving.step_saving_uncertainty_s,
    "device_saving_s": lambda kernel: kernel.saving.device_saving_s,
}
"""Columns of ``kernels.csv`` in a run with a program's step."""

_PARTS = (
    *("rank", "pid", "kind", "label", "calls", "time_s", "share", "device_time_s", "replays", "launches", "graph"),
    *("module", "source", "moved_bytes", "refusal"),
)
"""Columns of ``step.csv``: the parts of each rank's step."""

_TIMES = ("direction", "kind", "time_s", "launches", "shared_s", "flops")
_LAYERS = ("layer", "class", *_TIMES)
_LINES = ("file", "line", "function", "code", *_TIMES)
"""Columns of ``layers.csv`` and ``lines.csv``: the device time of a step."""

_CATEGORIES = ("graph", "slug", "category", "time_s", "share", "wall_share", "calls", "kernels")
_SHAPES = (
    "graph",
    "slug",
    "name",
    "kernel_id",
    "operator",
    "shapes",
    "calls",
    "operator_calls",
    "time_s",
    "flops",
    "moved_bytes",
)


def write_tables(run: Run, folder: Path) -> list[Path]:
    """Writes ``tables/{modules,categories,kernels,shapes}.csv``; of a program's step and of retunes a table each.

    Raises:
        InductorBenchError: a file cannot be written (full disk, no permission, a link in the place of the folder).
    """
    step = _STEP_GRAPHS if step_of(run) else ()
    tables = {
        "modules": table_text((*_MODULES, *step), (_module_row(run, module) for module in run.modules)),
        "categories": table_text(_CATEGORIES, _category_rows(run)),
        "kernels": csv_text(run),
        "shapes": table_text(_SHAPES, _shape_rows(run)),
    }
    if step:
        tables["step"] = table_text(_PARTS, _part_rows(run))
        tables |= {f"{by}s": rows_text(run, by) for by in ("layer", "line")}
    if run.retunes:
        tables["retunes"] = table_text(RetuneRow._fields, _retune_rows(run))
    paths = []
    for name, text in tables.items():
        path = own_folder(folder / "tables") / f"{name}.csv"
        write_text(path, text)
        paths.append(path)
    return paths


def rows_text(run: Run, by: str, sort: str = "time") -> str:
    """Renders the kernels, the layers or the lines of a step as CSV.

    Raises:
        UsageError: ``sort`` is unknown.
    """
    if by == "layer":
        return table_text(_LAYERS, _layer_rows(run))
    return table_text(_LINES, _line_rows(run)) if by == "line" else csv_text(run, sort)


def csv_text(run: Run, sort: str = "time") -> str:
    """Renders the kernels of all graphs as CSV, one row each. Cells of unknown values are empty.

    Raises:
        UsageError: ``sort`` is unknown.
    """
    columns = {**_KERNELS, **_STEP_KERNELS} if step_of(run) else _KERNELS
    rows = (
        (entry.module.label, entry.module.slug, *(get(entry.kernel) for get in columns.values()))
        for entry in rank(run, sort)
    )
    return table_text(("graph", "slug", *columns), rows)


def _module_row(run: Run, module: ModuleRecord) -> Sequence[object]:
    use = graph_use(run, module)
    step = (use.calls, use.time_s, use.share, use.replays, use.launches) if step_of(run) else ()
    return (*(get(module) for get in _MODULES.values()), *step)


def _part_rows(run: Run) -> Iterator[Sequence[object]]:
    for rank_steps in run.program.ranks if run.program else ():
        for part in rank_steps.parts:
            source = f"{part.source.file}:{part.source.line} {part.source.function}" if part.source else ""
            yield (
                *(rank_steps.rank, rank_steps.pid, part.kind, part.label, part.calls, part.time_s, part.share),
                *(part.device_time_s, part.replays, part.launches, part.graph, part.module, source),
                *(part.moved_bytes, part.refusal),
            )


def _layer_rows(run: Run) -> Iterator[Sequence[object]]:
    classes = run.program.layer_classes if run.program else {}
    for row in run.program.layers if run.program else ():
        figures = (row.direction, row.kind, row.time_s, row.launches, row.shared_s, row.flops)
        yield (row.layer, classes.get(row.layer, ""), *figures)


def _line_rows(run: Run) -> Iterator[Sequence[object]]:
    for row in run.program.lines if run.program else ():
        source = row.source
        place = (source.file, source.line, source.function, source.code) if source else ("", None, "", "")
        yield (*place, row.direction, row.kind, row.time_s, row.launches, row.shared_s, row.flops)


def _category_rows(run: Run) -> Iterator[Sequence[object]]:
    """Yields a row per category and one for the wall time outside kernels, so that the rows sum to the wall time."""
    for module in run.modules:
        place = (module.label, module.slug)
        for total in module.categories:
            yield (
                *place,
                total.name.value,
                total.time_s,
                total.share,
                total.wall_share,
                total.calls,
                total.kernels,
            )
        idle = module.times.idle
        if idle is not None and module.times.wall_time_s:
            share = idle.time_s / module_time_s(module)
            yield (*place, idle_name(module), idle.time_s, None, share, None, None)


def _shape_rows(run: Run) -> Iterator[Sequence[object]]:
    for entry in rank(run):
        kernel = entry.kernel
        place = (entry.module.label, entry.module.slug, kernel.name, kernel.kernel_id, kernel.operator)
        for group in kernel.shapes:
            yield (
                *place,
                group.shapes,
                group.calls,
                group.operator_calls,
                group.time_s,
                group.flops,
                group.moved_bytes,
            )


def _retune_rows(run: Run) -> Iterator[Sequence[object]]:
    for retune in run.retunes:
        row = retune.row
        yield row._replace(category=row.category.value, graphs="; ".join(row.graphs))  # type: ignore[arg-type]


def _sizes(numbers: tuple[int, ...]) -> str:
    return "x".join(str(number) for number in numbers)
