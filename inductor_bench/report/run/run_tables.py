"""The tables of a run: its kernels, ranked, with what is known of each, and all of the record as CSV."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from ... import units
from ...analysis.step_costs import (
    compute_alone_ratio,
    find_graph_use,
    find_module_time_s,
    find_step,
    is_far_off,
    is_simulated,
)
from ...records.base import Category
from ...records.code import SourceLine
from ...records.module import Kernel, ModuleRecord, ShapeGroup
from ...records.retune import Retune, RetuneRow
from ...records.run import LayerTime, LineTime, Run
from ...store.files import own_folder, write_text
from .. import names, palette
from ..document import (
    FEW_ROWS,
    MOST_ROWS,
    NOTE,
    Block,
    Cell,
    Column,
    Facts,
    FileText,
    Row,
    Section,
    ShownIn,
    SourceFile,
    Table,
    make_kernel_column,
    make_notes,
    make_sentences,
    make_text_column,
)
from ..formats import write_csv
from .retune_document import find_retune, format_retune, list_retunes_by_kernel, make_tuning_blocks
from .run_words import (
    RankedKernel,
    describe_origin,
    format_alone_ratio,
    format_peak_share,
    format_rates,
    format_step_saving,
    name_idle_time,
    name_share_column,
    rank_kernels,
    write_kernel_caption,
)

NAME_WIDTH = 64
LAYER_WIDTH = 48
MOST_SHAPES = 40
MOST_DETAILED = 200
"""The largest number of kernels of which a page has all details; with those of 640 it had 2.5 MB."""
BRIEF = ("name", "kernel id", "file", "no roof")

SORTED_BY = {
    "time": "those that take most time first",
    "gain": "those first that could save most at the limit of the hardware",
    "calls": "those that are called most often first",
}


def name_anchor(entry: RankedKernel) -> str:
    """The name by which links lead to a kernel's row."""
    return f"k{entry.number}"


def make_kernel_section(
    run: Run, entries: Sequence[RankedKernel], files: Mapping[str, SourceFile], sort: str, top: int
) -> Section:
    """A row for each kernel of all graphs; a terminal and Markdown show the ``top`` ones that are called."""
    shown = [entry for entry in entries[:top] if entry.cost.calls]
    roofs = any(entry.kernel.roof.bound != "unknown" for entry in shown)
    far_off = any(is_far_off(compute_alone_ratio(run, entry.kernel)) for entry in entries)
    several, retuned = len(run.modules) > 1, bool(run.retunes)
    layered = any(entry.kernel.origin.layers for entry in entries)
    judged, simulated = ShownIn.EVERYWHERE if roofs else ShownIn.PAGE, is_simulated(run)
    columns = (
        *(Column("#"), make_kernel_column("kernel", NAME_WIDTH)),
        Column("category, graph" if several else "category", False, on=ShownIn.PAPER),
        *([make_text_column("layer", most=LAYER_WIDTH, on=ShownIn.PAPER)] if layered else []),
        *(Column("calls", spare=4), Column("time"), Column(name_share_column(run))),
        *(Column("bandwidth", on=ShownIn.PAGE), Column("compute", on=ShownIn.PAGE)),
        Column("rate", spare=2, on=ShownIn.PAGE if roofs else ShownIn.SCREEN | ShownIn.MARKDOWN),
        Column("of peak", spare=3, on=judged),
        Column("gain limit", on=ShownIn.PAGE if simulated else judged),
        *([Column("step saves", on=judged)] if simulated else []),
        *([Column("alone", spare=1)] if far_off else []),
        *([Column("retuned", short="retune")] if retuned else []),
    )
    columns = tuple(column for column in columns if column.title != "rate" or not roofs)
    place_of, retunes, known = names.name_files(run), list_retunes_by_kernel(run), _find_retunes(run.retunes)
    rows: list[Row] = []
    for entry in entries:
        found = find_retune(entry, retunes)
        cells = [
            *_make_name_cells(entry, place_of, several),
            *([_make_layer_cell(entry.kernel)] if layered else []),
            *_make_figures(entry, roofs=roofs),
            *([Cell(format_step_saving(entry.cost), entry.cost.saving.step_saving_s)] if simulated else []),
            *([Cell(format_alone_ratio(run, entry), compute_alone_ratio(run, entry.kernel))] if far_off else []),
            *([Cell(format_retune(found), found.speedup if found else None)] if retuned else []),
        ]
        details = partial(_list_details, entry.kernel, files, known, is_brief=len(rows) >= MOST_DETAILED)
        rows.append(Row(tuple(cells), details, name_anchor(entry)))
    more = "in report.html" if len(rows) <= MOST_ROWS else "in tables/kernels.csv"
    table = Table(columns, rows, main=1, filter="name, operator, source line, category", most=len(shown), more=more)
    few = make_sentences(write_kernel_caption(run, shown), NOTE, ShownIn.SCREEN | ShownIn.MARKDOWN)
    every = make_sentences(write_kernel_caption(run, entries), NOTE, ShownIn.PAGE)
    note = f"{len(entries):,}, {SORTED_BY[sort]}" if len(entries) > 1 else ""
    if len(entries) > MOST_DETAILED:
        text = f"the first {MOST_DETAILED} have all details; of the others more is in tables/kernels.csv and shapes.csv"
        every = (*every, *make_sentences([text], NOTE, ShownIn.PAGE))
    on = ShownIn.EVERYWHERE if shown else ShownIn.PAPER
    sums = tuple(_sort_by_category(run, entries))
    return Section("Kernels", (*few, *sums, *every, table) if entries else (), note=note, on=on)


