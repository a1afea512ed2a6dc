"""The document of a run: headline, step, findings, graphs and kernels; and the files of a RUN's report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ... import units
from ...analysis.findings.doubts import METHOD_WORDS
from ...analysis.findings.finding import ADVICE, CAUTION, FINE, Finding
from ...analysis.findings.finding import NOTE as NOTE_LEVEL
from ...analysis.findings.first_line import write_first_line
from ...analysis.findings.next_commands import find_proven_rows
from ...analysis.findings.rule_table import FIRST, list_findings, list_findings_beside
from ...analysis.step_costs import (
    calls_differ,
    compute_weight_s,
    find_graph_use,
    find_module_time_s,
    find_step,
    is_beside_step,
    is_shared,
    sum_by_category,
)
from ...devices.table import find_common_device
from ...errors import InductorBenchError
from ...records.base import Failure
from ...records.evidence import HostTrace
from ...records.module import ModuleRecord
from ...records.run import Run, Timeline
from ...store.files import write_text
from ...store.folder import PAGE, RECORD, RunFolder
from ...store.run_files import read_host_trace, read_kernel_files, read_timeline
from .. import names, palette
from ..document import (
    BAD,
    GOOD,
    LEAD,
    NOTE,
    WARN,
    Bar,
    Beside,
    Block,
    Cell,
    Column,
    Commands,
    Document,
    Facts,
    Fold,
    Item,
    Items,
    Picture,
    Row,
    Section,
    Sentence,
    ShownIn,
    Stretch,
    Table,
    hide_in_brief,
    make_notes,
    make_sentences,
    make_table,
    make_text_column,
)
from ..formats import DEFAULT_VIEW, View, make_formats
from .kinds_document import make_kinds_section
from .layers_document import KERNEL, make_icicle_section, make_layers_section
from .proof_document import make_proof_section
from .retune_document import make_retune_section
from .run_summary import (
    MOST_SHAPES,
    choose_findings,
    describe_making,
    describe_product_type,
    describe_proven_settings,
    find_trial_command,
    list_answers,
    list_commands,
    load_search_of,
    run_summary,
)
from .run_tables import make_kernel_section, name_anchor, write_rows, write_source_file, write_tables
from .run_words import (
    RankedKernel,
    describe_finding,
    describe_folded_graphs,
    describe_ledger,
    describe_machine,
    describe_peaks,
    describe_whole,
    find_rows,
    list_bar_parts,
    list_main_modules,
    list_method_notes,
    name_idle_time,
    rank_kernels,
    write_failure,
    write_heading,
    write_sentence,
)
from .step_document import describe_launches, make_flame_section, make_host_section, make_step_section, rank_section

PLOT_TITLES = {
    "bandwidth": "Achieved against peak bandwidth of the kernels that take most time",
    "headroom": "Each kernel's share of the time against its share of the peak that bounds it",
}
RUN_ALONE = "alone: run by itself, not in a step; busy: share of that time in which the device works"
TONES = {ADVICE: WARN, CAUTION: BAD, NOTE_LEVEL: NOTE, FINE: GOOD}
TO_COME = "Its graphs and kernels are measured when the program has ended; Ctrl-C leaves them out."
NEXT_TO_COME = "The program is ended now, and its graphs and kernels are measured; Ctrl-C leaves them out."
HAS_ENDED = "Its steps are measured. Its graphs and kernels are next; Ctrl-C leaves them out."
NAME_WIDTH = 64
MOST_PLACES = 6
MOST_FAILURES = 8
MOST_GRAPHS = 12

MOST_DIVIDED = 100
"""The largest number of graphs whose time is shown by category; the table of categories has all graphs."""


@dataclass(frozen=True)
class PageParts:
    """What a run's page has besides the record: plots as SVG by name, the timeline, kernel files, the host's trace."""

    plots: Mapping[str, bytes] = field(default_factory=dict)
    timeline: Timeline | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    host: HostTrace | None = None


def list_page_parts(run: Run, folder: Path, *, plots: bool = True) -> PageParts:
    """Draws the plots, if they are wanted, and reads the rest from the RUN folder."""
    timeline = host = None
    with contextlib.suppress(InductorBenchError):  # a damaged timeline costs its own picture only
        timeline = read_timeline(RunFolder(folder))
    with contextlib.suppress(InductorBenchError):
        host = read_host_trace(RunFolder(folder))
    places = (kernel.file for module in run.modules for kernel in module.kernels if kernel.file)
    files = read_kernel_files(RunFolder(folder), places)
    if not plots:
        return PageParts(timeline=timeline, files=files, host=host)
    from .plots import draw_plots  # loads matplotlib

    return PageParts(draw_plots(run), timeline, files, host)


def run_document(run: Run, view: View = DEFAULT_VIEW, parts: PageParts = PageParts()) -> Document:
    """The headline, the step, graphs, kernels, retunes, findings, and what to type next.

    Args:
        run: the record.
        view: ``folder`` is the RUN folder; ``None`` if nothing was written.
        parts: what only the page shows.

    Raises:
        UsageError: ``view.sort`` is unknown.
    """
    entries, lead = rank_kernels(run, view.sort), write_first_line(run)
    sources = {place: write_source_file(text) for place, text in parts.files.items()}
    drawings = tuple(Picture(title, parts.plots[name]) for name, title in PLOT_TITLES.items() if name in parts.plots)
    proof = make_proof_section(run.verification, view.top)
    graphs, retunes = hide_in_brief(_make_graphs_section(run)), hide_in_brief(make_retune_section(run, view.top))
    kernels = make_kernel_section(run, entries, sources, view.sort, view.top)
    found, items = _make_findings_section(run, lead, entries, view)
    layers = tuple(map(hide_in_brief, make_layers_section(run, view.by)))
    if view.by != KERNEL:
        kernels = replace(kernels, on=ShownIn.PAGE)
    step, host = make_step_section(run, parts.timeline, entries), hide_in_brief(make_host_section(run))
    kinds = make_kinds_section(run)
    ranks, plots = hide_in_brief(rank_section(run)), Section("Plots", drawings, on=ShownIn.PAGE)
    # A page has what to do first and the long tables last; a terminal and Markdown end with what to do.
    pictures = (make_flame_section(run, parts.host), make_icicle_section(run))
    beside = Section("Host and layers", pictures, beside=True, on=ShownIn.PAGE)
    paged = (found, kinds, step, beside, host, ranks, proof, *layers, plots, graphs, retunes, kernels)
    shown = (kinds, step, host, ranks, graphs, *layers, kernels, retunes, proof, found)
    return Document(
        write_heading(run),
        (describe_machine(run),),
        (
            describe_making(run),
            _list_failures(run, view.folder),
            Sentence(write_sentence(lead.text, run) if lead is not None else "", LEAD),
            *_note_shared_device(run),
            list_answers(run, rank_kernels(run), items, describe_proven_settings(run, view)),
            *(replace(one, on=one.on & ShownIn.PAGE) for one in paged),
            *(replace(one, on=one.on & ~ShownIn.PAGE) for one in shown),
            hide_in_brief(_note_modules_not_run(run, view.folder)),
            _note_missing_kernels(run),
            Section("How it was measured", _list_facts(run), short="Measurement", on=ShownIn.PAGE),
            *_list_next_commands(run, view),
        ),
        sources,
    )


def make_answer_document(run: Run, *, has_ended: bool = False) -> Document:
    """The answer of a run whose graphs are not measured yet: the headline and the step, and what is to come."""
    lead = write_first_line(run)
    return Document(
        write_heading(run),
        (describe_machine(run),),
        (
            Sentence(write_sentence(lead.text, run) if lead is not None else "", LEAD),
            *_note_shared_device(run),
            *(make_kinds_section(run), make_step_section(run, None)),
            *(make_host_section(run), rank_section(run)),
            Sentence(HAS_ENDED if has_ended else NEXT_TO_COME if run.request.stop else TO_COME, NOTE),
        ),
    )


# --- failures and findings -------------------------------------------------------------------------------------------


def _list_failures(run: Run, folder: Path | None) -> Section:
    """Each failure with a hint and its log. Failures come first: they explain missing results."""
    items = []
    for failure in (one for one in run.failures if not is_beside_step(run, one) and not _stopped_later(run, one)):
        log = _find_log(failure, folder)
        place = log if log not in failure.hint else ""
        said = write_sentence(write_failure(failure), run)
        items.append(Item(said, BAD, failure.hint, log=failure.log_tail, place=place))
    with_log = next((place for place, item in enumerate(items) if item.log.strip()), 0)
    few = [replace(item, log=item.log if n == with_log else "") for n, item in enumerate(items[:MOST_FAILURES])]
    left = len(items) - MOST_FAILURES
    more = f"and {left} more in record.json" if left > 0 else ""
    measured = f"{len(run.modules)} graph{'s' * (len(run.modules) != 1)} measured" if run.modules else ""
    blocks = (
        *(Items(tuple(few), on=ShownIn.SCREEN), *make_sentences((more,), NOTE, ShownIn.SCREEN)),
        Items(tuple(items), on=ShownIn.PAPER),
    )
    return Section("Failed", blocks, BAD, note=measured)


STOPPED = ("interrupted", "unfinished")
"""The kinds of the failure of a run that was stopped, or has not come to its end."""


def _stopped_later(run: Run, failure: Failure) -> bool:
    """Whether a failure only says what a run lacks because it was stopped once its answer was known."""
    return failure.kind in STOPPED and (run.program is not None or bool(run.modules))


def _note_missing_kernels(run: Run) -> Section:
    """What is missing of a run that was stopped, below what is known."""
    stopped = [failure for failure in run.failures if _stopped_later(run, failure)]
    items = tuple(Item(write_sentence(write_failure(failure), run), BAD, failure.hint) for failure in stopped)
    return Section("Stopped before its end", (Items(items),) if items else (), BAD)


def _note_modules_not_run(run: Run, folder: Path | None) -> Section:
    """Lists the modules that could not be run outside the program, below the program's own step."""
    failures = [one for one in run.failures if is_beside_step(run, one)]
    items = []
    for failure in failures:
        text = f"Graph {names.clean(failure.subject)}: {names.clean(failure.message)}"
        log = _find_log(failure, folder)
        items.append(Item(write_sentence(text, run), NOTE, failure.hint, log=failure.log_tail, place=log))
    few = tuple(replace(item, log="") for item in items[:MOST_FAILURES])
    left = len(items) - MOST_FAILURES
    more = f"and {left} more in record.json" if left > 0 else ""
    title, whose = ("Not run by itself", "its") if len(items) == 1 else ("Not run by themselves", "their")
    return Section(
        title,
        (
            Items(few, on=ShownIn.TERMINAL),
            *make_sentences((more,), NOTE, ShownIn.TERMINAL),
            Items(tuple(items), on=ShownIn.PAPER),
        ),
        NOTE,
        note=f"{whose} kernels have no figures from such a run; the step is measured" if items else "",
    )


