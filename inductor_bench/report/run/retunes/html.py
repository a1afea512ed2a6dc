"""The retunes of a run and what they save, for the page."""

from __future__ import annotations

from ....analysis.retunes import retunes_of
from ....records.run import Run
from ...text import names
from ..html_views import RetunesView
from .table import PROJECTION, TITLES, caution_words, known_words, retune_cells, saving_words
from .verification import TITLES as PROOF_TITLES
from .verification import detail_words, kernel_cells, lead_words, missed_words

NAME_WIDTH = 64


def retunes_view(run: Run) -> RetunesView | None:
    """The retuned kernels; ``None`` where none was retuned."""
    summary = retunes_of(run)
    if summary is None:
        return None
    return RetunesView(
        title=saving_words(summary, run),
        captions=[line for line in (PROJECTION, known_words(run), caution_words(summary)) if line],
        columns=TITLES,
        rows=[(names.short(found.name, NAME_WIDTH), retune_cells(found), found.problem) for found in summary.rows],
    )


def proof_view(run: Run) -> RetunesView | None:
    """What the retunes save in the program; ``None`` where that was not measured."""
    found = run.verification
    if found is None:
        return None
    return RetunesView(
        title=lead_words(found),
        captions=[*detail_words(found), *missed_words(found.kernels)],
        columns=PROOF_TITLES,
        rows=[(names.short(one.name, NAME_WIDTH), kernel_cells(one), one.reason) for one in found.kernels],
    )
