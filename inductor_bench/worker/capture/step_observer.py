"""Observes the steps of the user's program from its first compilation until its window is timed and profiled."""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ... import step_marks
from ...devices.protocol import CPU
from ...errors import InductorBenchError
from ...messages.observed import EAGER, MODE, PROFILES, read_request
from ...records.run import MARKS, OPTIMIZER_STEPS
from ..upstream import inductor
from ..upstream import observing as upstream
from .boundaries import Boundaries, CalledGraphs, Graph, Pattern
from .schedule import WindowLimits
from .step_measurement import Measurement

RECOVERABLE = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    InductorBenchError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""Exceptions of a measurement that must not end the user's program."""

OPTIMIZER_PATIENCE = 256
"""If there is an optimizer, the number of cycles of a pattern with a backward graph for which an optimizer's step is
awaited."""


LISTENING_S = 10.0
"""Seconds after the measurement of an inner loop's steps in which the loop around them may still be found."""

DYNAMO_CALLBACK = "torch._dynamo.callback"
"""The module of torch that tells of compilations."""

MODE_STEPS, MODE_WINDOW_S = 1000, 1.0
"""The timed window for a comparison of modes, which needs a more certain mean than a breakdown."""


def measure_window(folder: Path, graphs: CalledGraphs) -> Measurement:
    """Returns the measurement that times and profiles a window of steps, within the requested limits."""
    asked = read_request()
    profiles = os.environ.get(PROFILES) or ("0" if os.environ.get(EAGER) else "1")
    samples = profiles == "1" and asked.samples
    limits = WindowLimits(asked.skip, asked.steps, profiles=profiles == "1", samples=samples)
    if os.environ.get(MODE):
        limits = replace(limits, most_steps=MODE_STEPS, window_s=MODE_WINDOW_S, stacks=False, samples=False)
    return Measurement(folder, limits, graphs)


AWAY_S = 1.0
"""Seconds without a call after which another thread's calls make the pattern."""


class StepMeasurement(Protocol):
    """What is measured at the boundaries of steps; see ``step_measurement.Measurement``."""

    is_noisy: bool
    is_odd: bool
    is_recording: bool
    is_ours: bool
    looks_for_outer: bool
    excluded_s: float

    @property
    def is_complete(self) -> bool: ...
    def note_compiler(self) -> None: ...
    def note_compilation(self) -> None: ...
    def restart(self) -> None: ...
    def note_pattern(self) -> None: ...
    def call_graph(self, number: int, original: Callable[[Any, Any], Any], compiled: Any, inputs: Any) -> Any: ...
    def pass_within_window(self, number: int, arrived_s: float) -> bool: ...
    def cross_boundary(
        self, number: int, boundaries: Boundaries, arrived_s: float, *, other_profiler: bool, cycle_s: float | None
    ) -> None: ...
    def give_way(self) -> None: ...
    def leave_child(self) -> None: ...
    def fail(self, error: BaseException) -> None: ...
    def finish(self, boundaries: Boundaries) -> None: ...


class PatternThread:
    """The Python thread whose calls make the pattern.

    Calls of other threads come at any time, and make no step together with its calls. The calls of
    autograd's threads, which Python did not start, belong to it.
    """

    def __init__(self) -> None:
        self._ident: int | None = None
        self._called_s = 0.0
        self._autograd: set[int] = set()
        self._others: set[int] = set()

    def is_other(self) -> bool:
        """Whether the current thread is not the one whose calls make the pattern. Runs at each call of a graph."""
        ident, now_s = threading.get_native_id(), time.perf_counter()  # unlike `get_ident`, no thread has it later
        if ident == self._ident:
            self._called_s = now_s
            return False
        if ident not in self._others:
            if ident in self._autograd or all(one.native_id != ident for one in threading.enumerate()):
                self._autograd.add(ident)
                return False
            self._others.add(ident)
        if self._ident is not None and now_s - self._called_s <= AWAY_S:
            return True
        self._ident, self._called_s = ident, now_s
        self._others.discard(ident)
        return False