def _find_log(failure: Failure, folder: Path | None) -> str:
    """Returns the path of a failure's log, as the user would type it; empty if there is none."""
    if folder is None or "/" in failure.subject:
        stems = ["program"]
    else:
        stems = {"capture": ["program"], "peaks": ["survey"], "survey": ["survey"]}.get(
            failure.stage, [failure.subject]
        )
    for stem in stems:
        path = (folder or Path()) / "logs" / f"{stem}.log"
        if folder is not None and stem and path.is_file():
            return str(path)
    return ""


def _note_shared_device(run: Run) -> Iterator[Sentence]:
    """Says that other programs used the GPU, directly below the measured step."""
    for one in list_findings(run) if is_shared(run) else ():
        if one.kind == FIRST:
            yield Sentence(write_sentence(one.text, run), BAD)


def _make_findings_section(
    run: Run, lead: Finding | None, entries: Sequence[RankedKernel], view: View
) -> tuple[Section, tuple[Item, ...]]:
    """The advice with the largest gains first, then cautions, and what was found in order; and these entries."""
    search = load_search_of(view)
    proven = [one for one in list_findings_beside(run, lead) if search is not None and find_proven_rows(one, search)]
    found = [*proven, *(one for one in list_findings_beside(run, lead) if one.kind != FIRST and one not in proven)]
    few, every = choose_findings(found, run), [one for one in found if one.level != NOTE_LEVEL]
    numbers = {(entry.module.slug, entry.kernel.name): entry for entry in entries}
    shown = [entry for entry in entries[: view.top] if entry.cost.calls]
    items = [
        replace(
            _make_finding_item(one, numbers, shown, run, ShownIn.EVERYWHERE if one in few else ShownIn.PAPER),
            text=describe_finding(one, run, search),
            tone=GOOD if one in proven else TONES[one.level],
            command=find_trial_command(run, one, view, search),
        )
        for one in every
    ]
    said = [_make_finding_item(one, numbers, shown, run, ShownIn.PAPER) for one in found if one.level == NOTE_LEVEL]
    others = len(found) - len(few)
    title = f"{len(said)} note{'s' * (len(said) > 1)} on the measurement"
    first = "what is proven comes first, then what could save most" if proven else "what could save most comes first"
    section = Section(
        "Findings",
        (
            Items(tuple(items)),
            *make_sentences((f"and {others} more in report.html" if others else "",), NOTE, ShownIn.SCREEN),
            *((Fold(title, (Items(tuple(said)),), on=ShownIn.PAPER),) if said else ()),
        ),
        note=f"{first}; shares are of {describe_whole(run)}" if items else "",
    )
    return section, tuple(items)


