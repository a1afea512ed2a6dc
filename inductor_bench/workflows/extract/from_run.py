"""Reads the kernels of a RUN from its files: module texts, traces, and the results of the measuring processes."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...errors import InductorBenchError, UsageError
from ...records.code.details import Details
from ...records.code.source import ModuleSource
from ...records.module import ModuleRecord
from ...records.run import Failure, Run
from ...source.capture.labels import ModuleLabel
from ...source.static.launches import read_static_launches
from ...store.evidence import load_details
from ...store.folder import RunFolder
from ...store.kernel_index import INDEX, read_index
from ..modules.analysis import AttributedModule
from ..modules.profiling import ProfiledModule
from ..modules.reanalysis import attribute_again, load_profiled
from ..modules.values import ModuleValues, read_values, values_work
from ..options import RECORDED
from .module import ModuleKernels

DAMAGED = "the RUN is damaged; take it from a copy, or measure again"
WITHOUT_TIMES = "the files are written; the times of library calls are not known without it"


@dataclass(frozen=True)
class RunInMaking:
    """A run that this process is measuring: its saved record, and the attributed activities of its modules.

    Its recorded values are in its scratch folder, from which they may be moved.
    """

    run: Run
    attributed: Sequence[AttributedModule]


def modules_of_run(
    folder: RunFolder, values: str, making: RunInMaking | None = None
) -> tuple[list[ModuleKernels], tuple[Failure, ...]]:
    """The modules of a RUN with their kernels, and the failures of modules that cannot be read.

    Args:
        folder: the RUN.
        values: ``recorded`` for the values that its kernels read.
        making: the run, where this process is measuring it; files of its attributed modules are not read again.

    Raises:
        InductorBenchError: the record cannot be read.
    """
    run = making.run if making else folder.load()
    known = {one.profiled.label.label: one for one in making.attributed} if making else {}
    kept = None
    if values == RECORDED:
        kept = {} if making else _kept_values(folder, run)
    modules, failures = [], []
    for record in run.modules:
        attributed = known.get(record.label)
        try:
            profiled = attributed.profiled if attributed else load_profiled(folder, record)
            found = _values_of(folder, record, profiled.details, kept, bool(making)) if kept is not None else None
            module = replace(_module_of_run(run, record, profiled), values=found)
        except InductorBenchError as error:
            message = f"{record.label}: {error.message}"
            failures.append(Failure("extract", "invalid", message, error.hint or DAMAGED, subject=record.label))
            continue
        try:
            attributed = attributed or attribute_again(folder, record, profiled)
        except InductorBenchError as error:
            failures.append(Failure("extract", "missing", error.message, WITHOUT_TIMES, subject=record.label))
        modules.append(_with_times(module, attributed, record) if attributed else module)
    return modules, tuple(failures)


def _module_of_run(run: Run, record: ModuleRecord, profiled: ProfiledModule) -> ModuleKernels:
    code, text = profiled.module.code, profiled.module.text
    return replace(
        module_kernels(profiled.label, run, profiled.source, profiled.details, text),
        source_lines=code.stack_traces if code else {},
        measured=record.kernels,
    )


def _with_times(module: ModuleKernels, attributed: AttributedModule, record: ModuleRecord) -> ModuleKernels:
    """The module with the seconds per iteration of its call sites and library calls."""
    ids = {(kernel.name, kernel.operator): kernel.kernel_id for kernel in record.kernels if kernel.line is None}
    times: dict[int, float] = defaultdict(float)
    library_calls: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for activity in attributed.activities:
        if activity.call is None or activity.iteration not in attributed.steady:
            continue
        time_s = activity.duration_s / len(attributed.steady)
        times[activity.call.index] += time_s
        operator = activity.operator.replace("::", ".", 1) if activity.operator else None
        if activity.kernel is None and (activity.name, operator) in ids:
            library_calls[ids[activity.name, operator]][activity.call.index] += time_s
    return replace(module, call_times=times, library_calls=library_calls)


def _kept_values(folder: RunFolder, run: Run) -> dict[tuple[str, str], str]:
    """The files of recorded values in a RUN, by module and kernel.

    Raises:
        UsageError: the RUN holds no recorded values.
    """
    if not any(load_details(folder, module.slug).recorded is not None for module in run.modules):
        again = f"inductor-bench breakdown {shlex.quote(run.target)} --values recorded"
        raise UsageError(f"{folder.path} holds no recorded values", f"record them when it is measured: {again}")
    rows = read_index(folder.kernels) if (folder.kernels / INDEX).is_file() else ()
    return {(row.module, row.name): row.values for row in rows if row.values}


def _values_of(
    folder: RunFolder, record: ModuleRecord, details: Details, kept: Mapping[tuple[str, str], str], in_making: bool
) -> ModuleValues:
    if in_making:
        return read_values(details, values_work(folder) / record.slug)
    names = {name: file for (module, name), file in kept.items() if module == record.label}
    return read_values(details, folder.kernels, names)


def module_kernels(label: ModuleLabel, run: Run, source: ModuleSource, details: Details, text: str) -> ModuleKernels:
    """A module's kernels with the launches of its measuring process, or else with those in its text."""
    return ModuleKernels(
        label=label.label,
        title=run.title,
        source=source,
        launches=details.launches or read_static_launches(text, source),
        references=details.references if details.launches else (),
        compiled=details.compiled,
        switches=details.switches,
        environment=run.environment,
        watched=bool(details.launches),
    )
