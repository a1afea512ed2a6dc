"""Proves in the program of a breakdown what its retunes save."""

from __future__ import annotations

import os

from ...errors import InductorBenchError
from ...launch.interpreter import SAFE_PATH
from ...records.model_sources import COMPILED_HERE, PROGRAMS
from ...records.run import Failure, Request, Run
from ...store.folder import RunFolder
from ..apply.dropped import STAGE, forget_dropped, with_verification
from ..apply.pins import make_pins
from ..apply.verification import Plan, replays_graphs, verify
from ..modules.program import program_command
from ..progress import Progress

PREDICTION = "the saving stays a projection"


def verify_retunes(
    run: Run, request: Request, folder: RunFolder, python: str, progress: Progress
) -> tuple[Run, tuple[Failure, ...]]:
    """The run with what its retunes save in its program, and what went wrong.

    The program is ended once its steps are compared. Without a step, or without a winner that can be pinned, the run
    stays as it is.

    Args:
        run: the record with the retunes.
        request: the unredacted request.
        folder: the RUN.
        python: the interpreter of a script.
        progress: shows what is done.
    """
    if request.kind not in PROGRAMS or run.program is None:
        return run, ()
    pinned = make_pins(run, folder)
    if not pinned.pins.all:
        return run, ()
    folder.work.mkdir(exist_ok=True)
    command = program_command(request, folder.work, python, folder.work / "refusal.json")
    environment = {**os.environ, **(SAFE_PATH if request.kind in COMPILED_HERE and request.kind != "factory" else {})}
    try:
        plan = Plan(folder, command, environment, request.timeout_s, replays=replays_graphs(run))
        found = verify(pinned, plan, progress)
    except InductorBenchError as error:
        return run, (Failure(STAGE, "invalid", f"{PREDICTION}: {error.message}", error.hint, subject=request.target),)
    forget_dropped(found, run.environment)
    return with_verification(run, found), ()