def _make_finding_item(
    finding: Finding,
    numbers: Mapping[tuple[str, str], RankedKernel],
    shown: Sequence[RankedKernel],
    run: Run,
    on: ShownIn,
) -> Item:
    places = []
    for place in finding.kernels[:MOST_PLACES]:
        entry, name = numbers.get((place.slug, place.name)), names.shorten(place.name, NAME_WIDTH)
        places.append((f"{entry.number} {name}", name_anchor(entry)) if entry else (name, ""))
    return Item(
        describe_finding(finding, run),
        TONES[finding.level],
        places=tuple(places),
        more=len(finding.kernels) - len(places),
        numbers=find_rows(finding, shown),
        on=on,
    )


# --- graphs ----------------------------------------------------------------------------------------------------------


def _make_graphs_section(run: Run) -> Section:
    """A row for each graph: its use in the step, its run alone, and its categories. A terminal folds the small ones."""
    if not run.modules:
        return Section("Graphs", ())
    in_step = find_step(run) is not None
    main = list_main_modules(run, MOST_GRAPHS)
    called = [module for module in run.modules if find_graph_use(run, module).calls] if in_step else list(run.modules)
    shown = [module for module in main if module in called] or called[:1] or list(run.modules[:1])
    others = [module for module in run.modules if module not in shown]
    more = describe_folded_graphs(run, shown).partition(" more ")[2]
    list_cells = partial(
        _list_graph_cells,
        run,
        counted=find_common_device(module.device for module in run.modules).words.calls,
        runs=calls_differ(run),
        as_graph=any(module.times.graph_time_s for module in run.modules),
    )
    table = make_table((*shown, *others), list_cells, most=len(shown), cut_on=ShownIn.TERMINAL, more=more)
    note = RUN_ALONE if in_step else ""
    said = make_sentences(list_method_notes(run), NOTE, ShownIn.TERMINAL)
    return Section("Graphs", (table, *said, *_make_categories_section(run)), note=note)


