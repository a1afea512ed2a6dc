"""Observes a block of this process as a capture observes a program: its steps, and what it compiles.

A capture sets up a new process by variables. Here torch is imported already, and what is set is undone at the end.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ...messages.observed import CAPTURE_FOLDER, COMPILE_CACHE, REQUEST, UNCOMPILED, request_text
from ...records.request import BreakdownRequest
from ..upstream import observing as upstream
from ..upstream.node_layers import note_all_nodes, note_layers
from . import uncompiled
from .boundaries import CalledGraphs
from .observation import ObservedProcess
from .startup import CODE_CACHE, GRAPH_COMPILER, PROVENANCE, TORCH, TRITON_KERNELS
from .step_measurement import Measurement
from .step_observer import StepObserver, measure_window

OPTIONS: Mapping[str, object] = {
    "benchmark_kernel": True,
    "triton.unique_kernel_names": True,
    "cpp.enable_kernel_profile": True,
    "trace.provenance_tracking_level": 1,
}
"""What the variables of a capture set in Inductor; see ``workflows.modules.compile_environment.SETTINGS``."""

COMPILED_BEFORE = (
    "{count} of {every} graphs were compiled before observe() began: {lacks}; call observe() before the first call of "
    "the compiled function"
)
LACKS = "their kernels have no layers and fewer lines of the program, and the profile does not mark their C++ kernels"


def cache_folder() -> str:
    """The folder in which torch keeps what this process compiles."""
    return upstream.cache_folder()


def is_observed() -> bool:
    """Whether a command of this tool observes this process from its start."""
    return bool(os.environ.get(CAPTURE_FOLDER))


class ProcessObserver:
    """The observation of a block.

    Args:
        observed: the folder of what is observed; it exists.
        trace: the folder of torch's structured trace.
        samples: whether the host is sampled.
    """

    def __init__(self, observed: Path, trace: Path, *, samples: bool) -> None:
        self._folder, self._trace, self._samples = observed, trace, samples
        self._undo: list[Callable[[], object]] = []
        self._undo_first: Callable[[], object] = lambda: None
        self._graphs = CalledGraphs()
        self._measurement: Measurement | None = None
        self._process: ObservedProcess | None = None
        self._without: uncompiled.UncompiledProcess | None = None

    @property
    def is_measured(self) -> bool:
        """Whether nothing more is measured in this block."""
        if self._process is None or self._without is None:
            return False
        return (self._process if self._has_graph else self._without).steps.is_done

    @property
    def _has_graph(self) -> bool:
        """Whether a compiled graph was loaded, or called."""
        return self._without not in uncompiled.active

    def begin(self) -> None:
        """Begins the observation, and imports torch's compiler. If it fails, it undoes all changes."""
        for name in (GRAPH_COMPILER, PROVENANCE, TRITON_KERNELS):
            import_module(name)
        variables = {
            CAPTURE_FOLDER: str(self._folder),
            REQUEST: request_text(BreakdownRequest(samples=self._samples)),
            COMPILE_CACHE: upstream.cache_folder(),
        }
        try:
            with _make_environment(variables):
                self._begin()
        except BaseException:
            self._leave()
            raise

    def _begin(self) -> None:
        self._undo += [upstream.set_options(OPTIONS), upstream.print_no_paths()]
        self._undo.append(upstream.trace_compilations(str(self._trace)))
        self._undo += [note_layers(sys.modules[PROVENANCE]), note_all_nodes(sys.modules[TRITON_KERNELS])]
        self._without, undo = uncompiled.begin_observation(self._folder / UNCOMPILED, sys.modules[TORCH])
        self._undo += [undo, *uncompiled.hear_compilations()]
        self._process = ObservedProcess(self._folder, self._make_steps)
        self._undo.append(self._process.begin(sys.modules[CODE_CACHE]))
        self._undo_first = upstream.surround_graph_calls(self._until_first)
        self._undo.append(self._undo_first)

    def _make_steps(self, on_done: Callable[[], None]) -> StepObserver:
        def measure(graphs: CalledGraphs) -> Measurement:
            self._graphs, self._measurement = graphs, measure_window(self._folder, graphs)
            return self._measurement

        return StepObserver(measure, on_done)

    def _until_first(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        """Waits for the first call of a graph that was compiled before the block.

        No load of a module reports such a graph.
        """

        @functools.wraps(original)
        def call(compiled: Any, inputs: Any) -> Any:
            if self._has_graph or self._process is None:
                return original(compiled, inputs)
            self._undo_first()
            uncompiled.leave_uncompiled()
            self._process.steps.note_module()
            return type(compiled).__call__(compiled, inputs)  # which the steps hear now

        return call

    def end(self) -> str:
        """Ends the observation, and writes what was observed. May be called again.

        Returns in a sentence what is missing; an empty text if nothing is missing.
        """
        if self._process is None or self._without is None:
            return ""
        lacks = self._add_earlier(self._process)
        if not self._has_graph:
            self._without.steps.finish()
            self._without.save()
        self._process.steps.finish()
        self._process.save()
        self._leave()
        return lacks

    def _add_earlier(self, process: ObservedProcess) -> str:
        """Adds the graphs that were compiled before the block, and says what is missing of them."""
        loaded, known = upstream.list_loaded_modules(), process.paths
        called = [os.path.realpath(one.path) for one in self._graphs.records if one.path]
        earlier = [path for path in dict.fromkeys(called) if path not in known]
        for path in earlier:
            if path in loaded:
                process.add_earlier(loaded[path], path)
        if not earlier or self._measurement is None:
            return ""
        lacks = COMPILED_BEFORE.format(count=len(earlier), every=len(dict.fromkeys(called)), lacks=LACKS)
        self._measurement.note(lacks)
        if process.steps.is_done:  # else it is written at the end
            self._measurement.write()
        return lacks

    def _leave(self) -> None:
        """Undoes the changes of this process, the last one first."""
        self._process = None
        while self._undo:
            self._undo.pop()()


@contextlib.contextmanager
def _make_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets variables in the block, which the parts of an observation read when they are made."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
