"""Prepares this process, and those that it starts, for the configs of a RUN."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from ...errors import InductorBenchError
from ...messages.pins import APPLY
from ...records.run import Environment
from ...store.folder import RunFolder
from .folder import require_retuned
from .pins import PinnedRun, make_pins, with_mode
from .program import PINS_VARIABLE, pinned_environment


def prepare_process(folder: Path) -> tuple[PinnedRun, Environment]:
    """Writes the pins of a RUN for this process and its compile workers, and names them in the environment.

    Returns:
        The pins, and the environment of the RUN.

    Raises:
        InductorBenchError: there is no RUN, it was not retuned, or this process has the configs of a RUN already.
    """
    if os.environ.get(PINS_VARIABLE):
        raise InductorBenchError(
            "the configs of a RUN are in this process already, or it was started by `inductor-bench apply`",
            "call inductor_bench.apply once; without it, `inductor-bench apply RUN -- COMMAND` does the same",
        )
    run = RunFolder(folder).load()
    require_retuned(run, RunFolder(folder))
    pinned = make_pins(run, RunFolder(folder))
    work = Path(tempfile.mkdtemp(prefix="inductor-bench-"))
    atexit.register(shutil.rmtree, work, ignore_errors=True)
    os.environ.update(pinned_environment(with_mode(pinned, APPLY), work, os.environ, "nothing"))
    return pinned, run.environment
