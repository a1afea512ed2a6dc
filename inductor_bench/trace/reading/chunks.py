"""The bytes of a trace file, piece by piece, whether it is gzipped or not (told by its first bytes)."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from ...errors import InductorBenchError

CHUNK_BYTES = 1 << 19
_COMPRESSED_BYTES = 1 << 16  # what follows a gzip member is copied, which is little even where there are thousands
GZIP_MAGIC = b"\x1f\x8b"


class ChunkReader:
    """Iterates over the uncompressed content of ``path``.

    ``damaged`` becomes True where a gzip stream ends early or is corrupt; what was whole has been yielded by then.

    Raises:
        InductorBenchError: while iterating, where the file cannot be opened or read.
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
        """Own inflation rather than the gzip module, which throws away its buffer where a file was cut short."""
        inflater = zlib.decompressobj(wbits=31)
        for data in compressed:
            while data:
                if inflater.eof:  # another gzip member follows; zero padding does not count as one
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
    """The pieces joined into chunks, so that a caller that joins chunks does not do so for every few bytes."""
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
