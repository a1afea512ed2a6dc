"""Reads the files of a RUN's evidence, each once: module texts, measurements, and traces with their activities."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ..errors import InductorBenchError
from ..records.code import Details, LayerMap, ModuleSource, SourceLine
from ..records.evidence import Evidence, ModuleEvidence, StepEvidence
from ..records.traced import Activity, Iteration, OperatorCall, ProgramTrace, Trace
from ..source.module_reader import read_module
from ..store.folder import RunFolder
from ..store.run_files import load_layers, load_module, load_module_details, load_source_lines
from ..trace.attribution import attribute_activities
from ..trace.iterations import split_iterations
from ..trace.program_trace import Markers, read_program_trace
from ..trace.program_works import KnownGraph, ProgramWorks, find_works
from ..trace.rows import read_trace
from .call_work import find_parts
from .kernel_aggregation import find_steady_iterations
from .simulation.profiled_queue import ProfiledQueue, build_profiled_queue

T = TypeVar("T")

GENERATED = re.compile(r"(graph_\d+_)?cpp_fused_|triton_(poi|red|per|tem|for|spl|unk)_")
"""Names of kernels that only Inductor generates."""


@dataclass(frozen=True)
class AttributedModule:
    """A module with the activities of its own run by iteration. The analysis uses the ``steady`` iterations."""

    module: ModuleEvidence
    source: ModuleSource
    details: Details
    source_lines: Mapping[str, Sequence[SourceLine]]  # of the user's program, by provenance handle
    trace: Trace
    iterations: tuple[Iteration, ...]
    steady: tuple[int, ...]
    activities: tuple[Activity, ...]
    layers: LayerMap = field(default_factory=LayerMap)  # the modules of the model

    @property
    def operator_calls(self) -> tuple[OperatorCall, ...]:
        """Returns the library calls, or parts of calls, whose costs torch should count, without duplicates."""
        parts = dict.fromkeys(part for part in find_parts(self.activities) if part is not None)
        return tuple(dict.fromkeys(OperatorCall(part.operator, part.arguments, self.source.device) for part in parts))


class EvidenceFiles:
    """Reads the files of a RUN, and keeps what was computed from each.

    Errors of files are :class:`InductorBenchError`.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._made: dict[str, tuple[object, Any]] = {}

    def once(self, name: str, inputs: object, make: Callable[[], T]) -> T:
        """Returns the result of ``make``, or raises its error.

        Calls ``make`` only once while the inputs stay the same.
        """
        known = self._made.get(name)
        if known is None or known[0] != inputs:
            try:
                known = inputs, make()
            except InductorBenchError as error:
                known = inputs, error
            self._made[name] = known
        made: T | InductorBenchError = known[1]
        if isinstance(made, InductorBenchError):
            raise made
        return made

    def forget(self) -> None:
        """Forgets all that was read, because the files have changed."""
        self._made.clear()

    def text(self, slug: str) -> str:
        """The text of a module, as Inductor wrote it."""
        return self.once(f"text of {slug}", None, lambda: load_module(self._folder, slug))

    def source(self, slug: str) -> ModuleSource:
        """The facts of a module's text."""
        return self.once(f"source of {slug}", None, lambda: read_module(self.text(slug)))

    def details(self, module: ModuleEvidence) -> Details:
        """Returns what the process that measured a module found. If there is no file, every field has its default."""
        return self.once(
            f"details of {module.slug}", module.measurement, lambda: load_module_details(self._folder, module.slug)
        )

    def source_lines(self, slug: str) -> Mapping[str, Sequence[SourceLine]]:
        """The lines of the user's program, by provenance handle."""
        return self.once(f"lines of {slug}", None, lambda: load_source_lines(self._folder, slug))

    def layers(self, slug: str) -> LayerMap:
        """The modules of the model from which the kernels of a compiled module originate."""
        return self.once(f"layers of {slug}", None, lambda: load_layers(self._folder, slug))

    def attributed(self, module: ModuleEvidence) -> AttributedModule | None:
        """The module's activities; ``None`` if its profile left no trace."""
        return self.once(f"activities of {module.slug}", module, lambda: self._attribute(module))

    def attributed_modules(self, modules: Sequence[ModuleEvidence]) -> list[AttributedModule]:
        """Returns the activities of each module whose profile left a readable trace."""
        found = []
        for module in modules:
            with suppress(InductorBenchError):
                attributed = self.attributed(module)
                found += [attributed] if attributed is not None else []
        return found

    def path(self, place: str) -> Path:
        """A file by its path in the RUN."""
        return self._folder.file(place)

    def _attribute(self, module: ModuleEvidence) -> AttributedModule | None:
        place = module.outputs.trace
        if module.measurement is None or place is None:
            return None
        source, details = self.source(module.slug), self.details(module)
        trace = read_trace(self.path(place))
        iterations = split_iterations(trace, expected=details.iterations)
        activities = attribute_activities(trace, iterations, source)
        if not activities:
            raise InductorBenchError(
                f"the trace holds no activity of {module.label}",
                "it may be of another program, or may have been recorded without device activities",
                "bad-trace",
            )
        _check_trace_is_of_module(activities, source, module)
        steady = find_steady_iterations(activities, len(iterations))
        lines, layers = self.source_lines(module.slug), self.layers(module.slug)
        return AttributedModule(module, source, details, lines, trace, iterations, steady, activities, layers)


