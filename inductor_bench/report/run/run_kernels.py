"""The kernels of a run: the ranked table, with what is known of each kernel below its row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from ... import units
from ...analysis.layers.tree import folded_names
from ...analysis.step_costs import alone_ratio, is_far_off
from ...records.kernel import Kernel, ShapeGroup
from ...records.retune import Retune
from ...records.run import Run
from .. import names, palette
from ..document import (
    NOTE,
    Block,
    Cell,
    Column,
    Facts,
    FileText,
    On,
    Row,
    Section,
    SourceFile,
    Table,
    kernel_column,
    notes,
    sentences,
    words,
)
from .retune_document import retune_of, retune_word, retunes_of_kernels, tuning_blocks
from .run_words import Entry, alone, is_simulated, kernel_caption, of_peak, rate, step_saving

NAME_WIDTH = 64
LAYER_WIDTH = 48
MOST_SHAPES = 40
MOST_LAYERS = 3
SORTED_BY = {
    "time": "those that take most time first",
    "gain": "those first that could win most at the limit of the hardware",
    "calls": "those that are called most often first",
}


def anchor(entry: Entry) -> str:
    """The name by which links lead to a kernel's row."""
    return f"k{entry.number}"


def kernel_section(run: Run, entries: Sequence[Entry], files: Mapping[str, SourceFile], sort: str, top: int) -> Section:
    """A row for each kernel of all graphs; a terminal and Markdown show the ``top`` ones that are called."""
    shown = [entry for entry in entries[:top] if entry.cost.calls]
    roofs = any(entry.kernel.roof.bound != "unknown" for entry in shown)
    far_off = any(is_far_off(alone_ratio(run, entry.kernel)) for entry in entries)
    several, retuned = len(run.modules) > 1, bool(run.retunes)
    layered = any(entry.kernel.origin.layers for entry in entries)
    judged, simulated = On.EVERYWHERE if roofs else On.PAGE, is_simulated(run)
    columns = (
        *(Column("#"), kernel_column("kernel", NAME_WIDTH)),
        Column("category, graph" if several else "category", False, on=On.PAPER),
        *([words("layer", most=LAYER_WIDTH, on=On.PAPER)] if layered else []),
        *(Column("calls", spare=4), Column("time"), Column("share")),
        *(Column("bandwidth", on=On.PAGE), Column("compute", on=On.PAGE)),
        Column("rate", spare=2, on=On.PAGE if roofs else On.TERMINAL | On.MARKDOWN),
        Column("of peak", spare=3, on=judged),
        Column("gain limit", on=On.PAGE if simulated else judged),
        *([Column("step saves", on=judged)] if simulated else []),
        *([Column("alone", spare=1)] if far_off else []),
        *([Column("retuned", short="retune")] if retuned else []),
    )
    columns = tuple(column for column in columns if column.title != "rate" or not roofs)
    place_of, retunes, known = names.file_names(run), retunes_of_kernels(run), _retunes(run.retunes)
    rows = []
    for entry in entries:
        found = retune_of(entry, retunes)
        cells = [
            *_name_cells(entry, place_of, several),
            *([_layer_cell(entry.kernel)] if layered else []),
            *_figures(run, entry, roofs=roofs),
            *([Cell(step_saving(entry.cost), entry.cost.saving.step_saving_s)] if simulated else []),
            *([Cell(alone(run, entry), alone_ratio(run, entry.kernel))] if far_off else []),
            *([Cell(retune_word(found), found.speedup if found else None)] if retuned else []),
        ]
        rows.append(Row(tuple(cells), partial(_details, entry.kernel, files, known), anchor(entry)))
    table = Table(
        columns, rows, main=1, filter="name, operator, source line, category", most=len(shown), more="in report.html"
    )
    few = sentences(kernel_caption(run, shown), NOTE, On.TERMINAL | On.MARKDOWN)
    every = sentences(kernel_caption(run, entries), NOTE, On.PAGE)
    note = f"{len(entries):,}, {SORTED_BY[sort]}" if len(entries) > 1 else ""
    on = On.EVERYWHERE if shown else On.PAPER
    return Section("Kernels", (*few, *every, table) if entries else (), note=note, on=on)


