"""Renders a run as one self-contained HTML page."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path

from ... import units
from ...analysis.costs.step import category_totals, step_of
from ...analysis.costs.times import calls_differ
from ...analysis.findings.finding import Finding
from ...analysis.findings.headline import headline
from ...analysis.findings.table import findings_beside
from ...devices.table import common_device
from ...records.kernel import Kernel, ShapeGroup
from ...records.module import ModuleRecord
from ...records.run import Peaks, Run
from ..text import names, palette
from ..text.pages import render_page
from ..text.ranking import Entry, idle_name, module_time_s, rank
from ..text.run_phrases import (
    bar_parts,
    failure_text,
    heading,
    kernel_caption,
    machine,
    of_peak,
    sentence,
    time_words,
    where_words,
    whole_words,
)
from .html_views import FindingView, GraphView, KernelView, PageView, PartView, StepView
from .retunes.html import proof_view, retunes_view
from .step.rows import bar_rows, graph_cells, graph_table, ledger_rows, ledger_table, rank_table

_PLOT_TITLES = {
    "step": "Where the step goes",
    "timeline": "A timeline of one step",
    "categories": "Time of each graph by category",
    "bandwidth": "Achieved against peak bandwidth of the kernels that take most time",
    "savings": "What the retuned kernels save of a step's device time",
    "headroom": "Each kernel's share of the time against its share of the peak that bounds it",
}
TEMPLATES = Path(__file__).parent / "templates"
"""The templates, of which other reports include the style."""
NAME_WIDTH = 64
MOST_SHAPES = 40


def render_html(run: Run, plots: Mapping[str, bytes]) -> str:
    """Renders the page. It embeds the plots and loads no other file.

    Args:
        run: the record.
        plots: the contents of PNG files by name.
    """
    return render_page("report.html.j2", vars(_page(run, plots)), TEMPLATES)


def _page(run: Run, plots: Mapping[str, bytes]) -> PageView:
    entries = rank(run)
    shorts = names.unique((entry.kernel.name for entry in entries), NAME_WIDTH)
    files = names.file_names(run)
    lead = headline(run)
    found = [_finding(finding, entries, run) for finding in findings_beside(run, lead)]
    return PageView(
        heading=heading(run),
        machine=machine(run),
        lead=sentence(lead.text, run) if lead is not None else "",
        where=where_words(run),
        of="of step" if step_of(run) else "of wall",
        step=_step(run),
        modules=[_graph(run, module) for module in run.modules],
        whole=whole_words(run),
        findings=[finding for finding in found if finding.level != "note"],
        notes=[finding for finding in found if finding.level == "note"],
        failures=[(failure_text(failure), failure.hint, _lines(failure.log_tail)) for failure in run.failures],
        plots=[(_PLOT_TITLES.get(name, name), base64.b64encode(data).decode("ascii")) for name, data in plots.items()],
        kernels=[_kernel(run, entry, shorts[entry.kernel.name], files) for entry in entries],
        caption=kernel_caption(run, entries),
        retunes=[view for view in (retunes_view(run), proof_view(run)) if view],
        graphs_known=any(module.times.graph_time_s for module in run.modules),
        runs_known=calls_differ(run),
        several=len(run.modules) > 1,
        calls=common_device(module.device for module in run.modules).words.calls,
        facts=_facts(run),
    )


def _step(run: Run) -> StepView | None:
    """The ledger and the ranks; ``None`` where no step was profiled."""
    if step_of(run) is None:
        return None
    return StepView(
        bar=[
            (f"{100 * row.share:.3f}", _css_colour(row.colour), f"{row.label} {units.percent(row.share)}")
            for row in bar_rows(run)
        ],
        ledger=ledger_table(run),
        colours=[_css_colour(row.colour) for row in ledger_rows(run, most=10**6)],
        ranks=rank_table(run),
        graph_header=graph_table(run).header[1:5],
    )


def _css_colour(colour: str) -> str:
    """The colour as the page names it: that of idle time is darker on a dark page."""
    return "var(--idle)" if colour == palette.IDLE else colour


def _finding(finding: Finding, entries: Sequence[Entry], run: Run) -> FindingView:
    numbers = {(entry.module.slug, entry.kernel.name): entry.number for entry in entries}
    shown = [f"{numbers.get(place, '')} {names.short(place.name, NAME_WIDTH)}".strip() for place in finding.kernels[:6]]
    return FindingView(
        text=sentence(finding.text, run),
        level=finding.level,
        kernels=shown,
        more=len(finding.kernels) - len(shown),
    )


def _graph(run: Run, module: ModuleRecord) -> GraphView:
    in_step = step_of(run) is not None
    totals = category_totals(run, module)
    whole = sum(total.time_s for total in totals) if in_step else module_time_s(module)
    parts = [
        PartView(
            title=total.name.title,
            time=units.seconds(total.time_s),
            share=units.percent(total.share),
            of_wall=units.percent(total.wall_share),
            calls=units.count(total.calls),
            kernels=units.count(total.kernels),
            width=f"{100 * min(1.0, total.time_s / whole):.3f}" if whole else "0",
            colour=palette.COLOURS[total.name],
        )
        for total in totals
    ]
    times, idle = module.times, module.times.idle
    if idle is not None and times.wall_time_s and not in_step:
        share = idle.time_s / whole
        parts.append(
            PartView(
                title=idle_name(module),
                time=units.seconds(idle.time_s),
                share=units.MISSING,
                of_wall=units.percent(share),
                calls="",
                kernels="",
                width=f"{100 * min(1.0, max(0.0, share)):.3f}",
                colour=_css_colour(palette.IDLE),
            )
        )
    how = {"-p": "own harness, fresh process", "live": "live, in the program", "trace": "a trace recorded elsewhere"}
    return GraphView(
        label=module.label,
        step=graph_cells(run, module)[1:5] if in_step else (),
        runs=units.count(module.program_calls),
        parts_text=", ".join(
            f"{title} {units.whole_percent(part)}" for title, part, _ in bar_parts(run, module) if part >= 0.005
        ),
        wall=units.seconds(times.wall_time_s),
        graph=units.seconds(times.graph_time_s),
        busy=units.percent(times.busy_share),
        launches=units.count(module.launches),
        memory=units.size(module.peak_memory_bytes),
        samples=len(times.wall_samples_s),
        method=how.get(module.measurement.method, module.measurement.method),
        reason=module.measurement.method_reason,
        files=[path for path in (module.file, module.outputs.trace, module.outputs.log) if path],
        parts=parts,
    )


def _kernel(run: Run, entry: Entry, short: str, files: Mapping[str, str]) -> KernelView:
    kernel, cost = entry.kernel, entry.cost
    return KernelView(
        number=entry.number,
        short=short,
        colour=palette.COLOURS[kernel.category],
        graph=entry.module.label,
        category=kernel.category.title,
        cells=[
            (units.count(cost.calls), cost.calls),
            (time_words(run, entry), cost.time_s),
            (units.percent(entry.share), entry.share),
            (units.rate(kernel.roof.bandwidth), kernel.roof.bandwidth),
            (units.flop_rate(kernel.roof.flop_rate), kernel.roof.flop_rate),
            (of_peak(entry), kernel.roof.peak_share),
            (units.seconds(cost.gain_limit_s), cost.gain_limit_s),
        ],
        source=names.source(kernel, files),
        operation=names.operation(kernel),
        details=[(title, _lines(text)) for title, text in _details(kernel) if text],
    )


def _details(kernel: Kernel) -> list[tuple[str, str]]:
    place = f"{kernel.file}:{kernel.line}" if kernel.file and kernel.line else kernel.file or ""
    shapes = [_shape(group) for group in kernel.shapes[:MOST_SHAPES]]
    more = len(kernel.shapes) - len(shapes)
    return [
        ("name", kernel.name),
        ("kernel id", kernel.kernel_id),
        ("file", place),
        ("config", ", ".join(f"{key}={value}" for key, value in kernel.compiled.config.items())),
        ("launch", _launch(kernel)),
        ("bytes", f"{units.size(kernel.work.moved_bytes)} per iteration" if kernel.work.moved_bytes else ""),
        (
            "operations",
            f"{units.flops(kernel.work.flops)} per iteration, {kernel.work.dtype or 'unknown dtype'}"
            if kernel.work.flops
            else "",
        ),
        (
            "source lines",
            "\n".join(f"{line.file}:{line.line} {line.function}: {line.code}" for line in kernel.origin.source_lines),
        ),
        ("no roof", kernel.unjudged),
        ("operators", ", ".join(kernel.origin.aten_ops) or kernel.operator or ""),
        ("graph nodes", ", ".join(kernel.origin.source_nodes)),
        ("shapes", "\n".join(shapes) + (f"\nand {more} more" if more else "")),
    ]


def _shape(group: ShapeGroup) -> str:
    launches = f"{units.count(group.calls)} launch{'es' * (group.calls != 1)}, {units.seconds(group.time_s)}"
    return f"[{group.shapes}] {launches}" + (f", {units.flops(group.flops)}" if group.flops else "")


def _lines(text: str) -> str:
    return "\n".join(names.clean(line) for line in text.splitlines())


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


def _facts(run: Run) -> list[tuple[str, str]]:
    """Returns the facts about the run and the machine at the foot of the page, as pairs of name and text."""
    environment, peaks = run.environment, run.peaks
    facts = [
        ("command", run.command),
        ("target", run.target),
        ("recorded", f"{run.created}, inductor-bench {run.tool_version}, run {run.run_id}"),
    ]
    versions = [
        ("Python", environment.versions.python),
        ("torch", environment.versions.torch),
        ("triton", environment.versions.triton),
        ("CUDA", environment.device.cuda),
    ]
    facts.append(("versions", ", ".join(f"{name} {value}" for name, value in versions if value)))
    facts.append(
        (
            "machine",
            ", ".join(filter(None, (environment.platform, environment.host.cpu, environment.device.accelerator))),
        )
    )
    if peaks is not None:
        facts.append(("measured peaks", _peaks(peaks)))
    facts.append(("variables", ", ".join(f"{name}={value}" for name, value in environment.variables.items())))
    return [(name, value) for name, value in facts if value]


def _peaks(peaks: Peaks) -> str:
    parts = [f"memory {units.rate(peaks.memory_bandwidth)}"]
    if peaks.cache_bandwidth is not None:
        parts.append(f"cache {units.rate(peaks.cache_bandwidth)} ({units.size(peaks.cache_bytes)})")
    parts += [f"{dtype} matrix multiply {units.flop_rate(rate)}" for dtype, rate in peaks.matmul_flops.items()]
    if peaks.launch_floor_s is not None:
        parts.append(f"empty kernel {units.seconds(peaks.launch_floor_s)}")
    return ", ".join(parts) + (f"; measured {peaks.measured_at}" if peaks.measured_at else "")
