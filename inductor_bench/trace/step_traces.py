"""Stores the trace of a program's steps, and reads the user's lines from a second trace."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from ..records.traced import ProgramTrace, Range, Trace, UserCall
from .attribution import align_calls
from .compaction import amend_trace, store_steps_trace
from .program_trace import NODE, Markers, Owners, find_graph_calls, find_window, read_program_trace

# Stores the trace of a program's steps, and adds the owner of each device event to the event's arguments.


LIMIT_BYTES = 30_000_000
"""The largest stored trace of a program's steps: about 360 MB of text. The analysis sees the steps that fit."""

_ARGUMENTS = b'"args": {'


class EventNote(NamedTuple):
    """The arguments that a device event gets; empty ones are left out."""

    part: str
    kernel: str
    operator: str
    source: str


_NAMES = EventNote("part", "module kernel", "operator", "source line")
_NOTED = re.compile(
    rb'"args": \{"part": "(?:[^"\\]|\\.)*", (?:"(?:module kernel|operator|source line)": "(?:[^"\\]|\\.)*", )*'
)
"""The begin of the arguments with the notes of an earlier analysis."""

EventKey = tuple[int, int]
"""A device event: its start on the file's clock in nanoseconds, and its correlation."""


def store_program_trace(source: Path, target: Path, markers: Markers, limit_bytes: int = LIMIT_BYTES) -> None:
    """Stores the trace ``source`` of a program's steps, gzipped, as ``target``.

    Raises:
        InductorBenchError: the source is no trace, or the target cannot be written.
    """

    def cut() -> tuple[Trace, int, Sequence[float]]:
        program = read_program_trace(source, markers)
        window = find_window(program, markers)
        return program.trace, program.origin_ns, window.marks if window else (0.0, 0.0)

    store_steps_trace(source, target, cut, limit_bytes)


def event_key(program: ProgramTrace, event: int) -> EventKey:
    """The key of a device event by its index."""
    found = program.trace.device_events[event]
    return program.origin_ns + round(found.start_s * 1e9), found.correlation


def annotate_trace(path: Path, notes: Mapping[EventKey, EventNote]) -> None:
    """Writes what is known of each device event into a stored trace, in place of what stood there before.

    Raises:
        InductorBenchError: the file is no trace, or cannot be written.
    """

    def amend(start_ns: int, correlation: int, text: bytes) -> bytes:
        note = notes.get((start_ns, correlation))
        bare = _NOTED.sub(_ARGUMENTS, text, count=1)
        return bare.replace(_ARGUMENTS, _ARGUMENTS + _arguments(note), 1) if note else bare

    amend_trace(path, amend)


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


Found = TypeVar("Found")


def read_user_calls(lines: ProgramTrace, markers: Markers) -> tuple[tuple[str, UserCall], ...]:
    """The outermost operators of one step in their order, each with the user's call.

    Args:
        lines: a trace of one step with Python stacks and modules.
        markers: the names of the observer's ranges.
    """
    known = find_window(lines, markers)
    thread = known.thread if known else _busiest_thread(lines)
    if not thread:
        return ()
    tops = Owners(lines, find_graph_calls(lines, markers)).eager_tops
    start, end = (known.marks[-2], known.marks[-1]) if known else (float("-inf"), float("inf"))
    operators = list(_operators(lines, tops, thread, start, end))
    names = (lines.trace.host_ops[index].name for index in operators)
    return tuple(zip(names, _sites(lines, operators, thread), strict=True))


def pair_calls(
    program: ProgramTrace, tops: Sequence[int], called: Sequence[tuple[str, Found]], markers: Markers
) -> dict[int, Found]:
    """What is known of each outermost operator of ``program``, by the operator's index.

    Args:
        program: the trace of the profiled steps.
        tops: for each of its host operators the outermost eager operator around it, or -1.
        called: the names of the operators of another step in their order, and what is known of each.
        markers: the names of the observer's ranges.
    """
    window = find_window(program, markers)
    if window is None or not called:
        return {}
    found: dict[int, Found] = {}
    names = [name for name, _ in called]
    for first, last in itertools.pairwise(window.marks):
        mine = list(_operators(program, tops, window.thread, first, last))
        places = align_calls(names, [program.trace.host_ops[index].name for index in mine])
        found.update((op, called[place][1]) for op, place in zip(mine, places, strict=True) if place is not None)
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
    program: ProgramTrace, tops: Sequence[int], forward: Mapping[int, Found]
) -> Iterator[tuple[int, Found]]:
    """The calls of the nodes of a backward: those of the forward operators that made them."""
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