def _check_trace_is_of_module(activities: Sequence[Activity], source: ModuleSource, module: ModuleEvidence) -> None:
    method = module.measurement.method if module.measurement is not None else ""
    if method != "trace":
        # Without any activity of the module, the trace only holds the harness's own arithmetic.
        if source.calls and not any(activity.call or activity.kernel for activity in activities):
            helps = method != "live" and not module.cuda_graphs  # a replayed graph is not profiled live
            hint = "profile it in its program with --live" if helps else ""
            raise InductorBenchError("the profiler saw nothing of this module", hint, "bad-trace")
        return
    own = {activity.name for activity in activities if activity.kernel is not None}
    strange = {activity.name for activity in activities if activity.kernel is None and GENERATED.match(activity.name)}
    if (source.kernels and not own) or len(strange) > len(own):
        raise InductorBenchError(
            f"the trace is not of this module: it holds {len(own)} of its {len(source.kernels)} kernels"
            + (f", and {len(strange)} of another, {min(strange)} for one" if strange else ""),
            "give the trace that this very module was recorded with",
            "bad-trace",
        )


# Reads the traces of a program's steps.


KEPT_BYTES = 5_000_000
"""Largest stored trace whose contents are kept in memory, because several analyses need them."""


class TracedSteps(NamedTuple):
    """What a trace of the steps says, without the time of an unprofiled step."""

    trace: ProgramTrace
    works: ProgramWorks | None  # None without a whole step
    queue: ProfiledQueue | None  # None on a CPU, and in brief


def list_graphs(observed: StepEvidence, evidence: Evidence, files: EvidenceFiles) -> dict[int, ModuleEvidence]:
    """The module of each graph of a process, by the graph's number, if its text can be read."""
    known = {module.slug: module for module in evidence.modules}
    found = {}
    for number, slug in enumerate(observed.modules):
        with suppress(InductorBenchError):
            if slug in known and files.source(slug):
                found[number] = known[slug]
    return found


def _find_known_graph(module: ModuleEvidence, files: EvidenceFiles) -> KnownGraph:
    """Returns what is known of a graph.

    If the program replays it, that includes the activities of its module's own run.
    """
    launches: tuple[Activity, ...] = ()
    with suppress(InductorBenchError):
        attributed = files.attributed(module) if module.cuda_graphs else None
        if attributed is not None and attributed.steady:
            first = attributed.steady[0]
            launches = tuple(one for one in attributed.activities if one.iteration == first)
    return KnownGraph(files.source(module.slug), launches)


def read_traced_steps(
    files: EvidenceFiles,
    place: str,
    markers: Markers,
    modules: Mapping[int, ModuleEvidence],
    *,
    on_host: bool,
    in_brief: bool = False,
) -> TracedSteps:
    """Reads a trace of the steps. The result of a trace of moderate size stays in memory for later analyses.

    Args:
        files: the files of the RUN.
        place: the trace's path in the RUN.
        markers: the names of the observer's ranges.
        modules: the module of each graph, by its number.
        on_host: whether the host computes the works.
        in_brief: whether the queue is left out.
    """
    path, version = files.path(place), None
    with suppress(OSError):
        status = path.stat()
        version = (status.st_mtime_ns, status.st_size) if status.st_size <= KEPT_BYTES else None

    def once(name: str, inputs: object, make: Callable[[], T]) -> T:
        return files.once(name, inputs, make) if version is not None else make()

    trace = once(f"trace {place}", version, lambda: read_program_trace(path, markers))

    graphs = {number: _find_known_graph(module, files) for number, module in modules.items()}
    inputs = version, graphs, on_host
    found = once(f"works of {place}", inputs, lambda: find_works(trace, markers, graphs, on_host=on_host))
    if found is None or on_host or in_brief:
        return TracedSteps(trace, found, None)
    queue = once(f"queue of {place}", inputs, lambda: build_profiled_queue(trace, found, markers))
    return TracedSteps(trace, found, queue)
