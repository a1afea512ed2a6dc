"""Predicts which bytes of a program's step come from DRAM and which from the cache, call by call.

The model is a cache that holds the bytes that the step touched last. Nothing is measured. Its rules:

- A call touches its buffers together. Bytes that were not touched within the last cache-full of distinct bytes are
evicted: the oldest call's buffers first, all in proportion.
- Reads of a buffer come from the cache for the share of the buffer that is still there, and from DRAM for the rest.
- 60% of a GPU's cache holds distinct bytes (:data:`DEVICE_CACHE`): the L2 of recent NVIDIA GPUs has two halves, and
some bytes that all multiprocessors read are in the two halves.
- A written byte goes to DRAM in the call that writes it, and stays in the cache.
- A CPU's cache holds distinct bytes in its full size, and written bytes stay in it (:data:`HOST_CACHE`). A byte reaches
DRAM with the call that touches its buffer, as long as the buffer does not fit into the cache.
- The prediction is for a second step, which begins with the cache that the first step left.

Rules and share are fitted to what Nsight Compute counts on an H200 in a step of ``scripts/programs/blocks.py`` (see
``scripts/benchmark_dram.py``): 75% of the time of its 30 most expensive kernels is predicted within 20%. If the model
uses the whole cache, and writes bytes to DRAM only when they are evicted, it is 4%.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from ..devices.table import find_device
from ..errors import InductorBenchError
from ..records.code import BufferUse, ModuleBuffers, ModuleSource
from ..records.evidence import Evidence, ObservedTouches
from ..records.run import Peaks
from ..source.static_calls import read_buffers
from .call_work import EagerOperators, count_eager_bytes, fit_uses
from .evidence_files import EvidenceFiles


@dataclass(frozen=True, slots=True)
class CacheRules:
    """How a cache works: the share of it that holds distinct bytes, and whether it keeps written bytes."""

    usable: float
    keeps_written: bool = False


DEVICE_CACHE, HOST_CACHE = CacheRules(0.6), CacheRules(1.0, keeps_written=True)
"""The rules of a GPU's L2, and the rules of a CPU's last level."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """The bytes that one call reads from and writes to DRAM and the cache."""

    dram_read: float = 0.0  # bytes read from DRAM
    cache_read: float = 0.0  # bytes read from the cache
    written: float = 0.0  # bytes that the call writes
    dram_written: float = 0.0  # those of them that go to DRAM

    @property
    def dram_bytes(self) -> float:
        """All bytes between the cache and DRAM."""
        return self.dram_read + self.dram_written

    @property
    def touched_bytes(self) -> float:
        """The bytes that the call itself reads and writes."""
        return self.dram_read + self.cache_read + self.written


@dataclass(frozen=True)
class StepCall:
    """One call of a compiled graph in the step."""

    graph: Hashable  # the graph
    buffers: ModuleBuffers  # the buffers of its calls
    # the addresses of its arguments and results, in order; 0 for what is no tensor, empty if they are unknown
    inputs: tuple[int, ...] = ()
    # the addresses of its arguments and results, in order; 0 for what is no tensor, empty if they are unknown
    outputs: tuple[int, ...] = ()


@dataclass(frozen=True)
class EagerBytes:
    """The bytes that eager operators touch between two calls of graphs: buffers that nothing else in the step uses."""

    size: int


def simulate_step_traffic(
    step: Sequence[StepCall | EagerBytes], cache_bytes: int, rules: CacheRules = DEVICE_CACHE
) -> tuple[tuple[Traffic | None, ...], ...]:
    """The traffic of each call site of each item of a step; ``None`` for a call with unknown buffers.

    A buffer is known by its address, so that results of one graph are arguments of the next. Without addresses each
    call of a graph in the step has arguments and results of its own, which are the same in every step. Memory that a
    graph frees is used by the next graph.

    Args:
        step: the items in order.
        cache_bytes: the size of the cache.
        rules: how it works.
    """
    numbers: dict[Hashable, int] = {}
    placed = [_place(number, item, numbers) for number, item in enumerate(step)]
    cache = _Cache(round(cache_bytes * rules.usable), len(numbers), rules.keeps_written)
    for _ in range(2):
        traffic = tuple(tuple(cache.touch(uses) if uses else None for uses in calls) for calls in placed)
    return traffic


def compute_dram_shares(
    step: Sequence[StepCall | EagerBytes], traffic: Sequence[Sequence[Traffic | None]]
) -> dict[Hashable, dict[int, float]]:
    """For each graph and each of its call sites: DRAM's bytes per byte that the call touches.

    It is the mean over the graph's calls in the step.
    """
    sums: dict[Hashable, dict[int, list[float]]] = {}
    for item, calls in zip(step, traffic, strict=True):
        if isinstance(item, StepCall):
            sites = sums.setdefault(item.graph, {})
            for site, one in enumerate(calls):
                if one is not None and one.touched_bytes:
                    total = sites.setdefault(site, [0.0, 0.0])
                    total[0] += one.dram_bytes
                    total[1] += one.touched_bytes
    return {graph: {site: dram / touched for site, (dram, touched) in sites.items()} for graph, sites in sums.items()}


_Placed = tuple[tuple[int, BufferUse], ...]
"""The uses of one call, each with the number of its buffer in the program."""


def _place(number: int, item: StepCall | EagerBytes, numbers: dict[Hashable, int]) -> list[_Placed | None]:
    """The uses of each call site. ``numbers`` holds the number of each buffer's identity, and receives new ones."""
    if isinstance(item, EagerBytes):
        buffer = numbers.setdefault(("eager", number), len(numbers))
        return [((buffer, BufferUse("eager", item.size, item.size, read=item.size)),)]
    named = {
        name: numbers.setdefault(identity, len(numbers)) for name, identity in _identify_buffers(number, item).items()
    }
    return [
        tuple((named[use.buffer], use) for use in uses) if uses is not None else None for uses in item.buffers.calls
    ]


