"""Keeping a trace: gzipped, under a size limit, still a trace that Perfetto and chrome://tracing open.

Where a whole trace does not fit, whole iterations are left out from the end. Never changes the source, and never
leaves half a file at the target.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import IO

from ..errors import InductorBenchError
from ..records.traced.trace import Trace
from .iterations import split_iterations
from .reading.chunks import ChunkReader
from .reading.events import EventReader, Fields, nanoseconds
from .reading.reader import DEVICE_KINDS, read_trace_and_origin

LIMIT_BYTES = 10_000_000
_WHOLE_END = re.compile(rb"\}\s*\]\s*(,[^\[\]{}]*)?\}\s*$")
_LINKS = ("External id", "correlation", "device", "stream")
_FLOW_PHASES = ("s", "t", "f")
_SAFETY = 0.97  # share of the size limit that an estimate aims for


@dataclass(frozen=True)
class StoredTrace:
    """What was stored. ``complete`` tells that no event of the source is missing; ``iterations_kept`` may be 0.
    ``truncated`` tells that the source itself was cut short."""

    iterations_kept: int
    size_bytes: int
    complete: bool
    truncated: bool = False


class _Detail(IntEnum):
    """How much of each event is kept; the higher, the less."""

    EVERYTHING = 0
    NO_FLOWS = 1
    NO_ARGUMENTS = 2
    DEVICE_ONLY = 3


def store_trace(
    source: Path, target: Path, limit_bytes: int = LIMIT_BYTES, iterations: int | None = None
) -> StoredTrace:
    """Gzip the trace ``source`` into ``target`` so that it takes at most ``limit_bytes``.

    What does not fit is dropped in this order: the last iterations, flow arrows and Python frames, arguments,
    host operations, the later part of the one iteration that is left. The file appears under its name only whole.

    Args:
        iterations: how many runs of the module the trace shows, where that is known.

    Raises:
        InductorBenchError: where the source is no trace, the target cannot be written, or even the trace's header
            takes more than ``limit_bytes``.
    """
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        stored = _store(source, partial, limit_bytes, iterations)
        os.replace(partial, target)
        return stored
    except OSError as error:
        reason = error.strerror or str(error)
        raise InductorBenchError(
            f"cannot store the trace as {target}: {reason}", "Free some space, or choose another output folder."
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _store(source: Path, partial: Path, limit: int, expected: int | None) -> StoredTrace:
    whole = _copy_whole(source, partial, limit)
    if whole is not None and expected is not None:
        return StoredTrace(expected, whole, True)
    trace, origin = read_trace_and_origin(source)
    starts = [origin + round(run.start_s * 1e9) for run in split_iterations(trace, expected)]
    if whole is not None:
        return StoredTrace(len(starts), whole, True)

    def write(end: int | None, detail: _Detail = _Detail.EVERYTHING) -> int:
        return _write(source, partial, _Selection(trace, origin, end, detail), limit)

    if trace.truncated:  # small, but it had to be written anew to be valid JSON
        size = write(None)
        if size <= limit:
            return StoredTrace(len(starts), size, True, truncated=True)
    return replace(_store_part(write, trace, origin, starts, limit), truncated=trace.truncated)


def _store_part(write: Callable[..., int], trace: Trace, origin: int, starts: list[int], limit: int) -> StoredTrace:
    """Keep as many iterations as fit, by the size of the first; or as much of the first as fits."""
    ends: list[int | None] = [*starts[1:], None]
    size = write(ends[0])
    if size <= limit and len(ends) > 1:
        kept = min(len(ends) - 1, int(limit * _SAFETY / size))
        while kept > 1:
            size = write(ends[kept - 1])
            if size <= limit:
                return StoredTrace(kept, size, False)
            kept = min(kept - 1, int(kept * _SAFETY * limit / size))
        return StoredTrace(1, write(ends[0]), False)
    for detail in (_Detail.NO_FLOWS, _Detail.NO_ARGUMENTS, _Detail.DEVICE_ONLY):
        size = write(ends[0], detail)
        if size <= limit:
            return StoredTrace(min(1, len(starts)), size, False)
    if write(origin, _Detail.DEVICE_ONLY) > limit:
        raise InductorBenchError(
            f"the header of the trace alone takes more than {limit} bytes", "Allow more room for stored traces."
        )
    last = max((event.start_s for event in trace.device_events), default=0.0)
    duration = (ends[0] or origin + round(last * 1e9) + 1) - origin
    while size > limit:
        duration //= 2
        size = write(origin + duration, _Detail.DEVICE_ONLY)
    return StoredTrace(0, size, False)


def _copy_whole(source: Path, partial: Path, limit: int) -> int | None:
    """Gzip the source as it is; None where it does not fit, or was cut short and would not open."""
    last: deque[bytes] = deque(maxlen=2)
    reader = ChunkReader(source)
    with _gzip_writer(partial) as (file, raw):
        for chunk in reader:
            file.write(chunk)
            last.append(chunk[-65536:])
            if raw.tell() > limit:
                return None
    size = partial.stat().st_size
    whole = not reader.damaged and _WHOLE_END.search(b"".join(last)[-65536:]) is not None
    return size if whole and size <= limit else None


@contextmanager
def _gzip_writer(path: Path) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
    """A gzip file that is the same for the same content: neither name nor time in it. Yields it and what is below."""
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        yield file, raw  # type: ignore[misc]


class _Selection:
    """Decides on each event: those begun before ``end`` (nanoseconds of the trace's clock), with ``detail``.

    An activity of the device goes with its launch, and a flow arrow with the activity that it leads to, so that
    both ends of every arrow are there.
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

    def keeps(self, kind: _Kind, numbers: list[bytes]) -> bool:
        """Whether an event belongs to the selection."""
        if kind.phase == "M":
            return True
        if kind.phase in _FLOW_PHASES:
            if self.detail >= _Detail.NO_FLOWS:
                return False
            if self.end is None:
                return True
            return kind.category == "ac2g" and kind.id >= 0 and int(numbers[kind.id]) in self._launched
        if kind.category == "python_function" and self.detail >= _Detail.NO_FLOWS:
            return False
        if self.detail >= _Detail.DEVICE_ONLY and kind.category not in DEVICE_KINDS:
            return False
        if self.end is None or kind.ts < 0:
            return True
        if kind.category in DEVICE_KINDS and kind.correlation >= 0:
            return int(numbers[kind.correlation]) in self._launched
        return nanoseconds(numbers[kind.ts]) < self.end


@dataclass(frozen=True, slots=True)
class _Kind:
    phase: str
    category: str
    ts: int
    id: int
    correlation: int


def _kind_of(event: Fields, order: dict[str, int]) -> _Kind:
    places = (order.get("ts", -1), order.get("id", -1), order.get("correlation", -1))
    return _Kind(str(event.get("ph", "")), str(event.get("cat", "")), *places)


def _moment(launch: float | None, start: float) -> float:
    return start if launch is None else launch


def _write(source: Path, partial: Path, selection: _Selection, limit: int) -> int:
    """Write the selected events; returns the size, or more than ``limit`` (of a file given up) as an estimate."""
    reader = EventReader(source, _kind_of)
    bare = selection.detail >= _Detail.NO_ARGUMENTS
    between = b""
    with _gzip_writer(partial) as (file, raw):
        for shape, numbers, body in reader:
            if not selection.keeps(shape.digest, numbers):
                continue
            if not between:
                file.write(reader.header + b'"traceEvents": [\n  ')
            text = b"{" + body + b"}"
            file.write(between + (_without_arguments(text) if bare and shape.digest.phase != "M" else text))
            between = b",\n  "
            if raw.tell() > 2 * limit:
                break
        if not between:
            file.write(reader.header + b'"traceEvents": [')
        file.write(b"\n  ]" + (reader.tail if _closes(reader.tail) else b"\n}\n"))
    return partial.stat().st_size


def _closes(tail: bytes) -> bool:
    """Whether what follows the events completes the file: a source cut there does not."""
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
