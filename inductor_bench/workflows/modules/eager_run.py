"""Runs a program again without compilation, and times its steps, which are found as those of the compiled program."""

from __future__ import annotations

import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import InductorBenchError
from ...launch.process import ProcessResult
from ...records.base import Failure
from ...records.evidence import EagerSteps, ObservedSteps
from ...records.request import DRAWN, BreakdownRequest
from ...records.run import PATTERN, Program
from ...store.folder import RunFolder
from ..progress import Progress
from .compile_environment import observed_environment
from .observed_files import StepWatch, read_steps
from .program_run import program_command, run_program

NOT_COMPILED = {"TORCH_COMPILE_DISABLE": "1"}
"""Leaves every function of a program uncompiled, and its calls of ``torch.compile`` in place (torch 2.9 to 2.15)."""

FOLDER = "eager"
"""Name of the observation's folder in the RUN's temporary folder."""

NO_PATTERN = (
    "the program was not timed without compilation: its steps were found in the pattern of its compiled calls, which "
    "it then lacks; mark their ends with inductor_bench.step()"
)
NO_STEP = "the program was not timed without compilation, because no step of the compiled program was found"
NO_EAGER_STEPS = "no step was timed in the run without compilation"


def time_eager(
    program: Program | None,
    request: BreakdownRequest,
    folder: RunFolder,
    environment: Mapping[str, str],
    python: str,
    progress: Progress,
) -> tuple[EagerSteps | None, tuple[Failure, ...]]:
    """The time of the program's step without compilation, and what went wrong; ``None`` where it was not looked for.

    The program is ended once its steps are timed.

    Args:
        program: the step of the compiled program.
        request: the unredacted request.
        folder: the RUN; its temporary folder gets the observation.
        environment: the environment of the compiled program.
        python: the interpreter of a script.
        progress: shows what is done.
    """
    if program is None:
        progress.note(NO_STEP)
        return None, ()
    if program.step_source == PATTERN:
        return EagerSteps(note=NO_PATTERN), ()
    try:
        ended = _run_eager(program, request, folder, environment, python, progress)
        found = eager_step_times_s(read_steps(folder.work / FOLDER), program)
    except InductorBenchError as error:
        return None, (Failure("eager", "invalid", error.message, error.hint),)
    if found is None:
        return None, (_failure(request, ended),)
    return EagerSteps(*found), ()


def _run_eager(
    program: Program,
    request: BreakdownRequest,
    folder: RunFolder,
    environment: Mapping[str, str],
    python: str,
    progress: Progress,
) -> ProcessResult:
    work = folder.work / FOLDER
    work.mkdir(exist_ok=True)
    observed = observed_environment(replace(request, repeat=1, values=DRAWN), folder.work, environment)
    observed.pop("TORCH_TRACE", None)
    observed |= {
        "INDUCTOR_BENCH_CAPTURE": str(work.resolve()),
        "INDUCTOR_BENCH_EAGER": program.ranks[0].device,
        **NOT_COMPILED,
    }
    command = program_command(request, work, python, work / "refusal.json")
    watch = StepWatch(work, True, lambda: None)
    log = folder.logs / "eager.log"
    return run_program(request, command, observed, log, progress, watch.is_finished, how="without compilation: ")


def eager_step_times_s(observations: Sequence[ObservedSteps], program: Program) -> tuple[float, float] | None:
    """The mean and the median step of the slowest process.

    They are ``None`` where no process found steps as the compiled program's were found.
    """
    times = [
        (one.window_s / len(one.step_times_s), statistics.median(one.step_times_s))
        for one in observations
        if one.step_times_s and one.source == program.step_source
    ]
    return max(times, default=None)


def _failure(request: BreakdownRequest, ended: ProcessResult) -> Failure:
    message = NO_EAGER_STEPS if ended.ok else f"the program without compilation {ended.outcome}"
    hint = "give it more time with --timeout SECONDS" if ended.timed_out else f"read {shlex.quote(str(ended.log))}"
    return Failure("eager", "exit" if ended.ok else ended.kind, message, hint, ended.tail(), request.target)