def _list_graph_cells(
    run: Run, module: ModuleRecord, *, counted: str, runs: bool, as_graph: bool
) -> Iterator[tuple[Column, Cell]]:
    times, use, in_step = module.times, find_graph_use(run, module), find_step(run) is not None
    alone, alone_only = (" alone", ShownIn.PAPER) if in_step else ("", ShownIn.EVERYWHERE)
    method = METHOD_WORDS.get(module.measurement.method, module.measurement.method)
    reason = f": {module.measurement.method_reason}" if module.measurement.method_reason else ""
    how = f"{method}{reason}; {len(times.wall_samples_s)} wall times"
    inputs = f"inputs {names.describe_inputs(module.inputs, MOST_SHAPES)}" if module.inputs else ""
    name = make_text_column("graph", shorten=names.make_labels_unique, most=NAME_WIDTH)
    memory = Column(f"peak memory{alone}", short="peak mem", on=alone_only)
    yield name, Cell(module.label, notes=make_notes(how, inputs, on=ShownIn.PAPER))
    if in_step:
        yield Column("calls"), Cell(units.count(use.calls), use.calls)
        yield Column("time"), Cell(units.seconds(use.time_s), use.time_s)
        yield Column("of step"), Cell(units.percent(use.share), use.share)
        yield Column("as", False, spare=1), Cell(describe_launches(use.calls, use.replays, use.launches))
    if runs:
        hint = "how often the program called it"
        yield Column("runs", hint=hint), Cell(units.count(module.program_calls), module.program_calls)
    yield Column(f"wall{alone}", spare=3 * in_step), Cell(units.seconds(times.wall_time_s), times.wall_time_s)
    yield Column("busy", spare=4 * in_step), Cell(units.percent(times.busy_share), times.busy_share)
    yield Column(f"{counted}{alone}", on=alone_only), Cell(units.count(module.launches), module.launches)
    if as_graph:
        graph_time = Cell(units.seconds(times.graph_time_s), times.graph_time_s)
        yield Column("as one CUDA graph", on=ShownIn.PAPER), graph_time
    yield memory, Cell(units.size(module.peak_memory_bytes), module.peak_memory_bytes)
    yield Column(describe_ledger(run), False, spare=2), Cell("", bar=_make_category_bar(run, module))


