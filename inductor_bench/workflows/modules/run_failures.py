"""What a RUN says of a breakdown that did not come to its end."""

from __future__ import annotations

import shlex

from ...analysis.findings.finding import apply_command, plural, program_words, retune_command
from ...records.base import VERIFY, Failure
from ...records.request import RetuneRequest
from ...records.run import Run
from ...store.folder import RunFolder
from ..retuning import STAGE as AUTOTUNE

CAPTURE = "capture"
"""The stage in which the program runs."""

PROFILE = "profile"
"""The stage in which the modules are measured."""

UNFINISHED = "this run has not come to its end: it is still being measured, or was killed"


def describe_interruption(
    run: Run, stage: str, folder: RunFolder, retune: RetuneRequest | None, graphs: int = 0
) -> Failure:
    """The failure of a run that was interrupted in a stage: what is missing, and what shows or finishes it.

    Args:
        run: what is known of it.
        stage: the stage.
        folder: the RUN.
        retune: what is retuned, if anything.
        graphs: the number of the program's graphs, as far as it is known.
    """
    count, place = len(run.modules), shlex.quote(str(folder.path))
    is_known = count or run.program is not None
    hint = f"inductor-bench report {place}" if is_known else ""
    if stage in (AUTOTUNE, VERIFY) and retune is not None:
        hint = _finishing_command(run, stage, place, retune)
    missing = ""
    if stage == CAPTURE:
        missing = " while the program ran: no step was measured"
        if run.program is not None:
            missing = " while the program ran: its step is known, its graphs and kernels were not measured"
    elif stage == PROFILE and count < graphs:
        missing = f" when {count} of {plural(graphs, 'graph')} {'was' if count == 1 else 'were'} measured"
    return Failure(stage, "interrupted", f"interrupted by Ctrl-C or a signal{missing}", hint)


def _finishing_command(run: Run, stage: str, place: str, retune: RetuneRequest) -> str:
    """The command that finishes the retunes of an interrupted run, or their proof."""
    program = program_words(run)
    if stage == VERIFY and program:
        return apply_command(place, program, "--verify")
    return retune_command(place, retune)