def _sort_by_category(run: Run, entries: Sequence[RankedKernel]) -> Iterator[Block]:
    """The kernels summed by category, for a page; nothing if the kernels themselves are few."""
    if len(entries) <= FEW_ROWS:
        return
    groups: dict[Category, list[RankedKernel]] = {}
    for entry in entries:
        groups.setdefault(entry.kernel.category, []).append(entry)
    titles = ("kernels", "calls", "time", name_share_column(run), "gain limit")
    rows = []
    for category, group in groups.items():
        time_s, share = sum(one.cost.time_s for one in group), sum(one.share or 0.0 for one in group)
        calls, gain_s = sum(one.cost.calls for one in group), sum(one.cost.gain_limit_s or 0.0 for one in group)
        cells = (
            *(Cell(units.count(len(group)), len(group)), Cell(units.count(calls), calls)),
            *(Cell(units.seconds(time_s), time_s), Cell(units.percent(share), share)),
            Cell(units.seconds(gain_s) if gain_s else units.MISSING, gain_s),
        )
        rows.append(Row((Cell(category.title, colour=palette.choose_category_colour(category)), *cells)))
    rows.sort(key=lambda row: -(row.cells[3].value or 0.0))
    yield Table((make_text_column("category"), *map(Column, titles)), rows, on=ShownIn.PAGE)


def _make_name_cells(entry: RankedKernel, place_of: Mapping[str, str], several: bool) -> Iterator[Cell]:
    kernel, graph = entry.kernel, names.clean(entry.module.label) if several else ""
    origin = describe_origin(kernel, place_of)
    yield Cell(str(entry.number), entry.number)
    first = " · ".join(filter(None, (graph, _describe_layers(kernel), origin)))
    said = (*make_notes(first, on=ShownIn.SCREEN), *make_notes(origin, on=ShownIn.PAPER))
    yield Cell(kernel.name, notes=said)
    colour = palette.choose_category_colour(kernel.category)
    yield Cell(kernel.category.title, colour=colour, notes=make_notes(graph))


def _describe_layers(kernel: Kernel) -> str:
    """The layers in few words, without the object at their root: ``layers.0-11.mlp.up (+1 layer)``."""
    found = names.fold_names(kernel.origin.layers)
    if not found:
        return ""
    more = len(found) - 1
    first = found[0].partition(".")[2] or found[0]
    return f"{first} (+{more} layer{'s' * (more > 1)})" if more else first


def _make_layer_cell(kernel: Kernel) -> Cell:
    found = names.fold_names(kernel.origin.layers)
    more = f"and {len(found) - 1} more" if len(found) > 1 else ""
    return Cell(found[0] if found else "", notes=make_notes(more))


def _make_figures(entry: RankedKernel, *, roofs: bool) -> Iterator[Cell]:
    roof, cost = entry.kernel.roof, entry.cost
    yield Cell(units.count(cost.calls), cost.calls)
    yield Cell(units.seconds(cost.time_s), cost.time_s)
    yield Cell(units.percent(entry.share), entry.share)
    yield Cell(units.rate(roof.bandwidth), roof.bandwidth)
    yield Cell(units.flop_rate(roof.flop_rate), roof.flop_rate)
    if not roofs:
        yield Cell(format_rates(entry.kernel))
    yield Cell(format_peak_share(entry), roof.peak_share)
    yield Cell(units.seconds(cost.gain_limit_s), cost.gain_limit_s)


