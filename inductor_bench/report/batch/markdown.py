"""Renders a batch as Markdown, for an issue or a wiki. The only input is the records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ... import units
from ...analysis.batch_aggregation import KernelGroup, ModelSummary
from ..run.markdown import escaped, table
from ..text import names
from ..text.run_phrases import share_words
from .phrases import (
    batch_size,
    best_retune,
    family_name,
    gain_share,
    heading,
    lead_words,
    model_notes,
    of_peak,
    part_title,
    problem_of,
    progress_words,
    retune_saving,
    retune_words,
    suite_machine,
    wall_words,
)
from .view import BatchView

NAME_WIDTH = 70


def batch_markdown(view: BatchView, top: int) -> str:
    """Renders the summary: models, ``top`` families and kernels, failures."""
    results, summaries, families, kernels = view.results, view.models, view.families, view.kernels
    lead = lead_words(families, view.suite_s)
    failed = [summary for summary in summaries if problem_of(summary) is not None]
    parts = [
        [f"# {escaped(heading(results))}", "", escaped(suite_machine(results))],
        [f"**{escaped(progress_words(results))}.**", *(["", escaped(lead)] if lead else []), *_retune_lines(summaries)],
        ["## Models", "", *_models(summaries), *_notes(summaries)],
        *([["## Failed or skipped", "", *_failures(failed)]] if failed else []),
        *(
            [[f"## The top {len(families[:top])} families", "", *_groups(families[:top], family=True)]]
            if families
            else []
        ),
        *([[f"## The top {len(kernels[:top])} kernels", "", *_groups(kernels[:top], family=False)]] if kernels else []),
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _retune_lines(summaries: Sequence[ModelSummary]) -> Iterator[str]:
    words = retune_words(summaries)
    yield from ["", escaped(words)] if words else []


def _notes(summaries: Sequence[ModelSummary]) -> Iterator[str]:
    notes = [f"- {escaped(note)}" for note in model_notes(summaries)]
    yield from ["", *notes] if notes else []


def _models(summaries: Sequence[ModelSummary]) -> Iterator[str]:
    saves = ["retune saves"] if any(summary.retunes is not None for summary in summaries) else []
    return table(
        ("model", "status", "batch", "wall", "busy", "gain limit", *saves, "where the time goes", "top kernel"),
        "llrrrr" + "r" * len(saves) + "ll",
        (
            (
                summary.name,
                summary.status,
                batch_size(summary),
                wall_words(summary),
                units.percent(summary.busy_share),
                gain_share(summary),
                *([retune_saving(summary)] if saves else []),
                share_words((part_title(part, summary), share) for part, share in summary.parts),
                f"{names.short(summary.top.name, NAME_WIDTH)} {units.percent(summary.top.time_s / summary.time_s)}"
                if summary.top is not None and summary.time_s
                else "",
            )
            for summary in summaries
        ),
    )


def _failures(failed: Sequence[ModelSummary]) -> Iterator[str]:
    for summary in failed:
        failure = problem_of(summary)
        assert failure is not None
        text = f"{summary.name}: {failure.stage}, {failure.kind}: {failure.message}"
        yield f"- {escaped(text)} {escaped(failure.hint)}".rstrip()


def _groups(groups: Sequence[KernelGroup], *, family: bool) -> Iterator[str]:
    retuned = ["best retune"] if any(group.speedup is not None for group in groups) else []
    return table(
        (
            "",
            "family" if family else "kernel",
            "kernels",
            "models",
            "launches",
            "time",
            "share",
            "of peak",
            "gain limit",
            *retuned,
        ),
        "rlrrrrrrr" + "r" * len(retuned),
        (
            (
                str(number),
                names.short(family_name(group) if family else group.name, NAME_WIDTH),
                units.count(group.ids),
                units.count(len(group.models)),
                units.count(group.launches),
                units.seconds(group.time_s),
                units.percent(group.share),
                of_peak(group),
                units.seconds(group.gain_limit_s),
                *([best_retune(group)] if retuned else []),
            )
            for number, group in enumerate(groups, 1)
        ),
    )