def _identify_buffers(number: int, call: StepCall) -> dict[str, Hashable]:
    """The identity of each buffer of a graph's call, by its name in the module."""
    found: dict[str, Hashable] = {}
    for names, addresses in ((call.buffers.inputs, call.inputs), (call.buffers.outputs, call.outputs)):
        known = addresses if len(addresses) == len(names) else (0,) * len(names)
        for name, address in zip(names, known, strict=True):
            found.setdefault(name, ("address", address) if address else ("call", number, name))
    counts: dict[int, int] = {}
    for uses in call.buffers.calls:
        for use in uses or ():
            if use.buffer not in found:
                place = counts[use.size] = counts.get(use.size, 0) + 1
                found[use.buffer] = ("memory", use.size, place)
    return found


@dataclass(slots=True, eq=False)
class _Generation:
    """The buffers that one call touched and no later call did."""

    resident: float = 0.0  # the sum over its buffers of the bytes in the cache when the call ended
    kept: float = 1.0  # the share of them that has not been evicted since


_ABSENT = _Generation(kept=0.0)


class _Cache:
    """The bytes in the cache, by the call that touched them last.

    Args:
        size: the bytes that it holds.
        buffers: the number of buffers in the program.
        keeps_written: whether what is written goes to DRAM only if its buffer does not fit.
    """

    def __init__(self, size: int, buffers: int, keeps_written: bool) -> None:
        self._size, self._keeps_written = size, keeps_written
        self._held = 0.0
        self._generations: deque[_Generation] = deque()
        # The last call that touched each buffer, and the buffer's resident bytes at its end.
        self._last = [_ABSENT] * buffers
        self._resident = [0.0] * buffers

    def touch(self, uses: _Placed) -> Traffic:
        """Touches the buffers of one call."""
        dram_read = cache_read = written = dram_written = 0.0
        touching = _Generation()
        for buffer, use in uses:
            last, resident = self._last[buffer], self._resident[buffer]
            last.resident -= resident
            resident *= last.kept
            if use.read:
                found = use.read * min(1.0, resident / use.size)
                cache_read += found
                dram_read += use.read - found
            written += use.written
            kept = min(1.0, resident / use.size) if self._keeps_written and use.size else 0.0
            dram_written += use.written * (1 - kept)
            # A larger buffer may have had this address before.
            now = max(resident, min(float(use.size), resident + use.touched))
            if last is not touching:
                self._held -= resident
            self._last[buffer] = touching
            self._resident[buffer] = now
            touching.resident += now
        self._held += touching.resident
        self._generations.append(touching)
        self._evict()
        return Traffic(dram_read, cache_read, written, dram_written)

    def _evict(self) -> None:
        """Evicts the oldest bytes until the rest fits."""
        while self._held > self._size:
            oldest = self._generations[0]
            resident = oldest.resident * oldest.kept
            surplus = self._held - self._size
            if resident <= surplus:
                share = 1.0
                self._generations.popleft()
            else:
                share = surplus / resident
            oldest.kept *= 1.0 - share
            self._held -= resident * share
            if not self._generations:
                self._held = 0.0


