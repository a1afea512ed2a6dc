"""Analyses a RUN again, from what it holds, and tunes what is not tuned yet."""

from __future__ import annotations

from ...launch.marks import end_marked, tool_mark
from ...store.files import refuse_link
from ...store.folder import RunFolder
from ...store.lock import locked
from ...store.redaction import Redaction
from ..modules.reanalysis import reanalyse_run
from ..options import BreakdownOptions
from ..progress import Progress
from .autotune import autotune_run
from .outcome import BreakdownOutcome, report_run


def break_down_again(
    folder: RunFolder, options: BreakdownOptions, redaction: Redaction, progress: Progress
) -> BreakdownOutcome:
    """Breaks down an earlier RUN without its program.

    Raises:
        InductorBenchError: the record cannot be read or written.
        KeyboardInterrupt: the user stopped it; the RUN holds what was tuned before.
    """
    refuse_link(folder.path)
    with locked(folder.path, tool_mark()) as lock:
        end_marked(lock.left)
        progress.stage(f"analysing {folder.path} again")
        run = redaction.run(reanalyse_run(folder))
        folder.save(run)
        try:
            run = autotune_run(run, folder, options, progress, lambda run: folder.save(redaction.run(run)))
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"interrupted; what was retuned until then is in {folder.path}") from stop
        return report_run(redaction.run(run), folder, options)
