"""Keeps in a RUN what a program's processes observed: module texts, the traces of the steps, and the user's lines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...analysis.host_time import make_host_trace
from ...analysis.program_step import MARKERS, DescribedProgram
from ...errors import InductorBenchError
from ...records.base import Place
from ...records.evidence import CallPlace, Evidence, ModuleEvidence, ObservedGraph, ObservedSteps, StepEvidence
from ...records.module import Method, Outputs
from ...records.request import BreakdownRequest
from ...source.labels import ModuleLabel
from ...source.module_reader import read_module
from ...source.user_program import UserFiles, add_calling_lines, add_sampled_lines
from ...store.files import write_text
from ...store.folder import RunFolder
from ...store.run_files import save_code, write_host_trace, write_timeline
from ...trace.program_trace import read_program_trace
from ...trace.stored_traces import annotate_trace, read_user_calls, store_program_trace
from .module_measurements import ProfiledModule
from .program_run import CapturedProgram, FoundModule, labelled

UserLines = tuple[tuple[tuple[str, int], ...], tuple[CallPlace, ...]]
"""The outermost operators of one step, each with the number of its place; and the places."""

EARLY_LINES_BYTES = 20_000_000
"""Largest sum of the traces with the user's lines that are read while the program runs: half a second."""

EARLY_TRACES_BYTES = 1_000_000_000
"""Largest sum of the traces of several processes that are read while the program runs: half a minute. A late answer is
better than none before the program's end."""


class KeptTraces:
    """The parts of the traces of a RUN's processes that were kept. Each trace is read once."""

    def __init__(self) -> None:
        self._steps: dict[tuple[object, str], tuple[Place | None, str]] = {}
        self._lines: dict[object, UserLines] = {}

    def steps(self, observed: ObservedSteps, name: str, folder: RunFolder) -> tuple[Place | None, str]:
        """Returns the place of the trace of the steps in the RUN, and the reason if there is none."""
        key = _read_version(observed.trace), name
        if key not in self._steps:
            self._steps[key] = _store_steps(observed, name, folder)
        return self._steps[key]

    def lines(self, observed: ObservedSteps, files: UserFiles) -> UserLines:
        """Returns the operators of one step with the user's lines."""
        key = _read_version(observed.lines_trace)
        if key not in self._lines:
            self._lines[key] = _read_user_lines(observed, files)
        return self._lines[key]


def _read_version(trace: str) -> tuple[str, int, int]:
    """Returns a trace and the time at which it was written: after a discarded profile another one has the same path."""
    with suppress(OSError):
        status = Path(trace).stat()
        return trace, status.st_mtime_ns, status.st_size
    return trace, 0, 0


def keep_captured(
    captured: CapturedProgram,
    request: BreakdownRequest,
    folder: RunFolder,
    kept: KeptTraces | None = None,
    *,
    early: bool = False,
) -> Evidence:
    """Returns the evidence of a captured program, of which no module is measured yet; its files are in the RUN.

    Args:
        captured: the program, which may still run.
        request: its request.
        folder: the RUN.
        kept: the traces that were kept before.
        early: whether only what an answer needs is read: no long trace with the user's lines.

    Raises:
        InductorBenchError: the RUN cannot be written.
    """
    kept = kept or KeptTraces()
    captured = replace(captured, steps=_leave_out_lines(captured.steps)) if early else captured
    modules = labelled(captured.modules)
    slugs = {path: label.slug for module, label in modules for path in module.real_paths}
    scripts = [word for word in (request.target, *request.arguments) if word.endswith(".py")]
    files = UserFiles([Path.cwd(), *(Path(script).resolve().parent for script in scripts)])
    names = _name_traces(captured.steps)
    processes = [keep_steps(*one, slugs, files, folder, kept) for one in zip(captured.steps, names, strict=True)]
    touched = next((place for place, one in enumerate(captured.steps) if one.pid in captured.touches), None)
    if touched is not None:
        touches = captured.touches[captured.steps[touched].pid]
        processes[touched] = replace(processes[touched], touches=touches)
    _remove_others(folder, {label.slug for _, label in modules})
    return Evidence(
        modules=tuple(_keep_module(folder, module, label) for module, label in modules),
        processes=tuple(processes),
        stopped=captured.stopped,
    )


def _remove_others(folder: RunFolder, slugs: Set[str]) -> None:
    """Removes the texts that were kept under other names before the program had compiled all of its modules."""
    for file in folder.modules.glob("*") if folder.modules.is_dir() else ():
        if file.name.partition(".")[0] not in slugs:
            file.unlink(missing_ok=True)


def _keep_module(folder: RunFolder, module: FoundModule, label: ModuleLabel) -> ModuleEvidence:
    with suppress(InductorBenchError):  # a text that is no module is not kept; its profile says why
        read_module(module.text)
        write_text(folder.modules / f"{label.slug}.py", module.text)
        save_code(folder, label.slug, module.code)
    return ModuleEvidence(
        label=label.label,
        slug=label.slug,
        source_path=str(module.path),
        calls=module.calls,
        tf32=module.tf32,
        bf16=module.bf16,
        cuda_graphs=module.cuda_graphs,
        max_autotune=module.max_autotune,
    )