# The same for the modules of a program, from the calls of one observed step.


def describe_buffers(text: str, source: ModuleSource) -> ModuleBuffers:
    """The buffers of a module's calls. A generated kernel touches of a large buffer what Inductor counts.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    counts = {kernel.name: kernel.moved_bytes for kernel in source.kernels}
    found = read_buffers(text, source)
    calls = zip(source.calls, found.calls, strict=True)
    fitted = (fit_uses(uses, counts.get(call.kernel or "")) if uses is not None else None for call, uses in calls)
    return replace(found, calls=tuple(fitted))


def lay_out_step(
    paths: Sequence[str],
    touches: ObservedTouches,
    modules: Mapping[str, ModuleBuffers],
    eager: Mapping[int, int] | None = None,
) -> tuple[StepCall | EagerBytes, ...]:
    """The step of a program, in its order.

    Args:
        paths: the module of each graph.
        touches: the graph calls of the step.
        modules: the buffers of each module. The arguments and results of other graphs are bytes that
            nothing else touches.
        eager: the bytes of the eager operators before the graph call of a number; those after the last call have
            the next number.
    """
    step: list[StepCall | EagerBytes] = []
    eager = eager or {}
    for number, call in enumerate(touches.calls):
        step += [EagerBytes(size) for size in [eager.get(number, 0)] if size]
        path = paths[call.graph] if call.graph < len(paths) else ""
        if path in modules:
            inputs, outputs = (tuple(address for address, _ in places) for places in (call.inputs, call.outputs))
            step.append(StepCall(path, modules[path], inputs, outputs))
        else:
            step.append(EagerBytes(sum(size for _, size in (*call.inputs, *call.outputs))))
    step += [EagerBytes(size) for size in [eager.get(len(touches.calls), 0)] if size]
    return tuple(step)


def count_bytes_between(touches: ObservedTouches, eager: EagerOperators | None, peaks: Peaks) -> dict[int, int]:
    """The bytes of eager operators for :func:`lay_out_step`.

    Args:
        touches: the graph calls of one step.
        eager: the eager operators of another step; they count only if it called the same graphs in the same order.
        peaks: the peaks of the device.
    """
    if eager is None or eager.graphs != tuple(call.graph for call in touches.calls):
        return {}
    known = [place for call in touches.calls for place in (*call.inputs, *call.outputs)]
    return count_eager_bytes(eager, known, max(peaks.memory_bandwidth, peaks.find_cache_bandwidth(0) or 0.0))


def predict_dram_shares(
    paths: Sequence[str],
    touches: ObservedTouches,
    modules: Mapping[str, ModuleBuffers],
    cache_bytes: int,
    eager: Mapping[int, int],
    device: str,
) -> dict[Hashable, dict[int, float]]:
    """Predicts the DRAM bytes per byte that a call site touches, by its module and its index; see :func:`lay_out_step`.

    ``cache_bytes`` is the size of the device's cache.
    """
    step = lay_out_step(paths, touches, modules, eager)
    rules = HOST_CACHE if find_device(device or "cuda").runs_on_host else DEVICE_CACHE
    return compute_dram_shares(step, simulate_step_traffic(step, cache_bytes, rules))


def read_buffers_of(slug: str, files: EvidenceFiles) -> ModuleBuffers:
    """:func:`describe_buffers` of a module of a RUN, which is made once."""
    return files.once(f"buffers of {slug}", None, lambda: describe_buffers(files.text(slug), files.source(slug)))


def compute_shares_in_step(
    evidence: Evidence, files: EvidenceFiles, peaks: Peaks | None, eager: Mapping[int, EagerOperators]
) -> Mapping[Hashable, Mapping[int, float]]:
    """Predicts, for each call site of each module, the DRAM bytes per byte that the call touches in the program's step.

    Returns nothing if no step was observed, or if the size of the cache is unknown. ``eager`` holds the eager operators
    of a step by the id of its process.
    """
    seen = next((one for one in evidence.processes if one.touches is not None), None)
    if seen is None or seen.touches is None or peaks is None or peaks.cache_bytes is None:
        return {}
    buffers = {}
    for module in evidence.modules:
        with suppress(InductorBenchError):  # the bytes of this call count, but their source is unknown
            buffers[module.slug] = read_buffers_of(module.slug, files)
    between = count_bytes_between(seen.touches, eager.get(seen.steps.pid), peaks)
    return predict_dram_shares(seen.modules, seen.touches, buffers, peaks.cache_bytes, between, seen.steps.device)
