"""The traces of a program's steps: the user's lines from one, and the other as a file of the RUN."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...analysis.ledger.parts import Place
from ...errors import InductorBenchError
from ...messages.steps import BOUNDARY, GRAPH_CALL, ObservedSteps
from ...records.code.source import SourceLine
from ...records.traced.program import ProgramTrace, Work
from ...source.capture.user_lines import UserFiles
from ...store.folder import RunFolder
from ...trace.program.lines import find_user_calls
from ...trace.program.reader import Markers, read_program_trace
from ...trace.program.storing import EventNote, store_program_trace
from ...trace.program.works import ProgramWorks
from ..modules.profiling import ProfiledModule

MARKERS = Markers(BOUNDARY, GRAPH_CALL)


def find_places(
    trace: ProgramTrace, found: ProgramWorks, observed: ObservedSteps, files: UserFiles
) -> dict[int, Place]:
    """The user's line and module of each outermost operator; empty where no trace of lines can be read."""
    if not observed.lines_trace:
        return {}
    try:
        lines = read_program_trace(Path(observed.lines_trace), MARKERS, frames=True)
    except InductorBenchError:
        return {}
    calls = find_user_calls(trace, found.tops, lines, MARKERS)
    return {op: Place(call.module, files.find(call)) for op, call in calls.items()}


def store_steps(
    trace: ProgramTrace,
    found: ProgramWorks,
    observed: ObservedSteps,
    modules: Mapping[int, ProfiledModule],
    places: Mapping[int, Place],
    folder: RunFolder,
) -> str:
    """Stores a process's trace of its steps in the RUN, and returns its path there.

    Raises:
        InductorBenchError: it cannot be stored.
    """
    name = "step" if observed.rank in (None, 0) else f"step-rank-{observed.rank}"
    target = folder.traces / f"{name}.trace.json.gz"
    folder.traces.mkdir(exist_ok=True)
    notes = {work.event: _note(work, modules, places) for work in found.works if work.event >= 0}
    store_program_trace(Path(observed.trace), target, trace, found.window, notes)
    return folder.relative(target)


def _note(work: Work, modules: Mapping[int, ProfiledModule], places: Mapping[int, Place]) -> EventNote:
    module = modules.get(work.graph) if work.graph is not None else None
    activity = work.activity
    place = places.get(work.op)
    line = place.source if place else None
    if module is not None and activity is not None and activity.call is not None and module.module.code is not None:
        line = next(iter(module.module.code.stack_traces.get(activity.call.handle or "", ())), None)
    return EventNote(
        part=work.kind if module is None else f"{work.kind} {module.label.label}",
        kernel=activity.kernel.name if activity is not None and activity.kernel is not None else "",
        operator=(activity.operator or "") if activity is not None else work.label,
        source=_words(line),
    )


def _words(line: SourceLine | None) -> str:
    return f"{line.file}:{line.line} in {line.function}" if line else ""
