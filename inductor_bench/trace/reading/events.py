"""The events of a Chrome trace one after the other, as text, in little memory.

A profiler's trace repeats itself: between two iterations only a handful of numbers of an event differ. So an event
is split into those numbers and the rest, its *shape*; a shape is decoded as JSON the first time it is seen and
looked up afterwards. Every shape has been through the JSON decoder whole, which also proves where the event ends:
text is cut at what separates the first two events, and a piece that does not decode is joined with the next one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ...errors import InductorBenchError
from .chunks import ChunkReader

T = TypeVar("T")
Fields = dict[str, Any]

# The numbers that differ between events of one shape; everything else is part of the shape.
TIMES = ("ts", "dur")
IDS = ("id", "External id", "Record function id", "Ev Idx", "correlation", "Sequence number", "Fwd thread id", "queued")
NUMBERS = (*TIMES, *IDS, "memory bandwidth (GB/s)")
_MOST = 4e15  # ids, and microseconds: of times below it the sum of two fits into 64 bits in nanoseconds
_WHOLE = rb"-?[0-3]?[0-9]{1,15}"


def _numbers(names: tuple[str, ...], fraction: bytes) -> bytes:
    alternatives = b"|".join(re.escape(name.encode()) for name in names)
    return rb'"(?:' + alternatives + rb')"\s*:\s*(?=' + _WHOLE + fraction + rb"(?![0-9.eE+-]))"


# What is out of range or written in another way stays in the shape, so that each such event is decoded and examined.
_NUMBER = re.compile(
    b"(" + _numbers(IDS, b"") + b"|" + _numbers((*TIMES, NUMBERS[-1]), rb"(?:\.[0-9]{1,18})?") + b")(-?[0-9.]+)"
)
_START = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BETWEEN = re.compile(rb"\s*,\s*\{")
_END = re.compile(rb"\s*\]")
_CATEGORY = b'"cat": "'
_PHASE = b'"ph"'  # every event has one, so that a piece with just one is one event
_SHAPE_LIMIT = 20_000
_HEADER_LIMIT = 16 << 20
_EVENT_LIMIT = 16 << 20
_DEEPEST = 64
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """What the events of one shape have in common: the caller's digest of it, and where its numbers stand."""

    digest: T
    order: dict[str, int]


