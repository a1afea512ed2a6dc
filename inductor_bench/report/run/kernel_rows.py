"""The table of kernels on the page of a run, with what is known of each kernel below its row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ... import units
from ...records.kernel import Kernel, ShapeGroup
from ...records.retune import Retune
from ...records.run import Run
from ..page.parts import Cell, Column, DataTable, Facts, FileCode, Part, Row, SourceFile
from ..text import names, palette
from ..text.ranking import Entry
from ..text.run_phrases import alone, kernel_caption, of_peak
from .retunes.page import tuning_parts
from .retunes.table import retune_of, retune_word, retunes_of_kernels

NAME_WIDTH = 64
MOST_SHAPES = 40
COLUMNS = ("calls", "time", "share", "bandwidth", "compute", "of peak", "gain limit")

_OWN = re.compile(r"^(?:# The kernel, as it stands in the compiled module\.\n+|SOURCE = r?'''\n?)", re.MULTILINE)
_OWN_END = re.compile(r"\n*^(?:open_tuning_cache\(|''')", re.MULTILINE)
"""Where a standalone file's own kernel begins and ends: a Triton kernel, or the text of a C++ kernel."""


def anchor(entry: Entry) -> str:
    """The name by which links lead to a kernel's row."""
    return f"k{entry.number}"


def kernel_table(run: Run, entries: Sequence[Entry], files: Mapping[str, SourceFile]) -> DataTable:
    """A row for each kernel of all graphs."""
    shorts = names.unique((entry.kernel.name for entry in entries), NAME_WIDTH)
    place_of = names.file_names(run)
    several, retuned = len(run.modules) > 1, bool(run.retunes)
    words, known = retunes_of_kernels(run), _retunes(run.retunes)
    rows = []
    for entry in entries:
        found = retune_of(entry, words)
        cells = [
            Cell(str(entry.number), entry.number),
            Cell(shorts[entry.kernel.name], notes=tuple(filter(None, [_origin(entry.kernel, place_of)]))),
            Cell(
                entry.kernel.category.title,
                colour=palette.category_colour(entry.kernel.category),
                notes=(entry.module.label,) if several else (),
            ),
            *_figures(run, entry),
            *([Cell(retune_word(found), found.speedup if found else None)] if retuned else []),
        ]
        rows.append(Row(tuple(cells), tuple(_details(entry.kernel, files, known)), anchor(entry)))
    columns = (Column("#"), Column("kernel", False), Column("category, graph" if several else "category", False))
    more = [Column("retuned")] if retuned else []
    return DataTable(
        columns=(*columns, *map(Column, COLUMNS), *more),
        rows=tuple(rows),
        main=1,
        caption=tuple(kernel_caption(run, entries)),
        filter="name, operator, source line, category",
    )


def _origin(kernel: Kernel, place_of: Mapping[str, str]) -> str:
    return " · ".join(filter(None, [names.source(kernel, place_of), names.operation(kernel)]))


def _figures(run: Run, entry: Entry) -> Iterator[Cell]:
    roof, cost = entry.kernel.roof, entry.cost
    yield Cell(units.count(cost.calls), cost.calls)
    ratio = alone(run, entry)
    yield Cell(units.seconds(cost.time_s), cost.time_s, notes=(f"alone {ratio}",) if ratio else ())
    yield Cell(units.percent(entry.share), entry.share)
    yield Cell(units.rate(roof.bandwidth), roof.bandwidth)
    yield Cell(units.flop_rate(roof.flop_rate), roof.flop_rate)
    yield Cell(of_peak(entry), roof.peak_share)
    yield Cell(units.seconds(cost.gain_limit_s), cost.gain_limit_s)


def _retunes(retunes: Iterable[Retune]) -> dict[str, list[Retune]]:
    """The retunes by kernel id and by file, because a library kernel has the file of its call."""
    found: dict[str, list[Retune]] = {}
    for retune in retunes:
        for key in {retune.kernel_id, retune.file or retune.kernel_id}:
            found.setdefault(key, []).append(retune)
    return found


def _details(kernel: Kernel, files: Mapping[str, SourceFile], known: Mapping[str, list[Retune]]) -> Iterator[Part]:
    yield Facts(tuple((title, text) for title, text in _facts(kernel) if text))
    for retune in known.get(kernel.kernel_id) or known.get(kernel.file or "") or ():
        yield from tuning_parts(retune)
    if kernel.file in files:
        yield FileCode(kernel.file or "")


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


def source_file(text: str) -> SourceFile:
    """A standalone file, of which the kernel's own text is shown first."""
    begin = _OWN.search(text)
    end = _OWN_END.search(text, begin.end()) if begin else None
    return SourceFile(text, (begin.end(), end.start()) if begin and end else None)
