"""Writes tensors as a safetensors file: the length of the header, the header as JSON, then the bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .files import replacing

_HEADER_ALIGNMENT = 8
_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
}


@dataclass(frozen=True)
class FlatTensor:
    """A tensor of one dimension.

    Attributes:
        dtype: torch's name; a type that the format lacks is written as bytes.
        itemsize: bytes per element.
        size_bytes: bytes of the tensor.
        pieces: its bytes in order, in host memory; iterated while the file is written.
    """

    dtype: str
    itemsize: int
    size_bytes: int
    pieces: Iterable[bytes | memoryview]


def write_tensors(path: Path, tensors: Mapping[str, FlatTensor]) -> None:
    """Writes a safetensors file, whole or not at all.

    Raises:
        InductorBenchError: the disk is full, read-only, or the folder cannot be made.
    """
    header: dict[str, Any] = {}
    start = 0
    for name, tensor in tensors.items():
        end = start + tensor.size_bytes
        header[name] = {**_type(tensor), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    with replacing(path) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            for piece in tensor.pieces:
                stream.write(piece)


def _type(tensor: FlatTensor) -> dict[str, Any]:
    count, rest = divmod(tensor.size_bytes, tensor.itemsize)
    if rest or tensor.dtype not in _DTYPES:
        return {"dtype": "U8", "shape": [tensor.size_bytes]}
    return {"dtype": _DTYPES[tensor.dtype], "shape": [count]}