class EventReader(Generic[T]):
    """Iterates over ``(shape, numbers, text)`` of each event; ``numbers`` are texts in the order ``shape.order``.

    Args:
        path: a Chrome trace (JSON object format), plain or gzipped.
        digest: called once per shape with the decoded event and the order of its numbers.
        skip: categories whose events may be passed over undecoded; some of them may come all the same.

    Attributes:
        header, tail: the text before and after the events; complete when the iteration is over.
        truncated: True where the file ends early or an event in it was damaged. After 16 MiB that are no event, all
            of the rest counts as damaged.

    Raises:
        InductorBenchError: while iterating, where the file is no trace at all.
    """

    def __init__(
        self, path: Path, digest: Callable[[Fields, dict[str, int]], T], skip: frozenset[bytes] = frozenset()
    ) -> None:
        self.path = path
        self.header = b""
        self.tail = b""
        self.truncated = False
        self._digest = digest
        self._skip = skip
        self._shapes: dict[bytes, Shape[T]] = {}
        self._separator = b"},\n  {"
        self._pending: list[bytes] = []  # pieces of what is not yet a whole event
        self._size = self._tried = 0  # their bytes, now and when decoding them last failed
        self._ended = False

    def __iter__(self) -> Iterator[tuple[Shape[T], list[bytes], bytes]]:
        source = ChunkReader(self.path)
        chunks = iter(source)
        rest = self._open(chunks)
        if not self._ended:
            rest = self._measure(rest, chunks)
            yield from self._read(rest, chunks)
        else:
            self.tail = rest
        while self._ended and len(self.tail) < _HEADER_LIMIT and (chunk := next(chunks, b"")):
            self.tail += chunk
        self.truncated |= source.damaged or not self._ended or not self.tail.rstrip().endswith(b"}")

    def _open(self, chunks: Iterator[bytes]) -> bytes:
        """Read up to the first event; returns what follows its opening brace (or the array's closing bracket)."""
        head, found = b"", None
        for chunk in chunks:
            head += chunk
            if head.strip() and not head.lstrip().startswith(b"{"):
                raise self._unreadable("is not a Chrome trace in JSON object format")
            found = _START.search(head)
            if found and found.end() < len(head):
                self.header = head[: found.start()]
                follows = head[found.end() : found.end() + 1]
                self._ended = follows == b"]"
                if follows not in (b"]", b"{"):
                    raise self._unreadable("has no events in its traceEvents")
                return head[found.end() + 1 :]
            if len(head) > _HEADER_LIMIT:
                break
        if not head.strip():
            raise self._unreadable("is empty or damaged from the start" if self.path.stat().st_size else "is empty")
        if found:  # cut right after the opening bracket
            self.header = head[: found.start()]
            return b""
        raise self._unreadable("holds no traceEvents")

    def _unreadable(self, reason: str) -> InductorBenchError:
        return InductorBenchError(
            f"the trace {self.path} {reason}",
            "Give a Chrome trace that torch.profiler exported, or the one that running a module with -p names.",
        )

    def _measure(self, rest: bytes, chunks: Iterator[bytes]) -> bytes:
        """Find what separates the first two events; reads on until both are there, or the first is none."""
        wanted = 0
        while True:
            chunk = next(chunks, b"") if wanted else b""
            rest += chunk
            if len(rest) < wanted and chunk:
                continue
            try:
                _, end = _DECODER.raw_decode("{" + rest.decode("latin-1"))
            except (ValueError, RecursionError):
                end = 0
            between = _BETWEEN.match(rest, end - 1) if end else None
            if between:
                self._separator = b"}" + between.group()
            if between or (end and _END.match(rest, end - 1)) or len(rest) > _EVENT_LIMIT or (wanted and not chunk):
                return rest
            wanted = max(1, 2 * len(rest))

    def _read(self, buffer: bytes, chunks: Iterator[bytes]) -> Iterator[tuple[Shape[T], list[bytes], bytes]]:
        separator, skip, shapes, split = self._separator, self._skip, self._shapes, _NUMBER.split
        prefix = len(_CATEGORY)
        while True:
            pieces = buffer.split(separator)
            rest = pieces.pop()
            for number, piece in enumerate(pieces):
                if not self._pending:
                    at = piece.find(_CATEGORY) + prefix
                    if (
                        at >= prefix
                        and piece[at : piece.find(b'"', at)] in skip
                        and piece.count(_CATEGORY) == 1 == piece.count(_PHASE)
                    ):
                        continue
                    parts = split(piece)
                    values = parts[2::3]
                    del parts[2::3]
                    shape = shapes.get(b"".join(parts))
                    if shape is not None and len(values) == len(shape.order):
                        yield shape, values, piece
                        continue
                yield from self._resolve(piece, b"}")
                if self._ended:
                    self.tail += separator[1:] + separator.join([*pieces[number + 1 :], rest])
                    return
            if max(self._size, len(rest)) > _EVENT_LIMIT:
                return
            chunk = next(chunks, b"")
            if not chunk:
                break
            buffer = rest + chunk
        yield from self._resolve(rest, b"")

    def _resolve(self, piece: bytes, closing: bytes) -> Iterator[tuple[Shape[T], list[bytes], bytes]]:
        """Decode the events of a piece of unknown shape, and keep what is not yet whole for the next one.

        What is kept is decoded again when it has doubled, when a whole event follows it and at the end, so that the
        work grows with the bytes alone.
        """
        if self._pending and _is_event(b"{" + piece + closing):
            yield from self._decode(b"}")
            if self._ended:
                self.tail += self._separator[1:] + piece + closing
                return
            self.truncated |= bool(self._pending)  # what is left of it is damaged: a whole event stands after it
            self._keep(b"")
        self._pending.append(piece)
        self._size += len(piece) + len(self._separator)
        if self._size >= 2 * self._tried or not closing:
            yield from self._decode(closing)

    def _keep(self, rest: bytes) -> None:
        self._pending = [rest] if rest else []
        self._size = self._tried = len(rest)

    def _decode(self, closing: bytes) -> Iterator[tuple[Shape[T], list[bytes], bytes]]:
        """Decode the events of what is pending, and keep the rest."""
        text = b"{" + self._separator.join(self._pending) + closing
        self._keep(b"")
        plain = text.decode("latin-1")  # one character per byte; what matters to the structure is ASCII
        position = 0
        while position < len(text):
            try:
                _, end = _DECODER.raw_decode(plain, position)
            except (ValueError, RecursionError):
                self._keep(text[position + 1 : len(text) - len(closing)])
                return
            learnt = self._learn(text[position + 1 : end - 1])
            if learnt is None:
                self.truncated = True
            else:
                yield learnt
            between = _BETWEEN.match(text, end)
            closed = _END.match(text, end)
            if closed:
                self._ended = True
                self.tail = text[closed.end() :]
                return
            if not between:
                self.truncated |= bool(text[end:].strip(b" ,\r\n\t"))
                return
            position = between.end() - 1

    def _learn(self, body: bytes) -> tuple[Shape[T], list[bytes], bytes] | None:
        """The event of a body (its text without the outer braces), its shape remembered where that is safe.

        ``None`` where it is damaged: nested too deep, or with a time that is none.
        """
        try:
            fields = _DECODER.decode("{" + body.decode("utf-8", "replace") + "}")
        except RecursionError:
            return None
        known = {name: number for name in NUMBERS if (number := _number_in(fields, name)) is not None}
        if not _is_shallow(fields) or any(name not in known and _stated(fields, name) is not None for name in TIMES):
            return None
        parts = _NUMBER.split(body)
        names = [name.split(b'"')[1].decode() for name in parts[1::3]]
        values = parts[2::3]
        order = {name: index for index, name in enumerate(names)}
        sure = len(order) == len(names) and order.keys() == known.keys()
        if not sure or any(json.loads(values[index]) != known[name] for name, index in order.items()):
            order = {name: index for index, name in enumerate(known)}
            return Shape(self._digest(fields, order), order), [str(number).encode() for number in known.values()], body
        if len(self._shapes) >= _SHAPE_LIMIT:
            self._shapes.clear()
        del parts[2::3]
        shape = self._shapes[b"".join(parts)] = Shape(self._digest(fields, order), order)
        return shape, values, body


