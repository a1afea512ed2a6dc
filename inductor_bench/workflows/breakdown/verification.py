"""Proves in the program of a breakdown what its retunes save."""

from __future__ import annotations

import os
from collections.abc import Callable

from ...errors import InductorBenchError
from ...launch.interpreter import SAFE_PATH
from ...records.failure import VERIFY
from ...records.model_sources import COMPILED_HERE, PROGRAMS
from ...records.run import Failure, Request, Run
from ...store.folder import RunFolder
from ..apply.dropped import forget_dropped, with_verification
from ..apply.pins import make_pins
from ..apply.proof.processes import VerificationInterrupted
from ..apply.proof.program import Plan
from ..apply.proof.verification import replays_graphs, verify
from ..modules.program import program_command
from ..progress import Progress

PREDICTION = "the saving stays a projection"


def lacks_proof(run: Run, folder: RunFolder) -> bool:
    """Whether a run has winners that can be compared in a program of this tool, and never were."""
    if run.request.kind not in COMPILED_HERE or run.program is None or run.verification is not None:
        return False
    if any(failure.stage == VERIFY and failure.kind != "interrupted" for failure in run.failures):
        return False
    return bool(make_pins(run, folder).pins.all)


def verify_retunes(
    run: Run, request: Request, folder: RunFolder, python: str, progress: Progress, keep: Callable[[Run], None]
) -> tuple[Failure, ...]:
    """Measures what the retunes of a run save in its program; returns what went wrong.

    The program is ended once its steps are compared. Without a step, or without a winner that can be pinned, nothing is
    measured.

    Args:
        run: the record with the retunes.
        request: the unredacted request.
        folder: the RUN.
        python: the interpreter of a script.
        progress: shows what is done.
        keep: called with the record and its verification, also where the user stops the program.
    """
    if request.kind not in PROGRAMS or run.program is None:
        return ()
    pinned = make_pins(run, folder)
    if not pinned.pins.all:
        return ()
    folder.work.mkdir(exist_ok=True)
    command = program_command(request, folder.work, python, folder.work / "refusal.json")
    environment = {**os.environ, **(SAFE_PATH if request.kind in COMPILED_HERE and request.kind != "factory" else {})}
    try:
        plan = Plan(folder, command, environment, request.timeout_s, replays=replays_graphs(run))
        found = verify(pinned, plan, progress)
    except VerificationInterrupted as stop:
        keep(with_verification(run, stop.found))
        raise
    except InductorBenchError as error:
        return (Failure(VERIFY, "invalid", f"{PREDICTION}: {error.message}", error.hint, subject=request.target),)
    forget_dropped(found, run.environment)
    keep(with_verification(run, found))
    return ()
