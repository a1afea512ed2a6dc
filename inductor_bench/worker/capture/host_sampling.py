"""Samples what the thread of the steps does, and whether the device waits for that thread at the moment.

Another thread reads its stack about 200 times a second, in blocks of steps. They alternate with blocks without samples,
whose times show the cost of sampling. The program changes in two ways: the switch interval is shorter while the sampler
waits for its turn, and CUDA graphs report when they are recorded.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import itertools
import math
import operator
import statistics
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FrameType
from typing import Protocol

from ...devices.table import find_device
from ...records.evidence import HostSamples
from ..stack_tree import StackSample, StackTree
from ..upstream.observing import call_before_captures
from .step_recording import Moment, compute_times, wait_for

# The thread that takes the samples.


PERIOD_S = 0.005
"""Seconds between two samples, if a sample is cheap."""

MOST_PERIOD_S = 0.1
OWN_SHARE = 0.008
"""The largest share of a processor that the sampler may use while it samples. If it uses more, it samples less
often."""

COSTS = 9
"""The number of last samples whose median cost counts: the first ones cost much more."""

HANDOVER_S = 15e-6
"""Seconds that a sample costs in addition to its own time, because Python changes twice between the two threads."""

TURN_S = 20e-6
"""The switch interval in seconds while the sampler waits for its turn.

