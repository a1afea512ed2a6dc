"""Times one call on a GPU, with its arguments out of the caches (cold) and in them (warm).

Calls are unrolled in CUDA graphs of two lengths, and what counts is the slope between them: what a launch, a graph and
an event cost is the same in both. A cold graph first reads more than the L2 holds and then calls with as many copies of
the arguments as it has launches, so that none finds its own in the cache, however little of them it touches; what
earlier calls wrote is written back meanwhile, as in a model. A warm graph calls with one copy.

Calls write: what they write is put back between windows, outside of the timed part, so that values do not drift away
over thousands of calls. Storages named by ``reset`` must be as they were before every single call (the flags of a
split scan, whole numbers that index what the same kernel reads); they are reset inside of the graph, and the slope of
graphs that only reset is taken off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .arguments import Arguments, copy_arguments, mutated_storages, touched_bytes
from .timing import summarize

WINDOWS = 15
WINDOW_S = 2e-3
COLD_GRAPH_S = 4e-4
L2_MULTIPLE = 3
MOST_LAUNCHES = 256
MOST_STORAGES = 4096  # over all copies
MEMORY_SHARE = 0.4
WARM_UP_S = 0.05


class GpuTimer:
    """Times ``call(arguments)``.

    Args:
        call: launches on the current stream; what it returns is what it allocated.
        arguments: as ``build_arguments`` makes them, with the values that every call starts from.
        copy: makes more of them, with the values that they have at the time.
        touched: about how many bytes one call moves.
        mutated: the indices of the storages that a call writes.
        reset: the indices of those that must be reset before every call.
    """

    def __init__(
        self,
        call: Callable[[Any], Any],
        arguments: Any,
        copy: Callable[[], Any],
        touched: int,
        mutated: Sequence[int] = (),
        reset: Sequence[int] = (),
    ) -> None:
        self.call, self.copies, self.reset = call, [arguments], sorted(set(reset))
        kept = {*mutated, *reset}
        self.originals = {index: arguments.storages[index].clone() for index in sorted(kept)}
        self.copy, self.method = copy, "graphs"
        self.touched = max(touched, 1)
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        self.cache_bytes = int(getattr(properties, "L2_cache_size", 0)) or 64 << 20
        self.flushed: torch.Tensor | None = None
        self.sink: torch.Tensor | None = None

    def measure(self) -> dict[str, Any]:
        """``{cold, warm, method}``.

        A timing has ``median_s``, ``low_s`` and ``high_s`` (10 and 90%), ``min_s`` and ``samples``. ``method`` is
        ``graphs``, or says why events around plain launches had to do: these include the time that the
        host needs for a launch, where that is longer than the kernel.
        """
        stream = torch.cuda.current_stream()
        estimate = self._estimate()
        self._make_copies(estimate)
        try:
            return {"cold": self._cold(), "warm": self._warm(estimate), "method": self.method}
        except RuntimeError as error:  # what cannot be captured: host synchronisation, some libraries
            torch.cuda.set_stream(stream)  # a failed capture leaves its own behind
            torch.cuda.synchronize()
            self.method = f"events, no graph: {str(error).splitlines()[0][:80]}"
        finally:
            self._restore()
        try:
            cold, warm = self._by_events(self.copies, estimate), self._by_events(self.copies[:1], estimate)
        finally:
            self._restore()
        return {"cold": cold, "warm": warm, "method": self.method}

    def _estimate(self) -> float:
        """Seconds of a call, roughly; the device's clocks have risen afterwards."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        self._reset(self.copies[0])
        self._take_size(self.call(self.copies[0]))
        torch.cuda.synchronize()
        spent, best = 0.0, float("inf")
        while spent < WARM_UP_S:
            start.record()
            for _ in range(5):
                self._reset(self.copies[0])
                self.call(self.copies[0])
            end.record()
            end.synchronize()
            window = start.elapsed_time(end) * 1e-3
            spent, best = spent + max(window, 1e-4), min(best, window / 5)
        self._restore()
        return max(best, 1e-6)

    def _take_size(self, result: Any) -> None:
        """Counts what a call allocates among the bytes of one copy."""
        values = result if isinstance(result, list | tuple) else [result]
        tensors = [value for value in values if isinstance(value, torch.Tensor) and value.is_cuda]
        self.result_bytes = sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    def _make_copies(self, estimate: float) -> None:
        storages = self.copies[0].storages
        size = sum(storage.numel() + 512 for storage in storages) + self.result_bytes
        wanted = max(-(-L2_MULTIPLE * self.cache_bytes // self.touched), round(COLD_GRAPH_S / estimate), 4)
        wanted = min(wanted, MOST_LAUNCHES, max(MOST_STORAGES // max(len(storages), 1), 8))
        free = torch.cuda.mem_get_info()[0]
        flush = min(L2_MULTIPLE * self.cache_bytes, free // 8)
        self.flushed = torch.zeros(flush // 4, dtype=torch.float32, device="cuda")
        self.sink = torch.zeros((), dtype=torch.float32, device="cuda")
        count = min(wanted, int((free - flush) * MEMORY_SHARE) // max(size, 1) + 1)
        while len(self.copies) < count:
            self.copies.append(self.copy())

    def _cold(self) -> dict[str, Any]:
        many = len(self.copies)
        few = many // 4
        long, short = self._capture(self.copies, True, True), self._capture(self.copies[:few], True, True)
        return self._slope(long, short, many, few, self._reset_time(self.copies, few))

    def _warm(self, estimate: float) -> dict[str, Any]:
        many = max(4, min(round(COLD_GRAPH_S / estimate), MOST_LAUNCHES)) // 4 * 4
        sets = self.copies[:1] * many
        long, short = self._capture(sets, False, True), self._capture(sets[: many // 4], False, True)
        return self._slope(long, short, many, many // 4, self._reset_time(sets, many // 4))

    def _reset_time(self, sets: Sequence[Any], few: int) -> float:
        if not self.reset:
            return 0.0
        long, short = self._capture(sets, False, False), self._capture(sets[:few], False, False)
        return float(self._slope(long, short, len(sets), few, 0.0)["median_s"])

    def _capture(self, sets: Sequence[Any], flush: bool, calling: bool) -> Callable[[], object]:
        """A graph of one call with each of the sets, after a read of the whole cache if ``flush``."""
        if not sets and not flush:
            return lambda: None
        graph, kept = torch.cuda.CUDAGraph(), []
        distinct = len({id(each) for each in sets}) == len(sets)
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            if flush and self.flushed is not None:
                torch.sum(self.flushed, dim=0, out=self.sink)
            for each in sets:
                self._reset(each)
                result = self.call(each) if calling else None
                if distinct:  # else the next call would write where this one did, which is in the cache
                    kept.append(result)
        graph.replay()
        torch.cuda.synchronize()
        kept.clear()

        def replay() -> None:
            graph.replay()

        return replay

    def _slope(
        self, long: Callable[[], object], short: Callable[[], object], many: int, few: int, off: float
    ) -> dict[str, Any]:
        # As many replays of either: what starting a window costs must be the same in both.
        count = min(max(1, round(WINDOW_S / max(self._window(long, 1), 1e-6))), 400)
        samples = []
        for index in range(WINDOWS + 2):
            self._restore()
            order = (long, short) if index % 2 else (short, long)
            times = [self._window(each, count) / count for each in order]
            longer, shorter = times if index % 2 else times[::-1]
            if index >= 2:  # the first are for the clocks
                samples.append((longer - shorter) / (many - few) - off)
        return summarize(samples)

    def _window(self, replay: Callable[[], object], count: int) -> float:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(count):
            replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def _by_events(self, sets: Sequence[Any], estimate: float) -> dict[str, Any]:
        count = max(5, min(round(WINDOW_S / estimate), 500))
        samples = []
        for _ in range(WINDOWS):
            self._restore()
            place = iter(range(count))

            def launch(place: Any = place) -> None:
                each = sets[next(place) % len(sets)]
                self._reset(each)
                self.call(each)

            samples.append(self._window(launch, count) / count)
        return summarize(samples)

    def _reset(self, arguments: Any) -> None:
        for index in self.reset:
            arguments.storages[index].copy_(self.originals[index])

    def _restore(self) -> None:
        for each in self.copies:
            for index, original in self.originals.items():
                each.storages[index].copy_(original)


def measure_cuda(
    launch: dict[str, Any],
    arguments: Arguments,
    bind: Callable[[Arguments], Callable[[], Any]],
    moved: int | None = None,
    reset: Sequence[int] = (),
) -> dict[str, Any]:
    """Times a recorded launch: ``{cold, warm, method}``, as :meth:`GpuTimer.measure`.

    Args:
        launch: the encoded launch.
        arguments: its arguments, with the values that every call starts from.
        bind: gives what makes one call with some arguments, on the current stream.
        moved: the bytes that a call moves; otherwise the extent of its tensors counts.
        reset: the storages to reset before every call.
    """
    bound: dict[int, Callable[[], Any]] = {}

    def call(each: Arguments) -> Any:
        if id(each) not in bound:  # the timer keeps what it calls with
            bound[id(each)] = bind(each)
        return bound[id(each)]()

    device = f"cuda:{torch.cuda.current_device()}"
    touched = moved or touched_bytes(launch)
    timer = GpuTimer(
        call, arguments, lambda: copy_arguments(launch, arguments, device), touched, mutated_storages(launch), reset
    )
    return timer.measure()
