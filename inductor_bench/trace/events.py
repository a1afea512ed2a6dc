"""Reads the events of a Chrome trace one after the other, in little memory."""

from __future__ import annotations

import json
import re
import zlib
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct, field

from ..errors import InductorBenchError
from ..records.traced import TensorArguments

# Reads the bytes of a trace file in chunks. Its first bytes tell whether the file is gzipped.


CHUNK_BYTES = 1 << 19
_COMPRESSED_BYTES = 1 << 16  # small, because the rest of a chunk is copied after each member of a gzip file
GZIP_MAGIC = b"\x1f\x8b"


class ChunkReader:
    """Iterates over the uncompressed content of ``path``.

    ``damaged`` becomes True if a gzip stream ends early or is corrupt, after the whole part has been yielded.

    Raises:
        InductorBenchError: during the iteration, if the file cannot be opened or read.
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
                f"cannot read the trace {self.path}: {reason}",
                "Give the path of a Chrome trace of torch.profiler.",
                "bad-trace",
            ) from error

    def _inflate(self, compressed: Iterator[bytes]) -> Iterator[bytes]:
        """Inflates the file here, because the gzip module drops its buffer if a file is cut short."""
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
    """Returns the pieces joined into chunks of at least ``CHUNK_BYTES``, so that callers only join large chunks."""
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


# What is read of an event.


_BOUND = Decimal(4 * 10**15)
"""Upper bound of times in microseconds: the sum of two times below it fits into 64 bits in nanoseconds."""

_Exact = Annotated[float, Meta(gt=-(2.0**43), lt=2.0**43)]
"""Times in microseconds up to this limit are exact to the nanosecond as floats; other times are decoded digit by
digit."""

Fields = dict[str, Any]
"""A decoded JSON object."""

Whole = Annotated[int, Meta(gt=-(2**62), lt=2**62)]
Scalar = int | float | str | None
"""A value as the trace holds it. It is checked when it is first used; equal events share the check."""


class EventArguments(Struct, frozen=True, gc=False):
    """The arguments that are read of an event."""

    external: Whole = field(name="External id", default=-1)
    correlation: Whole = -1
    sequence: Whole = field(name="Sequence number", default=-1)
    forward_thread: Whole = field(name="Fwd thread id", default=0)
    dims: Raw = field(name="Input Dims", default=Raw())
    strides: Raw = field(name="Input Strides", default=Raw())
    types: Raw = field(name="Input type", default=Raw())
    concrete: Raw = field(name="Concrete Inputs", default=Raw())
    kernel_file: Scalar = None
    kernel_hash: Scalar = None
    kernel_kwargs: Scalar = None
    num_warps: Scalar = None
    num_stages: Scalar = None
    device: Scalar = None
    stream: Scalar = None
    registers: Scalar = field(name="registers per thread", default=None)
    shared_memory: Scalar = field(name="shared memory", default=None)
    grid: tuple[Scalar, ...] | Scalar = None
    block: tuple[Scalar, ...] | Scalar = None
    occupancy: Scalar = field(name="est. achieved occupancy %", default=None)
    warps: Scalar = field(name="warps per SM", default=None)
    bytes: Scalar = None


_NO_ARGUMENTS = EventArguments()


_Time = TypeVar("_Time")


class _Event(Struct, Generic[_Time], frozen=True, gc=False):
    """The fields that are read of an event. Times are microseconds."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    ts: _Time | None = None
    dur: _Time | None = None
    pid: Scalar = None
    tid: Scalar = None
    id: Scalar = None
    args: EventArguments = _NO_ARGUMENTS


Event = _Event[Any]


def _parse_nanoseconds(time: Any) -> int:
    """A time in whole nanoseconds, exactly if it has up to three decimals."""
    if isinstance(time, float) or -_BOUND < time < _BOUND:
        nanoseconds: int = round(time * 1000)
        return nanoseconds
    raise ArithmeticError


