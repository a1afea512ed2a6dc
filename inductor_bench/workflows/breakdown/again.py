"""Analyses a RUN again, from what it holds, and tunes what is not tuned yet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ...errors import InductorBenchError
from ...launch.marks import end_marked, tool_mark
from ...launch.worker import default_python
from ...records.failure import VERIFY
from ...records.run import Run
from ...store.files import refuse_link
from ...store.folder import RunFolder
from ...store.lock import locked
from ...store.redaction import Redaction
from ..apply.guard import read_environment, require_same
from ..apply.pins import make_pins
from ..modules.reanalysis import reanalyse_run
from ..options import BreakdownOptions
from ..progress import Progress
from .autotune import autotune_run
from .outcome import BreakdownOutcome, report_run
from .verification import PREDICTION, lacks_proof, verify_retunes


def break_down_again(
    folder: RunFolder, options: BreakdownOptions, redaction: Redaction, progress: Progress
) -> BreakdownOutcome:
    """Breaks down an earlier RUN. It runs a factory or a named model again to prove its retunes, and no other program.

    Raises:
        InductorBenchError: the record cannot be read or written.
        KeyboardInterrupt: the user stopped it; the RUN holds what was tuned before.
    """

    def keep(run: Run) -> None:
        folder.save(redaction.run(run))

    refuse_link(folder.path)
    with locked(folder.path, tool_mark()) as lock:
        end_marked(lock.left)
        progress.stage(f"analysing {folder.path} again")
        run = redaction.run(reanalyse_run(folder))
        folder.save(run)
        try:
            run = autotune_run(run, folder, options, progress, keep)
            run = _verify(run, folder, options, progress, keep)
        except KeyboardInterrupt as stop:
            raise KeyboardInterrupt(f"interrupted; what was retuned until then is in {folder.path}") from stop
        return report_run(redaction.run(run), folder, options)


def _verify(
    run: Run, folder: RunFolder, options: BreakdownOptions, progress: Progress, keep: Callable[[Run], None]
) -> Run:
    """The run with the proof of its retunes, where they have none and this tool knows how the model runs."""
    found = replace(run, failures=tuple(failure for failure in run.failures if failure.stage != VERIFY))
    if options.retune is None or not options.retune.verify or not lacks_proof(found, folder):
        return run

    python = options.python or run.request.python or default_python()
    request = replace(run.request, timeout_s=options.timeout_s or run.request.timeout_s)
    try:
        if request.kind == "factory" and not Path(request.target.rpartition(":")[0]).is_file():
            raise InductorBenchError(f"{request.target} is not here")
        require_same(make_pins(found, folder).pins, found.environment, read_environment(python))
    except InductorBenchError as error:
        progress.note(f"{PREDICTION}: {error.message}")
        return run

    def keep_found(run: Run) -> None:
        nonlocal found
        found = run
        keep(run)

    failures = verify_retunes(found, request, folder, python, progress, keep_found)
    found = replace(found, failures=(*found.failures, *failures))
    keep(found)
    return found
