"""The result of retunes: the retuned kernels of a run, and the candidates of each kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ... import units
from ...analysis.batch_aggregation import RetuneSummary, list_retunes
from ...analysis.findings.finding import plural
from ...analysis.step_costs import compute_whole_time_s, find_step
from ...records.retune import FASTER, KEPT, Retune, RetuneRow, TriedCandidate, Tuning, group_by_kernel
from ...records.run import Run
from .. import names
from ..document import (
    GOOD,
    LEAD,
    NOTE,
    WARN,
    Block,
    Cell,
    Column,
    Item,
    Items,
    Section,
    Sentence,
    ShownIn,
    make_kernel_column,
    make_notes,
    make_sentences,
    make_table,
    make_text_column,
)
from .run_words import RankedKernel

NAME_WIDTH = 64
MOST_PROBLEMS = 4
MOST_CANDIDATES = 12

PROJECTION = (
    "saves: a projection: the kernel's time in the model, times the share that its file saved with cold caches; 0 if "
    "no config is reliably faster"
)


# --- the retuned kernels of a run -------------------------------------------------------------------------------------


def describe_retunes(summary: RetuneSummary, run: Run) -> str:
    """Returns the summary: ``3 kernels retuned: 1 faster, 2 as they were; an iteration would save 1.75 µs (1.8%)``."""
    counts = [
        (summary.faster, "faster"),
        (summary.same, "as they were"),
        (summary.unreached, "not reached within the budget"),
        (summary.without, "without a result"),
    ]
    parts = ", ".join(f"{count} {words}" for count, words in counts if count)
    whole_s, what = compute_whole_time_s(run), "a step" if find_step(run) else "an iteration"
    share = f" ({units.percent(summary.saving_s / whole_s)})" if whole_s else ""
    saved = f"; {what} would save {units.seconds(summary.saving_s)}{share}" if summary.saving_s else ""
    saved += f", {describe_left_savings(summary.left_s)}" if summary.left_s else ""
    waits = (
        f"; {summary.waiting} in graphs that wait for the host, in which faster kernels save nothing"
        if summary.waiting
        else ""
    )
    return f"{plural(len(summary.rows), 'kernel')} retuned: {parts}{saved}{waits}"


def describe_left_savings(left_s: float) -> str:
    """The part of a saving that ``apply`` leaves to the user."""
    return f"{units.seconds(left_s)} of this saving needs library settings or library kernels, which apply does not set"


def describe_cautions(summary: RetuneSummary) -> str:
    """``2 were measured poorly: the machine is busy``; empty if no measurement has a caution."""
    if not summary.cautions:
        return ""
    count = len(summary.cautions)
    first, _, _ = names.clean(summary.cautions[0]).partition("; ")
    return f"{count} {'were' if count > 1 else 'was'} measured poorly: {first}"


def describe_known_tunings(run: Run) -> str:
    """``3 were known from mixnet_l, 2026-11-23``; empty where all kernels were tuned for this run."""
    origins = [retune.known_from for retune in run.retunes if retune.known_from is not None]
    if not origins:
        return ""
    last = max(origins, key=lambda origin: origin.tuned_at)
    others = len({origin.run_id for origin in origins}) - 1
    more = f" and {plural(others, 'other run')}" if others else ""
    verb = "were" if len(origins) > 1 else "was"
    return f"{len(origins)} {verb} known from {names.clean(last.title)}, {names.clean(last.tuned_at[:10])}{more}"


def format_speedup(speedup: float) -> str:
    """Returns the speedup with three digits: ``1.34x``, ``12.3x``, ``128x``."""
    return f"{speedup:.{2 if speedup < 9.995 else 1 if speedup < 99.95 else 0}f}x"


def format_retune(found: RetuneRow | None) -> str:
    """``1.34x`` if a configuration is certainly faster, ``stays`` if none is, a dash without a result."""
    if found is None or found.problem:
        return units.MISSING
    if found.verdict == FASTER:
        return format_speedup(found.speedup or 1.0)
    return "stays" if found.verdict in KEPT else names.clean(found.verdict)


def list_retunes_by_kernel(run: Run) -> Mapping[str, RetuneRow]:
    """The retunes of a run by kernel id and by file."""
    return group_by_kernel(retune.row for retune in run.retunes)


def find_retune(entry: RankedKernel, known: Mapping[str, RetuneRow]) -> RetuneRow | None:
    """The retune of a kernel, or ``None``.

    A library kernel has the retune of the call that runs it, provided that all its calls have the same arguments.
    """
    kernel = entry.kernel
    return known.get(kernel.kernel_id) or (known.get(kernel.file or "") if len(kernel.shapes) < 2 else None)


def make_retune_section(run: Run, top: int) -> Section:
    """The retuned kernels, and the reasons of kernels without a result; nothing if none was retuned."""
    summary = list_retunes(run)
    if summary is None:
        return Section("Retuned kernels", ())
    tuned = [found for found in summary.rows if not found.problem]
    problems = [found for found in summary.rows if found.problem]
    caution = describe_cautions(summary)
    table = make_table((*tuned, *problems), _list_retune_cells)
    if tuned:
        shown = replace(table, filter="kernel", most=min(top, len(tuned)), cut_on=ShownIn.TERMINAL)
    else:
        shown = replace(table, on=ShownIn.PAPER)
    left = len(tuned) - top
    more = f"and {left} more in tables/retunes.csv" if left > 0 else ""
    without = [
        Item(f"{names.shorten(found.name, 60)}: {found.problem}", WARN, on=ShownIn.TERMINAL)
        for found in problems[:MOST_PROBLEMS]
    ]
    others = len(problems) - MOST_PROBLEMS
    hidden = f"and {others} more without a result in tables/retunes.csv" if others > 0 else ""
    return Section(
        "Retuned kernels",
        (
            Sentence(f"{describe_retunes(summary, run)}.", LEAD),
            *make_sentences((PROJECTION, describe_known_tunings(run)), NOTE),
            shown,
            *make_sentences((more,), NOTE, ShownIn.TERMINAL),
            Items((*((Item(caution, WARN),) if caution else ()), *without)),
            *make_sentences((hidden,), NOTE, ShownIn.TERMINAL),
        ),
        short="Retuned",
        quiet=True,
    )


def _list_retune_cells(found: RetuneRow) -> Iterator[tuple[Column, Cell]]:
    tone, saving = GOOD if found.verdict == FASTER else "", found.saving_s or None
    said = (*make_notes(found.problem, on=ShownIn.PAPER), *make_notes(found.obstacle, whole=True))
    yield make_kernel_column("kernel", NAME_WIDTH), Cell(found.name, notes=said)
    yield Column("calls"), Cell(units.count(found.calls), found.calls)
    yield Column("time"), Cell(units.seconds(found.time_s), found.time_s)
    yield Column("alone", spare=2), Cell(units.seconds(found.tuned_default_s), found.tuned_default_s)
    yield Column("retuned", spare=1), Cell(units.seconds(found.tuned_best_s), found.tuned_best_s)
    yield Column("result"), Cell(format_retune(found), found.speedup, tone=tone)
    yield Column("saves"), Cell(units.seconds(saving), saving, tone=tone)


def make_tuning_blocks(retune: Retune) -> Iterator[Block]:
    """The candidates of one kernel, the fastest first."""
    tuning = retune.tuning
    if tuning is None:
        return
    timed = sorted((one for one in tuning.candidates if one.median_s is not None), key=lambda one: one.median_s or 0.0)
    if timed:
        default = [one for one in timed[MOST_CANDIDATES:] if one.status == "default"]
        yield Sentence(_describe_tuning(tuning, len(timed)), NOTE)
        yield make_table((*timed[:MOST_CANDIDATES], *default), _list_candidate_cells)


def _describe_tuning(tuning: Tuning, timed: int) -> str:
    more = f"; the {MOST_CANDIDATES} fastest are shown, record.json has all" if timed > MOST_CANDIDATES else ""
    result = f"the best config is {format_speedup(tuning.speedup)} as fast as the default config"
    if tuning.verdict != FASTER:
        result = "no config is surely faster than the default config"
    return f"Retuned with {tuning.method}: {len(tuning.candidates)} candidates, {timed} timed; {result}{more}."


def _list_candidate_cells(one: TriedCandidate) -> Iterator[tuple[Column, Cell]]:
    ratio, tone = one.ratio, GOOD if one.status == "best" else ""
    yield make_text_column("config"), Cell(", ".join(f"{key}={value}" for key, value in one.config.items()))
    yield Column("a call"), Cell(units.seconds(one.median_s), one.median_s)
    yield Column("to default"), Cell(f"{ratio.median:.3f}" if ratio else "", ratio.median if ratio else None)
    for title, count in (("registers", one.registers), ("spills", one.spills)):
        yield Column(title), Cell(units.count(count) if count is not None else "", count)
    yield Column("result", False), Cell(one.status, tone=tone, notes=make_notes(one.reason))