Python lets a thread wait for 5 ms. A sample that is 5 ms late would miss shorter stretches of Python, and find the next
call that releases the interpreter instead.
"""

MOST_FRAMES = 96
"""Maximum number of frames of a stack that are kept, from the innermost one."""

Call = tuple[CodeType, int]
"""The code of a frame, and the place in it (``f_lasti``)."""

CALL = operator.attrgetter("f_code", "f_lasti")

COLLECTS_WITHIN = sys.version_info < (3, 12)
"""Whether Python collects garbage as soon as an object is allocated, and not only between two lines of Python."""

MOST_SAMPLES = 4000
"""Maximum number of samples of one step; then the sampler waits for the next block."""

OLDEST = 2
"""The generation whose garbage collections are measured. Other collections are sampled like any other work."""

LEAST_COLLECTION_S = 50e-6
"""The shortest garbage collection that is measured with its stack. Shorter ones are sampled like any other work."""

GOLDEN = (math.sqrt(5) - 1) / 2
_PR_SET_TIMERSLACK = 29


class Instants:
    """The moments at which samples are taken.

    They spread evenly over the phases of a step, which repeats what the last one did. The time between two moments is
    the time of a step divided by a number that fractions approximate badly, so that few moments fall on the same phase.
    Random moments would have to be several times as many for the same accuracy.
    """

    def __init__(self) -> None:
        self.period_s = PERIOD_S
        """The shortest time between two moments."""
        self._last_s = 0.0

    def spacing_s(self, step_s: float) -> float:
        """Returns the time between two moments, if a step takes ``step_s``."""
        parts = math.floor(step_s / self.period_s - GOLDEN)
        if parts >= 1:
            return step_s / (parts + GOLDEN)
        return step_s * (math.ceil(self.period_s / step_s - GOLDEN) + GOLDEN)

    def after(self, now_s: float, step_s: float) -> float:
        """The next moment after ``now_s``."""
        spacing_s = self.spacing_s(step_s)
        ahead = max(1, math.floor((now_s - self._last_s) / spacing_s) + 1) if self._last_s else 1
        self._last_s = (self._last_s or now_s) + ahead * spacing_s
        return self._last_s


class HostSampler:
    """Samples the thread that makes it, between :meth:`resume` and :meth:`pause`.

    Args:
        query: whether the device has nothing to do; ``None`` if there is no device to ask.
        captures: called when the program begins to record a CUDA graph.
    """

    def __init__(self, query: Callable[[], bool] | None, captures: Callable[[], None] = lambda: None) -> None:
        self.codes: dict[int, CodeType] = {}
        self.collected_s = 0.0
        """Seconds of garbage collections in the sampled steps."""
        self._query, self._captures = query, captures
        self._ident = threading.get_ident()
        self._lock = threading.RLock()  # a collection may begin while its thread holds it
        self._go, self._is_on, self._is_ended = threading.Event(), False, False
        self._samples: list[StackSample] = []
        self._instants = Instants()
        self._step_s = PERIOD_S
        self._usual_s = sys.getswitchinterval()
        self._collection = (0.0, 0.0)
        self._collection_waits = False
        self._costs: deque[float] = deque(maxlen=COSTS)
        self._undo = call_before_captures(self._stop_asking_device) if query is not None else None
        self._backward = _find_code("torch.autograd.graph", "_engine_run_backward")
        self._thread = threading.Thread(target=self._run, name="inductor-bench-sampler", daemon=True)
        self._thread.start()

    def begin_step(self, step_s: float) -> list[StackSample]:
        """Begins a step that probably takes ``step_s`` seconds. Returns the samples since the last step began."""
        self._step_s = max(step_s, 1e-6)
        samples, self._samples = self._samples, []
        return samples

    def resume(self) -> None:
        """Begins to sample."""
        self._usual_s = sys.getswitchinterval()
        gc.callbacks.append(self._on_collection)
        self._is_on = True
        self._go.set()

    def pause(self) -> None:
        """Stops sampling until :meth:`resume`."""
        if self._is_on:
            self._go.clear()
            self._leave_program()

    def _leave_program(self) -> None:
        """Restores what a sampled block changes in the program."""
        self._is_on = False
        sys.setswitchinterval(self._usual_s)
        with contextlib.suppress(ValueError):
            gc.callbacks.remove(self._on_collection)

    def stop(self) -> None:
        """Ends the thread, and removes the sampler's hooks."""
        self.forget()
        self._go.set()
        self._thread.join(1.0)
        sys.setswitchinterval(self._usual_s)

    def forget(self) -> None:
        """Ends the sampler in a forked child, which does not have its thread, and may find its locks held."""
        if self._is_on:
            self._leave_program()
        self._is_ended = True
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def _stop_asking_device(self) -> None:
        """Stops asking the device: a question would make the recording of a CUDA graph fail."""
        with self._lock:
            self._query = None
        self._captures()

    def _run(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # Linux; elsewhere moments are less exact
            ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)
        while True:
            self._go.wait()
            if self._is_ended:
                return
            target_s = self._instants.after(time.perf_counter(), self._step_s)
            delay_s = target_s - time.perf_counter()
            sys.setswitchinterval(TURN_S)
            time.sleep(max(0.0, min(delay_s, 1.0)))
            now_s = time.perf_counter()
            sys.setswitchinterval(self._usual_s)
            if len(self._samples) >= MOST_SAMPLES:  # the program makes no steps any more, or very long ones
                self._go.clear()
            elif self._is_on and now_s >= target_s:
                begin_s = time.thread_time()
                self._take_sample(target_s, now_s)
                self._adapt_period(time.thread_time() - begin_s)

    def _adapt_period(self, took_s: float) -> None:
        self._costs.append(took_s)
        wanted_s = (statistics.median_low(self._costs) + HANDOVER_S) / OWN_SHARE
        self._instants.period_s = min(max(wanted_s, PERIOD_S), MOST_PERIOD_S)

    def _take_sample(self, target_s: float, now_s: float) -> None:
        """Takes a sample. A late sample stands for all the moments that it missed."""
        waits = self._is_waiting()
        stack = self._stack_of_the_steps()
        each_s = self._instants.spacing_s(self._step_s)
        begin_s, end_s = self._collection
        missed = (target_s + count * each_s for count in range(1 + int((now_s - target_s) / each_s)))
        time_s = each_s * sum(not begin_s <= moment_s <= end_s for moment_s in missed)
        if stack and time_s:
            self._samples.append(StackSample(time_s, waits, False, stack))

    def _is_waiting(self) -> bool:
        with self._lock:
            try:
                return self._query is None or self._query()
            except RuntimeError:  # of an error of the device, which the program will see, too
                self._query = None
                return True

    def _stack_of_the_steps(self) -> tuple[int, ...]:
        stack = list_calls(self._ident)
        if stack and stack[0][0] is self._backward:
            beside = next((ident for ident in sys._current_frames() if self._is_of_backward(ident)), None)
            stack = [*(list_calls(beside) if beside is not None else ()), *stack]
        return self._noted(stack)

    def _noted(self, calls: Sequence[Call]) -> tuple[int, ...]:
        """Converts a stack to numbers: the id of each call's code, which is kept alive, and the place in the code."""
        found: list[int] = []
        for code, place in calls:
            key = id(code)
            if key not in self.codes:
                self.codes[key] = code
            found += (key, place)
        return tuple(found)

    def _is_of_backward(self, ident: int) -> bool:
        """Whether a thread was not started by Python: it is autograd's, and the step's thread waits for it."""
        known = threading._active.get(ident)  # type: ignore[attr-defined]
        return ident != self._ident and (known is None or isinstance(known, threading._DummyThread))

    def _on_collection(self, phase: str, details: Mapping[str, int]) -> None:
        # Python collects young objects hundreds of times a second. Timing each collection would slow the step.
        if details["generation"] < OLDEST or threading.get_ident() != self._ident:
            return
        now_s = time.perf_counter()
        if phase == "start":
            self._collection, self._collection_waits = (now_s, math.inf), self._is_waiting()
            return
        begin_s, _ = self._collection
        if now_s - begin_s < LEAST_COLLECTION_S or not begin_s:
            self._collection = (0.0, 0.0)
            return
        self._collection = (begin_s, now_s)
        self.collected_s += now_s - begin_s
        stack = self._noted(list_calls_above(iter((sys._getframe(1),))))
        both = (self._collection_waits, self._is_waiting())
        for waits in both:  # the device may become idle in between; then half of the time counts
            self._samples.append(StackSample((now_s - begin_s) / 2, waits, True, stack))


