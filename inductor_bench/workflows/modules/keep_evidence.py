"""Keeps in a RUN what a program's processes observed: module texts, the traces of the steps, and the user's lines."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ...analysis.program_step import MARKERS, DescribedProgram
from ...errors import InductorBenchError
from ...records.evidence import CallPlace, Evidence, ModuleEvidence, ObservedGraph, ObservedSteps, StepEvidence
from ...records.module import Method, Outputs
from ...records.request import BreakdownRequest
from ...source.labels import ModuleLabel
from ...source.module_reader import read_module
from ...source.user_lines import UserFiles
from ...store.files import write_text
from ...store.folder import RunFolder
from ...store.run_files import save_code, write_timeline
from ...trace.program_trace import read_program_trace
from ...trace.step_traces import annotate_trace, read_user_calls, store_program_trace
from .module_profiling import ProfiledModule
from .program_run import CapturedProgram, FoundModule, labelled


def keep_captured(captured: CapturedProgram, request: BreakdownRequest, folder: RunFolder) -> Evidence:
    """The evidence of a captured program, none of whose modules is measured yet; its files are in the RUN.

    Raises:
        InductorBenchError: the RUN cannot be written.
    """
    modules = labelled(captured.modules)
    slugs = {path: label.slug for module, label in modules for path in module.real_paths}
    scripts = [word for word in (request.target, *request.arguments) if word.endswith(".py")]
    files = UserFiles([Path.cwd(), *(Path(script).resolve().parent for script in scripts)])
    names = _trace_names(captured.steps)
    processes = [keep_steps(*one, slugs, files, folder) for one in zip(captured.steps, names, strict=True)]
    touched = next((place for place, one in enumerate(captured.steps) if one.pid in captured.touches), None)
    if touched is not None:
        touches = captured.touches[captured.steps[touched].pid]
        processes[touched] = replace(processes[touched], touches=touches)
    return Evidence(
        modules=tuple(_keep_module(folder, module, label) for module, label in modules),
        processes=tuple(processes),
        stopped=captured.stopped,
    )


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
        cuda_graphs=module.cuda_graphs,
        max_autotune=module.max_autotune,
    )


def with_profile(module: ModuleEvidence, profiled: ProfiledModule, folder: RunFolder) -> ModuleEvidence:
    """The module with its own run."""
    trace, log = (folder.relative(path) if path else None for path in (profiled.trace, profiled.log))
    return replace(module, measurement=Method(profiled.method, profiled.reason), outputs=Outputs(trace, log))


def _trace_names(observations: Sequence[ObservedSteps]) -> list[str]:
    """A name for the trace of each process: by its rank, and by its id where that is not enough."""
    names: list[str] = []
    for one in observations:
        name = "step" if one.rank in (None, 0) else f"step-rank-{one.rank}"
        names.append(f"{name}-{one.pid}" if name in names else name)
    return names


def keep_steps(
    observed: ObservedSteps, name: str, slugs: Mapping[str, str], files: UserFiles, folder: RunFolder
) -> StepEvidence:
    """The steps of one process, whose trace is stored in the RUN.

    Args:
        observed: what the process observed.
        name: the name of its trace.
        slugs: the slug of each module, by its real path.
        files: the files of the user's program.
        folder: the RUN.
    """
    operators, places = _user_lines(observed, files)
    found = StepEvidence(
        steps=replace(observed, graphs=tuple(map(_without_path, observed.graphs)), trace="", lines_trace=""),
        modules=tuple(slugs.get(os.path.realpath(graph.path), "") if graph.path else "" for graph in observed.graphs),
        operators=operators,
        places=places,
    )
    if not observed.trace:
        return found
    target = folder.traces / f"{name}.trace.json.gz"
    folder.traces.mkdir(parents=True, exist_ok=True)
    try:
        store_program_trace(Path(observed.trace), target, MARKERS)
    except InductorBenchError as error:
        return replace(found, problem=error.message)
    return replace(found, trace=folder.relative(target))


def _without_path(graph: ObservedGraph) -> ObservedGraph:
    return replace(graph, path="")


def _user_lines(observed: ObservedSteps, files: UserFiles) -> tuple[tuple[tuple[str, int], ...], tuple[CallPlace, ...]]:
    """The operators of one step with the user's lines; empty where no trace of lines can be read."""
    if not observed.lines_trace:
        return (), ()
    try:
        lines = read_program_trace(Path(observed.lines_trace), MARKERS, frames=True)
    except InductorBenchError:
        return (), ()
    numbers: dict[CallPlace, int] = {}
    called = [(name, CallPlace(call.module, files.find(call))) for name, call in read_user_calls(lines, MARKERS)]
    return tuple((name, numbers.setdefault(place, len(numbers))) for name, place in called), tuple(numbers)


def draw_step(step: DescribedProgram, folder: RunFolder) -> None:
    """Writes what the analysis knows of a step into the RUN: a timeline, and the owners of the events of its traces.

    Raises:
        InductorBenchError: the RUN cannot be written.
    """
    if step.leading.timeline is not None:
        write_timeline(folder, step.leading.timeline)
    for process in step.processes:
        if process.steps.trace is not None:
            annotate_trace(folder.file(process.steps.trace), process.events)