def _make_category_bar(run: Run, module: ModuleRecord) -> Bar:
    stretches = tuple(Stretch(share, colour, title) for title, share, colour in list_bar_parts(run, module))
    whole = sum(one.share for one in stretches)
    return Bar(stretches, whole if find_step(run) else max(1.0, whole))


def _make_categories_section(run: Run) -> tuple[Block, ...]:
    measured = [module for module in run.modules if sum_by_category(run, module)]
    if not measured:
        return ()
    by_weight = sorted(measured, key=lambda module: -compute_weight_s(run, module))[:MOST_DIVIDED]
    has_walls = all(module.times.wall_time_s for module in run.modules)
    slugs = {module.slug for module in by_weight}
    divided = [module for module in measured if module.slug in slugs]
    tables = tuple((module.label, _make_category_table(run, module, has_walls)) for module in divided)
    where = "" if len(divided) < len(measured) else "report.html, "
    more = f"graphs; all are in {where}tables/categories.csv"
    return (Fold("Time by category", (Beside(tables, tuple(module.label for module in by_weight), more),)),)


def _make_category_table(run: Run, module: ModuleRecord, has_walls: bool) -> Table:
    in_step = find_step(run) is not None
    of_whole = in_step or has_walls
    columns = (
        *(Column("category", False), Column("time")),
        Column("of kernels", short="of busy", on=ShownIn.PAPER if of_whole else ShownIn.EVERYWHERE),
        Column("of step" if in_step else "of wall", on=ShownIn.EVERYWHERE if of_whole else ShownIn.PAPER),
        *(Column("calls"), Column("kernels", on=ShownIn.PAPER)),
    )
    rows = [
        Row(
            (
                Cell(total.name.title, colour=palette.choose_category_colour(total.name)),
                *(Cell(units.seconds(total.time_s), total.time_s), Cell(units.percent(total.share), total.share)),
                *(Cell(units.percent(total.wall_share), total.wall_share), Cell(units.count(total.calls), total.calls)),
                Cell(units.count(total.kernels), total.kernels),
            )
        )
        for total in sum_by_category(run, module)
    ]
    idle = module.times.idle
    if idle is not None and module.times.wall_time_s and not in_step:
        share = idle.time_s / find_module_time_s(module)
        cells = (Cell(units.seconds(idle.time_s), idle.time_s), Cell(""), Cell(units.percent(share), share))
        rows.append(Row((Cell(name_idle_time(module), colour=palette.IDLE), *cells, Cell(""), Cell(""))))
    return Table(columns, rows)


