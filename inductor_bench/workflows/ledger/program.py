"""Makes the record of a program's step from what its processes observed and from its modules' own profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...analysis.costs.ranks import pace_setter
from ...analysis.findings.phrases import plural
from ...analysis.ledger.kernels import KernelKey, StepUse, module_uses
from ...analysis.traffic.eager import EagerOperators
from ...devices.table import device_of
from ...errors import InductorBenchError
from ...messages.steps import ObservedSteps
from ...records.module import ModuleRecord
from ...records.program import Program
from ...records.run import Failure, Request, Run
from ...source.capture.user_lines import UserFiles
from ...store.folder import RunFolder
from ...store.timeline import write_timeline
from ..modules.analysis import AttributedModule
from ..modules.profiling import ProfiledModule
from ..modules.program import CapturedProgram
from .process import Graphs, describe_process


def _estimated(count: int) -> str:
    """The note about kernels that the trace of the steps does not show."""
    one = count == 1
    return (
        f"the trace of the steps does not show {plural(count, 'kernel')} of the graphs that the steps call: "
        f"{'its' if one else 'their'} time in a step is the time in a run of the module by itself, times the module's "
        "calls in the step"
    )


@dataclass(frozen=True)
class DescribedProgram:
    """The record of a program's step, and what its trace shows besides.

    Attributes:
        program: the record.
        kernels: the use of kernels in the step by module and kernel. In a distributed program they are those of the
            process that sets the pace, as the parts are.
        eager: the eager operators of a step by the id of its process.
    """

    program: Program
    kernels: Mapping[tuple[str, KernelKey], StepUse]
    eager: Mapping[int, EagerOperators] = field(default_factory=dict)

    def enter(self, run: Run, *, stopped: bool) -> Run:
        """The run with the program's step, and its kernels with their use in it; ``stopped`` as in ``Program``."""
        program = replace(self.program, stopped=stopped)
        if not program.parts:
            return replace(run, program=program)
        uses = [self._uses_of(module) for module in run.modules]
        modules = tuple(map(self._with_uses, run.modules, uses))
        unseen = sum(use.estimated for those in uses for use in those)
        notes = (*program.notes, _estimated(unseen)) if unseen else program.notes
        return replace(run, program=replace(program, notes=notes), modules=modules)

    def _uses_of(self, module: ModuleRecord) -> list[StepUse]:
        on_host = device_of(module.device).runs_on_host
        return module_uses(module, self.program.parts, self.kernels, estimate=on_host)

    def _with_uses(self, module: ModuleRecord, uses: Sequence[StepUse]) -> ModuleRecord:
        whole = self.program.step_time_s
        kernels = (
            replace(kernel, step_calls=use.calls, step_time_s=use.time_s, step_share=use.time_s / whole)
            for kernel, use in zip(module.kernels, uses, strict=True)
        )
        return replace(module, kernels=tuple(kernels))


def find_step(
    request: Request,
    captured: CapturedProgram,
    profiled: Sequence[ProfiledModule],
    attributed: Sequence[AttributedModule],
    folder: RunFolder,
) -> tuple[DescribedProgram | None, tuple[Failure, ...]]:
    """The step of a captured program, where its processes observed one; and what went wrong."""
    scripts = [word for word in (request.target, *request.arguments) if word.endswith(".py")]
    roots = [Path.cwd(), *(Path(script).resolve().parent for script in scripts)]
    try:
        return describe_program(captured.steps, profiled, attributed, folder, roots), ()
    except InductorBenchError as error:
        return None, (Failure("program", "invalid", error.message, error.hint),)


def describe_program(
    observations: Sequence[ObservedSteps],
    profiled: Sequence[ProfiledModule],
    attributed: Sequence[AttributedModule],
    folder: RunFolder,
    roots: Sequence[Path] = (),
) -> DescribedProgram | None:
    """The program's step; ``None`` where no process timed a step.

    Args:
        observations: what the processes observed.
        profiled: the program's modules, also those whose profile failed.
        attributed: the profiled modules with their activities.
        folder: the RUN, which gets the traces of the steps and a timeline.
        roots: the folders to which the files of Python stacks are relative.

    Raises:
        InductorBenchError: the timeline cannot be stored.
    """
    known = Graphs(profiled, attributed)
    files = UserFiles(roots)
    ranks = [describe_process(one, known, folder, files) for one in observations if _has_steps(one)]
    if not ranks:
        return None
    ranks.sort(key=lambda one: (one.steps.rank is None, one.steps.rank or 0, one.steps.pid))
    setter = pace_setter([one.steps for one in ranks])
    leading = next(one for one in ranks if one.steps is setter)
    steps, observed = leading.steps, leading.observed
    program = Program(
        step_time_s=steps.step_time_s,
        step_times_s=steps.step_times_s,
        step_source=observed.source,
        busy_time_s=steps.busy_time_s,
        parts=steps.parts,
        first_step_time_s=observed.first_step_time_s,
        settled_after=observed.settled_after,
        steps=observed.steps,
        ranks=tuple(one.steps for one in ranks),
        notes=tuple(dict.fromkeys(note for one in ranks for note in (*one.observed.notes, *one.notes))),
    )
    if leading.timeline is not None:
        write_timeline(folder, leading.timeline)
    eager = {one.observed.pid: one.eager for one in ranks if one.eager is not None}
    return DescribedProgram(program, leading.kernels, eager)


def _has_steps(observed: ObservedSteps) -> bool:
    return bool(observed.step_times_s) or bool(observed.trace and observed.profiled_steps)
