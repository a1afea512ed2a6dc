"""Records the values that launches read: one safetensors file for each launch, written during the run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ... import units
from ...errors import InductorBenchError
from ...records.code import Complaint, Launch, Values
from ...source.generated_text import launch_key
from ...store.files import replacing
from .recorder import LaunchContents, watch_launches

# Writes tensors as a safetensors file: the length of the header, the header as JSON, then the bytes.


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
    """A tensor of one dimension."""

    dtype: str  # torch's name; a type that the format lacks is written as bytes
    itemsize: int  # bytes per element
    size_bytes: int  # bytes of the tensor
    pieces: Iterable[bytes | memoryview]  # its bytes in order, in host memory; iterated while the file is written


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


PIECE_BYTES = 1 << 24
RESERVED_BYTES = 256 << 20
"""Bytes that stay free on the disk, for the files that are still to be written."""


def record_values(
    module: ModuleType,
    run: Callable[[], Any],
    folder: Path,
    limit_bytes: int,
    wanted: Collection[Launch] | None = None,
) -> tuple[tuple[Launch, ...], Complaint | None]:
    """Runs a module once and writes the values that its launches read, as they were before each launch.

    Args:
        module: the compiled module.
        run: calls the module once, with its initial inputs. It should have run before.
        folder: the folder of the files; made if it is missing.
        limit_bytes: maximum size of each file. Of a launch that reads more, the largest storages are left out.
        wanted: the launches to record, as an earlier run listed them; ``None`` for all.

    Returns:
        The launches that have a file, whose name is in their storages' values; and the failure if the disk was full:
        later launches have no file.
    """
    keys = None if wanted is None else {launch_key(launch) for launch in wanted}
    files = _ValueFiles(folder, limit_bytes, keys)
    launches = watch_launches(module, run, keep=files)
    recorded = tuple(launch for launch in launches if any(storage.values.file for storage in launch.storages))
    return recorded, files.error


class _ValueFiles:
    """The ``keep`` of :func:`watch_launches`, which writes the storages to files."""

    def __init__(self, folder: Path, limit_bytes: int, keys: Collection[Any] | None) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._keys = keys
        self._count = 0
        self.error: Complaint | None = None

    def __call__(self, contents: LaunchContents) -> Mapping[int, Values]:
        if self.error or (self._keys is not None and launch_key(contents.launch) not in self._keys):
            return {}
        chosen = self._choose(contents)
        if not chosen:
            return {}
        name = f"{self._count}.safetensors"
        try:
            self._write(name, contents, chosen)
        except InductorBenchError as error:
            self.error = Complaint(error.message, error.hint)
            return {}
        self._count += 1
        return dict.fromkeys(chosen, Values("recorded", file=name))

    def _choose(self, contents: LaunchContents) -> list[int]:
        left, chosen = self._limit_bytes, []
        for storage in sorted(contents.storages, key=lambda each: contents.storages[each].nbytes):
            left -= contents.storages[storage].nbytes
            if left >= 0:
                chosen.append(storage)
        return sorted(chosen)

    def _write(self, name: str, contents: LaunchContents, chosen: list[int]) -> None:
        launch = contents.launch
        tensors = {}
        for storage in chosen:
            held, dtype = contents.storages[storage], launch.storages[storage].dtype
            itemsize = getattr(torch, dtype).itemsize
            tensors[f"storage_{storage}"] = FlatTensor(dtype, itemsize, held.nbytes, _pieces(held))
        size = sum(tensor.size_bytes for tensor in tensors.values())
        self._refuse_to_fill_the_disk(launch.kernel or launch.operator or "", size)
        write_tensors(self._folder / name, tensors)

    def _refuse_to_fill_the_disk(self, name: str, size: int) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self._folder).free
        except OSError as error:
            raise InductorBenchError(f"cannot write values to {self._folder}: {error.strerror or error}") from error
        if free - size < RESERVED_BYTES:
            raise InductorBenchError(
                f"the disk is nearly full: {units.size(free)} are free, and the values of {name} take "
                f"{units.size(size)}; its values and those of later kernels are drawn",
                "free some space, choose fewer kernels, or give a smaller --values-limit",
            )


def _pieces(held: torch.Tensor) -> Iterator[memoryview]:
    for piece in held.split(PIECE_BYTES):
        yield memoryview(piece.cpu().numpy())