def list_calls(ident: int) -> list[Call]:
    """Returns the calls that a thread is in, the innermost first; an empty list if there is no such thread."""
    now = map(operator.itemgetter(ident), iter(sys._current_frames, None))
    return list_calls_above(itertools.islice(now, 1))


def list_calls_above(innermost: Iterable[FrameType]) -> list[Call]:
    """Returns the calls of the first of these frames, and of the frames that called it.

    One call of C code reads all of them. Between two lines of Python the thread might run on, and frames that are gone
    would be read. Until Python 3.11 a garbage collection, which runs lines of Python, may begin in ``f_back``.
    """
    found: list[Call] = []
    collects = COLLECTS_WITHIN and gc.isenabled()
    frames = itertools.chain(innermost, itertools.repeat("f_back", MOST_FRAMES - 1))
    if collects:
        gc.disable()
    try:
        found.extend(map(CALL, itertools.accumulate(frames, getattr)))  # type: ignore[arg-type]
    except (AttributeError, KeyError):  # beyond the outermost frame, or of a thread that has ended
        pass
    finally:
        if collects:
            gc.enable()
    return found


def _find_code(module: str, function: str) -> CodeType | None:
    return getattr(getattr(sys.modules.get(module), function, None), "__code__", None)


# The blocks of steps.


WITHOUT_S, WITH_S = 0.1, 0.25
"""Minimum seconds of a block without the sampler, and of one with it."""

WHOLE_S, LEAST_PAIRS = 5.0, 3
"""By the number of pairs of blocks that there are: the seconds after which the sampling ends."""

LONGEST_S = 10.0
"""Seconds after which it ends with one pair."""

MOST_VOID = 8
"""The sampling ends after this many steps that compiled something."""

ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError, TypeError, ValueError)
"""Exceptions after which the samples are lost, but the program goes on."""

SMOOTHING = 0.25
"""The weight of the last step in the estimate of the next step's time."""


class SampledMeasurement(Protocol):
    """The measurement that the sampling is a part of."""

    is_noisy: bool  # whether the program compiled in this step, or recorded a CUDA graph


