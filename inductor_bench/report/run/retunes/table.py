"""The results of a run's retunes for the terminal, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .... import units
from ....analysis.batch_aggregation import RetuneSummary, retunes_of
from ....analysis.findings.finding import plural
from ....analysis.step_costs import step_of, whole_time_s
from ....records.retune import FASTER, KEPT, RetuneRow, by_kernel
from ....records.run import Run
from ...text import names
from ...text.layout import Column, Line, Word, bullet, header, titled_row, wrapped
from ...text.ranking import Entry

MOST_PROBLEMS = 4
PROJECTION = (
    "saves: a projection, the time in the model times what the file won by itself, cold; what is not surely faster "
    "counts as nothing"
)
TITLES = ("kernel", "calls", "time", "alone", "retuned", "result", "saves")
BY_ITSELF = ("alone", "retuned")
ROOMY = 80
"""Width in columns below which the table leaves out the columns of ``BY_ITSELF``."""


def saving_words(summary: RetuneSummary, run: Run) -> str:
    """The summary: ``3 kernels retuned: 1 faster, 2 as they were; an iteration would save 1.75 µs (1.8%)``."""
    counts = [
        (summary.faster, "faster"),
        (summary.same, "as they were"),
        (summary.unreached, "not reached within the budget"),
        (summary.without, "without a result"),
    ]
    parts = ", ".join(f"{count} {words}" for count, words in counts if count)
    whole_s, what = whole_time_s(run), "a step" if step_of(run) else "an iteration"
    share = f" ({units.percent(summary.saving_s / whole_s)})" if whole_s else ""
    saved = f"; {what} would save {units.seconds(summary.saving_s)}{share}" if summary.saving_s else ""
    saved += f", {left_words(summary.left_s)}" if summary.left_s else ""
    waits = f"; {summary.waiting} in graphs that wait for their host, where nothing is won" if summary.waiting else ""
    return f"{plural(len(summary.rows), 'kernel')} retuned: {parts}{saved}{waits}"


def left_words(left_s: float) -> str:
    """The part of a saving that ``apply`` leaves to the user."""
    return f"{units.seconds(left_s)} of it by settings or kernels of libraries that apply leaves to you"


def caution_words(summary: RetuneSummary) -> str:
    """``2 were measured poorly, as: the machine is busy``; empty where no measurement has a caution."""
    if not summary.cautions:
        return ""
    count = len(summary.cautions)
    first, _, _ = names.clean(summary.cautions[0]).partition("; ")
    return f"{count} {'were' if count > 1 else 'was'} measured poorly, as: {first}"


def known_words(run: Run) -> str:
    """``3 were known from mixnet_l, 2026-11-23``; empty where all kernels were tuned for this run."""
    origins = [retune.known_from for retune in run.retunes if retune.known_from is not None]
    if not origins:
        return ""
    last = max(origins, key=lambda origin: origin.tuned_at)
    others = len({origin.run_id for origin in origins}) - 1
    more = f" and {plural(others, 'other run')}" if others else ""
    verb = "were" if len(origins) > 1 else "was"
    return f"{len(origins)} {verb} known from {names.clean(last.title)}, {names.clean(last.tuned_at[:10])}{more}"


def speedup_words(speedup: float) -> str:
    """Returns the speedup with three digits: ``1.34x``, ``12.3x``, ``128x``."""
    return f"{speedup:.{2 if speedup < 9.995 else 1 if speedup < 99.95 else 0}f}x"


def retune_word(found: RetuneRow | None) -> str:
    """``1.34x`` where a configuration is certainly faster, ``stays`` where none is, a dash without a result."""
    if found is None or found.problem:
        return units.MISSING
    if found.verdict == FASTER:
        return speedup_words(found.speedup or 1.0)
    return "stays" if found.verdict in KEPT else names.clean(found.verdict)


def retunes_of_kernels(run: Run) -> Mapping[str, RetuneRow]:
    """The retunes of a run by kernel id and by file."""
    return by_kernel(retune.row for retune in run.retunes)


def retune_of(entry: Entry, known: Mapping[str, RetuneRow]) -> RetuneRow | None:
    """The retune of a kernel, or ``None``.

    A library kernel has the retune of the call that runs it, provided that all its calls have the same arguments.
    """
    kernel = entry.kernel
    return known.get(kernel.kernel_id) or (known.get(kernel.file or "") if len(kernel.shapes) < 2 else None)


def retune_cells(found: RetuneRow) -> tuple[str, ...]:
    """The cells of one row below ``TITLES``, without the kernel's name."""
    return (
        units.count(found.calls),
        units.seconds(found.time_s),
        units.seconds(found.tuned_default_s),
        units.seconds(found.tuned_best_s),
        retune_word(found),
        units.seconds(found.saving_s) if found.saving_s else units.MISSING,
    )


def retune_lines(run: Run, width: int, top: int) -> Iterator[Line]:
    """Renders at most ``top`` retuned kernels, and the reasons of kernels without a result; nothing without retunes."""
    summary = retunes_of(run)
    if summary is None:
        return
    yield from wrapped(f"{saving_words(summary, run)}", width, "", "title")
    yield from wrapped(PROJECTION, width, "", "dim")
    if known := known_words(run):
        yield from wrapped(known, width, "", "dim")
    tuned = [found for found in summary.rows if not found.problem]
    if tuned:
        yield from _table(tuned[:top], width)
    if caution := caution_words(summary):
        yield from bullet(caution, width, "warn")
    if len(tuned) > top:
        yield [Word(f"and {len(tuned) - top} more in tables/retunes.csv", "dim")]
    problems = [found for found in summary.rows if found.problem]
    for found in problems[:MOST_PROBLEMS]:
        yield from bullet(f"{names.short(found.name, 60)}: {names.clean(found.problem)}", width, "warn")
    if len(problems) > MOST_PROBLEMS:
        yield [Word(f"  and {len(problems) - MOST_PROBLEMS} more without a result in tables/retunes.csv", "dim")]
    yield []


def _table(shown: list[RetuneRow], width: int) -> Iterator[Line]:
    gap = 2
    titles = [title for title in TITLES if width >= ROOMY or title not in BY_ITSELF]
    fixed = [Column(title, 5 if title == "calls" else 9) for title in titles[1:]]
    room = max(16, width - sum(column.width + gap for column in fixed))
    columns = [Column(TITLES[0], room, False), *fixed]
    yield header(columns, gap)
    shorts = names.unique((found.name for found in shown), room)
    for found in shown:
        style = "good" if found.verdict == FASTER else ""
        cells = dict(zip(TITLES, (shorts[found.name], *retune_cells(found)), strict=True))
        yield [Word(titled_row(columns, cells, gap), style)]
        if found.obstacle:
            yield from wrapped(found.obstacle, width, "    ", "dim")