def add_profile(module: ModuleEvidence, profiled: ProfiledModule, folder: RunFolder) -> ModuleEvidence:
    """Returns the module with the profile of its run outside the program."""
    trace, log = (folder.relative(path) if path else None for path in (profiled.trace, profiled.log))
    return replace(module, measurement=Method(profiled.method, profiled.reason), outputs=Outputs(trace, log))


def _name_traces(observations: Sequence[ObservedSteps]) -> list[str]:
    """Returns a name for the trace of each process: from its rank, and also from its id if the ranks are not unique."""
    names: list[str] = []
    for one in observations:
        name = "step" if one.rank in (None, 0) else f"step-rank-{one.rank}"
        names.append(f"{name}-{one.pid}" if name in names else name)
    return names


def can_be_read_early(steps: Sequence[ObservedSteps]) -> bool:
    """Whether the traces of all processes are read fast enough for an answer while the program runs.

    An answer needs all of them. A rank that waits for another one looks busy, because its collectives wait on the
    device; only the trace of the other rank says that the device of that rank is idle.
    """
    sizes = [_measure_bytes(one.trace) for one in steps if one.trace]
    return len(sizes) <= 1 or sum(sizes) <= EARLY_TRACES_BYTES


def _measure_bytes(path: str) -> int:
    """The size of a file; 0 if it is not there."""
    with suppress(OSError):
        return Path(path).stat().st_size if path else 0
    return 0


def _leave_out_lines(steps: Sequence[ObservedSteps]) -> tuple[ObservedSteps, ...]:
    """Leaves out the traces with the user's lines if all of them together are long."""
    is_short = sum(_measure_bytes(one.lines_trace) for one in steps) <= EARLY_LINES_BYTES
    return tuple(one if is_short else replace(one, lines_trace="") for one in steps)


def keep_steps(
    observed: ObservedSteps,
    name: str,
    slugs: Mapping[str, str],
    files: UserFiles,
    folder: RunFolder,
    kept: KeptTraces,
) -> StepEvidence:
    """Returns the steps of one process, whose trace is stored in the RUN.

    Args:
        observed: what the process observed.
        name: the name of its trace.
        slugs: the slug of each module, by its real path.
        files: the files of the user's program.
        folder: the RUN.
        kept: the traces that were kept before.
    """
    operators, places = kept.lines(observed, files)
    trace, problem = kept.steps(observed, name, folder)
    return StepEvidence(
        steps=replace(
            observed,
            graphs=tuple(map(_remove_path, observed.graphs)),
            trace="",
            lines_trace="",
            callers=tuple(map(add_calling_lines, observed.callers)),
            samples=add_sampled_lines(observed.samples, slugs) if observed.samples else None,
        ),
        modules=tuple(slugs.get(os.path.realpath(graph.path), "") if graph.path else "" for graph in observed.graphs),
        trace=trace,
        problem=problem,
        operators=operators,
        places=places,
    )


def _store_steps(observed: ObservedSteps, name: str, folder: RunFolder) -> tuple[Place | None, str]:
    if not observed.trace:
        return None, ""
    target = folder.traces / f"{name}.trace.json.gz"
    folder.traces.mkdir(parents=True, exist_ok=True)
    try:
        store_program_trace(Path(observed.trace), target, MARKERS)
    except InductorBenchError as error:
        return None, error.message
    return folder.relative(target), ""


def _remove_path(graph: ObservedGraph) -> ObservedGraph:
    return replace(graph, path="")


def _read_user_lines(observed: ObservedSteps, files: UserFiles) -> UserLines:
    """Returns the operators of one step with the user's lines; empty if no trace of lines can be read."""
    if not observed.lines_trace:
        return (), ()
    try:
        lines = read_program_trace(Path(observed.lines_trace), MARKERS, frames=True)
    except InductorBenchError:
        return (), ()
    numbers: dict[CallPlace, int] = {}
    calls = read_user_calls(lines, MARKERS)
    sources = files.find_all(call for _, call in calls)
    called = [(name, CallPlace(call.module, line)) for (name, call), line in zip(calls, sources, strict=True)]
    return tuple((name, numbers.setdefault(place, len(numbers))) for name, place in called), tuple(numbers)


def draw_step(step: DescribedProgram, folder: RunFolder) -> None:
    """Writes what the analysis knows of a step into the RUN: timeline, owners of the events of its traces, and stacks.

    Raises:
        InductorBenchError: the RUN cannot be written.
    """
    if step.leading.timeline is not None:
        write_timeline(folder, step.leading.timeline)
    sampled = [(process.steps.rank, process.observed.steps.samples) for process in step.processes]
    named = [("the host" if rank is None else f"rank {rank}", found) for rank, found in sampled if found is not None]
    if (trace := make_host_trace(named)) is not None:
        write_host_trace(folder, trace)
    for process in step.processes:
        if process.steps.trace is not None:
            annotate_trace(folder.file(process.steps.trace), process.events)
