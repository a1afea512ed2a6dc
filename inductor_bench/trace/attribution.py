"""Attributes each device activity of a trace (on a CPU: each outermost operator) to its call in the compiled module.

Attribution follows the trace's ids and the order of calls; names are a cross-check.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

from ..devices.table import find_device
from ..records.code import CallSite, KernelDefinition, ModuleSource
from ..records.traced import Activity, DeviceEvent, Iteration, TensorArguments, Trace
from .iterations import is_operator, list_children

# Pairs the calls in a module's text with the calls in a trace, by the order of their names.


_MOST_DIFFERENCES = 1500
"""Number of differences above which two sequences count as unrelated; time and memory grow with its square."""


def align_calls(expected: Sequence[str], seen: Sequence[str]) -> list[int | None]:
    """Returns for each name of ``seen`` the index of its call in ``expected``, or ``None`` for an extra call.

    The indices increase, and only equal names are paired: the pairs are a longest common subsequence. An expected call
    may have no partner. Time is O(n·d) for n names and d differences.
    """
    if list(expected) == list(seen):
        return list(range(len(expected)))
    wanted, present = set(expected), set(seen)
    left = [index for index, name in enumerate(expected) if name in present]
    right = [index for index, name in enumerate(seen) if name in wanted]
    pairs: list[int | None] = [None] * len(seen)
    for ours, theirs in _count_common([expected[index] for index in left], [seen[index] for index in right]):
        pairs[right[theirs]] = left[ours]
    return pairs


def _count_common(left: list[str], right: list[str]) -> list[tuple[int, int]]:
    """Returns the index pairs of a longest common subsequence."""
    shortest = min(len(left), len(right))
    head = 0
    while head < shortest and left[head] == right[head]:
        head += 1
    tail = 0
    while tail < shortest - head and left[-1 - tail] == right[-1 - tail]:
        tail += 1
    middle = _search(left[head : len(left) - tail], right[head : len(right) - tail])
    pairs = [(index, index) for index in range(head)]
    pairs += [(head + ours, head + theirs) for ours, theirs in middle]
    return pairs + [(len(left) - tail + index, len(right) - tail + index) for index in range(tail)]


def _search(left: list[str], right: list[str]) -> list[tuple[int, int]]:
    """Myers' greedy search: each round allows one difference more and stores the furthest point on each diagonal."""
    if not left or not right:
        return []
    most = min(len(left) + len(right), _MOST_DIFFERENCES)
    furthest = array("i", bytes(4 * (2 * most + 3)))  # diagonal d stands at most + 1 + d
    rounds = []
    for differences in range(most + 1):
        rounds.append(furthest[most - differences : most + differences + 3])
        for diagonal in range(-differences, differences + 1, 2):
            here = most + 1 + diagonal
            down = diagonal == -differences or (diagonal != differences and furthest[here - 1] < furthest[here + 1])
            x = furthest[here + 1] if down else furthest[here - 1] + 1
            y = x - diagonal
            while x < len(left) and y < len(right) and left[x] == right[y]:
                x, y = x + 1, y + 1
            furthest[here] = x
            if x >= len(left) and y >= len(right):
                return _list_matched_pairs(rounds, len(left), len(right))
    return _match_blocks(left, right)


def _list_matched_pairs(rounds: list[array[int]], x: int, y: int) -> list[tuple[int, int]]:
    pairs = []
    for differences in range(len(rounds) - 1, -1, -1):
        furthest, diagonal = rounds[differences], x - y
        here = differences + 1 + diagonal
        down = diagonal == -differences or (diagonal != differences and furthest[here - 1] < furthest[here + 1])
        before = diagonal + 1 if down else diagonal - 1
        start_x = furthest[differences + 1 + before] if differences else 0
        start_y = start_x - before if differences else 0
        turn_x = (start_x if down else start_x + 1) if differences else 0
        while x > turn_x:
            x, y = x - 1, y - 1
            pairs.append((x, y))
        x, y = start_x, start_y
    return pairs[::-1]


