"""Renders the three tables of the summary: graphs, categories, kernels. The text is complete without colours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import units
from ...analysis.step_costs import alone_ratio, calls_differ, category_totals, is_far_off, module_time_s, step_of
from ...devices.table import common_device
from ...records.category import Category
from ...records.module import ModuleRecord
from ...records.run import Run
from ..text import names
from ..text.layout import (
    WIDE,
    Column,
    Line,
    Word,
    bars,
    fit_columns,
    gap_of,
    header,
    peak_column,
    row,
    titled_row,
    wrapped,
)
from ..text.ranking import Entry, idle_name, main_modules, wall_known
from ..text.run_phrases import alone, bar_parts, folded, kernel_caption, method_notes, of_peak, rate
from .retunes.table import retune_of, retune_word, retunes_of_kernels

MOST_GRAPHS = 12
NARROWEST_NAME = 16
SPARE = ("calls", "of peak", "rate", "alone")
"""Columns of the kernel table that are left out on a narrow terminal, the least important first."""

_TITLES = {  # by order: for several kernels, for one kernel
    "time": ("take most time", "takes most time"),
    "gain": ("could win most at the limit of the hardware", "could win most at the limit of the hardware"),
    "calls": ("are called most often", "is called most often"),
}


def graph_lines(run: Run, width: int) -> Iterator[Line]:
    """Renders a line for each selected graph, a line for the others, and the methods of profiling."""
    shown = main_modules(run, MOST_GRAPHS)
    gap = gap_of(width)
    labels = names.unique((module.label for module in shown), 24 if width >= WIDE else 21, names.label)
    label = max(5, *map(names.cells, labels.values()))
    runs = [Column("runs", 4)] if calls_differ(run) else []
    calls = common_device(module.device for module in shown).words.calls
    columns = [
        Column("graph", label, False),
        *runs,
        Column("wall", 8),
        Column("busy", 5),
        Column(calls, 8),
        Column("peak mem", 8),
    ]
    left = sum(column.width + gap for column in columns)
    what = "where the wall time goes" if wall_known(run) else "where the device time goes"
    yield [*header(columns, gap), Word(" " * gap + names.end(what, width - left), "dim")]
    for module in shown:
        cells = [
            labels[module.label],
            *([units.count(module.program_calls)] if runs else []),
            units.seconds(module.times.wall_time_s),
            units.percent(module.times.busy_share),
            units.count(module.launches),
            units.size(module.peak_memory_bytes),
        ]
        yield [Word(row(columns, cells, gap) + " " * gap), *bars(bar_parts(run, module), width - left)]
    for note in (folded(run, shown), *method_notes(run)):
        yield from wrapped(note, width, "", "dim")
    yield []


def category_lines(run: Run, width: int) -> Iterator[Line]:
    """Renders the categories of the selected graphs, three columns per graph and as many graphs per table as fit."""
    measured = [module for module in run.modules if category_totals(run, module)]
    if not measured:
        return
    first, group = 21, 24
    fit = max(1, (width - first) // (group + 2))
    slugs = {module.slug for module in main_modules(run, fit)}
    shown = [module for module in measured if module.slug in slugs][:fit]
    labels = names.unique((module.label for module in shown), group, names.label)
    titles = "".join("  " + names.pad(labels[module.label], group, right=True) for module in shown)
    in_step = step_of(run) is not None
    of = "of step" if in_step else "of wall" if all(module.times.wall_time_s for module in shown) else "of busy"
    yield [Word(names.pad("category", first), "dim"), Word(titles, "dim")]
    yield [Word(" " * first + f"  {'time':>9} {of:>7} {'calls':>6}" * len(shown), "dim")]
    for category in _by_time(run, shown):
        yield [
            Word(names.pad(category.title, first)),
            *(Word(_category_cell(run, module, category)) for module in shown),
        ]
    if not in_step and any(module.times.idle is not None and module.times.wall_time_s for module in shown):
        title = idle_name(shown[0]) if len({idle_name(m) for m in shown}) == 1 else "idle or host"
        yield [Word(names.pad(title, first)), *(Word(_idle_cell(module)) for module in shown)]
    if len(shown) < len(measured):
        yield [Word(f"{len(shown)} of {len(measured)} graphs; all are in report.html, tables/categories.csv", "dim")]
    yield []


def _by_time(run: Run, modules: Sequence[ModuleRecord]) -> list[Category]:
    times: dict[Category, float] = {}
    for module in modules:
        for total in category_totals(run, module):
            times[total.name] = times.get(total.name, 0.0) + total.time_s
    return sorted(times, key=lambda category: -times[category])


def _category_cell(run: Run, module: ModuleRecord, category: Category) -> str:
    total = next((total for total in category_totals(run, module) if total.name is category), None)
    if total is None:
        return f"  {units.MISSING:>9} {'':>7} {'':>6}"
    share = total.share if total.wall_share is None else total.wall_share
    return f"  {units.seconds(total.time_s):>9} {units.percent(share):>7} {units.count(total.calls):>6}"


def _idle_cell(module: ModuleRecord) -> str:
    times = module.times
    if times.idle is None or not times.wall_time_s:
        return f"  {units.MISSING:>9} {'':>7} {'':>6}"
    share = times.idle.time_s / module_time_s(module)
    return f"  {units.seconds(times.idle.time_s):>9} {units.percent(share):>7} {'':>6}"


def kernel_lines(run: Run, entries: tuple[Entry, ...], width: int, sort: str) -> Iterator[Line]:
    """Renders two lines for each kernel: its figures, and its origin."""
    if not entries:
        return
    yield [Word(_kernel_title(run, len(entries), sort), "title")]
    gap = gap_of(width)
    roofs = any(entry.kernel.roof.bound != "unknown" for entry in entries)
    last = [peak_column(map(of_peak, entries)), Column("gain limit", 10)] if roofs else [Column("rate", 12)]
    if any(is_far_off(alone_ratio(run, entry.kernel)) for entry in entries):
        last.append(Column("alone", 6))
    known = retunes_of_kernels(run)
    last += [Column("retune", 6)] if known else []
    fixed = [Column("calls", 6), Column("time", 8), Column("share", 6), *last]
    every = [Column("#", 3), Column("kernel", NARROWEST_NAME, False), *fixed]
    columns = fit_columns(every, width, gap, SPARE, "kernel")
    for line in kernel_caption(run, entries, [column.title for column in columns]):
        yield from wrapped(line, width, "", "dim")
    yield header(columns, gap)
    shorts = names.unique((entry.kernel.name for entry in entries), columns[1].width)
    files = names.file_names(run)
    for entry in entries:
        kernel = entry.kernel
        cells = {
            "#": str(entry.number),
            "kernel": shorts[kernel.name],
            "calls": units.count(entry.cost.calls),
            "time": units.seconds(entry.cost.time_s),
            "share": units.percent(entry.share),
            "of peak": of_peak(entry),
            "gain limit": units.seconds(entry.cost.gain_limit_s),
            "rate": rate(kernel),
            "alone": alone(run, entry),
            "retune": retune_word(retune_of(entry, known)),
        }
        yield [Word(titled_row(columns, cells, gap))]
        label = names.clean(entry.module.label) if len(run.modules) > 1 else ""
        origin = " · ".join(part for part in (label, _origin(entry, files)) if part)
        if origin:
            yield [Word(names.end(" " * (3 + gap) + origin, width), "dim")]
    yield []


def _kernel_title(run: Run, shown: int, sort: str) -> str:
    every = sum(len(module.kernels) for module in run.modules)
    if every == 1:
        return "The kernel that ran"
    number = "kernel" if shown == 1 else f"{shown} kernels"
    return f"The {number}{f' of {every:,}' if every > shown else ''} that {_TITLES[sort][shown == 1]}"


def _origin(entry: Entry, files: dict[str, str]) -> str:
    """Returns the source line of a kernel, with the ATen call of a library kernel or the code of another kernel."""
    kernel = entry.kernel
    if kernel.category.is_library and kernel.operator:
        return " · ".join(part for part in (names.place(kernel, files), names.operation(kernel)) if part)
    return names.source(kernel, files) or names.operation(kernel)
