"""Renders the summary of a run as lines of styled words: the main result, the evidence, the next commands.

A line is a list of :class:`~.layout.Word`, which ``terminal`` prints. The text is complete without colours.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...analysis.findings.finding import Finding
from ...analysis.findings.headline import headline
from ...analysis.findings.next_commands import next_commands
from ...analysis.findings.rule_table import findings_beside
from ...analysis.step_costs import step_of
from ...records.base import Failure
from ...records.run import Run
from ..text import names
from ..text.layout import Line, Word, bullet, command_lines, labelled, wrapped
from ..text.ranking import Entry, rank
from ..text.run_phrases import failure_text, heading, machine, rows_of, sentence, whole_words
from .console_tables import category_lines, graph_lines, kernel_lines
from .folder import RUN_FILES
from .retunes.table import retune_lines
from .retunes.verification import verification_lines
from .step.console import ledger_lines, rank_lines, step_graph_lines

MOST_FINDINGS = 6
MOST_FAILURES = 8
MOST_LOG_LINES = 8
_STYLES = {"advice": "warn", "caution": "warn", "note": "dim", "fine": "good"}


def run_lines(run: Run, folder: Path | None, width: int, sort: str = "time", top: int = 10) -> Iterator[Line]:
    """Renders the summary of a run.

    Args:
        run: the record.
        folder: the RUN folder; ``None`` where nothing was written.
        width: columns; at least 80 for a table without wrapped lines.
        sort: order of the kernels: ``time``, ``gain`` or ``calls``.
        top: number of kernels to show.
    """
    entries = tuple(entry for entry in rank(run, sort)[:top] if entry.cost.calls)
    yield from _title(run, width)
    yield from _failures(run, folder, width)
    lead = headline(run)
    if lead is not None:
        yield from wrapped(sentence(lead.text, run), width, "", "title")
        yield []
    yield from ledger_lines(run, width)
    yield from rank_lines(run, width)
    if run.modules:
        yield from step_graph_lines(run, width) if step_of(run) else graph_lines(run, width)
        yield from category_lines(run, width)
        yield from kernel_lines(run, entries, width, sort)
    yield from retune_lines(run, width, top)
    yield from verification_lines(run.verification, width, top)
    yield from _findings(run, lead, entries, width)
    yield from _next(run, folder, width, sort)
    yield from _written(folder, width)


def _title(run: Run, width: int) -> Iterator[Line]:
    left, right = names.clean(heading(run)), names.clean(machine(run))
    room = width - names.cells(left) - names.cells(right)
    if room >= 2:
        yield [Word(left, "title"), Word(" " * room), Word(right, "dim")]
    else:
        yield [Word(names.end(left, width), "title")]
        yield [Word(names.end(right, width), "dim")]
    yield []


def _failures(run: Run, folder: Path | None, width: int) -> Iterator[Line]:
    """Renders each failure with its reason, a hint and its log. Failures come first: they explain missing results."""
    if not run.failures:
        return
    left = f"; {len(run.modules)} graph{'s' * (len(run.modules) != 1)} measured" if run.modules else ""
    yield [Word(f"Failed{left}", "bad")]
    for failure in run.failures[:MOST_FAILURES]:
        yield from bullet(sentence(failure_text(failure), run), width, "bad")
        if failure.hint:
            yield from wrapped(f"Hint: {names.clean(failure.hint)}", width, "    ")
        log = _log_of(failure, folder)
        if log and log not in failure.hint:
            yield [Word(f"    Log:  {names.clean(log)}")]
    if len(run.failures) > MOST_FAILURES:
        yield [Word(f"  and {len(run.failures) - MOST_FAILURES} more in record.json", "dim")]
    tail = next((failure.log_tail for failure in run.failures if failure.log_tail.strip()), "")
    for line in [line for line in tail.splitlines() if line.strip()][-MOST_LOG_LINES:]:
        indent = " " * min(len(line) - len(line.lstrip()), 12)
        yield [Word(names.end(f"    | {indent}{names.clean(line)}", width), "dim")]
    yield []


def _log_of(failure: Failure, folder: Path | None) -> str:
    """Returns the path of a failure's log, as the user would type it; empty where there is none."""
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


def _findings(run: Run, lead: Finding | None, entries: tuple[Entry, ...], width: int) -> Iterator[Line]:
    """Renders the most important findings: advice with the largest gains, cautions, and passed checks in one line."""
    # The summary shows the headline above, and the methods of profiling below the graphs.
    found = [finding for finding in findings_beside(run, lead) if finding.kind != "method"]
    if not found:
        return
    fine = [finding for finding in found if finding.level == "fine"]
    advice = [finding for finding in found if finding.level == "advice"]
    cautions = [finding for finding in found if finding.level == "caution"]
    room = MOST_FINDINGS - len(fine)
    # At least two cautions are shown: a wrong figure misleads more than a missing advice.
    shown = advice[: room - min(2, len(cautions))]
    shown = [*shown, *cautions[: room - len(shown)], *fine]
    if not shown:
        return
    several = len(run.modules) > 1 or step_of(run) is not None
    yield [Word("Findings", "title"), Word(f"   shares are of {whole_words(run)}" if several else "", "dim")]
    for finding in shown:
        rows = rows_of(finding, entries)
        text = sentence(finding.text + (f" ({rows})" if rows else ""), run)
        yield from bullet(text, width, _STYLES[finding.level])
    others = len(advice) + len(cautions) + len(fine) - len(shown)
    if others:
        yield [Word(f"  and {others} more in report.html", "dim")]
    yield []


def _next(run: Run, folder: Path | None, width: int, sort: str) -> Iterator[Line]:
    if folder is None:
        return
    for index, command in enumerate(next_commands(run, folder, sort)):
        yield from command_lines("Next" if index == 0 else "", names.clean(command.command), command.why, width)


def _written(folder: Path | None, width: int) -> Iterator[Line]:
    if folder is None:
        return
    single = [files.pattern for files in RUN_FILES if "/" not in files.pattern]
    things = [name for name in single if (folder / name).is_file()]
    for pattern in (files.pattern for files in RUN_FILES if "/" in files.pattern):
        name = pattern.partition("/")[0]
        number = sum(1 for path in folder.glob(pattern) if path.is_file())
        things += [f"{number} {name if number > 1 else name[:-1]}"] if number else []
    yield from labelled("Written", f"{names.clean(str(folder))}/   {' · '.join(things)}", width)
