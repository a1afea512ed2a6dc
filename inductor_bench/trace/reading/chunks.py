"""Reads the bytes of a trace file in chunks. Its first bytes tell whether the file is gzipped."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from ...errors import InductorBenchError

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