def _is_event(text: bytes) -> bool:
    """Whether a text is one event, perhaps the last."""
    try:
        decoded, end = _DECODER.raw_decode(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and "ph" in decoded and (end == len(text) or _END.match(text, end) is not None)


def _is_shallow(fields: Fields) -> bool:
    """Whether nothing in an event is nested so deep that following it could exhaust the stack."""
    level: list[Any] = [fields]
    for _ in range(_DEEPEST):
        held = (each.values() if isinstance(each, dict) else each for each in level)
        level = [one for values in held for one in values if isinstance(one, dict | list)]
        if not level:
            return True
    return False


def _stated(fields: Fields, name: str) -> object:
    """What an event says for a number, at its top level or in its arguments."""
    arguments = fields.get("args")
    value = fields.get(name)
    return arguments.get(name) if value is None and isinstance(arguments, dict) else value


def _number_in(fields: Fields, name: str) -> int | float | None:
    """A number of an event, if it is one and in range; ids are whole. A numeric text counts as its number."""
    value = _stated(fields, name)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,16}(\.[0-9]{1,18})?", value):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _MOST:
        return None
    if name in IDS:
        return int(value) if value == int(value) else None
    return value


def nanoseconds(text: bytes) -> int:
    """A time of the trace, which is in microseconds with up to three decimals, as whole nanoseconds, exactly."""
    if text[-4:-3] == b"." and text[-3:].isdigit():
        return int(text[:-4] + text[-3:])
    if b"e" in text or b"E" in text:
        return round(float(text) * 1000)
    whole, _, fraction = text.partition(b".")
    return int(whole + (fraction + b"000")[:3])