def _name_cells(entry: Entry, place_of: Mapping[str, str], several: bool) -> Iterator[Cell]:
    kernel, graph = entry.kernel, names.clean(entry.module.label) if several else ""
    is_call = kernel.category.is_library and kernel.operator
    source = names.place(kernel, place_of) if is_call else names.source(kernel, place_of)
    origin = " · ".join(filter(None, (source, names.operation(kernel))))
    yield Cell(str(entry.number), entry.number)
    first = " · ".join(filter(None, (graph, _layer_words(kernel), origin)))
    said = (*notes(first, on=On.TERMINAL), *notes(origin, on=On.PAPER))
    yield Cell(kernel.name, notes=said)
    colour = palette.category_colour(kernel.category)
    yield Cell(kernel.category.title, colour=colour, notes=notes(graph))


def _layer_words(kernel: Kernel) -> str:
    """The layers in few words, without the object at their root: ``layers.0-11.mlp.up (+1 layer)``."""
    found = folded_names(kernel.origin.layers)
    if not found:
        return ""
    more = len(found) - 1
    first = found[0].partition(".")[2] or found[0]
    return f"{first} (+{more} layer{'s' * (more > 1)})" if more else first


def _layer_cell(kernel: Kernel) -> Cell:
    found = folded_names(kernel.origin.layers)
    more = len(found) - MOST_LAYERS
    said = (*found[1:MOST_LAYERS], *([f"and {more} more"] if more > 0 else []))
    return Cell(found[0] if found else "", notes=notes(*said))


def _figures(run: Run, entry: Entry, *, roofs: bool) -> Iterator[Cell]:
    roof, cost = entry.kernel.roof, entry.cost
    yield Cell(units.count(cost.calls), cost.calls)
    yield Cell(units.seconds(cost.time_s), cost.time_s)
    yield Cell(units.percent(entry.share), entry.share)
    yield Cell(units.rate(roof.bandwidth), roof.bandwidth)
    yield Cell(units.flop_rate(roof.flop_rate), roof.flop_rate)
    if not roofs:
        yield Cell(rate(entry.kernel))
    yield Cell(of_peak(entry), roof.peak_share)
    yield Cell(units.seconds(cost.gain_limit_s), cost.gain_limit_s)


def _retunes(retunes: Iterable[Retune]) -> dict[str, list[Retune]]:
    """The retunes by kernel id and by file, because a library kernel has the file of its call."""
    found: dict[str, list[Retune]] = {}
    for retune in retunes:
        for key in {retune.kernel_id, retune.file or retune.kernel_id}:
            found.setdefault(key, []).append(retune)
    return found


def _details(kernel: Kernel, files: Mapping[str, SourceFile], known: Mapping[str, list[Retune]]) -> Iterator[Block]:
    yield Facts(tuple((title, text) for title, text in _facts(kernel) if text))
    for retune in known.get(kernel.kernel_id) or known.get(kernel.file or "") or ():
        yield from tuning_blocks(retune)
    if kernel.file in files:
        yield FileText(kernel.file or "")


def _facts(kernel: Kernel) -> list[tuple[str, str]]:
    place = f"{kernel.file}:{kernel.line}" if kernel.file and kernel.line else kernel.file or ""
    shapes = [_shape(group) for group in kernel.shapes[:MOST_SHAPES]]
    more = len(kernel.shapes) - len(shapes)
    work = kernel.work
    operations = f"{units.flops(work.flops)} per iteration, {work.dtype or 'unknown dtype'}" if work.flops else ""
    lines = [f"{line.file}:{line.line} {line.function}: {line.code}" for line in kernel.origin.source_lines]
    return [
        ("name", kernel.name),
        ("kernel id", kernel.kernel_id),
        ("file", place),
        ("config", ", ".join(f"{key}={value}" for key, value in kernel.compiled.config.items())),
        ("launch", _launch(kernel)),
        ("bytes", f"{units.size(work.moved_bytes)} per iteration" if work.moved_bytes else ""),
        ("operations", operations),
        ("layers", "\n".join(folded_names(kernel.origin.layers))),
        ("source lines", "\n".join(lines)),
        ("no roof", kernel.unjudged),
        ("operators", ", ".join(kernel.origin.aten_ops) or kernel.operator or ""),
        ("graph nodes", ", ".join(kernel.origin.source_nodes)),
        ("shapes", "\n".join(shapes) + (f"\nand {more} more" if more else "")),
    ]


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


def source_file(text: str) -> SourceFile:
    """A standalone file, of which the kernel's own text is shown first."""
    begin = _OWN.search(text)
    end = _OWN_END.search(text, begin.end()) if begin else None
    return SourceFile(text, (begin.end(), end.start()) if begin and end else None)