def _remove_bad_values(fields: Fields) -> Event | None:
    """Returns the event without the values that do not fit; ``None`` if a time is no number."""
    kept = _keep_fitting_values(_Event[Decimal], fields)
    damaged = any(fields.get(name) is not None and name not in kept for name in ("ts", "dur"))
    return None if damaged else _Event(**kept)


def _keep_fitting_values(kind: Any, values: Fields) -> Fields:
    kept: Fields = {}
    for item in msgspec.structs.fields(kind):
        value = values.get(item.encode_name)
        if isinstance(value, dict) and item.type is EventArguments:
            kept[item.name] = EventArguments(**_keep_fitting_values(EventArguments, value))
        elif value is not None and item.type is Raw:
            kept[item.name] = Raw(json.dumps(value, default=float).encode())
        elif value is not None and item.type is str:
            kept[item.name] = printable(value)
        elif value is not None:
            number = isinstance(value, Decimal) and item.name not in ("ts", "dur")
            with suppress(ValueError, OverflowError):
                value = float(value) if number else value
                kept[item.name] = msgspec.convert(value, item.type, strict=False)
    return kept


# Reads the events of a Chrome trace one after the other, in little memory.
#
# The text is cut between two events, and all events of a piece are decoded at once. If that fails, because an event
# is damaged, has values of other types, or holds what looks like the end of an event, they are read one by one.


_START = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
_BETWEEN = re.compile(rb"\s*,\s*(?=\{)")
_BOUNDARY = re.compile(rb"\}\s*,\s*(?=\{)")
_END = re.compile(rb"\s*\]")
_HEADER_LIMIT_BYTES = 16 << 20
_EVENT_LIMIT_BYTES = 16 << 20
_STRUCTURE = json.JSONDecoder(strict=False)
_LENIENT = json.JSONDecoder(strict=False, parse_float=Decimal)
_TEXTS = msgspec.json.Decoder(list[Raw])
_WORDS = msgspec.json.Decoder(list[str])
_EVENT = msgspec.json.Decoder(_Event[Decimal])
_EVENTS = msgspec.json.Decoder(list[_Event[Decimal]])
_EXACT_EVENTS = msgspec.json.Decoder(list[_Event[_Exact]])

Timed = tuple[Event, int | None, int, bytes]
"""An event, its start (``None`` without one) and duration in nanoseconds, and its text."""


