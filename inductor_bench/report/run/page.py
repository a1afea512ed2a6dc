"""The page of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ... import units
from ...analysis.findings.finding import ADVICE, CAUTION, FINE, Finding
from ...analysis.findings.finding import NOTE as NOTE_LEVEL
from ...analysis.findings.headline import headline
from ...analysis.findings.rule_table import findings_beside
from ...analysis.step_costs import calls_differ, category_totals, module_time_s, step_of
from ...devices.table import common_device
from ...records.module import ModuleRecord
from ...records.program import Timeline
from ...records.run import Peaks, Run
from ..page.parts import (
    BAD,
    GOOD,
    NOTE,
    WARN,
    Cell,
    Column,
    Columns,
    DataTable,
    Facts,
    Fold,
    Item,
    Items,
    Lines,
    Page,
    Part,
    Picture,
    Row,
    Section,
    Stretch,
)
from ..page.render import render_page
from ..text import names, palette
from ..text.ranking import Entry, idle_name, rank
from ..text.run_phrases import (
    bar_parts,
    failure_text,
    heading,
    machine,
    sentence,
    share_words,
    where_words,
    whole_words,
)
from .kernel_rows import anchor, kernel_table, source_file
from .retunes.page import proof_parts, retune_parts
from .step.page import css_colour, rank_parts, step_parts, stretch
from .step.rows import graph_cells, graph_table

PLOT_TITLES = {
    "savings": "What the retuned kernels save of a step's device time",
    "bandwidth": "Achieved against peak bandwidth of the kernels that take most time",
    "headroom": "Each kernel's share of the time against its share of the peak that bounds it",
}
METHODS = {"-p": "own harness, fresh process", "live": "live, in the program", "trace": "a trace recorded elsewhere"}
TONES = {ADVICE: WARN, CAUTION: BAD, NOTE_LEVEL: NOTE, FINE: GOOD}
NAME_WIDTH = 64
MOST_PLACES = 6


def run_html(
    run: Run,
    plots: Mapping[str, bytes] = {},
    timeline: Timeline | None = None,
    files: Mapping[str, str] = {},
) -> str:
    """Renders the page, which loads no other file.

    Args:
        run: the record.
        plots: the contents of SVG files by the plot's name.
        timeline: the timeline of the program's step.
        files: the texts of the kernels' standalone files by path.
    """
    return render_page(run_page(run, plots, timeline, files))


def run_page(
    run: Run, plots: Mapping[str, bytes], timeline: Timeline | None = None, files: Mapping[str, str] = {}
) -> Page:
    """The parts of the page; see :func:`run_html`."""
    entries, lead = rank(run), headline(run)
    numbers = {(entry.module.slug, entry.kernel.name): entry for entry in entries}
    found = findings_beside(run, lead)
    advice = [_item(one, numbers, run) for one in found if one.level != NOTE_LEVEL]
    notes = [_item(one, numbers, run) for one in found if one.level == NOTE_LEVEL]
    sources = {place: source_file(text) for place, text in files.items()}
    drawings = tuple(Picture(title, plots[name]) for name, title in PLOT_TITLES.items() if name in plots)
    return Page(
        title=heading(run),
        about=tuple(filter(None, [machine(run)])),
        lead=sentence(lead.text, run) if lead is not None else "",
        sections=(
            Section("Failed", _failures(run), BAD),
            Section("Where the step goes", step_parts(run, timeline), short="Step"),
            Section("Ranks", rank_parts(run)),
            Section("Findings", _findings(run, advice, notes)),
            Section("Proof in the program", proof_parts(run), short="Proof"),
            Section("Graphs", _graphs(run)),
            Section("Retuned kernels", retune_parts(run), short="Retuned"),
            Section("Kernels", (kernel_table(run, entries, sources),) if entries else ()),
            Section("Plots", drawings),
            Section("How it was measured", _facts(run), short="Measurement"),
        ),
        files=sources,
    )


def _failures(run: Run) -> tuple[Part, ...]:
    entries = [Item(failure_text(failure), BAD, failure.hint, log=failure.log_tail) for failure in run.failures]
    return (Items(tuple(entries)),) if entries else ()


def _findings(run: Run, advice: Sequence[Item], notes: Sequence[Item]) -> tuple[Part, ...]:
    parts: list[Part] = []
    if advice:
        caption = f"What could win most comes first; shares are of {whole_words(run)}. A gain is an upper bound."
        parts += [Lines((caption,), NOTE), Items(tuple(advice))]
    if notes:
        title = f"{len(notes)} note{'s' * (len(notes) > 1)} on the measurement"
        parts.append(Fold(title, (Items(tuple(notes)),)))
    return tuple(parts)


def _item(finding: Finding, numbers: Mapping[tuple[str, str], Entry], run: Run) -> Item:
    places = []
    for place in finding.kernels[:MOST_PLACES]:
        entry, name = numbers.get((place.slug, place.name)), names.short(place.name, NAME_WIDTH)
        places.append((f"{entry.number} {name}", anchor(entry)) if entry else (name, ""))
    text = sentence(finding.text, run)
    more = len(finding.kernels) - len(places)
    return Item(text, TONES[finding.level], places=tuple(places), more=more)


def _graphs(run: Run) -> tuple[Part, ...]:
    if not run.modules:
        return ()
    own = "own " if step_of(run) else ""
    calls = common_device(module.device for module in run.modules).words.calls
    step_columns = [Column(title, title != "as") for title in graph_table(run).header[1:5]] if own else []
    graphs_known = any(module.times.graph_time_s for module in run.modules)
    columns = (
        Column("graph", False),
        *step_columns,
        *([Column("runs", hint="how often the program called it")] if calls_differ(run) else []),
        *(Column(f"{own}{title}") for title in ("wall", "busy", calls)),
        *([Column("as one CUDA graph")] if graphs_known else []),
        Column(f"{own}peak memory"),
        Column(where_words(run), False),
    )
    rows = tuple(_graph_row(run, module, graphs_known) for module in run.modules)
    totals = tuple((module.label, _categories(run, module)) for module in run.modules if category_totals(run, module))
    caption = "own: the module's own run, outside of the program" if own else ""
    table = DataTable(columns, rows, caption=(f"{caption}.",) if caption else ())
    return (table, Fold("Time by category", (Columns(totals),))) if totals else (table,)


def _graph_row(run: Run, module: ModuleRecord, graphs_known: bool) -> Row:
    times = module.times
    method = METHODS.get(module.measurement.method, module.measurement.method)
    reason = f": {module.measurement.method_reason}" if module.measurement.method_reason else ""
    how = f"{method}{reason}; {len(times.wall_samples_s)} wall times"
    parts = bar_parts(run, module)
    words = share_words((title, share) for title, share, _ in parts)
    return Row(
        (
            Cell(module.label, notes=(how,)),
            *(Cell(text) for text in (graph_cells(run, module)[1:5] if step_of(run) else ())),
            *([Cell(units.count(module.program_calls), module.program_calls)] if calls_differ(run) else []),
            Cell(units.seconds(times.wall_time_s), times.wall_time_s),
            Cell(units.percent(times.busy_share), times.busy_share),
            Cell(units.count(module.launches), module.launches),
            *([Cell(units.seconds(times.graph_time_s), times.graph_time_s)] if graphs_known else []),
            Cell(units.size(module.peak_memory_bytes), module.peak_memory_bytes),
            Cell("", notes=(words,) if words else (), bar=_category_bar(run, module)),
        )
    )


def _category_bar(run: Run, module: ModuleRecord) -> tuple[Stretch, ...]:
    parts = bar_parts(run, module)
    whole = max(1.0, sum(share for _, share, _ in parts)) if not step_of(run) else sum(part[1] for part in parts)
    if not whole:
        return ()
    return tuple(
        stretch(100 * share / whole, colour, f"{title} {units.percent(share)}") for title, share, colour in parts
    )


def _categories(run: Run, module: ModuleRecord) -> DataTable:
    of = "of step" if step_of(run) else "of wall"
    rows = [
        Row(
            (
                Cell(total.name.title, colour=palette.category_colour(total.name)),
                Cell(units.seconds(total.time_s), total.time_s),
                Cell(units.percent(total.share), total.share),
                Cell(units.percent(total.wall_share), total.wall_share),
                Cell(units.count(total.calls), total.calls),
                Cell(units.count(total.kernels), total.kernels),
            )
        )
        for total in category_totals(run, module)
    ]
    idle = module.times.idle
    if idle is not None and module.times.wall_time_s and not step_of(run):
        share = idle.time_s / module_time_s(module)
        cells = (Cell(units.seconds(idle.time_s), idle.time_s), Cell(""), Cell(units.percent(share), share))
        rows.append(Row((Cell(idle_name(module), colour=css_colour(palette.IDLE)), *cells, Cell(""), Cell(""))))
    titles = ("time", "of kernels", of, "calls", "kernels")
    return DataTable((Column("category", False), *map(Column, titles)), tuple(rows))


def _facts(run: Run) -> tuple[Part, ...]:
    environment, peaks = run.environment, run.peaks
    versions = [
        ("Python", environment.versions.python),
        ("torch", environment.versions.torch),
        ("triton", environment.versions.triton),
        ("CUDA", environment.device.cuda),
    ]
    machines = (environment.platform, environment.host.cpu, environment.device.accelerator)
    facts = [
        ("command", run.command),
        ("target", run.target),
        ("recorded", f"{run.created}, inductor-bench {run.tool_version}, run {run.run_id}"),
        ("versions", ", ".join(f"{name} {value}" for name, value in versions if value)),
        ("machine", ", ".join(filter(None, machines))),
        ("measured peaks", _peaks(peaks) if peaks is not None else ""),
        ("variables", ", ".join(f"{name}={value}" for name, value in environment.variables.items())),
    ]
    for module in run.modules:
        paths = (module.file, module.outputs.trace, module.outputs.log)
        facts.append((module.label, " · ".join(path for path in paths if path)))
    return (Facts(tuple((name, value) for name, value in facts if value)),)


def _peaks(peaks: Peaks) -> str:
    parts = [f"memory {units.rate(peaks.memory_bandwidth)}"]
    if peaks.cache_bandwidth is not None:
        parts.append(f"cache {units.rate(peaks.cache_bandwidth)} ({units.size(peaks.cache_bytes)})")
    parts += [f"{dtype} matrix multiply {units.flop_rate(rate)}" for dtype, rate in peaks.matmul_flops.items()]
    if peaks.launch_floor_s is not None:
        parts.append(f"empty kernel {units.seconds(peaks.launch_floor_s)}")
    return ", ".join(parts) + (f"; measured {peaks.measured_at}" if peaks.measured_at else "")