def _find_retunes(retunes: Iterable[Retune]) -> dict[str, list[Retune]]:
    """The retunes by kernel id and by file, because a library kernel has the file of its call."""
    found: dict[str, list[Retune]] = {}
    for retune in retunes:
        for key in {retune.kernel_id, retune.file or retune.kernel_id}:
            found.setdefault(key, []).append(retune)
    return found


def _list_details(
    kernel: Kernel, files: Mapping[str, SourceFile], known: Mapping[str, list[Retune]], *, is_brief: bool
) -> Iterator[Block]:
    facts = [(title, text) for title, text in _list_facts(kernel) if text and not (is_brief and title not in BRIEF)]
    yield Facts(tuple(facts))
    for retune in known.get(kernel.kernel_id) or known.get(kernel.file or "") or ():
        yield from make_tuning_blocks(retune)
    if kernel.file in files:
        yield FileText(kernel.file or "")


def _describe_line(line: SourceLine) -> str:
    return f"{_shorten(line.file)}:{line.line} {line.function}: {line.code}"


def _list_facts(kernel: Kernel) -> list[tuple[str, str]]:
    place = f"{kernel.file}:{kernel.line}" if kernel.file and kernel.line else kernel.file or ""
    shapes = [_shape(group) for group in kernel.shapes[:MOST_SHAPES]]
    more = len(kernel.shapes) - len(shapes)
    work = kernel.work
    operations = f"{units.flops(work.flops)} per iteration, {work.dtype or 'unknown dtype'}" if work.flops else ""
    lines, called = ("\n".join(map(_describe_line, of)) for of in (kernel.origin.source_lines, kernel.origin.called_at))
    return [
        ("name", kernel.name),
        ("kernel id", kernel.kernel_id),
        ("file", place),
        ("config", ", ".join(f"{key}={value}" for key, value in kernel.compiled.config.items())),
        ("launch", _launch(kernel)),
        ("bytes", f"{units.size(work.moved_bytes)} per iteration" if work.moved_bytes else ""),
        ("operations", operations),
        ("layers", "\n".join(names.fold_names(kernel.origin.layers))),
        ("source lines", lines),
        (names.CALLED_AT, called),
        ("no roof", kernel.unjudged),
        ("operators", ", ".join(kernel.origin.aten_ops) or kernel.operator or ""),
        ("graph nodes", ", ".join(kernel.origin.source_nodes)),
        ("shapes", "\n".join(shapes) + (f"\nand {more} more" if more else "")),
    ]


def _shorten(file: str) -> str:
    """The path of a file; of one in an installed package the path from the package."""
    return re.split(r"[/\\](?:site|dist)-packages[/\\]", file)[-1]


def _shape(group: ShapeGroup) -> str:
    launches = f"{units.count(group.calls)} launch{'es' * (group.calls != 1)}, {units.seconds(group.time_s)}"
    return f"[{group.shapes}] {launches}" + (f", {units.flops(group.flops)}" if group.flops else "")


def _launch(kernel: Kernel) -> str:
    launch, compiled, parts = kernel.launch, kernel.compiled, []
    if launch.grid:
        parts.append(f"grid {'x'.join(map(str, launch.grid))}")
    if launch.block:
        parts.append(f"block {'x'.join(map(str, launch.block))}")
    if compiled.registers is not None:
        parts.append(f"{compiled.registers} registers")
    if compiled.spills is not None:
        parts.append(f"{compiled.spills} spilled")
    if compiled.shared_memory_bytes is not None:
        parts.append(f"{units.size(compiled.shared_memory_bytes)} shared memory")
    if launch.occupancy is not None:
        parts.append(f"occupancy {units.whole_percent(launch.occupancy)}")
    return ", ".join(parts)


_OWN = re.compile(r"^(?:# The kernel, as it stands in the compiled module\.\n+|SOURCE = r?'''\n?)", re.MULTILINE)
_OWN_END = re.compile(r"\n*^(?:open_tuning_cache\(|''')", re.MULTILINE)
"""Where a standalone file's own kernel begins and ends: a Triton kernel, or the text of a C++ kernel."""


def write_source_file(text: str) -> SourceFile:
    """A standalone file, of which the kernel's own text is shown first."""
    begin = _OWN.search(text)
    end = _OWN_END.search(text, begin.end()) if begin else None
    return SourceFile(text, (begin.end(), end.start()) if begin and end else None)


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
    "inputs": lambda module: names.describe_inputs(module.inputs),
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
    "grid": lambda kernel: _format_sizes(kernel.launch.grid),
    "block": lambda kernel: _format_sizes(kernel.launch.block),
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

