"""Stores a trace, gzipped and under a size limit, as a file that Perfetto and chrome://tracing open.

Of a trace that does not fit, the last iterations are dropped first. The source stays as it is, and the target is
written whole or not at all.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import IO

from ..errors import InductorBenchError
from ..records.traced import Trace
from .events import DEVICE_KINDS, ChunkReader, Event, EventReader
from .iterations import split_iterations
from .rows import read_trace_and_origin

LIMIT_BYTES = 10_000_000
_WHOLE_END = re.compile(rb"\}\s*\]\s*(,[^\[\]{}]*)?\}\s*$")
_LINKS = ("External id", "correlation", "device", "stream")
_FLOW_PHASES = ("s", "t", "f")
_SAFETY = 0.97  # share of the size limit that an estimate aims for


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
    with _replacing(target) as partial:
        return _store(source, partial, limit_bytes, iterations)


def store_steps_trace(
    source: Path, target: Path, cut: Callable[[], tuple[Trace, int, Sequence[float]]], limit_bytes: int
) -> None:
    """Stores a program's trace like :func:`store_trace`. Of one that is too large, the last steps are dropped first.

    Args:
        source: a Chrome trace of torch.profiler.
        target: the file to write; it appears whole or not at all.
        cut: is called if it does not fit, or was cut short itself. Returns the contents of ``source``, the time of
            their second 0 on the file's clock in nanoseconds, and the times of the steps' boundaries in seconds.
        limit_bytes: maximum size of ``target``.

    Raises:
        InductorBenchError: the source is no trace, or the target cannot be written.
    """
    with _replacing(target) as partial:
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
    with _replacing(path) as partial:
        _write(path, partial, everything, sys.maxsize, amend)


@contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yields a file that takes the target's place at the end."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, target)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InductorBenchError(
            f"cannot store the trace as {target}: {reason}", "Free some space, or choose another output folder."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _store(source: Path, partial: Path, limit: int, expected: int | None) -> bool:
    fits = _copy_whole(source, partial, limit)
    if fits and expected is not None:
        return False
    trace, origin = read_trace_and_origin(source)  # raises if the source is no trace
    if fits:
        return False

    def write(end: int | None, detail: _Detail = _Detail.EVERYTHING) -> int:
        return _write(source, partial, _Selection(trace, origin, end, detail), limit)

    # A trace that was cut short may be small: written anew it is valid JSON again.
    if not (trace.truncated and write(None) <= limit):
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


def _copy_whole(source: Path, partial: Path, limit: int) -> bool:
    """Gzips the source as it is. Returns whether it fits and has an end, so that it opens."""
    last: deque[bytes] = deque(maxlen=2)
    reader = ChunkReader(source)
    with _gzip_writer(partial) as (file, raw):
        for chunk in reader:
            file.write(chunk)
            last.append(chunk[-65536:])
            if raw.tell() > limit:
                return False
    whole = not reader.damaged and _WHOLE_END.search(b"".join(last)[-65536:]) is not None
    return whole and partial.stat().st_size <= limit


@contextmanager
def _gzip_writer(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
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
            if end is None or origin + round(_moment(event.launch_start_s, event.start_s) * 1e9) < end
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


def _moment(launch: float | None, start: float) -> float:
    return start if launch is None else launch


def _write(source: Path, partial: Path, selection: _Selection, limit: int, amend: Amend | None = None) -> int:
    """Writes the selected events and returns their size in bytes; stops at twice ``limit`` and returns that size."""
    reader = EventReader(source)
    bare = selection.detail >= _Detail.NO_ARGUMENTS
    between = b""
    with _gzip_writer(partial) as (file, raw):
        for event, start, _, text in reader:
            if not selection.keeps(event, start):
                continue
            if not between:
                file.write(reader.header + b'"traceEvents": [\n  ')
            text = _without_arguments(text) if bare and event.ph != "M" else text
            if amend is not None and event.cat in DEVICE_KINDS and start is not None and event.args.correlation >= 0:
                text = amend(start, event.args.correlation, text)
            file.write(between + text)
            between = b",\n  "
            if raw.tell() > 2 * limit:
                break
        if not between:
            file.write(reader.header + b'"traceEvents": [')
        file.write(b"\n  ]" + (reader.tail if _closes(reader.tail) else b"\n}\n"))
    return partial.stat().st_size


def _closes(tail: bytes) -> bool:
    """Whether the text after the events completes the file, unlike that of a source that was cut there."""
    try:
        json.loads(b'{"traceEvents": []' + tail)
    except (ValueError, RecursionError):
        return False
    return True


def _without_arguments(text: bytes) -> bytes:
    event = json.loads(text.decode("utf-8", "replace"), strict=False)
    arguments = event.get("args")
    if isinstance(arguments, dict):
        event["args"] = {name: arguments[name] for name in _LINKS if name in arguments}
    return json.dumps(event).encode()
