"""Reads the events of a Chrome trace one after the other, in little memory."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..errors import InductorBenchError
from ..records.traced import TensorArguments

# Reads the bytes of a trace file in chunks. Its first bytes tell whether the file is gzipped.


CHUNK_BYTES = 1 << 19
_COMPRESSED_BYTES = 1 << 16  # small, because the rest of a chunk is copied after each member of a gzip file
GZIP_MAGIC = b"\x1f\x8b"


class ChunkReader:
    """Iterates over the uncompressed content of ``path``.

    ``damaged`` becomes True where a gzip stream ends early or is corrupt, after the whole part has been yielded.

    Raises:
        InductorBenchError: during the iteration, where the file cannot be opened or read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.damaged = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            with open(self.path, "rb") as file:
                first = file.read(_COMPRESSED_BYTES)
                packed = first.startswith(GZIP_MAGIC)
                size = _COMPRESSED_BYTES if packed else CHUNK_BYTES
                raw = _prepend(first, iter(lambda: file.read(size), b""))
                yield from _gather(self._inflate(raw) if packed else raw)
        except OSError as error:
            reason = error.strerror or str(error)
            raise InductorBenchError(
                f"cannot read the trace {self.path}: {reason}", "Give the path of a Chrome trace of torch.profiler."
            ) from error

    def _inflate(self, compressed: Iterator[bytes]) -> Iterator[bytes]:
        """Inflates here, because the gzip module discards its buffer where a file is cut short."""
        inflater = zlib.decompressobj(wbits=31)
        for data in compressed:
            while data:
                if inflater.eof:  # another gzip member follows; zero padding is no member
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    inflater = zlib.decompressobj(wbits=31)
                try:
                    text = inflater.decompress(data, 4 * CHUNK_BYTES)
                except zlib.error:
                    self.damaged = True
                    return
                if text:
                    yield text
                data = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
        if not inflater.eof:
            self.damaged = True
            rest = inflater.flush()
            if rest:
                yield rest