# --- how it was measured, and what to do next ------------------------------------------------------------------------


def _list_facts(run: Run) -> tuple[Block, ...]:
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
        ("matrix products", describe_product_type(run)),
        ("measured peaks", describe_peaks(peaks) if peaks is not None else ""),
        ("variables", ", ".join(f"{name}={value}" for name, value in environment.variables.items())),
    ]
    for module in run.modules:
        paths = (module.file, module.outputs.trace, module.outputs.log)
        facts.append((module.label, " · ".join(path for path in paths if path)))
    return (Facts(tuple((name, value) for name, value in facts if value)),)


def _list_next_commands(run: Run, view: View) -> Iterator[Block]:
    """What to type next, and the files of the RUN folder."""
    if view.folder is None:
        return
    yield Commands(list_commands(run, view), on=ShownIn.SCREEN)
    single = [files.pattern for files in RUN_FILES if "/" not in files.pattern]
    things = [name for name in single if (view.folder / name).is_file()]
    for pattern in (files.pattern for files in RUN_FILES if "/" in files.pattern):
        name = pattern.partition("/")[0]
        number = sum(1 for path in view.folder.glob(pattern) if path.is_file())
        things += [f"{number} {name if number > 1 else name[:-1]}"] if number else []
    yield Facts((("Written", f"{view.folder}/   {' · '.join(things)}"),), on=ShownIn.TERMINAL)


FORMATS = make_formats(
    run_document,
    page=lambda run, view: run_document(run, view, list_page_parts(run, view.folder or Path())),
    summary=run_summary,
    csv=lambda run, view: write_rows(run, view.by, view.sort),
    rows="every kernel, layer or line as CSV",
    of="a run",
    names_folder=True,
)


# --- the files of a RUN's report -------------------------------------------------------------------------------------


class RunFiles(NamedTuple):
    """Files of a RUN folder: their path or pattern, and what writes them, where the report does."""

    pattern: str
    write: Callable[[Run, Path, bool], list[Path]] | None = None


def _write_tables(run: Run, folder: Path, plots: bool) -> list[Path]:
    return write_tables(run, folder)


def _write_page(run: Run, folder: Path, plots: bool) -> list[Path]:
    from ..html import render_page  # loads jinja2

    path = folder / PAGE
    write_text(path, render_page(run_document(run, View(folder), list_page_parts(run, folder, plots=plots))))
    return [path]


RUN_FILES = (
    RunFiles(RECORD),
    RunFiles("kernels/*.py"),
    RunFiles("tables/*.csv", _write_tables),
    RunFiles(PAGE, _write_page),
    RunFiles("modules/*.py"),
    RunFiles("traces/*.trace.json*"),
    RunFiles("logs/*"),
)
"""The files in the order of writing. ``Written`` on a terminal lists single files first."""


def load_libraries(*, plots: bool) -> None:
    """Imports early what a RUN's page needs at its end. A missing library is reported at the end."""
    with contextlib.suppress(ImportError):
        from .. import html  # noqa: F401

        if plots:
            from . import plots as _  # noqa: F401


def write_report(run: Run, folder: Path, *, plots: bool = True) -> list[Path]:
    """Writes the files of :data:`RUN_FILES` that belong to the report below ``folder``, each atomically.

    Args:
        run: the record.
        folder: the RUN folder.
        plots: whether the page has plots.

    Returns:
        The written paths, in this order.

    Raises:
        InductorBenchError: some files could not be written. It names them, and is raised after all steps have run.
    """
    written: list[Path] = []
    problems: list[InductorBenchError] = []
    for files in RUN_FILES:
        try:
            written += files.write(run, folder, plots) if files.write is not None else []
        except InductorBenchError as problem:
            problems.append(problem)
    if problems:
        others = f" ({len(problems) - 1} more could not be written)" if len(problems) > 1 else ""
        raise type(problems[0])(problems[0].message + others, problems[0].hint) from problems[0]
    return written