class EventReader:
    """Iterates over the events of a trace.

    Args:
        path: a Chrome trace (JSON object format), plain or gzipped.
        kinds: the kind of each category; empty for a category whose events are left out. If this is given, the texts
            are empty.

    Attributes:
        header, tail: the text before and after the events; complete at the end of the iteration.
        truncated: whether the file ends early or holds a damaged event. After 16 MiB without an event the whole rest
            counts as damaged.

    Raises:
        InductorBenchError: during the iteration, if the file is not a trace.
    """

    def __init__(self, path: Path, kinds: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.header = b""
        self.tail = b""
        self.truncated = False
        self._kinds = kinds
        self._ended = False

    def __iter__(self) -> Iterator[Timed]:
        source = ChunkReader(self.path)
        chunks = iter(source)
        text = self._open(chunks)
        kinds = self._kinds
        for event, body in self._read(text, chunks):
            if kinds is not None and not kinds[event.cat]:
                continue
            try:
                start = None if event.ts is None else _parse_nanoseconds(event.ts)
                duration = 0 if event.dur is None else max(0, _parse_nanoseconds(event.dur))
            except ArithmeticError:
                self.truncated = True
                continue
            yield event, start, duration, body
        while self._ended and len(self.tail) < _HEADER_LIMIT_BYTES and (chunk := next(chunks, b"")):
            self.tail += chunk
        self.truncated |= source.damaged or not self._ended or not self.tail.rstrip().endswith(b"}")

    def _open(self, chunks: Iterator[bytes]) -> bytes:
        """Reads up to the first event. Returns the text from its opening brace on."""
        head, found = b"", None
        for chunk in chunks:
            head += chunk
            if head.strip() and not head.lstrip().startswith(b"{"):
                raise self._unreadable("is not a Chrome trace in JSON object format")
            found = _START.search(head)
            if found and found.end() < len(head):
                self.header = head[: found.start()]
                follows = head[found.end() : found.end() + 1]
                if follows not in (b"]", b"{"):
                    raise self._unreadable("has no events in its traceEvents")
                self._ended = follows == b"]"
                self.tail = head[found.end() + 1 :] if self._ended else b""
                return b"" if self._ended else head[found.end() :]
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
            "Give a Chrome trace that torch.profiler exported, or the trace that a module names when it runs with -p.",
            "bad-trace",
        )

    def _read(self, text: bytes, chunks: Iterator[bytes]) -> Iterator[tuple[Event, bytes]]:
        wanted = 0
        while not self._ended:
            chunk = next(chunks, b"")
            text += chunk
            if chunk and len(text) < wanted:
                continue
            cut = _find_last_boundary(text)
            found = self._decode(text[:cut])
            if found is not None:
                yield from found
                text = text[cut:].lstrip(b", \r\n\t")
            if found is None or not chunk:
                text = yield from self._read_one_by_one(text, whole=not chunk)
                wanted = 2 * len(text)  # so that the work grows linearly with the size of the file
            if not chunk or len(text) > _EVENT_LIMIT_BYTES:
                return

    def _decode(self, text: bytes) -> Iterator[tuple[Event, bytes]] | None:
        """Returns the events of a text; ``None`` if it does not consist of whole events of the known types."""
        whole = b"[" + text + b"]"
        for decoder in (_EXACT_EVENTS, _EVENTS):
            with suppress(ValueError, RecursionError):
                texts = repeat(b"") if self._kinds is not None else map(bytes, _TEXTS.decode(whole))
                return zip(decoder.decode(whole), texts, strict=False)
        return None

    def _read_one_by_one(self, text: bytes, *, whole: bool) -> Generator[tuple[Event, bytes], None, bytes]:
        """Yields the events of a text that begins with an event. Returns the rest, which the next chunk continues."""
        plain = text.decode("latin-1")  # one character per byte; the structure of JSON is ASCII
        position = 0
        while position < len(text):
            try:
                _, end = _STRUCTURE.raw_decode(plain, position)
            except (ValueError, RecursionError):
                end = -1
            between, closed = (pattern.match(text, end) if end >= 0 else None for pattern in (_BETWEEN, _END))
            if end >= 0 and (between or closed or whole):
                event = _read_event(text[position:end])
                if event is None:
                    self.truncated = True
                else:
                    yield event, text[position:end]
            if closed:
                self._ended = True
                self.tail = text[closed.end() :]
                return b""
            if between:
                position = between.end()
                continue
            following = _find_next_event(text, max(position, end))
            if following < 0:
                break
            self.truncated = True
            position = following
        return text[position:]


def _find_last_boundary(text: bytes) -> int:
    """Returns where the text can be cut: after the brace that ends the last event but one."""
    size = 1 << 13
    while True:
        last = deque(_BOUNDARY.finditer(text, max(0, len(text) - size)), maxlen=1)
        if last or size >= len(text):
            return last[0].start() + 1 if last else 0
        size *= 4


def _find_next_event(text: bytes, start: int) -> int:
    """Returns where the next whole event begins after the end of another one; -1 if there is none."""
    found = _BOUNDARY.search(text, start)
    while found:
        after = _BOUNDARY.search(text, found.end())
        if _is_event(text[found.end() : after.start() + 1 if after else len(text)]):
            return found.end()
        found = after
    return -1


def _is_event(text: bytes) -> bool:
    """Whether a text is one whole event, followed by nothing or by the end of the array."""
    try:
        decoded, end = _STRUCTURE.raw_decode(text.decode("latin-1"))
    except (ValueError, RecursionError):
        return False
    return isinstance(decoded, dict) and "ph" in decoded and (not text[end:].strip() or bool(_END.match(text, end)))


