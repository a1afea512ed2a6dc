"""Records the values that launches read: one safetensors file for each launch, written during the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ... import units
from ...errors import InductorBenchError
from ...records.code import Complaint, Launch, Values
from ...source.identity import launch_key
from ...store.tensors import FlatTensor, write_tensors
from .recorder import LaunchContents, watch_launches

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
        folder: the folder of the files; made where it is missing.
        limit_bytes: maximum size of each file. Of a launch that reads more, the largest storages are left out.
        wanted: the launches to record, as an earlier run listed them; ``None`` for all.

    Returns:
        The launches that have a file, whose name is in their storages' values; and the failure where the disk was full:
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
