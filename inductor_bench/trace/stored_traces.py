"""Stores traces, gzipped and under a size limit, as files that Perfetto and chrome://tracing open.

If a trace does not fit, the last iterations are dropped first. The source stays as it is, and the target is written
whole or not at all. In the trace of a program's steps, each device event names its owner, and the user's lines come
from a second trace."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import IO, NamedTuple, TypeVar

from ..errors import InductorBenchError
from ..records.traced import ProgramTrace, Range, Trace, UserCall
from .attribution import align_calls
from .events import CHUNK_BYTES, DEVICE_KINDS, ChunkReader, Event, EventReader
from .iterations import split_iterations
from .program_trace import NODE, Markers, Owners, find_graph_calls, find_window, read_program_trace
from .rows import read_trace_and_origin

LIMIT_BYTES = 10_000_000
_LIST_END = re.compile(rb"\}\s*\]")
_MOST_ENDS = 64
"""Maximum number of places that are tried as the end of the list of events; a trace with more is written anew."""

_LINKS = ("External id", "correlation", "device", "stream")
_FLOW_PHASES = ("s", "t", "f")
_SAFETY = 0.97  # the share of the size limit that an estimate aims at


Amend = Callable[[int, int, bytes], bytes]


class _Detail(IntEnum):
    """The parts of a trace that are kept; a higher value keeps less."""

    EVERYTHING = 0
    NO_FLOWS = 1
    NO_ARGUMENTS = 2
    DEVICE_ONLY = 3


def store_trace(source: Path, target: Path, limit_bytes: int = LIMIT_BYTES, iterations: int | None = None) -> bool:
    """Stores the trace ``source``, gzipped, as ``target`` with a size of at most ``limit_bytes``.

    A trace that is too large loses, in this order: the last iterations, flow arrows and Python frames, arguments,
    host operations, the later part of the remaining iteration.

    Args:
        source: a Chrome trace of torch.profiler, plain or gzipped.
        target: the file to write; it appears whole or not at all.
        limit_bytes: maximum size of ``target``.
        iterations: the number of runs of the module in the trace, if it is known.

    Returns:
        Whether the source itself was cut short or damaged.

    Raises:
        InductorBenchError: the source is no trace, the target cannot be written, or the trace's header alone takes more
            than ``limit_bytes``.
    """
    with _replace_when_written(target) as partial:
        return _store(source, partial, limit_bytes, iterations)


def store_steps_trace(
    source: Path, target: Path, cut: Callable[[], tuple[Trace, int, Sequence[float]]], limit_bytes: int
) -> None:
    """Stores a program's trace like :func:`store_trace`. If it is too large, the last steps are dropped first.

    Args:
        source: a Chrome trace of torch.profiler.
        target: the file to write; it appears whole or not at all.
        cut: is called if the trace does not fit, or if ``source`` was cut short. Returns the contents of ``source``,
            the time of their second 0 on the file's clock in nanoseconds, and the times of the steps' boundaries in
            seconds.
        limit_bytes: maximum size of ``target``.

    Raises:
        InductorBenchError: the source is no trace, or the target cannot be written.
    """
    with _replace_when_written(target) as partial:
        if _copy_whole(source, partial, limit_bytes):
            return
        trace, origin, marks = cut()

        def write(end: int | None, detail: _Detail = _Detail.EVERYTHING) -> int:
            return _write(source, partial, _Selection(trace, origin, end, detail), limit_bytes)

        if write(None) > limit_bytes:
            # A step is whole if the boundary at its end is there.
            starts = [origin + round(mark * 1e9) + 1 for mark in marks[:-1]]
            _store_part(write, trace, origin, starts, limit_bytes)


def amend_trace(path: Path, amend: Amend) -> None:
    """Rewrites a stored trace with the text of each device event as ``amend`` returns it.

    Args:
        path: the file.
        amend: gets an event's start in nanoseconds, its correlation and its text.

    Raises:
        InductorBenchError: the file is no trace, or cannot be written.
    """
    everything = _Selection(Trace((), (), (), ()), 0, None, _Detail.EVERYTHING)
    with _replace_when_written(path) as partial:
        _write(path, partial, everything, sys.maxsize, amend)


@contextmanager
def _replace_when_written(target: Path) -> Iterator[Path]:
    """Yields a file that takes the target's place at the end."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InductorBenchError(
            f"cannot store the trace as {target}: {reason}",
            "Free some space, or choose another output folder.",
            "unwritable",
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _store(source: Path, partial: Path, limit: int, expected: int | None) -> bool:
    whole = _copy_whole(source, partial, limit)
    if whole and expected is not None:
        return False
    trace, origin = read_trace_and_origin(source)  # raises if the source is no trace
    if whole:
        return False
    is_small = whole is not None

    def write(end: int | None, detail: _Detail = _Detail.EVERYTHING) -> int:
        return _write(source, partial, _Selection(trace, origin, end, detail), limit)

    # A trace that was cut short may be small: written anew it is valid JSON again.
    if not ((is_small or trace.truncated) and write(None) <= limit):
        starts = [origin + round(run.start_s * 1e9) for run in split_iterations(trace, expected)]
        _store_part(write, trace, origin, starts, limit)
    return trace.truncated


