"""Renders the summary of a run as Markdown, for an issue or a pull request. The only input is the record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from ... import units
from ...analysis.batch_aggregation import retunes_of
from ...analysis.findings.finding import Finding
from ...analysis.findings.headline import headline
from ...analysis.findings.rule_table import findings_beside
from ...analysis.step_costs import category_totals, module_time_s, step_of
from ...devices.table import common_device
from ...records.module import ModuleRecord
from ...records.retune import Verification
from ...records.run import Run
from ..text import names
from ..text.ranking import Entry, idle_name, rank
from ..text.run_phrases import (
    bar_parts,
    failure_text,
    heading,
    kernel_caption,
    machine,
    of_peak,
    rows_of,
    sentence,
    share_words,
    time_words,
    where_words,
    whole_words,
)
from .retunes.table import PROJECTION, TITLES, caution_words, known_words, retune_cells, saving_words
from .retunes.verification import TITLES as PROOF_TITLES
from .retunes.verification import detail_words, kernel_cells, lead_words, missed_words
from .step.rows import Table, graph_table, ledger_table, rank_table

_SPECIAL = re.compile(r"([\\`*_\[\]{}<>#|~$!&@])")
NAME_WIDTH = 70


def markdown(run: Run, sort: str = "time", top: int = 10) -> str:
    """Renders the summary: graphs, categories, the ``top`` kernels, failures, findings.

    Raises:
        UsageError: ``sort`` is unknown.
    """
    entries = rank(run, sort)[:top]
    lead = headline(run)
    blocks = [[f"# {escaped(heading(run))}", "", escaped(machine(run))]]
    if run.failures:
        blocks.append(["## Failed", "", *_failures(run)])
    if lead is not None:
        blocks.append([f"**{escaped(sentence(lead.text, run))}**"])
    in_step = step_of(run) is not None
    if in_step:
        blocks += [_step_table(table) for table in (ledger_table(run), rank_table(run), graph_table(run)) if table]
    if run.modules:
        blocks.append(["## Graphs by themselves", "", *_graphs(run)] if in_step else list(_graphs(run)))
        blocks += [list(_categories(run, module)) for module in run.modules if category_totals(run, module)]
        blocks.append(list(_kernels(run, entries, sort)))
    blocks.append(list(_retunes(run)))
    if run.verification is not None:
        blocks.append(list(_verification(run.verification)))
    found = findings_beside(run, lead)
    if found:
        shares = f"Shares are of {escaped(whole_words(run))}."
        blocks.append(["## Findings", "", shares, "", *(_finding(finding, entries, run) for finding in found)])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _step_table(step: Table) -> list[str]:
    return [f"## {escaped(step.title)}", "", *table(step.header, step.alignment, step.rows)]


def _failures(run: Run) -> Iterator[str]:
    for failure in run.failures:
        hint = f" {escaped(sentence(failure.hint, run))}" if failure.hint else ""
        yield f"- {escaped(sentence(failure_text(failure), run))}{hint}"


def _finding(finding: Finding, entries: Sequence[Entry], run: Run) -> str:
    rows = rows_of(finding, entries)
    return f"- {escaped(sentence(finding.text + (f' ({rows})' if rows else ''), run))}"


def _graphs(run: Run) -> Iterator[str]:
    where = where_words(run)
    calls = common_device(module.device for module in run.modules).words.calls
    yield from table(
        ("graph", "wall", "busy", calls, "peak memory", where, "profiled"),
        "lrrrrll",
        (
            (
                module.label,
                units.seconds(module.times.wall_time_s),
                units.percent(module.times.busy_share),
                units.count(module.launches),
                units.size(module.peak_memory_bytes),
                share_words((title, share) for title, share, _ in bar_parts(run, module)),
                ": ".join(filter(None, (module.measurement.method, module.measurement.method_reason))),
            )
            for module in run.modules
        ),
    )


def _categories(run: Run, module: ModuleRecord) -> Iterator[str]:
    yield f"## {escaped(module.label)}"
    yield ""
    rows: list[tuple[str, ...]] = [
        (
            total.name.title,
            units.seconds(total.time_s),
            units.percent(total.share),
            units.percent(total.wall_share),
            units.count(total.calls),
            units.count(total.kernels),
        )
        for total in category_totals(run, module)
    ]
    in_step = step_of(run) is not None
    idle = module.times.idle
    if idle is not None and module.times.wall_time_s and not in_step:
        share = units.percent(idle.time_s / module_time_s(module))
        rows.append((idle_name(module), units.seconds(idle.time_s), units.MISSING, share, "", ""))
    yield from table(
        ("category", "time", "of kernel time", "of step" if in_step else "of wall", "calls", "kernels"), "lrrrrr", rows
    )


def _kernels(run: Run, entries: Sequence[Entry], sort: str) -> Iterator[str]:
    if not entries:
        return
    yield f"## The top {len(entries)} kernels by {sort}"
    yield ""
    yield "  \n".join(escaped(line) for line in kernel_caption(run, entries))
    yield ""
    shorts = names.unique((entry.kernel.name for entry in entries), NAME_WIDTH)
    files = names.file_names(run)
    yield from table(
        ("", "kernel", "graph", "calls", "time", "share", "of peak", "gain limit", "source", "operation"),
        "rllrrrrrll",
        (
            (
                str(entry.number),
                shorts[entry.kernel.name],
                entry.module.label,
                units.count(entry.cost.calls),
                time_words(run, entry),
                units.percent(entry.share),
                of_peak(entry),
                units.seconds(entry.cost.gain_limit_s),
                names.place(entry.kernel, files)
                if entry.kernel.category.is_library
                else names.source(entry.kernel, files),
                names.end(names.operation(entry.kernel), NAME_WIDTH),
            )
            for entry in entries
        ),
    )


def _retunes(run: Run) -> Iterator[str]:
    summary = retunes_of(run)
    if summary is None:
        return
    yield f"## {escaped(saving_words(summary, run))}"
    yield ""
    yield "  \n".join(f"{escaped(line)}." for line in (PROJECTION, known_words(run), caution_words(summary)) if line)
    yield ""
    shorts = names.unique((found.name for found in summary.rows), NAME_WIDTH)
    rows = ((shorts[found.name], *retune_cells(found), found.problem or found.obstacle) for found in summary.rows)
    yield from table((*TITLES, "why not"), "lrrrrrrl", rows)


def _verification(found: Verification) -> Iterator[str]:
    yield f"## {escaped(lead_words(found))}"
    yield ""
    yield from (f"- {escaped(words)}" for words in (*detail_words(found), *missed_words(found.kernels)))
    yield ""
    shorts = names.unique((one.name for one in found.kernels), NAME_WIDTH)
    yield from table(PROOF_TITLES, "llrr", ((shorts[one.name], *kernel_cells(one)) for one in found.kernels))


def table(header: Sequence[str], alignment: str, rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yields the lines of a table; ``alignment`` has an ``l`` or ``r`` for each column."""
    yield _line(header)
    yield _line(["---:" if side == "r" else ":---" for side in alignment], escape=False)
    for row in rows:
        yield _line(row)


def _line(cells: Iterable[str], *, escape: bool = True) -> str:
    return "| " + " | ".join(escaped(cell) if escape else cell for cell in cells) + " |"


def escaped(text: str) -> str:
    """Returns ``text`` as one line with all characters of Markdown and HTML escaped."""
    return _SPECIAL.sub(r"\\\1", names.clean(text))
