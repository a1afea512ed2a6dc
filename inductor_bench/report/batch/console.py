"""Renders a batch as lines of styled words: the main result, a row for each model, the top families and kernels."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...analysis.batch_aggregation import KernelGroup, ModelSummary
from ...analysis.findings.finding import plural
from ..text import names
from ..text.layout import Line, Word, bullet, command_lines, labelled, wrapped
from .console_tables import group_lines, model_lines
from .folder import BATCH_FILES
from .phrases import heading, lead_words, model_notes, problem_of, progress_words, retune_words, suite_machine
from .view import BatchView

MOST_FAILURES = 12


def batch_lines(view: BatchView, folder: Path, width: int, top: int) -> Iterator[Line]:
    """Renders a batch for the console.

    Args:
        view: the results.
        folder: the batch folder, as the user would type it.
        width: columns of the console.
        top: the number of families and of kernels to show.
    """
    results, summaries, families, kernels = view.results, view.models, view.families, view.kernels
    left, right = names.clean(heading(results)), suite_machine(results)
    room = width - names.cells(left) - names.cells(right)
    if room >= 2:
        yield [Word(left, "title"), Word(" " * room), Word(right, "dim")]
    else:
        yield [Word(names.end(left, width), "title")]
        yield [Word(names.end(right, width), "dim")]
    yield []
    yield from wrapped(f"{progress_words(results)}.", width, "", "title")
    lead = lead_words(families, view.suite_s)
    if lead:
        yield from wrapped(lead, width, "", "title")
    retuned = retune_words(summaries)
    if retuned:
        yield from wrapped(retuned, width, "", "title")
    yield []
    yield from _failures(summaries, folder, width)
    yield from model_lines(summaries, width)
    yield from group_lines(families, len(families), "families of kernels", "family", top, width, family=True)
    yield from group_lines(kernels, len(kernels), "kernels", "kernel", top, width, family=False)
    yield from _notes(summaries, width)
    yield from _next(summaries, kernels, folder, width)
    yield from _written(folder, width)


def _failures(summaries: Sequence[ModelSummary], folder: Path, width: int) -> Iterator[Line]:
    failed = [(summary, problem) for summary in summaries if (problem := problem_of(summary)) is not None]
    if not failed:
        return
    yield [Word("Failed or skipped", "bad")]
    for summary, failure in failed[:MOST_FAILURES]:
        text = f"{summary.name}: {failure.stage}, {failure.kind}: {names.clean(failure.message)}"
        yield from bullet(text, width, "bad")
        if failure.hint:
            yield from wrapped(f"Hint: {names.clean(failure.hint)}", width, "    ")
        log = summary.model.model.log
        if log and (folder / log).is_file():
            yield [Word(f"    Log:  {folder / log}", "dim")]
    if len(failed) > MOST_FAILURES:
        yield [Word(f"  and {len(failed) - MOST_FAILURES} more in summary.csv", "dim")]
    yield []


def _notes(summaries: Sequence[ModelSummary], width: int) -> Iterator[Line]:
    notes = list(model_notes(summaries))
    for note in notes[:MOST_FAILURES]:
        yield from wrapped(f"* {note}", width, "", "dim")
    if len(notes) > MOST_FAILURES:
        yield [Word(f"  and {len(notes) - MOST_FAILURES} more in summary.md", "dim")]
    if notes:
        yield []


def _next(
    summaries: Sequence[ModelSummary], kernels: Sequence[KernelGroup], folder: Path, width: int
) -> Iterator[Line]:
    gain = [group for group in kernels if group.gain_limit_s and not group.operator]
    if gain:
        best = max(gain, key=lambda group: group.gain_limit_s or 0.0)
        place = next(s.model.model.run for s in summaries if s.name == best.model)
        run = shlex.quote(f"{folder / (place or '')}#{best.name}")
        command = f"inductor-bench kernel {run}"
        yield from command_lines("Next", command, "the kernel that could win most, by itself", width)


def _written(folder: Path, width: int) -> Iterator[Line]:
    there = [file.path for file in BATCH_FILES if (folder / file.path).is_file()]
    runs = sum(1 for path in (folder / "models").glob("*/record.json"))
    things = [*there, plural(runs, "run") + " in models/"]
    yield from labelled("Written", f"{folder}/   {' · '.join(things)}", width)
