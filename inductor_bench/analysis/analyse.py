"""Makes the record of a run from its evidence: the rows of its modules and the step of its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from ..devices.table import device_of
from ..errors import InductorBenchError
from ..records.base import Failure
from ..records.evidence import Evidence, ModuleEvidence
from ..records.kernel import Kernel, LeastWork
from ..records.module import ModuleRecord
from ..records.program import Program
from ..records.run import Run
from ..store.run_files import validate_module
from ..version import __version__
from .evidence_files import EvidenceFiles
from .kernel_aggregation import StepUse
from .ledger import kernel_key, own_time
from .library_calls import HELPERS
from .module_analysis import ModuleFacts, ModuleInStep, describe_module, describe_unprofiled
from .program_step import DescribedProgram, describe_program, with_notes
from .residence import shares_in_step
from .roofline import rates_of, refuted_roofs, without_bounds
from .simulation.predictions import with_predictions

STAGE = "analysis"
"""The ``stage`` of a failure of the analysis itself."""

STEP_KEPT = "the figures of the step are those of the first analysis, by inductor-bench {version}"
"""The note of a program whose RUN does not keep its observed steps, and which another version analyses again."""


def analyse(run: Run, evidence: Evidence, files: EvidenceFiles, *, predicts: bool = True) -> Run:
    """Makes the record of a run from its evidence: the rows of modules and kernels, and the program's step.

    A module whose files are missing or damaged keeps the row of an earlier analysis, and a failure is added for it. So
    does the step of a program whose observed steps were not kept.

    Args:
        run: what the record holds as it was observed, and the results of an earlier analysis, if there was one.
        evidence: what was observed besides.
        files: the files of the evidence.
        predicts: whether it is simulated what changes would save, which takes as long as all the rest.
    """
    failures = [failure for failure in run.failures if failure.stage != STAGE]
    step = describe_program(evidence, files)
    if step is not None and _lost_profiles(run.program, step):
        failures.append(Failure(STAGE, "invalid", f"the step is kept as it was: {_lost_profiles(run.program, step)}"))
        step = None
    steps = _steps_of_modules(run, evidence, files, step)
    known = {module.slug: module for module in run.modules}
    rows = []
    for module in evidence.modules:
        old = known.get(module.slug)
        try:
            facts = ModuleFacts(evidence.costs, run.peaks, evidence.kernel_files, steps.get(module.slug))
            row = _row_of(module, facts, files) or old
            _refuse_loss(old, row)
        except InductorBenchError as error:
            failures.append(Failure(STAGE, "invalid", error.message, error.hint, subject=module.label))
            row = old
        rows += [row] if row is not None else []
    named = {module.slug for module in evidence.modules}
    rows += [module for module in run.modules if module.slug not in named]
    rows = list(without_bounds(rows, refuted_roofs(rates_of(rows), run.peaks)))
    program = _with_note(run) if step is None else with_notes(step.program, _count_unseen(rows, steps), evidence.eager)
    found = replace(run, modules=tuple(rows), program=program, failures=tuple(failures))
    if step is None:
        return replace(found, modules=tuple(_with_old_savings(row, known.get(row.slug)) for row in rows))
    if not predicts:
        return found
    queued, inputs = step.leading.queue, (evidence.processes, evidence.modules, evidence.stopped)
    fitted = files.once("fitted step", inputs, queued.fitted) if queued is not None else None
    return with_predictions(found, queued, fitted)


def _with_old_savings(row: ModuleRecord, old: ModuleRecord | None) -> ModuleRecord:
    """The row with what an earlier analysis predicted of its kernels, where the step is that analysis's."""
    savings = {kernel_key(kernel): kernel.saving for kernel in old.kernels} if old is not None else {}
    kernels = (replace(kernel, saving=savings.get(kernel_key(kernel), kernel.saving)) for kernel in row.kernels)
    return replace(row, kernels=tuple(kernels))


def _row_of(module: ModuleEvidence, facts: ModuleFacts, files: EvidenceFiles) -> ModuleRecord | None:
    def describe() -> ModuleRecord | None:
        attributed = files.attributed(module)
        if attributed is not None:
            return validate_module(describe_module(attributed, facts))
        row = describe_unprofiled(module, files.source(module.slug), files.details(module))
        return validate_module(row) if row is not None else None

    if module.measurement is None:
        return None
    return files.once(f"row of {module.slug}", (module, facts), describe)


