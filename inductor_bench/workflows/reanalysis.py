"""Analysing an earlier RUN again from what it keeps: modules, traces, raw measurements. Nothing is run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import InductorBenchError
from ..records.run import Failure, ModuleRecord, Run
from ..source.labels import ModuleLabel
from ..source.module import read_module
from ..store.evidence import load_code, load_costs, load_details
from ..store.folder import RunFolder
from .capture import FoundModule
from .module_analysis import AttributedModule, Costs, attribute_module, describe_module
from .profiling import ProfiledModule
from .roofs import with_roofs


def reanalyse_run(folder: RunFolder) -> Run:
    """The run's record, made again by this version of the analysis.

    Raises:
        InductorBenchError: the record cannot be read. A module whose files are gone keeps its old row, and a
            failure says so.
    """
    run = folder.load()
    costs = load_costs(folder)
    modules, failures = [], [failure for failure in run.failures if failure.stage != "analysis"]
    for old in run.modules:
        try:
            modules.append(_reanalyse_module(folder, old, costs))
        except InductorBenchError as error:
            modules.append(old)
            failures.append(Failure("analysis", "invalid", error.message, error.hint, subject=old.label))
    return with_roofs(replace(run, modules=tuple(modules), failures=tuple(failures)), run.peaks)


def _reanalyse_module(folder: RunFolder, old: ModuleRecord, costs: Costs) -> ModuleRecord:
    attributed = attribute_again(folder, old)
    if attributed is None:
        return old
    found = describe_module(attributed, folder, costs)
    files = {kernel.kernel_id: kernel.file for kernel in old.kernels}  # of their own, where they were written out
    kernels = tuple(replace(kernel, file=files.get(kernel.kernel_id, kernel.file)) for kernel in found.kernels)
    return replace(found, program_calls=old.program_calls, kernels=kernels)


def attribute_again(folder: RunFolder, old: ModuleRecord) -> AttributedModule | None:
    """What ran in a module of an earlier run, from its kept trace; ``None`` where it was never profiled.

    Raises:
        InductorBenchError: a file that is needed is gone or damaged.
    """
    if old.trace is None:
        return None
    text_file = folder.modules / f"{old.slug}.py"
    trace = folder.path / old.trace
    for needed in (text_file, trace):
        if not needed.is_file():
            raise InductorBenchError(f"{needed} is gone", "the row is kept as it was")
    text = text_file.read_text(encoding="utf-8")
    profiled = ProfiledModule(
        module=FoundModule(Path(old.source_path or text_file), text, load_code(folder, old.slug, text)),
        label=ModuleLabel(old.label, old.slug),
        source=read_module(text),
        method=old.method,
        reason=old.method_reason,
        trace=trace,
        log=folder.path / old.log if old.log else None,
        details=load_details(folder, old.slug),
    )
    return attribute_module(profiled)
