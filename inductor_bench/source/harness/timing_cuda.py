"""Times calls on a GPU, with their arguments outside the caches (cold) and in the caches (warm).

Calls are unrolled in CUDA graphs of two lengths. The time of a call is the slope between the two, because the cost of a
graph and of an event is the same in both; the gap between two calls is part of the slope and is subtracted. A cold
graph first reads more bytes than the L2 holds, and then calls with one copy of the arguments per launch, so that no
call finds its arguments in the cache; the writes of earlier calls are completed meanwhile, as in a model. A warm graph
calls with one copy.

Written data is restored between samples, outside of the timed part, so that values do not drift over thousands of
calls. Storages in ``reset`` must have their initial values before every call (the flags of a split scan, whole numbers
that index what the same kernel reads). They are reset inside the graph, and the slope of graphs that only reset is
subtracted.

The profiler times a kernel from its first to its last instruction. The slope of graphs includes the gap between two
kernels, in which the GPU fetches the next launch and completes the writes of the last kernel. The gap is some tenths of
a microsecond, longer if the caches do not hold the launch, and a large part of the time of a short kernel.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from .common import Arguments, build_arguments, copy_arguments, mutated_storages, summarize, touched_bytes

WINDOW_S = 2e-3
COLD_GRAPH_S = 4e-4
L2_MULTIPLE = 3
MOST_LAUNCHES = 256
MOST_STORAGES = 4096  # over all copies
MEMORY_SHARE = 0.4
WARM_UP_S = 0.05
MOST_DISTURBED = 4  # samples that come out at nothing, which is what a disturbed short window makes of them

Bind = Callable[[Arguments], Callable[[], Any]]


class BoundGpuCall:
    """One way to make the call. By state: its launches until it is ready to be sampled, and then how it is sampled."""

    def __init__(self, bind: Bind) -> None:
        self.bind = bind
        self.runs: dict[str, list[Callable[[], Any]]] = {}
        self.samplers: dict[str, Callable[[], float]] = {}


class GpuTimer:
    """Takes samples of calls with the arguments of one recorded launch, which all ways to make the call share.

    Args:
        launch: the encoded ``Launch``.
        arguments: made for it, with the values that every call starts from.
        bind: gives what makes one call with some arguments, on the current stream; what that returns is what it
            allocated. It tells how many copies and launches a sample needs, and whether graphs can be captured.
        moved: the bytes that a call moves; otherwise the extent of its tensors counts.
        reset: the storages to reset before every call.
        kept: the storages to put back between samples; all that a call writes if ``None``.
        window_s: about how long the GPU works for each of the two windows of a sample.
        warm_up_s: seconds of calls before the first sample, for the clocks to rise.
        gap: seconds between two launches in a graph, ``cold`` and ``warm``; empty if that is not known.

    Attributes:
        method: ``graphs``, or why events around plain launches have to do: these include the time that the host needs
            for a launch, if that is longer than the kernel; or that gaps are not known and so part of the times.
    """

    def __init__(
        self,
        launch: dict[str, Any],
        arguments: Arguments,
        bind: Bind,
        moved: int | None = None,
        reset: Sequence[int] = (),
        kept: Sequence[int] | None = None,
        window_s: float = WINDOW_S,
        warm_up_s: float = WARM_UP_S,
        gap: Mapping[str, float] | None = None,
    ) -> None:
        self.launch, self.copies, self.reset, self.window_s = launch, [arguments], sorted(set(reset)), window_s
        kept = mutated_storages(launch) if kept is None else kept
        self.originals = {index: arguments.storages[index].clone() for index in sorted({*kept, *reset})}
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.cache_bytes = int(getattr(properties, "L2_cache_size", 0)) or 64 << 20
        self.flushed: torch.Tensor | None = None
        self.sink: torch.Tensor | None = None
        self.gap = gap or {}
        self.method = "graphs" if self.gap else "graphs, gaps between launches included"
        call = bind(arguments)
        self.estimate, result_bytes = self._estimate(call, warm_up_s)
        self._make_copies(moved or touched_bytes(launch), result_bytes)
        self.warm_launches = max(4, min(round(COLD_GRAPH_S / self.estimate), MOST_LAUNCHES)) // 4 * 4
        self._reset_time: dict[str, float] = {}
        try:
            self._capture([call], False)
        except RuntimeError as error:  # what cannot be captured: host synchronisation, some libraries
            torch.cuda.synchronize()
            self.method = f"events, no graph: {str(error).splitlines()[0][:80]}"
        self.restore()

    def bind(self, bind: Bind) -> BoundGpuCall:
        """Another way to make the call."""
        return BoundGpuCall(bind)

    def cold(self, call: BoundGpuCall) -> float:
        """Seconds of a call that meets arguments that are not in the caches: one sample.

        Raises:
            RuntimeError: it cannot be captured in a graph, and others can; or it is too short.
        """
        return self._sample(call, "cold")

    def warm(self, call: BoundGpuCall) -> float:
        """Seconds of a call that comes right after another with the same arguments: one sample."""
        return self._sample(call, "warm")

    def restore(self) -> None:
        """Puts back what calls have written."""
        for each in self.copies:
            self._restore_written(each)

    def _restore_written(self, arguments: Arguments) -> None:
        for index, original in self.originals.items():
            arguments.storages[index].copy_(original)

    def flush(self) -> None:
        """Reads more than the caches hold, so that nothing that calls read is in them."""
        if self.flushed is not None:
            torch.sum(self.flushed, dim=0, out=self.sink)

    def _sample(self, call: BoundGpuCall, state: str) -> float:
        self.get_ready(call, state)
        for _ in range(MOST_DISTURBED):
            self.restore()
            seconds = call.samplers[state]()
            if seconds > 0:
                return seconds
        raise RuntimeError("its time is too short to be told from what goes on around it")

    def _sets(self, state: str) -> list[Arguments]:
        return self.copies if state == "cold" else self.copies[:1] * self.warm_launches

    def get_ready(self, call: BoundGpuCall, state: str) -> None:
        """Does what precedes the first sample, unless it is done."""
        self.run_first(call, state)
        if state not in call.samplers:
            call.samplers[state] = self._make_sampler(call, state)

    def run_first(self, call: BoundGpuCall, state: str) -> None:
        """Launches the call once, unless it is done: what is set up at the first call cannot be captured."""
        if state not in call.samplers and state not in call.runs:
            runs = self._bind_runs(call, state)
            self._run(runs[0])
            call.runs[state] = runs

    def _bind_runs(self, call: BoundGpuCall, state: str) -> list[Callable[[], Any]]:
        """The launches of the call, each with its arguments; those of the first are restored."""
        sets = self._sets(state)
        launches = {id(each): call.bind(each) for each in sets}
        self._restore_written(sets[0])
        return [launches[id(each)] for each in sets]

    def _make_sampler(self, call: BoundGpuCall, state: str) -> Callable[[], float]:
        sets, runs = self._sets(state), call.runs.pop(state)
        if not self.method.startswith("graphs"):
            window, resets = self._by_events(sets, runs), self._by_events(sets, [])
            off = statistics.median(resets() for _ in range(5)) if self.reset else 0.0
            return lambda: window() - off
        if self.reset and state not in self._reset_time:
            slope = self._slope(sets, [None] * len(sets), state == "cold")
            self._reset_time[state] = statistics.median(slope() for _ in range(5))
        slope = self._slope(sets, runs, state == "cold")
        off = self._reset_time.get(state, 0.0) + self.gap.get(state, 0.0)
        return lambda: slope() - off

    def _slope(self, sets: Sequence[Arguments], runs: Sequence[Any], flush: bool) -> Callable[[], float]:
        """Gives the time of one more launch, by a window of a long graph and one of a short graph."""
        many, few = len(sets), len(sets) // 4
        long, short = self._capture(runs, flush, sets), self._capture(runs[:few], flush, sets[:few])
        turns, counts = itertools.count(), list[int]()

        def sample() -> float:
            if not counts:
                self._run(short)  # the first replay of a graph loads it
                self._run(long)
                # As many replays of either: what starting a window costs must be the same in both.
                counts.append(min(max(1, round(self.window_s / max(self._window(long, 1), 1e-6))), 400))
                self.restore()
            long_first = next(turns) % 2 == 0
            times = self._windows((long, short) if long_first else (short, long), counts[0])
            longer, shorter = times if long_first else times[::-1]
            return (longer - shorter) / counts[0] / (many - few)

        return sample

    def _estimate(self, call: Callable[[], Any], warm_up_s: float) -> tuple[float, int]:
        """Seconds of a call, roughly, and the bytes that it allocates, after ``warm_up_s`` seconds of such calls."""
        arguments = self.copies[0]
        self._reset(arguments)
        result_bytes = allocated_bytes(call())
        torch.cuda.synchronize()

        def launch() -> None:
            self._reset(arguments)
            call()

        began, best = time.perf_counter(), self._window(launch, 5) / 5
        while time.perf_counter() - began < warm_up_s:
            best = min(best, self._window(launch, 5) / 5)
        self.restore()
        return max(best, 1e-6), result_bytes

    def _make_copies(self, touched: int, result_bytes: int) -> None:
        storages = self.copies[0].storages
        size = sum(storage.numel() + 512 for storage in storages) + result_bytes
        wanted = max(-(-L2_MULTIPLE * self.cache_bytes // max(touched, 1)), round(COLD_GRAPH_S / self.estimate), 4)
        wanted = min(wanted, MOST_LAUNCHES, max(MOST_STORAGES // max(len(storages), 1), 8))
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        flush = min(L2_MULTIPLE * self.cache_bytes, free // 8)
        self.flushed = torch.zeros(flush // 4, dtype=torch.float32, device="cuda")
        self.sink = torch.zeros((), dtype=torch.float32, device="cuda")
        count = min(wanted, int((free - flush) * MEMORY_SHARE) // max(size, 1) + 1)
        device = f"cuda:{torch.cuda.current_device()}"
        while len(self.copies) < count:
            self.copies.append(copy_arguments(self.launch, self.copies[0], device))

    def _capture(self, runs: Sequence[Any], flush: bool, sets: Sequence[Arguments] = ()) -> Callable[[], object]:
        """A graph of these calls, after a read of the whole cache if ``flush``; ``None`` only resets."""
        if not runs and not flush:
            return lambda: None
        graph, kept = torch.cuda.CUDAGraph(), []
        distinct = len({id(each) for each in sets}) == len(sets)
        with _capturing(graph):
            if flush:
                self.flush()
            for place, run in enumerate(runs):
                if sets:
                    self._reset(sets[place])
                result = run() if run is not None else None
                if distinct:  # else the next call would write where this one did, which is in the cache
                    kept.append(result)
        kept.clear()
        return graph.replay

    def _run(self, launch: Callable[[], object]) -> None:
        """Runs work on the device to its end, outside of what is timed."""
        launch()
        torch.cuda.synchronize()

    def _by_events(self, sets: Sequence[Arguments], runs: Sequence[Any]) -> Callable[[], float]:
        """Gives the mean time of a launch with each of the sets in turn; without ``runs`` it only resets."""
        count = max(5, min(round(self.window_s / self.estimate), 500))

        def sample() -> float:
            place = itertools.count()

            def launch() -> None:
                turn = next(place) % len(sets)
                self._reset(sets[turn])
                if runs:
                    runs[turn]()

            return self._window(launch, count) / count

        return sample

    def _windows(self, replays: Sequence[Callable[[], object]], count: int) -> list[float]:
        """Seconds of ``count`` replays of each."""
        return [self._window(replay, count) for replay in replays]

    def _window(self, replay: Callable[[], object], count: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def _reset(self, arguments: Arguments) -> None:
        for index in self.reset:
            arguments.storages[index].copy_(self.originals[index])


@contextlib.contextmanager
def _capturing(graph: Any) -> Iterator[None]:
    """Captures what is launched, always on the same stream: libraries keep a workspace for each.

    ``torch.cuda.graph`` would also give all unused memory back to the driver, which takes longer than the capture.
    """
    if torch.cuda.graph.default_capture_stream is None:
        torch.cuda.graph.default_capture_stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.graph.default_capture_stream):
        graph.capture_begin()
        well = False
        try:
            yield
            well = True
        finally:  # after an error the end of the capture raises another
            with contextlib.nullcontext() if well else contextlib.suppress(RuntimeError):
                graph.capture_end()


def allocated_bytes(result: Any) -> int:
    """The bytes of the GPU tensors that a call returned."""
    values = result if isinstance(result, list | tuple) else [result]
    tensors = [value for value in values if isinstance(value, torch.Tensor) and value.is_cuda]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


SAMPLES = 15
GAP_CALLS = 64  # under the profiler
GAPS, MOST_GAPS = 3, 9
GAP_TOLERANCE_S = 1e-7


def measure_cuda(
    launch: dict[str, Any],
    arguments: Arguments,
    bind: Bind,
    moved: int | None = None,
    reset: Sequence[int] = (),
    kept: Sequence[int] | None = None,
) -> dict[str, Any]:
    """Times a recorded launch: ``{cold, warm, method}``; a timing as :func:`summarize` has it, ``method`` as
    :class:`GpuTimer`, whose arguments these are."""
    timer = GpuTimer(launch, arguments, bind, moved, reset, kept, gap=launch_gap())
    call = timer.bind(bind)
    cold, warm = ([take(call) for _ in range(SAMPLES)] for take in (timer.cold, timer.warm))
    timer.restore()
    return {"cold": summarize(cold), "warm": summarize(warm), "method": timer.method}


def launch_gap(known: Mapping[str, float] | None = None) -> dict[str, float]:
    """Seconds that a launch in a graph takes beside what the profiler says of its kernel, ``cold`` and ``warm``.

    It is measured once in a process, with a kernel that does next to nothing, and is the median over some graphs of it.
    Empty if the profiler sees no kernels. ``known`` is what another process measured on the same device.
    """
    device = torch.cuda.current_device()
    if device not in _GAPS:
        _GAPS[device] = _find_gap(device, known)
    return _GAPS[device]


_GAPS: dict[int, dict[str, float]] = {}
"""The gaps by the index of the device."""

_FIRST_GRAPHS: list[BoundGpuCall] = []
"""The first graphs of a process, which are kept, because their launches take less time than the launches of later
graphs. (H200)"""


def _find_gap(device: int, known: Mapping[str, float] | None = None) -> dict[str, float]:
    """Captures the first graphs of the process, and measures the gap unless it is known."""
    launch = _addition()
    timer = GpuTimer(launch, build_arguments(launch, f"cuda:{device}"), _bind_addition)
    if not timer.method.startswith("graphs"):
        return {}
    _FIRST_GRAPHS.append(first := timer.bind(_bind_addition))
    for take in (timer.cold, timer.warm):
        take(first)
    gaps = _measure_gaps(timer) if known is None else [dict(known)]
    timer.flushed = timer.sink = None  # the graphs that are kept hold the timer
    return {state: statistics.median(gap[state] for gap in gaps) for state in gaps[0]} if all(gaps) else {}


def _measure_gaps(timer: GpuTimer) -> list[dict[str, float]]:
    """Gaps of ``GAPS`` graphs, and of more if they differ: another process may have used the device meanwhile."""
    gaps = [_measure_gap(timer) for _ in range(GAPS)]
    while all(gaps) and len(gaps) < MOST_GAPS and not all(_agree([gap[state] for gap in gaps]) for state in gaps[0]):
        gaps.append(_measure_gap(timer))
    return gaps


def _agree(gaps_s: Sequence[float]) -> bool:
    """Whether more than half of the gaps are near their median."""
    middle = statistics.median(gaps_s)
    return 2 * sum(abs(gap - middle) <= GAP_TOLERANCE_S for gap in gaps_s) > len(gaps_s)


def _measure_gap(timer: GpuTimer) -> dict[str, float]:
    calls = [_bind_addition(arguments) for arguments in timer.copies[:GAP_CALLS]]
    call, gap = timer.bind(_bind_addition), {}
    for state, take, each in (("cold", timer.cold, calls), ("warm", timer.warm, calls[:1] * GAP_CALLS)):
        profiled = _profile_calls(timer, each, state == "cold")
        if len(profiled) < len(each):
            return {}
        slope_s = statistics.median(take(call) for _ in range(SAMPLES))
        gap[state] = max(slope_s - statistics.median(profiled), 0.0)
    return gap


def _addition() -> dict[str, Any]:
    """The launch of a kernel that does next to nothing: it adds to one number and writes it elsewhere."""
    view = {"dtype": "float32", "itemsize": 4, "shape": [1], "stride": [1], "offset": 0}
    number = {"size_bytes": 4, "alignment": 256, "dtype": "float32", "device": "cuda", "values": {"kind": "zeros"}}
    arguments = [{"kind": "tensor", "tensor": {**view, "storage": storage}} for storage in (0, 1)]
    return {"storages": [number, number], "arguments": arguments, "mutated": [1]}


def _bind_addition(arguments: Arguments) -> Callable[[], Any]:
    source, target = arguments.args
    return lambda: torch.add(source, 1.0, out=target)


def _profile_calls(timer: GpuTimer, calls: Sequence[Callable[[], Any]], flush: bool) -> list[float]:
    """The profiler's time of each call; of fewer if it does not see them."""

    def run() -> None:
        if flush:
            timer.flush()
        for call in calls:
            call()

    try:
        return device_durations(run, "kernel")[-len(calls) :]
    except RuntimeError:  # another profiler is at work
        return []


def device_durations(run: Callable[[], object], *kinds: str) -> list[float]:
    """Seconds of all work on the device that ``run`` launches, in its order, by the profiler.

    ``kinds`` are the profiler's categories: ``kernel``, ``gpu_memcpy``, ``gpu_memset``.
    """
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it keeps the events of one cycle only
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            run()
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path, encoding="utf-8", errors="replace") as stream:
            events = json.load(stream)["traceEvents"]
    work = sorted((event for event in events if event.get("cat") in kinds), key=lambda event: event["ts"])
    return [event["dur"] * 1e-6 for event in work]