def _read_event(text: bytes) -> Event | None:
    """Returns the event of a text; ``None`` if it is damaged."""
    try:
        return _EVENT.decode(text)
    except (ValueError, RecursionError):
        pass
    try:
        return _remove_bad_values(_LENIENT.decode(text.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


# Conversion of decoded JSON values of a trace into numbers, texts and tuples.


_DEEPEST = 8  # levels of lists in one another
_LARGEST_REAL = 1e30
"""Bound of real numbers: their squares and sums stay finite."""


def read_whole_number(value: object) -> int | None:
    """Returns the value, or the digits in a text, as a whole number below 2**62; ``None`` for anything else."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value):
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**62:
        return None
    return int(value)


def read_real_number(value: object) -> float | None:
    """The value as a real number below 1e30; ``None`` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _LARGEST_REAL:
        return None
    return float(value)


def printable(value: object) -> str:
    """The value as a text that UTF-8 can encode: JSON may hold half of a surrogate pair."""
    return str(value).encode("utf-8", "replace").decode()


def read_size_lists(values: list[Any]) -> tuple[Any, ...]:
    """Returns the sizes of each argument as a tuple; ``()`` for an argument without sizes."""
    return tuple(_read_sizes(value, _DEEPEST) if isinstance(value, list) else () for value in values)


def _read_sizes(values: list[Any], levels: int) -> tuple[Any, ...]:
    """Nested lists of sizes as tuples; an entry that is not a whole number becomes 0."""
    return tuple(
        _read_sizes(value, levels - 1) if levels and isinstance(value, list) else read_whole_number(value) or 0
        for value in values
    )


# The facts that are kept of an event; events that differ only in their times and numbers share them.


DEVICE_KINDS = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
"""The kind of a device event by the profiler's category."""

HOST, DEVICE, RUNTIME, ANNOTATION, FRAME = "host", "device", "runtime", "annotation", "frame"
_KINDS = {
    "cpu_op": HOST,
    "user_annotation": ANNOTATION,
    "python_function": FRAME,
    **dict.fromkeys(DEVICE_KINDS, DEVICE),
}


class EventFacts(NamedTuple):
    """The facts that equal events share."""

    kind: str  # host, device, runtime, annotation or frame
    name: str
    place: tuple[Any, ...]  # ``(kind, device, stream)`` of a device event, ``(thread,)`` of another one
    details: tuple[
        Any, ...
    ] = ()  # last fields of ``HostOp`` from ``arguments`` on, or of ``DeviceEvent`` from ``registers`` on


class Kinds(dict[str, str]):
    """The kind of the events of each category; empty for unwanted events."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = frozenset(wanted)

    def __missing__(self, category: str) -> str:
        kind = RUNTIME if category.endswith(("_runtime", "_driver")) else _KINDS.get(category, "")
        self[category] = kind if kind in self._wanted else ""
        return self[category]


class Classifier:
    """Makes the :class:`EventFacts` of an event. It stores equal texts and equal arguments once.

    Args:
        kinds: the kinds of the categories.
        markers: the beginnings of the names of annotations that count as host operators.
    """

    def __init__(self, kinds: Kinds, markers: tuple[str, ...] = ()) -> None:
        self._kinds = kinds
        self._markers = markers
        self._kept: dict[Any, Any] = {}
        self._known: dict[Any, EventFacts] = {}

    def __call__(self, event: Event) -> EventFacts:
        kind, held = self._kinds[event.cat], event.args
        key: tuple[Any, ...] = (event.name, event.cat, event.pid, event.tid)
        if kind == HOST:
            key += (bytes(held.dims), bytes(held.strides), bytes(held.types), bytes(held.concrete), held.kernel_file)
            key += (held.kernel_hash, held.kernel_kwargs, held.num_warps, held.num_stages)
        elif kind == DEVICE:
            key += (held.device, held.stream, held.registers, held.shared_memory, held.grid, held.block)
            key += (held.occupancy, held.warps, held.bytes)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._describe(kind, event)
        return known

    def _describe(self, kind: str, event: Event) -> EventFacts:
        name = self._keep(event.name)
        if kind == DEVICE:
            where = (DEVICE_KINDS[event.cat], *_read_device_and_stream(event))
            return EventFacts(kind, name, where, self._device_details(event.args))
        place: tuple[Any, ...] = (self._keep(f"{event.pid}/{event.tid}"),)
        if kind == HOST:
            return EventFacts(kind, name, place, self._host_details(event.args))
        if kind == ANNOTATION and name.startswith(self._markers):
            return EventFacts(HOST, name, place, (None,) * 6)
        return EventFacts(kind, name, place)

    def _keep(self, value: Any) -> Any:
        """Returns the first of equal values."""
        return self._kept.setdefault(value, value)

    def _host_details(self, arguments: EventArguments) -> tuple[Any, ...]:
        texts = arguments.kernel_file, arguments.kernel_hash, arguments.kernel_kwargs
        numbers = arguments.num_warps, arguments.num_stages
        tensors = self._tensor_arguments(arguments)
        if not any(texts) and numbers == (None, None):  # an operator that is no compiled kernel
            return tensors, None, None, None, None, None
        return (tensors, *map(self._text, texts), *map(read_whole_number, numbers))

    def _device_details(self, arguments: EventArguments) -> tuple[Any, ...]:
        return (
            read_whole_number(arguments.registers),
            read_whole_number(arguments.shared_memory),
            self._triple(arguments.grid),
            self._triple(arguments.block),
            _read_occupancy(arguments),
            read_whole_number(arguments.bytes),
        )

    def _text(self, value: object) -> str | None:
        return self._keep(printable(value)) if isinstance(value, str) else None

    def _triple(self, value: object) -> tuple[int, int, int] | None:
        parts = [read_whole_number(part) for part in value] if isinstance(value, tuple) else []
        return self._keep(tuple(parts)) if len(parts) == 3 and None not in parts else None

    def _tensor_arguments(self, arguments: EventArguments) -> TensorArguments | None:
        dims = bytes(arguments.dims)
        if not dims.startswith(b"["):
            return None
        try:
            sizes = _read_sizes_in(dims), _read_sizes_in(bytes(arguments.strides))
            words = _read_types(bytes(arguments.types)), _read_words(bytes(arguments.concrete))
            return self._keep(TensorArguments(*sizes, *words))  # type: ignore[no-any-return]
        except (ValueError, RecursionError):
            return None


@lru_cache(maxsize=512)
def _read_sizes_in(text: bytes) -> tuple[Any, ...]:
    return read_size_lists(_list(text))


def _read_words(text: bytes) -> tuple[str, ...]:
    with suppress(ValueError, RecursionError):
        return tuple(_WORDS.decode(text))
    return tuple(map(printable, _list(text)))


_read_types = lru_cache(maxsize=512)(_read_words)


def _list(text: bytes) -> list[Any]:
    """Returns the list in a JSON text; empty for anything else."""
    value = _STRUCTURE.decode(text.decode("utf-8", "replace") or "[]")
    return value if isinstance(value, list) else []


def _read_device_and_stream(event: Event) -> tuple[int, int]:
    device, stream = read_whole_number(event.args.device), read_whole_number(event.args.stream)
    device = read_whole_number(event.pid) if device is None else device
    stream = read_whole_number(event.tid) if stream is None else stream
    return device or 0, stream or 0


def _read_occupancy(arguments: EventArguments) -> float | None:
    """The recorded percentage as a share, 0 to 1. ``None`` if the profiler wrote 0 because it could not tell."""
    percent = read_real_number(arguments.occupancy)
    if percent is None or (percent == 0 and (read_real_number(arguments.warps) or 0) >= 1):
        return None
    return percent / 100