def _steps_of_modules(
    run: Run, evidence: Evidence, files: EvidenceFiles, step: DescribedProgram | None
) -> Mapping[str, ModuleInStep]:
    """What the step says of each module, by its slug."""
    if step is None:
        return _kept_steps(run)
    inputs = evidence.processes, evidence.modules, run.peaks
    shares = files.once("shares", inputs, lambda: shares_in_step(evidence, files, run.peaks, step.eager))
    time_s, parts, uses = step.program.step_time_s, step.program.parts, step.leading.kernels
    return {
        module.slug: ModuleInStep(module.slug, time_s, parts, uses, shares.get(module.slug, {}))
        for module in evidence.modules
    }


def _kept_steps(run: Run) -> Mapping[str, ModuleInStep]:
    """The same from an earlier analysis whose observed steps were not kept."""
    if run.program is None:
        return {}
    return {
        module.slug: ModuleInStep(
            module.slug,
            run.program.step_time_s,
            known={
                kernel_key(kernel): StepUse(kernel.step_calls, kernel.step_time_s)
                for kernel in module.kernels
                if kernel.step_calls is not None and kernel.step_time_s is not None
            },
        )
        for module in run.modules
    }


def _lost_profiles(old: Program | None, new: DescribedProgram) -> str:
    """Why an earlier analysis knew the parts of more processes; empty if it did not."""
    if old is None or sum(bool(rank.parts) for rank in old.ranks) <= sum(
        bool(one.steps.parts) for one in new.processes
    ):
        return ""
    return "; ".join(note for one in new.processes if not one.steps.parts for note in one.notes) or "profiles are gone"


def _with_note(run: Run) -> Program | None:
    """The program of an earlier analysis, which says so if another version made the figures of its step."""
    if run.program is None or run.tool_version == __version__:
        return run.program
    notes = dict.fromkeys([*run.program.notes, STEP_KEPT.format(version=run.tool_version)])
    return replace(run.program, notes=tuple(notes))


def _count_unseen(rows: list[ModuleRecord], steps: Mapping[str, ModuleInStep]) -> int:
    """The number of kernels that run in the step, and that its trace does not show."""
    count = 0
    for row in rows:
        if row.slug in steps and steps[row.slug].has_uses:
            own = [own_time(kernel) for kernel in row.kernels]
            uses = steps[row.slug].uses_of(own, on_host=device_of(row.device).runs_on_host)
            count += sum(use.estimated for use in uses if use is not None)
    return count


def _count(get: Callable[[Kernel], object]) -> Callable[[ModuleRecord], int]:
    return lambda module: sum(get(kernel) not in (None, ()) for kernel in module.kernels)


def _count_work(get: Callable[[LeastWork], object]) -> Callable[[ModuleRecord], int]:
    """The number of kernels with a figure of their work, without helpers: earlier versions gave some of them a part."""
    return _count(lambda kernel: None if HELPERS.search(kernel.name) else get(kernel.work))


KNOWN: Mapping[str, Callable[[ModuleRecord], int]] = {
    "wall times": lambda module: len(module.times.wall_samples_s),
    "peak memory": lambda module: module.peak_memory_bytes is not None,
    "the time as one CUDA graph": lambda module: module.times.graph_time_s is not None,
    "kernels": lambda module: len(module.kernels),
    "source lines": _count(lambda kernel: kernel.origin.source_lines),
    "layers": _count(lambda kernel: kernel.origin.layers),
    "FLOPs": _count_work(lambda work: work.flops),
    "moved bytes": _count_work(lambda work: work.moved_bytes),
    "DRAM's part of them": _count(lambda kernel: kernel.dram_bytes),
    "registers": _count(lambda kernel: kernel.compiled.registers),
    "costs in the step": _count(lambda kernel: kernel.step_time_s),
}
"""What a row is worse without: a count of each."""


def _refuse_loss(old: ModuleRecord | None, new: ModuleRecord | None) -> None:
    """Raises an error if an earlier analysis knew more, because files that it read are gone."""
    if old is None or new is None or new is old:
        return
    lost = [name for name, known in KNOWN.items() if known(new) < known(old)]
    if lost:
        raise InductorBenchError(
            f"{old.label} would lose what its record knows: {', '.join(lost)}",
            "the row is kept as it was; put back what is missing in the RUN's folders",
        )