def _match_blocks(left: list[str], right: list[str]) -> list[tuple[int, int]]:
    blocks = SequenceMatcher(None, left, right, autojunk=False).get_matching_blocks()
    return [(block.a + step, block.b + step) for block in blocks for step in range(block.size)]


_NUMBER = re.compile(r"\s*-?[0-9]{1,18}\s*")
LIBRARIES = re.compile(r"mkldnn|onednn|\bmkl|flash_attention|xnnpack|fbgemm")
"""Names of operators that contain the name of their library; they are nested in the operator that the module calls."""


def attribute_activities(trace: Trace, iterations: Sequence[Iteration], source: ModuleSource) -> tuple[Activity, ...]:
    """Returns the activities of each iteration, each with its call site, its kernel and its operator.

    On a GPU an activity is a device event. On a CPU it is an outermost operator, with its inclusive time.
    """
    reader = _Attribution(trace, source)
    if find_device(source.device).runs_on_host:
        return tuple(activity for index, one in enumerate(iterations) for activity in reader.host(index, one))
    return tuple(activity for index, one in enumerate(iterations) for activity in reader.device(index, one))


class _Attribution:
    def __init__(self, trace: Trace, source: ModuleSource) -> None:
        self._trace = trace
        self._source = source
        self._by_name = {kernel.name: kernel for kernel in source.kernels}
        self._by_event = {kernel.event_name: kernel for kernel in source.kernels}
        self._by_hash = {kernel.kernel_hash: kernel for kernel in source.kernels if kernel.kernel_hash}
        self._choices = {name: call.target for call in source.calls for name in call.alternatives}
        self._expected = [self._expected_name(call) for call in source.calls]
        self._children = list_children(trace)

    def _expected_name(self, call: CallSite) -> str:
        # A host operator is named by the module's variable (add_kernel_0), a device event by the function (add_kernel).
        if call.kernel is not None or call.alternatives:
            return call.kernel or call.target
        return (call.operator or call.target).replace(".", "::", 1)

    def _calls(self, iteration: Iteration) -> dict[int, CallSite]:
        """Returns the call site of each outermost operator of an iteration, by the operator's index."""
        seen = [self._host_name(index) for index in iteration.top_ops]
        places = align_calls(self._expected, seen)
        pairs = zip(iteration.top_ops, places, strict=True)
        return {op: self._source.calls[place] for op, place in pairs if place is not None}

    def _launches(self, iteration: Iteration) -> dict[int, CallSite]:
        """Returns the call sites of the launches that can be found by order, if no operators were recorded
        (cpp_wrapper)."""
        events = [(place, self._trace.device_events[place]) for place in iteration.device_events]
        if any(event.host_op >= 0 for _, event in events):
            return {}
        kernels = [self._by_event.get(event.name) for _, event in events]
        indices = align_calls(self._expected, [kernel.name if kernel else "" for kernel in kernels])
        before = -1
        for number, index in enumerate(indices):
            if index is None:
                after = next((later for later in indices[number:] if later is not None), len(self._expected))
                # An event between two generated kernels belongs to the library call between them, if there is one only.
                indices[number] = before + 1 if after - before == 2 else None
            else:
                before = index
        pairs = zip(events, indices, strict=True)
        return {place: self._source.calls[index] for (place, _), index in pairs if index is not None}

    def _host_name(self, index: int) -> str:
        name = self._trace.host_ops[index].name
        if name.startswith("graph_"):  # C++ kernels are recorded as graph_<n>_<kernel>
            bare = name.split("_", 2)[-1]
            return bare if bare in self._by_name else name
        return self._choices.get(name, name)

    def device(self, index: int, iteration: Iteration) -> Iterator[Activity]:
        calls = self._calls(iteration)
        tops = set(iteration.top_ops)
        unrecorded = self._launches(iteration)
        for place in iteration.device_events:
            event = self._trace.device_events[place]
            top = self._top_of(event.host_op, tops)
            if top < 0 and event.launch_start_s is not None:
                top = self._top_at(event.launch_start_s, iteration)
            call = calls.get(top) if top >= 0 else unrecorded.get(place)
            yield Activity(
                iteration=index,
                name=event.name,
                kind=event.kind,
                duration_s=event.duration_s,
                call=call,
                kernel=self._kernel(event, top, call),
                operator=self._operator(top),
                instance=top,
                arguments=self._trace.host_ops[top].arguments if top >= 0 else None,
                config=self._config(event.host_op),
                event=event,
                inner=self._inner(event.host_op, top),
            )

    def host(self, index: int, iteration: Iteration) -> Iterator[Activity]:
        calls = self._calls(iteration)
        for top in iteration.top_ops:
            op = self._trace.host_ops[top]
            kernel = self._by_name.get(self._host_name(top))
            yield Activity(
                iteration=index,
                name=kernel.name if kernel else self._library_name(top),
                kind="kernel",
                duration_s=op.duration_s,
                call=calls.get(top),
                kernel=kernel,
                operator=None if kernel else op.name,
                instance=top,
                arguments=op.arguments,
                config={},
                event=None,
            )

    def _top_of(self, index: int, tops: set[int]) -> int:
        while index >= 0 and index not in tops:
            index = self._trace.host_ops[index].parent
        return index

    def _top_at(self, time_s: float, iteration: Iteration) -> int:
        """Returns the outermost operator that was running at a launch.

        It is needed because the profiler loses some ids.
        """
        ops = self._trace.host_ops
        place = bisect_right(iteration.top_ops, time_s, key=lambda index: ops[index].start_s) - 1
        if place < 0:
            return -1
        top = iteration.top_ops[place]
        return top if time_s <= ops[top].start_s + ops[top].duration_s else -1

    def _kernel(self, event: DeviceEvent, top: int, call: CallSite | None) -> KernelDefinition | None:
        if event.host_op >= 0:
            known = self._by_hash.get(self._trace.host_ops[event.host_op].kernel_hash or "")
            if known is not None:
                return known
        if call is not None and call.kernel is not None:
            kernel = self._by_name.get(call.kernel)
            return kernel if event.kind == "kernel" else None
        if call is None and (top < 0 or self._operator(top) is None):
            return self._by_event.get(event.name)
        return None

    def _operator(self, top: int) -> str | None:
        name = self._trace.host_ops[top].name if top >= 0 else ""
        return name if is_operator(name) else None

    def _inner(self, index: int, top: int) -> tuple[str, TensorArguments] | None:
        if index < 0 or index == top:
            return None
        op = self._trace.host_ops[index]
        return (op.name, op.arguments) if op.arguments is not None and is_operator(op.name) else None

    def _config(self, index: int) -> dict[str, int]:
        if index < 0:
            return {}
        op = self._trace.host_ops[index]
        values = _parse_kwargs(op.kernel_kwargs)
        for name, value in (("num_warps", op.num_warps), ("num_stages", op.num_stages)):
            if value is not None:
                values[name] = value
        return values

    def _library_name(self, index: int) -> str:
        """Returns the name of the first inner operator that names a library, or the outermost operator's own name.

        The choice depends only on names: a choice by time would give one call two names if timings vary.
        """
        below = [index]
        while below:
            place = below.pop()
            name = self._trace.host_ops[place].name
            if LIBRARIES.search(name):
                return name
            below += reversed(self._children[place])
        return self._trace.host_ops[index].name


def _parse_kwargs(text: str | None) -> dict[str, int]:
    pairs = (part.split("=", 1) for part in (text or "").split(",") if "=" in part)
    return {name.strip(): int(value) for name, value in pairs if _NUMBER.fullmatch(value)}