_TIMES = (
    *("direction", "kind", "time_s", "launches", "shared_s", "flops", "product_time_s", "uncounted_s", "peak_time_s"),
    *("moved_bytes", "unmeasured_s"),
)
_LAYERS = ("layer", "class", *_TIMES)
_LINES = ("file", "line", "function", "code", *_TIMES, "called_at")
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
    step = _STEP_GRAPHS if find_step(run) else ()
    tables = {
        "modules": write_csv((*_MODULES, *step), (_make_module_row(run, module) for module in run.modules)),
        "categories": write_csv(_CATEGORIES, _make_category_rows(run)),
        "kernels": write_kernels_csv(run),
        "shapes": write_csv(_SHAPES, _make_shape_rows(run)),
    }
    if step:
        tables["step"] = write_csv(_PARTS, _make_part_rows(run))
        tables |= {f"{by}s": write_rows(run, by) for by in ("layer", "line")}
    if run.retunes:
        tables["retunes"] = write_csv(RetuneRow._fields, _make_retune_rows(run))
    paths = []
    for name, text in tables.items():
        path = own_folder(folder / "tables") / f"{name}.csv"
        write_text(path, text)
        paths.append(path)
    return paths


def write_rows(run: Run, by: str, sort: str = "time") -> str:
    """Renders the kernels, the layers or the lines of a step as CSV.

    Raises:
        UsageError: ``sort`` is unknown.
    """
    if by == "layer":
        return write_csv(_LAYERS, _make_layer_rows(run))
    return write_csv(_LINES, _make_line_rows(run)) if by == "line" else write_kernels_csv(run, sort)


def write_kernels_csv(run: Run, sort: str = "time") -> str:
    """Renders the kernels of all graphs as CSV, one row each. Cells of unknown values are empty.

    Raises:
        UsageError: ``sort`` is unknown.
    """
    columns = {**_KERNELS, **_STEP_KERNELS} if find_step(run) else _KERNELS
    rows = (
        (entry.module.label, entry.module.slug, *(get(entry.kernel) for get in columns.values()))
        for entry in rank_kernels(run, sort)
    )
    return write_csv(("graph", "slug", *columns), rows)


def _make_module_row(run: Run, module: ModuleRecord) -> Sequence[object]:
    use = find_graph_use(run, module)
    step = (use.calls, use.time_s, use.share, use.replays, use.launches) if find_step(run) else ()
    return (*(get(module) for get in _MODULES.values()), *step)


def _make_part_rows(run: Run) -> Iterator[Sequence[object]]:
    for rank_steps in run.program.ranks if run.program else ():
        for part in rank_steps.parts:
            source = f"{part.source.file}:{part.source.line} {part.source.function}" if part.source else ""
            yield (
                *(rank_steps.rank, rank_steps.pid, part.kind, part.label, part.calls, part.time_s, part.share),
                *(part.device_time_s, part.replays, part.launches, part.graph, part.module, source),
                *(part.moved_bytes, part.refusal),
            )


def _make_layer_rows(run: Run) -> Iterator[Sequence[object]]:
    classes = run.program.layer_classes if run.program else {}
    for row in run.program.layers if run.program else ():
        yield (row.layer, classes.get(row.layer, ""), *_make_time_cells(row))


def _make_line_rows(run: Run) -> Iterator[Sequence[object]]:
    for row in run.program.lines if run.program else ():
        source = row.source
        place = (source.file, source.line, source.function, source.code) if source else ("", None, "", "")
        at = row.called_at
        yield (*place, *_make_time_cells(row), f"{at.file}:{at.line} {at.function}" if at else "")


def _make_time_cells(row: LayerTime | LineTime) -> Sequence[object]:
    work = row.work
    known = (row.direction, row.kind, row.time_s, row.launches, row.shared_s, row.flops)
    amounts = (work.product_time_s, work.uncounted_s, work.peak_time_s, work.moved_bytes, work.unmeasured_s)
    return (*known, *amounts)


def _make_category_rows(run: Run) -> Iterator[Sequence[object]]:
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
            share = idle.time_s / find_module_time_s(module)
            yield (*place, name_idle_time(module), idle.time_s, None, share, None, None)


def _make_shape_rows(run: Run) -> Iterator[Sequence[object]]:
    for entry in rank_kernels(run):
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


def _make_retune_rows(run: Run) -> Iterator[Sequence[object]]:
    for retune in run.retunes:
        row = retune.row
        yield row._replace(category=row.category.value, graphs="; ".join(row.graphs))  # type: ignore[arg-type]


def _format_sizes(numbers: tuple[int, ...]) -> str:
    return "x".join(str(number) for number in numbers)
