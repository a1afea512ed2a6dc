"""Reads the events of a Chrome trace one after the other, in little memory.

A profiler's trace repeats itself: between two iterations only a handful of numbers of an event differ. The reader
splits each event into those numbers and the rest, its *shape*. It decodes a shape as JSON the first time it meets it
and looks it up afterwards. The decoder sees every shape whole, which also proves where the event ends: the reader cuts
the text at the separator of the first two events, and joins a piece that does not decode with the next piece.
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
from .numbers import NUMBER_FIELD, NUMBERS, TIMES, Fields, number_in, stated_value

T = TypeVar("T")


_START = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BETWEEN = re.compile(rb"\s*,\s*\{")
_END = re.compile(rb"\s*\]")
_CATEGORY = b'"cat": "'
_PHASE = b'"ph"'  # occurs once in each event, so that a piece with one occurrence is one event
_SHAPE_LIMIT = 20_000
_HEADER_LIMIT_BYTES = 16 << 20
_EVENT_LIMIT_BYTES = 16 << 20
_DEEPEST = 64  # levels of nesting
_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True)
class Shape(Generic[T]):
    """A shape of events: the caller's ``digest`` of it, and the position of each number by its field's name."""

    digest: T
    order: dict[str, int]


class EventReader(Generic[T]):
    """Iterates over ``(shape, numbers, text)`` of each event; ``numbers`` are texts in the order ``shape.order``.

    Args:
        path: a Chrome trace (JSON object format), plain or gzipped.
        digest: called once per shape with the decoded event and the positions of its numbers.
        skip: categories whose events the reader may leave out undecoded; it may yield some of them all the same.

    Attributes:
        header, tail: the text before and after the events; complete at the end of the iteration.
        truncated: whether the file ends early or holds a damaged event. After 16 MiB without an event the whole rest
            counts as damaged.

    Raises:
        InductorBenchError: during the iteration, where the file is not a trace.
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
        self._pending: list[bytes] = []  # pieces of an event that is not yet whole
        self._size = self._tried = 0  # their size in bytes: now, and when decoding them last failed
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
        while self._ended and len(self.tail) < _HEADER_LIMIT_BYTES and (chunk := next(chunks, b"")):
            self.tail += chunk
        self.truncated |= source.damaged or not self._ended or not self.tail.rstrip().endswith(b"}")

    def _open(self, chunks: Iterator[bytes]) -> bytes:
        """Reads up to the first event. Returns the text after its opening brace, or after the array's closing bracket.

        Raises:
            InductorBenchError: the file is not a trace.
        """
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
            if len(head) > _HEADER_LIMIT_BYTES:
                break
        if not head.strip():
            raise self._unreadable("is empty or damaged from the start" if self.path.stat().st_size else "is empty")
        if found:  # the file ends right after the opening bracket
            self.header = head[: found.start()]
            return b""
        raise self._unreadable("holds no traceEvents")

    def _unreadable(self, reason: str) -> InductorBenchError:
        return InductorBenchError(
            f"the trace {self.path} {reason}",
            "Give a Chrome trace that torch.profiler exported, or the one that running a module with -p names.",
        )

    def _measure(self, rest: bytes, chunks: Iterator[bytes]) -> bytes:
        """Finds the separator of the first two events; reads on until the text holds both, or the first is no event."""
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
            if (
                between
                or (end and _END.match(rest, end - 1))
                or len(rest) > _EVENT_LIMIT_BYTES
                or (wanted and not chunk)
            ):
                return rest
            wanted = max(1, 2 * len(rest))

    def _read(self, buffer: bytes, chunks: Iterator[bytes]) -> Iterator[tuple[Shape[T], list[bytes], bytes]]:
        separator, skip, shapes, split = self._separator, self._skip, self._shapes, NUMBER_FIELD.split
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
            if max(self._size, len(rest)) > _EVENT_LIMIT_BYTES:
                return
            chunk = next(chunks, b"")
            if not chunk:
                break
            buffer = rest + chunk
        yield from self._resolve(rest, b"")

    def _resolve(self, piece: bytes, closing: bytes) -> Iterator[tuple[Shape[T], list[bytes], bytes]]:
        """Decodes the events of a piece of unknown shape, and keeps an incomplete event for the next piece.

        The kept text is decoded again when its size has doubled, when a whole event follows it, and at the end. The
        work therefore grows linearly with the size of the file.
        """
        if self._pending and _is_event(b"{" + piece + closing):
            yield from self._decode(b"}")
            if self._ended:
                self.tail += self._separator[1:] + piece + closing
                return
            self.truncated |= bool(self._pending)  # a whole event follows, so the rest of the kept text is damaged
            self._keep(b"")
        self._pending.append(piece)
        self._size += len(piece) + len(self._separator)
        if self._size >= 2 * self._tried or not closing:
            yield from self._decode(closing)

    def _keep(self, rest: bytes) -> None:
        self._pending = [rest] if rest else []
        self._size = self._tried = len(rest)

    def _decode(self, closing: bytes) -> Iterator[tuple[Shape[T], list[bytes], bytes]]:
        """Decodes the events in the pending text, and keeps the rest."""
        text = b"{" + self._separator.join(self._pending) + closing
        self._keep(b"")
        plain = text.decode("latin-1")  # one character per byte; the structure of JSON is ASCII
        position = 0
        while position < len(text):
            try:
                _, end = _DECODER.raw_decode(plain, position)
            except (ValueError, RecursionError):
                self._keep(text[position + 1 : len(text) - len(closing)])
                return
            event = self._remember(text[position + 1 : end - 1])
            if event is None:
                self.truncated = True
            else:
                yield event
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

    def _remember(self, body: bytes) -> tuple[Shape[T], list[bytes], bytes] | None:
        """The event of a body (its text without the outer braces); remembers its shape where that is safe.

        ``None`` for a damaged event: nested too deep, or with a time that is not a number.
        """
        try:
            fields = _DECODER.decode("{" + body.decode("utf-8", "replace") + "}")
        except RecursionError:
            return None
        known = {name: number for name in NUMBERS if (number := number_in(fields, name)) is not None}
        bad_time = any(name not in known and stated_value(fields, name) is not None for name in TIMES)
        if bad_time or not _is_shallow(fields):
            return None
        parts = NUMBER_FIELD.split(body)
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
    """Whether a text is one whole event, followed by nothing or by the end of the array."""
    try:
        decoded, end = _DECODER.raw_decode(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and "ph" in decoded and (end == len(text) or _END.match(text, end) is not None)


def _is_shallow(fields: Fields) -> bool:
    """Whether an event has fewer than 64 levels of nesting; deeper levels could exhaust the stack."""
    level: list[Any] = [fields]
    for _ in range(_DEEPEST):
        held = (each.values() if isinstance(each, dict) else each for each in level)
        level = [one for values in held for one in values if isinstance(one, dict | list)]
        if not level:
            return True
    return False