class HostSampling:
    """The sampling of one process, which begins at a boundary.

    It ends when :meth:`cross` returns true, or with the program. An error of the sampling ends it, too, and is kept as
    ``problem``.

    Args:
        begin: the boundary.
        device: the type of the device.
        step_s: the time that a step is expected to take, in seconds.
        measurement: the measurement that is told if the program records a CUDA graph, which ends the sampling.
    """

    def __init__(self, begin: Moment, device: str, step_s: float, measurement: SampledMeasurement) -> None:
        self.problem = ""
        self._device, self._sees_device, self._measurement = device, False, measurement
        self._sampler: HostSampler | None = None
        self._last, self._begin_s, self._block_s = begin, begin.arrived_s, begin.arrived_s
        self._step_s = step_s
        self._blocks: list[list[tuple[Moment, Moment]]] = [[]]
        self._samples: list[StackSample] = []
        self._voids = 0

    @property
    def _is_sampled(self) -> bool:
        return len(self._blocks) % 2 == 0

    def cross(self, moment: Moment, *, is_usual: bool) -> bool:
        """Crosses a boundary. Returns whether enough is known.

        Args:
            moment: the boundary.
            is_usual: whether the step before it did what the profiled ones did, and compiled nothing.
        """
        try:
            return self._cross(moment, is_usual)
        except ERRORS as error:
            self._fail(error)
            return True

    def _cross(self, moment: Moment, is_usual: bool) -> bool:
        samples = self._started().begin_step(self._step_s)
        if is_usual:
            self._blocks[-1].append((self._last, moment))
            self._step_s += SMOOTHING * (moment.arrived_s - self._last.arrived_s - self._step_s)
            if self._is_sampled:
                self._samples += samples
        self._voids += moment.is_disturbed
        self._last = moment
        block_s = WITH_S if self._is_sampled else WITHOUT_S
        if self._blocks[-1] and moment.arrived_s - self._block_s >= block_s:
            if self._is_over(moment.arrived_s):
                return True
            self._turn(moment.arrived_s)
        return self._voids > MOST_VOID

    def _started(self) -> HostSampler:
        if self._sampler is None:
            query = _query_of(self._device)
            self._sees_device = query is not None
            self._sampler = HostSampler(query, self._note_capture)
        return self._sampler

    def _fail(self, error: BaseException) -> None:
        traceback.print_exc()
        self.problem = f"{type(error).__name__}: {error}"
        if self._sampler is not None:
            self._sampler.stop()

    def _note_capture(self) -> None:
        self._measurement.is_noisy = True
        self._voids = MOST_VOID + 1

    def _turn(self, now_s: float) -> None:
        self._blocks.append([])
        self._block_s = now_s
        if self._is_sampled:
            self._started().resume()
        else:
            self._started().pause()

    def _is_over(self, now_s: float) -> bool:
        """Whether the block that ended, which had no samples, was the last one."""
        took_s, pairs = now_s - self._begin_s, len(self._blocks) // 2
        enough = took_s >= WHOLE_S and pairs >= LEAST_PAIRS
        return not self._is_sampled and (enough or (took_s >= LONGEST_S and pairs >= 1))

    def list_unsampled_steps(self) -> Iterator[list[Moment]]:
        """The boundaries of the steps without the sampler, in runs of steps that follow each other."""
        for block in self._blocks[::2]:
            run: list[Moment] = []
            for begin, end in block:
                if run and run[-1] is begin:
                    run.append(end)
                    continue
                if run:
                    yield run
                run = [begin, end]
            if run:
                yield run

    def forget(self) -> None:
        """Ends the sampling in a forked child, which does not have the sampler's thread."""
        if self._sampler is not None:
            self._sampler.forget()

    def end(self, graphs: Collection[str]) -> HostSamples | None:
        """Ends the sampling. Returns the samples of whole steps, if there are any.

        Args:
            graphs: the paths of the program's compiled modules.
        """
        if self._sampler is None or self.problem:
            return None
        try:
            self._sampler.stop()
            return self._end(self._sampler, graphs)
        except ERRORS as error:
            self._fail(error)
            return None

    def _end(self, sampler: HostSampler, graphs: Collection[str]) -> HostSamples | None:
        blocks = [block for block in self._blocks if block]
        if len(self._blocks) < 2 or not self._blocks[1] or not wait_for([end for block in blocks for _, end in block]):
            return None
        times = [tuple(_compute_step_s(begin, end) for begin, end in block) for block in self._blocks]
        sampled = [time_s for block in times[1::2] for time_s in block]
        tree = StackTree(sampler.codes, graphs)
        tree.add(self._samples)
        return HostSamples(
            frames=tuple(tree.frames),
            parents=tuple(tree.parents),
            frame_of=tuple(tree.frame_of),
            stacks=tuple(tree.stacks.values()),
            steps=len(sampled),
            steps_s=sum(sampled),
            blocks=tuple(times),
            sees_device=self._sees_device,
        )


def _compute_step_s(begin: Moment, end: Moment) -> float:
    return compute_times((begin, end)).window_s


def _query_of(device: str) -> Callable[[], bool] | None:
    """Returns a function that asks whether the current stream of this thread has nothing to do; ``None`` for a CPU."""
    if find_device(device).runs_on_host:
        return None
    import torch

    query: Callable[[], bool] = torch.get_device_module(device).current_stream().query
    return query
