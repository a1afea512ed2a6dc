"""Analyses an earlier RUN again from its kept modules, traces and raw measurements, without running anything.

The step of a program stays as the first analysis found it: a RUN holds the trace of the steps, but not what the
program's processes observed besides (which module each graph is, the user's lines, the addresses of arguments).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ...analysis.kernel_aggregation import HELPERS
from ...errors import InductorBenchError
from ...records.base import Failure
from ...records.kernel import Kernel, LeastWork
from ...records.module import ModuleRecord
from ...records.run import Run
from ...source.labels import ModuleLabel
from ...source.module_reader import read_module
from ...store.folder import RunFolder
from ...store.run_files import checked, load_code, load_costs, load_details, load_module
from ...version import __version__
from .module_analysis import AttributedModule, Costs, attribute_module, describe_module, with_roofs
from .module_profiling import ProfiledModule
from .program_run import FoundModule

STEP_KEPT = "the figures of the step are those of the first analysis, by inductor-bench {version}"
"""The note of a program whose RUN another version of the tool analyses again."""


OBSERVED = ("program_calls", "tf32", "cuda_graphs", "max_autotune")
"""What was seen in the program's process, and stands in no file of the module."""


def reanalyse_run(folder: RunFolder) -> Run:
    """The run's record, made again by this version of the analysis. The program's step stays as it was.

    A module whose files are missing or damaged keeps its old row, and a failure is added for it.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    run = folder.load()
    modules, failures = [], [failure for failure in run.failures if failure.stage != "analysis"]
    costs: Costs = {}
    try:
        costs = load_costs(folder)
    except InductorBenchError as error:
        failures.append(Failure("analysis", "invalid", error.message, error.hint, subject="costs of library calls"))
    for old in run.modules:
        try:
            modules.append(_reanalyse_module(folder, old, costs))
        except InductorBenchError as error:
            modules.append(old)
            failures.append(Failure("analysis", "invalid", error.message, error.hint, subject=old.label))
    return with_roofs(replace(_with_note(run), modules=tuple(modules), failures=tuple(failures)), run.peaks)


def _with_note(run: Run) -> Run:
    """The run, whose program says so where another version made the figures of its step."""
    if run.program is None or run.tool_version == __version__:
        return run
    notes = dict.fromkeys([*run.program.notes, STEP_KEPT.format(version=run.tool_version)])
    return replace(run, program=replace(run.program, notes=tuple(notes)))


def _reanalyse_module(folder: RunFolder, old: ModuleRecord, costs: Costs) -> ModuleRecord:
    attributed = attribute_again(folder, old, load_profiled(folder, old)) if old.outputs.trace is not None else None
    if attributed is None:
        return old
    found = describe_module(attributed, folder, costs)
    files = {kernel.kernel_id: kernel.file for kernel in old.kernels}  # the standalone files, where they were written
    named = (replace(kernel, file=files.get(kernel.kernel_id, kernel.file)) for kernel in found.kernels)
    kernels = _with_step(named, old.kernels)
    new = checked(replace(found, **{name: getattr(old, name) for name in OBSERVED}, kernels=kernels))
    lost = [name for name, known in KNOWN.items() if known(new) < known(old)]
    if lost:
        raise InductorBenchError(
            f"{old.label} would lose what its record knows: {', '.join(lost)}",
            f"the row is kept as it was; put back what is missing in {folder.traces} and {folder.modules}",
        )
    return new


def _with_step(kernels: Iterable[Kernel], old: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """The kernels with their costs in the program's step, which the trace of a module alone does not show."""
    known = {_identity(kernel): kernel for kernel in old}
    return tuple(
        replace(kernel, step_calls=was.step_calls, step_time_s=was.step_time_s, step_share=was.step_share)
        if (was := known.get(_identity(kernel)))
        else kernel
        for kernel in kernels
    )


def _identity(kernel: Kernel) -> tuple[object, ...]:
    return kernel.category, kernel.name, kernel.kernel_id, kernel.operator


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
    "FLOPs": _count_work(lambda work: work.flops),
    "moved bytes": _count_work(lambda work: work.moved_bytes),
    "registers": _count(lambda kernel: kernel.compiled.registers),
    "costs in the step": _count(lambda kernel: kernel.step_time_s),
}
"""What a row is worse without: a count of each."""


def load_profiled(folder: RunFolder, old: ModuleRecord) -> ProfiledModule:
    """A profiled module of an earlier run, without its trace.

    Raises:
        InductorBenchError: a necessary file is missing or damaged.
    """
    text = load_module(folder, old.slug)
    return ProfiledModule(
        module=FoundModule(Path(old.source_path or f"{old.slug}.py"), text, load_code(folder, old.slug, text)),
        label=ModuleLabel(old.label, old.slug),
        source=read_module(text),
        method=old.measurement.method,
        reason=old.measurement.method_reason,
        trace=None,
        log=folder.path / old.outputs.log if old.outputs.log else None,
        details=load_details(folder, old.slug),
    )


def attribute_again(folder: RunFolder, old: ModuleRecord, profiled: ProfiledModule) -> AttributedModule | None:
    """The attributed activities of a module of an earlier run; ``None`` where it was never profiled.

    Raises:
        InductorBenchError: the trace is missing or damaged.
    """
    trace = old.outputs.trace
    return attribute_module(replace(profiled, trace=folder.file(trace))) if trace is not None else None