def _store_part(write: Callable[..., int], trace: Trace, origin: int, starts: list[int], limit: int) -> None:
    """Writes as many iterations as fit, estimated from the size of the first; or the part of the first that fits."""
    ends: list[int | None] = [*starts[1:], None]
    size = write(ends[0])
    if size <= limit and len(ends) > 1:
        kept = min(len(ends) - 1, int(limit * _SAFETY / size))
        while kept > 1:
            size = write(ends[kept - 1])
            if size <= limit:
                return
            kept = min(kept - 1, int(kept * _SAFETY * limit / size))
        write(ends[0])
        return
    for detail in (_Detail.NO_FLOWS, _Detail.NO_ARGUMENTS, _Detail.DEVICE_ONLY):
        size = write(ends[0], detail)
        if size <= limit:
            return
    if write(origin, _Detail.DEVICE_ONLY) > limit:
        raise InductorBenchError(
            f"the header of the trace alone takes more than {limit} bytes", "Allow more room for stored traces."
        )
    last = max((event.start_s for event in trace.device_events), default=0.0)
    duration = (ends[0] or origin + round(last * 1e9) + 1) - origin
    while size > limit:
        duration //= 2
        size = write(origin + duration, _Detail.DEVICE_ONLY)


def _copy_whole(source: Path, partial: Path, limit: int) -> bool | None:
    """Gzips the source as it is.

    Returns whether the copy is complete and can be opened; ``None`` if it does not fit.
    """
    last: deque[bytes] = deque(maxlen=2)
    reader = ChunkReader(source)
    with _open_gzip_writer(partial) as (file, raw):
        for chunk in reader:
            file.write(chunk)
            last.append(chunk[-65536:])
            if raw.tell() > limit:
                return None
    if partial.stat().st_size > limit:
        return None
    end = b"".join(last)[-65536:]
    # The profiler may have written its errors after the events: a list of texts.
    ends = [found.end() for found in _LIST_END.finditer(end)][-_MOST_ENDS:]
    return not reader.damaged and any(_is_closing(end[place:]) for place in ends)