def _prepend(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from rest


def _gather(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The pieces joined into chunks of at least ``CHUNK_BYTES``, so that callers join large chunks only."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        held.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


# The numbers of a trace's events: how they are found in an event's text, and how a time is read from its digits.


Fields = dict[str, Any]
"""A decoded event."""

TIMES = ("ts", "dur")
IDS = (
    *("id", "External id", "Record function id", "Ev Idx", "correlation", "Sequence number", "Fwd thread id", "queued"),
    *("Python id", "Python parent id", "Python module id"),
)
NUMBERS = (*TIMES, *IDS, "memory bandwidth (GB/s)")
"""The fields whose numbers differ between events of one shape. Every other part of an event belongs to its shape."""

_BOUND = 4e15
"""Upper bound of ids and of times in microseconds: the sum of two such times fits into 64 bits in nanoseconds."""

_WHOLE = rb"-?[0-3]?[0-9]{1,15}"


def _field_pattern(names: tuple[str, ...], fraction: bytes) -> bytes:
    alternatives = b"|".join(re.escape(name.encode()) for name in names)
    return rb'"(?:' + alternatives + rb')"\s*:\s*(?=' + _WHOLE + fraction + rb"(?![0-9.eE+-]))"


NUMBER_FIELD = re.compile(
    b"("
    + _field_pattern(IDS, b"")
    + b"|"
    + _field_pattern((*TIMES, NUMBERS[-1]), rb"(?:\.[0-9]{1,18})?")
    + b")(-?[0-9.]+)"
)
"""A field of ``NUMBERS`` and its digits. A number that is out of range, or written in another way, stays in the shape,
so that each such event is decoded and checked."""


def stated_value(fields: Fields, name: str) -> object:
    """The value of a field as an event holds it: at its top level or in its arguments."""
    arguments = fields.get("args")
    value = fields.get(name)
    return arguments.get(name) if value is None and isinstance(arguments, dict) else value


def number_in(fields: Fields, name: str) -> int | float | None:
    """The number in a field; ``None`` where it is out of range, no number, or an id that is not whole.

    A text of digits is read as its number.
    """
    value = stated_value(fields, name)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,16}(\.[0-9]{1,18})?", value):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _BOUND:
        return None
    if name in IDS:
        return int(value) if value == int(value) else None
    return value


def nanoseconds(text: bytes) -> int:
    """A time of the trace (microseconds, up to three decimals) in whole nanoseconds, exactly."""
    if text[-4:-3] == b"." and text[-3:].isdigit():
        return int(text[:-4] + text[-3:])
    if b"e" in text or b"E" in text:
        return round(float(text) * 1000)
    whole, _, fraction = text.partition(b".")
    return int(whole + (fraction + b"000")[:3])


# Reads the events of a Chrome trace one after the other, in little memory.
#
# A profiler's trace repeats itself: between two iterations only a handful of numbers of an event differ. The reader
# splits each event into those numbers and the rest, its *shape*. It decodes a shape as JSON the first time it meets it
# and looks it up afterwards. The decoder sees every shape whole, which also proves where the event ends: the reader
# cuts the text at the separator of the first two events, and joins a piece that does not decode with the next piece.


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


# Conversion of decoded JSON values of a trace into numbers, texts and tuples.


_LARGEST_REAL = 1e30
"""Bound of real numbers: their squares and sums stay finite."""


def whole_number(value: object) -> int | None:
    """The value, or the digits in a text, as a whole number below 2**62; ``None`` for anything else."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**62:
        return None
    return int(value)


def real_number(value: object) -> float | None:
    """The value as a real number below 1e30; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST_REAL:
        return None
    return float(value)


def printable(value: object) -> str:
    """The value as a text that UTF-8 can encode: JSON may hold half of a surrogate pair."""
    return str(value).encode("utf-8", "replace").decode()


def size_lists(values: list[Any]) -> tuple[Any, ...]:
    """The sizes of each argument as a tuple; ``()`` for an argument without sizes."""
    return tuple(_sizes(value) if isinstance(value, list) else () for value in values)


def _sizes(values: list[Any]) -> tuple[Any, ...]:
    """Nested lists of sizes as tuples; an entry that is not a whole number becomes 0."""
    return tuple(_sizes(value) if isinstance(value, list) else whole_number(value) or 0 for value in values)


# Templates: what all trace events of one shape have in common, and the classifier that makes them.


DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
"""The kind of a device event by the profiler's category."""

HOST_CATEGORY = "cpu_op"
SYNCHRONIZATIONS = frozenset(
    {
        "cudaDeviceSynchronize",
        "cuCtxSynchronize",
        "hipDeviceSynchronize",
        "hipCtxSynchronize",
        "urQueueFinish",
        "piQueueFinish",
        "zeCommandQueueSynchronize",
        "zeCommandListHostSynchronize",
    }
)


class Template:
    """The fields that all events of one shape share.

    Attributes:
        kind: ``host``, ``device``, ``runtime`` or ``ignored``.
        ts, duration, external, correlation: positions in the event's numbers; -1 for a number that it lacks.
        synchronizes: whether the event is a synchronisation of the device.
        name: the event's name.
        place: ``(thread,)`` of a host operator; ``(kind, device, stream)`` of a device event.
        details: the last fields of ``HostOp`` from ``arguments`` on, or of ``DeviceEvent`` from ``registers`` on.
    """

    __slots__ = ("correlation", "details", "duration", "external", "kind", "name", "place", "synchronizes", "ts")

    def __init__(self, order: dict[str, int]) -> None:
        self.kind = "ignored"
        self.ts = order.get("ts", -1)
        self.duration = order.get("dur", -1)
        self.external = order.get("External id", -1)
        self.correlation = order.get("correlation", -1)
        self.synchronizes = False
        self.name = ""
        self.place: tuple[Any, ...] = ()
        self.details: tuple[Any, ...] = ()


class Classifier:
    """Turns a decoded event into a template. It stores equal texts and equal arguments once."""

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}

    def keep(self, value: Any) -> Any:
        """The first of equal values."""
        return self._kept.setdefault(value, value)

    def __call__(self, event: Fields, order: dict[str, int]) -> Template:
        return self.classify(event, Template(order))

    def classify(self, event: Fields, template: Template) -> Template:
        """Fills the template of an event."""
        category = event.get("cat")
        if event.get("ph") != "X" or template.ts < 0 or not isinstance(category, str):
            return template
        arguments = event.get("args")
        arguments = arguments if isinstance(arguments, dict) else {}
        template.name = self.keep(printable(event.get("name", "")))
        if category == HOST_CATEGORY:
            template.kind = "host"
            template.place = (self.keep(f"{event.get('pid')}/{event.get('tid')}"),)
            template.details = self._host_details(arguments)
        elif category in DEVICE_KINDS:
            template.kind = "device"
            template.place = (DEVICE_KINDS[category], *_device_and_stream(event, arguments))
            template.details = self._device_details(arguments)
        elif category.endswith(("_runtime", "_driver")):
            template.synchronizes = template.name in SYNCHRONIZATIONS
            if template.synchronizes or template.correlation >= 0:
                template.kind = "runtime"
        return template

    def _host_details(self, arguments: Fields) -> tuple[Any, ...]:
        return (
            self._tensor_arguments(arguments),
            *(self._text(arguments.get(key)) for key in ("kernel_file", "kernel_hash", "kernel_kwargs")),
            *(whole_number(arguments.get(key)) for key in ("num_warps", "num_stages")),
        )

    def _device_details(self, arguments: Fields) -> tuple[Any, ...]:
        return (
            whole_number(arguments.get("registers per thread")),
            whole_number(arguments.get("shared memory")),
            self._triple(arguments.get("grid")),
            self._triple(arguments.get("block")),
            _occupancy(arguments),
            whole_number(arguments.get("bytes")),
        )

    def _text(self, value: object) -> str | None:
        return self.keep(printable(value)) if isinstance(value, str) else None

    def _triple(self, value: object) -> tuple[int, int, int] | None:
        parts = [whole_number(part) for part in value] if isinstance(value, list) else []
        return self.keep(tuple(parts)) if len(parts) == 3 and None not in parts else None

    def _tensor_arguments(self, arguments: Fields) -> TensorArguments | None:
        lists = [arguments.get(key) for key in ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")]
        if not isinstance(lists[0], list):
            return None
        dims, strides, types, concrete = (value if isinstance(value, list) else [] for value in lists)
        texts = (tuple(map(printable, value)) for value in (types, concrete))
        return self.keep(TensorArguments(size_lists(dims), size_lists(strides), *texts))  # type: ignore[no-any-return]


def _device_and_stream(event: Fields, arguments: Fields) -> tuple[int, int]:
    device = whole_number(arguments.get("device"))
    stream = whole_number(arguments.get("stream"))
    device = whole_number(event.get("pid")) if device is None else device
    stream = whole_number(event.get("tid")) if stream is None else stream
    return device or 0, stream or 0


def _occupancy(arguments: Fields) -> float | None:
    """The recorded percentage as a share, 0 to 1. ``None`` where the profiler wrote 0 because it could not tell."""
    percent = real_number(arguments.get("est. achieved occupancy %"))
    if percent is None or (percent == 0 and (real_number(arguments.get("warps per SM")) or 0) >= 1):
        return None
    return percent / 100
