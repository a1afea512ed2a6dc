"""Proves in the program what the pins save."""

from __future__ import annotations

import shutil
from dataclasses import replace

from ....errors import InductorBenchError
from ....messages.comparison import CHECKING, CUDA_GRAPHS, SETTLING, TIMING
from ....messages.pins import COMPARE
from ....records.retunes.verification import Verification
from ....records.run import Run
from ...progress import Progress
from ..pins import PinnedRun
from ..program import read_states, require_taken
from .kernels import library_calls
from .processes import verify_processes
from .program import Plan, end_of, failure_of, read_compared, start
from .steps import describe_steps

LIBRARY_SHARE = 0.2
"""Share of the projected saving above which library calls are compared, too, for which it takes whole processes."""


def replays_graphs(run: Run) -> bool:
    """Whether the program of a RUN replays CUDA graphs in its step."""
    return run.program is not None and any(part.replays for part in run.program.parts)


def verify(pinned: PinnedRun, plan: Plan, progress: Progress) -> Verification:
    """Runs the program with the pins and without, and compares.

    Raises:
        InductorBenchError: the program cannot be started, compiles nothing, or ends before its steps are compared.
        VerificationInterrupted: the user stopped it after some processes were compared.
    """
    try:
        if plan.replays:
            return verify_processes(pinned, plan, progress, replays=True)
        if _needs_processes(pinned):
            return verify_processes(pinned, plan, progress, replays=False)
        progress.stage("comparing steps with the configs and without")
        ended, work = start(pinned, plan, COMPARE, "comparison", "compare", progress)
        found, processes = read_compared(work), read_states(work)
        require_taken(processes)
        if not found:
            nothing = "" if failure_of(ended) else " and compiled nothing, or its compiled functions never ran"
            raise InductorBenchError(f"the program {end_of(ended)}{nothing}", f"see {ended.log}")
        leading = min(found, key=lambda one: (not one.steps and one.state != CUDA_GRAPHS, one.rank or 0, one.pid))
        if leading.state == CUDA_GRAPHS:
            return verify_processes(pinned, plan, progress, replays=True)
        if not leading.steps:
            error = f": {leading.error}" if leading.error else ""
            what = f"the program {end_of(ended)} {_UNCOMPARED.get(leading.state, 'before a step was compared')}{error}"
            raise InductorBenchError(what, f"see {ended.log}")
        described = describe_steps(pinned, leading, processes)
        return replace(described, notes=(*described.notes, *failure_of(ended)))
    finally:
        shutil.rmtree(plan.run.work, ignore_errors=True)


def _needs_processes(pinned: PinnedRun) -> bool:
    """Whether library calls make much of what is to be compared; where savings are unknown, all of it."""
    pins = pinned.pins
    if not pins.library_pins or not (pins.triton_pins or pins.cpp_pins):
        return bool(pins.library_pins)
    library_s = sum(pinned.predicted_of(kernel_id) for kernel_id in library_calls(pinned))
    return library_s > LIBRARY_SHARE * pinned.predicted_s


_UNCOMPARED = {
    SETTLING: "before its steps had settled",
    CHECKING: "while its outputs with the configs and without were compared",
    TIMING: "while its steps were timed",
}