@contextmanager
def _open_gzip_writer(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """Yields a gzip file and its raw file. It holds neither name nor time, so that equal contents give equal bytes."""
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        yield file, raw  # type: ignore[misc]


class _Selection:
    """The events that began before ``end`` (nanoseconds of the trace's clock), in the parts that ``detail`` keeps.

    A device activity is kept with its launch, and a flow arrow with the activity that it leads to, so that every kept
    arrow has both its ends.
    """

    def __init__(self, trace: Trace, origin: int, end: int | None, detail: _Detail) -> None:
        self.end = end
        self.detail = detail
        self._launched = {
            event.correlation
            for event in trace.device_events
            if end is None or origin + round(_make_moment(event.launch_start_s, event.start_s) * 1e9) < end
        }
        self._launched.discard(-1)

    def keeps(self, event: Event, start: int | None) -> bool:
        """Whether an event, which starts at a time in nanoseconds, belongs to the selection."""
        if event.ph == "M":
            return True
        if event.ph in _FLOW_PHASES:
            if self.detail >= _Detail.NO_FLOWS:
                return False
            return self.end is None or (event.cat == "ac2g" and event.id in self._launched)
        if event.cat == "python_function" and self.detail >= _Detail.NO_FLOWS:
            return False
        if self.detail >= _Detail.DEVICE_ONLY and event.cat not in DEVICE_KINDS:
            return False
        if self.end is None or start is None:
            return True
        if event.cat in DEVICE_KINDS and event.args.correlation >= 0:
            return event.args.correlation in self._launched
        return start < self.end


def _make_moment(launch: float | None, start: float) -> float:
    return start if launch is None else launch


def _write(source: Path, partial: Path, selection: _Selection, limit: int, amend: Amend | None = None) -> int:
    """Writes the selected events and returns their size in bytes; stops at twice ``limit`` and returns that size."""
    reader = EventReader(source)
    bare = selection.detail >= _Detail.NO_ARGUMENTS
    between = b""
    with _open_gzip_writer(partial) as (file, raw):
        held, size = [], 0  # a call of the compressor for each event would take as long as the compression
        for event, start, _, text in reader:
            if not selection.keeps(event, start):
                continue
            if not between:
                held.append(reader.header + b'"traceEvents": [\n  ')
            text = _remove_arguments(text) if bare and event.ph != "M" else text
            if amend is not None and event.cat in DEVICE_KINDS and start is not None and event.args.correlation >= 0:
                text = amend(start, event.args.correlation, text)
            held += between, text
            size += len(text)
            between = b",\n  "
            if size >= CHUNK_BYTES:
                file.write(b"".join(held))
                held, size = [], 0
                if raw.tell() > 2 * limit:
                    break
        if not between:
            held.append(reader.header + b'"traceEvents": [')
        file.write(b"".join(held) + b"\n  ]" + (reader.tail if _is_closing(reader.tail) else b"\n}\n"))
    return partial.stat().st_size


def _is_closing(tail: bytes) -> bool:
    """Whether the text after the events completes the file. If the source was cut there, it does not."""
    try:
        json.loads(b'{"traceEvents": []' + tail)
    except (ValueError, RecursionError):
        return False
    return True


def _remove_arguments(text: bytes) -> bytes:
    event = json.loads(text.decode("utf-8", "replace"), strict=False)
    arguments = event.get("args")
    if isinstance(arguments, dict):
        event["args"] = {name: arguments[name] for name in _LINKS if name in arguments}
    return json.dumps(event).encode()


# Stores the trace of a program's steps, and adds the owner of each device event to the event's arguments.


STEPS_LIMIT_BYTES = 30_000_000
"""The largest stored trace of a program's steps: about 360 MB of text. The analysis sees the steps that fit."""

_ARGUMENTS = b'"args": {'


class EventNote(NamedTuple):
    """The arguments that a device event gets; empty ones are left out."""

    part: str
    kernel: str
    operator: str
    source: str
    layer: str = ""


_NAMES = EventNote("part", "module kernel", "operator", "source line", "layer")
_NOTED = re.compile(
    rb'"args": \{"part": "(?:[^"\\]|\\.)*", (?:"(?:module kernel|operator|source line|layer)": "(?:[^"\\]|\\.)*", )*'
)
"""The begin of the arguments with the notes of an earlier analysis."""

EventKey = tuple[int, int]
"""A device event: its start on the file's clock in nanoseconds, and its correlation."""


def store_program_trace(source: Path, target: Path, markers: Markers, limit_bytes: int = STEPS_LIMIT_BYTES) -> None:
    """Stores the trace ``source`` of a program's steps, gzipped, as ``target``.

    Raises:
        InductorBenchError: the source is no trace, or the target cannot be written.
    """

    def cut() -> tuple[Trace, int, Sequence[float]]:
        program = read_program_trace(source, markers)
        window = find_window(program, markers)
        return program.trace, program.origin_ns, window.marks if window else (0.0, 0.0)

    store_steps_trace(source, target, cut, limit_bytes)


def make_event_key(program: ProgramTrace, event: int) -> EventKey:
    """Makes the key of a device event from its index."""
    found = program.trace.device_events[event]
    return program.origin_ns + round(found.start_s * 1e9), found.correlation


def annotate_trace(path: Path, notes: Mapping[EventKey, EventNote]) -> None:
    """Writes the facts about each device event into a stored trace, over the facts of an earlier analysis.

    Raises:
        InductorBenchError: the file is no trace, or cannot be written.
    """

    def amend(start_ns: int, correlation: int, text: bytes) -> bytes:
        note = notes.get((start_ns, correlation))
        bare = _NOTED.sub(_ARGUMENTS, text, count=1)
        return bare.replace(_ARGUMENTS, _ARGUMENTS + _write_arguments(note), 1) if note else bare

    amend_trace(path, amend)


def _write_arguments(note: EventNote) -> bytes:
    pairs = (f"{json.dumps(name)}: {json.dumps(value)}, " for name, value in zip(_NAMES, note, strict=True) if value)
    return "".join(pairs).encode()


# Finds where the user's program called the operators of a trace, from a second trace with Python stacks.
#
# Stacks slow a program, so they are recorded in a step of their own. The operators of the two traces are paired by
# their order.


_FRAME = re.compile(r"(?P<file>.+)\((?P<line>[0-9]+)\): (?P<function>.+)")
_MODULE = re.compile(r"nn\.Module: (.+?)(?:_[0-9]+)?")
_BUILTIN = re.compile(r"<built-in (?:method|function) (\w+)\b")
_LIBRARY = re.compile(
    r"<|torch/|inductor_bench/|.*/(?:site|dist)-packages/torch/|.*/lib/python3[.0-9]*/(?!\w+-packages)"
)
_MOST_CALLED = 3
"""Maximum number of names by which a call is looked for: a function's own name follows the names of its wrappers."""

LONGEST_ROUND = 64
"""The largest number of operators in a round of a loop whose further rounds have the lines of the known ones."""

Found = TypeVar("Found")


def read_user_calls(lines: ProgramTrace, markers: Markers) -> tuple[tuple[str, UserCall], ...]:
    """Returns the outermost operators of one step in their order, each with the user's call.

    Args:
        lines: a trace of one step with Python stacks and modules.
        markers: the names of the observer's ranges.
    """
    known = find_window(lines, markers)
    thread = known.thread if known else _find_busiest_thread(lines)
    if not thread:
        return ()
    tops = Owners(lines, find_graph_calls(lines, markers)).eager_tops
    start, end = (known.marks[-2], known.marks[-1]) if known else (float("-inf"), float("inf"))
    operators = list(_list_operators(lines, tops, thread, start, end))
    names = (lines.trace.host_ops[index].name for index in operators)
    return tuple(zip(names, _find_sites(lines, operators, thread), strict=True))


def pair_calls(
    program: ProgramTrace, tops: Sequence[int], called: Sequence[tuple[str, Found]], markers: Markers
) -> dict[int, Found]:
    """Returns what is known of each outermost operator of ``program``, by the operator's index.

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
        mine = list(_list_operators(program, tops, window.thread, first, last))
        own = [program.trace.host_ops[index].name for index in mine]
        places = _continue_loops(align_calls(names, own), own, called)
        found.update((op, called[place][1]) for op, place in zip(mine, places, strict=True) if place is not None)
    found.update(_list_backward_calls(program, tops, found))
    return found


def _continue_loops(
    places: Sequence[int | None], names: Sequence[str], called: Sequence[tuple[str, Found]]
) -> list[int | None]:
    """Pairs further rounds of a loop with one of its rounds, as the loop over the rows of a larger request has them.

    The other step shows the loop: equal rounds before the first one that is not paired, two of different operators or
    three of a single operator. Two equal operators may be one line without a loop, as in ``x + y + z``.
    """
    filled, called = list(places), list(called)
    for at in range(1, len(filled)):
        last = filled[at - 1]
        if filled[at] is not None or last is None:
            continue
        stop = next((place for place in range(at, len(filled)) if filled[place] is not None), len(filled))
        for size in range(1, min(LONGEST_ROUND, (last + 1) // 2, stop - at) + 1):
            begin = last + 1 - size
            round_ = [name for name, _ in called[begin : last + 1]]
            before = 2 if size == 1 else 1  # further equal rounds
            is_loop = called[max(0, begin - before * size) : begin] == called[begin : last + 1] * before
            is_loop = is_loop and (size == 1 or len(set(round_)) > 1)
            if is_loop and round_ == list(names[at : at + size]):
                filled[at : at + size] = range(begin, last + 1)
                break
    return filled


def _find_busiest_thread(lines: ProgramTrace) -> str:
    threads = [one.thread for one in lines.frames]
    return max(set(threads), key=threads.count) if threads else ""


def _list_operators(
    program: ProgramTrace, tops: Sequence[int], thread: str, start_s: float, end_s: float
) -> Iterator[int]:
    """Returns the outermost operators that a thread called in a stretch of time."""
    for index, op in enumerate(program.trace.host_ops):
        if tops[index] == index and op.thread == thread and start_s <= op.start_s < end_s:
            yield index


def _list_backward_calls(
    program: ProgramTrace, tops: Sequence[int], forward: Mapping[int, Found]
) -> Iterator[tuple[int, Found]]:
    """Returns the calls of backward nodes: those of the forward operators that made the nodes."""
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


def _find_sites(lines: ProgramTrace, operators: Sequence[int], thread: str) -> list[UserCall]:
    """Returns the user's call of each operator. Operators and frames are sorted by start."""
    frames = iter([one for one in lines.frames if one.thread == thread])
    upcoming = next(frames, None)
    stack: list[tuple[float, Range]] = []  # each with its end
    sites = []
    for index in operators:
        op = lines.trace.host_ops[index]
        start = op.start_s
        while upcoming is not None and upcoming.start_s <= start:
            while stack and stack[-1][0] <= upcoming.start_s:
                stack.pop()
            # The profiler misses the returns of some built-in functions. They end with the function around them.
            end_s = min(upcoming.end_s, stack[-1][0]) if stack else upcoming.end_s
            stack.append((end_s, upcoming))
            upcoming = next(frames, None)
        while stack and stack[-1][0] < start:
            stack.pop()
        sites.append(_find_site([one for end_s, one in stack if end_s >= start], op.name))
    return sites


def _find_site(stack: Sequence[Range], operator: str) -> UserCall:
    module = next((found.group(1) for one in reversed(stack) if (found := _MODULE.fullmatch(one.name))), "")
    for place in range(len(stack) - 1, -1, -1):
        frame = _FRAME.fullmatch(stack[place].name)
        if frame and is_user_file(frame["file"]):
            above = stack[place + 1 :]
            begun_s = next((one.start_s for one in above if not one.name.startswith("<built-in")), None)
            called = dict.fromkeys(itertools.islice(dict.fromkeys(_find_called_function(above)), _MOST_CALLED))
            if begun_s is None:  # no line of a library called the operator
                called[operator.partition("::")[2]] = None
            return UserCall(module, frame["file"], int(frame["line"]), frame["function"], tuple(called), begun_s)
    return UserCall(module)


def _find_called_function(stack: Iterable[Range]) -> Iterator[str]:
    """Returns the bare names of the functions in a stack, and the classes of the modules."""
    for one in stack:
        frame, builtin, module = _FRAME.fullmatch(one.name), _BUILTIN.match(one.name), _MODULE.fullmatch(one.name)
        if module:
            yield module.group(1)
        elif builtin:
            yield builtin.group(1)
        elif frame:
            yield frame["function"]


def is_user_file(file: str) -> bool:
    """Whether a file of a stack belongs neither to torch nor to Python."""
    if _LIBRARY.match(file):
        return False
    top = file.split("/")[0].removesuffix(".py")
    return file.startswith("/") or top not in sys.stdlib_module_names
