"""Stores the trace of a program's steps, and finds the user's lines in a second trace."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ..records.traced import ProgramTrace, Range, StepWindow, UserCall
from .attribution import align_calls
from .compaction import LIMIT_BYTES, store_amended_trace
from .program_trace import NODE, Markers, Owners, find_graph_calls, find_window

# Stores the trace of a program's steps, with the owner of each device event among the event's arguments.


_ARGUMENTS = b'"args": {'


class EventNote(NamedTuple):
    """The arguments that a device event gets; empty ones are left out."""

    part: str
    kernel: str
    operator: str
    source: str


_NAMES = EventNote("part", "module kernel", "operator", "source line")


def store_program_trace(
    source: Path,
    target: Path,
    program: ProgramTrace,
    window: StepWindow,
    notes: Mapping[int, EventNote],
    limit_bytes: int = LIMIT_BYTES,
) -> None:
    """Stores the trace ``source`` of a program, gzipped, as ``target``.

    Args:
        source: a Chrome trace of torch.profiler.
        target: the file to write.
        program: its contents.
        window: its steps; the last ones are dropped first where the trace is too large.
        notes: what is said of each device event, by its index.
        limit_bytes: maximum size of ``target``.

    Raises:
        InductorBenchError: the target cannot be written.
    """
    events = program.trace.device_events
    texts = {
        (program.origin_ns + round(events[index].start_s * 1e9), events[index].correlation): _arguments(note)
        for index, note in notes.items()
    }

    def amend(start_ns: int, correlation: int, text: bytes) -> bytes:
        added = texts.get((start_ns, correlation))
        return text.replace(_ARGUMENTS, _ARGUMENTS + added, 1) if added else text

    marks = window.marks[:-1]
    store_amended_trace(source, target, program.trace, program.origin_ns, marks, amend, limit_bytes)


def _arguments(note: EventNote) -> bytes:
    pairs = (f"{json.dumps(name)}: {json.dumps(value)}, " for name, value in zip(_NAMES, note, strict=True) if value)
    return "".join(pairs).encode()


# Finds where the user's program called the operators of a trace, from a second trace with Python stacks.
#
# Stacks slow a program down, so that they are recorded in a step of their own. The operators of the two traces are
# paired by their order.


_FRAME = re.compile(r"(?P<file>.+)\((?P<line>[0-9]+)\): (?P<function>.+)")
_MODULE = re.compile(r"nn\.Module: (.+?)(?:_[0-9]+)?")
_BUILTIN = re.compile(r"<built-in (?:method|function) (\w+)\b")
_LIBRARY = re.compile(
    r"<|torch/|inductor_bench/|.*/(?:site|dist)-packages/torch/|.*/lib/python3[.0-9]*/(?!\w+-packages)"
)


def find_user_calls(
    program: ProgramTrace, tops: Sequence[int], lines: ProgramTrace, markers: Markers
) -> dict[int, UserCall]:
    """The user's call of each outermost operator of ``program``, by the operator's index.

    Args:
        program: the trace of the profiled steps.
        tops: for each of its host operators the outermost eager operator around it, or -1.
        lines: a trace of one step with Python stacks and modules.
        markers: the names of the observer's ranges.
    """
    window, known = find_window(program, markers), find_window(lines, markers)
    thread = known.thread if known else _busiest_thread(lines)
    if window is None or not thread:
        return {}
    known_tops = Owners(lines, find_graph_calls(lines, markers)).eager_tops
    start, end = (known.marks[-2], known.marks[-1]) if known else (float("-inf"), float("inf"))
    expected = list(_operators(lines, known_tops, thread, start, end))
    sites = _sites(lines, expected, thread)
    names = [lines.trace.host_ops[index].name for index in expected]
    found: dict[int, UserCall] = {}
    for first, last in itertools.pairwise(window.marks):
        mine = list(_operators(program, tops, window.thread, first, last))
        places = align_calls(names, [program.trace.host_ops[index].name for index in mine])
        found.update((op, sites[place]) for op, place in zip(mine, places, strict=True) if place is not None)
    found.update(_backward_calls(program, tops, found))
    return found


def _busiest_thread(lines: ProgramTrace) -> str:
    threads = [one.thread for one in lines.frames]
    return max(set(threads), key=threads.count) if threads else ""


def _operators(program: ProgramTrace, tops: Sequence[int], thread: str, start_s: float, end_s: float) -> Iterator[int]:
    """The outermost operators that a thread called in a stretch of time."""
    for index, op in enumerate(program.trace.host_ops):
        if tops[index] == index and op.thread == thread and start_s <= op.start_s < end_s:
            yield index


def _backward_calls(
    program: ProgramTrace, tops: Sequence[int], forward: Mapping[int, UserCall]
) -> Iterator[tuple[int, UserCall]]:
    """The calls of the nodes of a backward: those of the forward operators that made them.

    A node has the sequence number of its operator. Operators that make no node carry the number of the next one.
    """
    makers: dict[int, int] = {}
    for index, (op, number) in enumerate(zip(program.trace.host_ops, program.sequences, strict=True)):
        if number < 0:
            continue
        if not program.forward_threads[index]:
            makers[number] = tops[index]
        elif tops[index] == index and op.name.startswith(NODE):
            maker = makers.get(number, -1)
            if maker in forward:
                yield index, forward[maker]


def _sites(lines: ProgramTrace, operators: Sequence[int], thread: str) -> list[UserCall]:
    """The user's call of each operator. Operators and frames are sorted by start."""
    frames = iter([one for one in lines.frames if one.thread == thread])
    upcoming = next(frames, None)
    stack: list[Range] = []
    sites = []
    for index in operators:
        op = lines.trace.host_ops[index]
        start = op.start_s
        while upcoming is not None and upcoming.start_s <= start:
            while stack and stack[-1].end_s <= upcoming.start_s:
                stack.pop()
            # The profiler misses the returns of some built-in functions. They end with the function around them.
            end = min(upcoming.end_s, stack[-1].end_s) if stack else upcoming.end_s
            stack.append(upcoming._replace(duration_s=end - upcoming.start_s))
            upcoming = next(frames, None)
        while stack and stack[-1].end_s < start:
            stack.pop()
        sites.append(_site([one for one in stack if one.end_s >= start], op.name))
    return sites


def _site(stack: Sequence[Range], operator: str) -> UserCall:
    module = next((found.group(1) for one in reversed(stack) if (found := _MODULE.fullmatch(one.name))), "")
    for place in range(len(stack) - 1, -1, -1):
        frame = _FRAME.fullmatch(stack[place].name)
        if frame and is_users(frame["file"]):
            called = dict.fromkeys([*_called(stack[place + 1 : place + 4]), operator.partition("::")[2]])
            return UserCall(module, frame["file"], int(frame["line"]), frame["function"], tuple(called))
    return UserCall(module)


def _called(stack: Iterable[Range]) -> Iterator[str]:
    """The bare names of the functions in a stack, and the classes of the modules."""
    for one in stack:
        frame, builtin, module = _FRAME.fullmatch(one.name), _BUILTIN.match(one.name), _MODULE.fullmatch(one.name)
        if module:
            yield module.group(1)
        elif builtin:
            yield builtin.group(1)
        elif frame:
            yield frame["function"]


def is_users(file: str) -> bool:
    """Whether a file of a stack belongs to neither torch nor Python."""
    if _LIBRARY.match(file):
        return False
    top = file.split("/")[0].removesuffix(".py")
    return file.startswith("/") or top not in sys.stdlib_module_names