class StepObserver:
    """The observation of one process. It detaches itself from the program once all is measured.

    Args:
        measure: makes the measurement of the process with its graphs.
        on_done: called once after everything is measured, before the program goes on.
    """

    def __init__(self, measure: Callable[[CalledGraphs], StepMeasurement], on_done: Callable[[], None]) -> None:
        self.is_done = False
        self._on_done = on_done
        self._graphs = CalledGraphs()
        self._pattern, self._thread = Pattern(), PatternThread()
        self._boundaries = Boundaries(self._cross, self._restart, self._pattern)
        self._measurement = measure(self._graphs)
        self._lock = threading.RLock()
        self._entered = False
        self._foreign: set[int] = set()
        self._waited_cycles = 0
        self._listens_until_s: float | None = None
        self._is_attached = self._finds_device = False
        self._undo: list[Callable[[], object]] = []
        self._unhear: Callable[[], None] | None = None

    @property
    def device(self) -> str:
        """The type of the device whose work a step waits for."""
        return self._graphs.device or CPU.type

    def begin(self) -> None:
        """Begins to wait for the first compiled module; torch's compiler has just been imported."""
        self._measurement.note_compiler()
        if DYNAMO_CALLBACK in sys.modules:
            self.hear_compilations()

    def begin_eager(self, device: str = "") -> None:
        """Begins to observe the steps of a program without graphs, which has no pattern of calls.

        ``device`` is the type of the device whose work a step waits for; empty for the one that the program uses.
        """
        self._measurement.note_compiler()
        self._graphs.device, self._finds_device = device, not device
        self._is_attached = True
        try:
            self._finish_at_exit()
            self._hear_steps()
        except RECOVERABLE as error:
            self._fail(error)

    def hear_compilations(self) -> None:
        """Registers for what the program compiles; Dynamo has just been imported."""
        if not self.is_done and self._unhear is None:
            self._unhear = inductor.call_on_compiling(self._compiles, lambda: None)

    def leave(self) -> None:
        """Ends the observation without a result, because another observation replaces it."""
        if self.is_done:
            return
        try:
            self._measurement.give_way()
        except RECOVERABLE:
            traceback.print_exc()
        self._detach()

    def note_module(self) -> None:
        """Notes that the program loads a compiled module. The first one begins the observation."""
        if not self._is_attached and not self.is_done:
            self._is_attached = True
            try:
                self._attach()
            except RECOVERABLE as error:
                self._fail(error)
        self.note_change()

    def _attach(self) -> None:
        self.hear_compilations()
        self._finish_at_exit()
        self.add_hooks()

    def _finish_at_exit(self) -> None:
        """Writes what was measured at the end of the program, and nothing in its forked children."""
        observer = weakref.ref(self)  # what is registered stays for good

        def leave_child() -> None:
            if (found := observer()) is not None:
                found._leave_child()

        os.register_at_fork(after_in_child=leave_child)
        atexit.register(self.finish)

    def add_hooks(self) -> None:
        """Adds hooks for the program's marks, optimizers, profilers and calls of compiled graphs."""
        self._hear_steps()
        self._undo += [
            upstream.surround_graph_calls(self._around_call),
            upstream.call_on_cuda_graphs(self._records_graph, self.note_change, self._graphs.note_refusal),
        ]

    def _hear_steps(self) -> None:
        step_marks.listeners.append(self._mark)
        self._undo = [
            lambda: step_marks.listeners.remove(self._mark),
            upstream.call_on_profiler_steps(lambda profiler: self._event(MARKS, id(profiler))),
            upstream.call_on_optimizer_steps(self._optimizer_steps),
            upstream.surround_profilers(self._profiler_begins, self._profiler_ends),
        ]

    def remove_hooks(self) -> None:
        """Removes the hooks of :meth:`add_hooks`."""
        undo, self._undo = self._undo, []
        for one in undo:
            one()

    def exclude(self, time_s: float) -> None:
        """Notes that a measurement in the program took ``time_s`` seconds, which do not count as the program's time."""
        self._measurement.excluded_s += time_s

    def note_change(self) -> None:
        """Notes that the program compiled or recorded a CUDA graph. This step says nothing about the next ones."""
        self._measurement.is_noisy = True
        self._pattern.forget()

    def _compiles(self) -> None:
        if not self.is_done:
            self._measurement.note_compilation()
            self.note_change()

    def _records_graph(self) -> None:
        self._graphs.note_cuda_graph()
        self.note_change()

    def _around_call(self, original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        # The program pays for each lookup at each call of a graph.
        graphs, by_id, running = self._graphs, self._graphs.by_id, self._graphs.running
        boundaries, measurement, perf_counter = self._boundaries, self._measurement, time.perf_counter
        thread, sizes = self._thread, self._graphs.sizes

        @functools.wraps(original)
        def call(compiled: Any, inputs: Any) -> Any:
            graph = by_id.get(id(compiled))
            if graph is None:
                graph = self._add(compiled, inputs)
                if graph is None:
                    return original(compiled, inputs)
            if boundaries.searches_pattern and not thread.is_other():
                self._search(graph, inputs)
            running.number = graph.number
            graphs.called |= graph.bit
            if graph.sizes is not None:
                sizes.note(graph.number, graph.sizes(inputs))
            if measurement.is_recording:
                return measurement.call_graph(graph.number, original, compiled, inputs)
            begin_s = perf_counter()
            outputs = original(compiled, inputs)
            graph.times_s.append(perf_counter() - begin_s)
            return outputs

        return call

    def _add(self, compiled: Any, inputs: Any = ()) -> Graph | None:
        try:
            with self._lock:
                self.note_change()
                graph = self._graphs.by_id.get(id(compiled)) or self._graphs.add(compiled, inputs)
                self._pattern.trains |= self._graphs.trains((graph.number,))
                return graph
        except RECOVERABLE as error:
            self._fail(error)
            return None

    def _search(self, graph: Graph, inputs: Any) -> None:
        """Looks for the cycle that a call begins or continues."""
        try:
            address = graph.address(inputs)
            pattern = self._pattern
            with self._lock:
                found, each = pattern.is_found, pattern.takes_each_call
                number = pattern.call(graph.number, address)
                if found and not pattern.is_found:  # the next boundary is not the end of one step
                    self._measurement.is_noisy = True
                if pattern.is_found and not found:
                    self._measurement.note_pattern()
                if pattern.take_interruption(outer=self._boundaries.is_outer):
                    self._measurement.is_odd = True
            if pattern.takes_each_call != each:
                self._guarded(self._boundaries.leave_loop)
            if pattern.begins_outer:
                self._guarded(self._boundaries.iteration, pattern.outer.begun)
            if number is not None and (self._boundaries.source or not self._expects_optimizer()):
                self._guarded(self._boundaries.cycle, number)
        except RECOVERABLE as error:
            self._fail(error)

    def _expects_optimizer(self) -> bool:
        """Whether a pattern of calls may be only a part of a step, as with gradient accumulation."""
        if self._waited_cycles >= OPTIMIZER_PATIENCE:
            return False
        if self._waited_cycles == 0 and not (self._trains() and upstream.has_optimizer()):
            self._waited_cycles = OPTIMIZER_PATIENCE
            return False
        self._waited_cycles += 1
        return True

    def _trains(self) -> bool:
        return self._graphs.trains(self._pattern.graphs)

    def _optimizer_steps(self, optimizer: Any) -> None:
        self._graphs.note_optimizer(optimizer)
        self._event(OPTIMIZER_STEPS, id(optimizer))

    def _mark(self) -> None:
        self._event(MARKS, 0)

    def _event(self, source: str, origin: int) -> None:
        self._guarded(self._boundaries.event, source, origin)

    def _guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Does the work at a boundary. No exception reaches the program, and a boundary within another is ignored."""
        with self._lock:
            if self._entered or self.is_done:
                return
            self._entered = True
            try:
                work(*arguments)
            except RECOVERABLE as error:
                self._fail(error)
            finally:
                self._entered = False

    def _cross(self, number: int) -> None:
        arrived_s = time.perf_counter()
        measurement = self._measurement
        if self._listens_until_s is not None:  # for a loop around the steps that are measured
            if arrived_s > self._listens_until_s:
                self.finish()
            return
        if self._finds_device and not self._graphs.device:
            self._graphs.device = upstream.find_device_in_use()
        other_profiler = bool(self._foreign) or (not measurement.is_recording and upstream.is_any_profiler_running())
        if not other_profiler and measurement.pass_within_window(number, arrived_s):
            return
        measurement.cross_boundary(
            number, self._boundaries, arrived_s, other_profiler=other_profiler, cycle_s=self._pattern.first_cycle_end_s
        )
        if not measurement.is_complete:
            return
        if measurement.looks_for_outer and self._boundaries.may_be_inner:
            self._listens_until_s = arrived_s + LISTENING_S
            self._on_done()
        else:
            self._end()

    def _restart(self) -> None:
        self._listens_until_s = None
        self._measurement.restart()
        if self._boundaries.is_outer:
            self._measurement.note_pattern()

    def _profiler_begins(self, profiler: Any) -> None:
        if self._measurement.is_ours or self.is_done:
            return
        self._foreign.add(id(profiler))
        try:
            self._measurement.give_way()
        except RECOVERABLE as error:
            self._fail(error)

    def _profiler_ends(self, profiler: Any) -> None:
        self._foreign.discard(id(profiler))

    def _fail(self, error: BaseException) -> None:
        traceback.print_exc()
        try:
            self._measurement.fail(error)
        except OSError:  # a full disk costs the measurement, and not the program
            traceback.print_exc()
        self._end()

    def finish(self) -> None:
        """Writes at the end of the program what was measured until then; nothing if it has no compiled module."""
        if self.is_done or not self._is_attached:
            return
        try:
            self._measurement.finish(self._boundaries)
        except RECOVERABLE as error:
            self._fail(error)
        self._detach()

    def _end(self) -> None:
        self._detach()
        self._on_done()

    def _leave_child(self) -> None:
        """Stops observing in a forked child, in which another thread of the parent may have held the lock."""
        self._lock = threading.RLock()
        self._measurement.leave_child()
        self._detach()

    def _detach(self) -> None:
        self.is_done = True
        self.remove_hooks()
        atexit.unregister(self.finish)
        unhear, self._unhear = self._unhear, None
        if unhear is not None:
            unhear()
