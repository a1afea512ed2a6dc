"""Runs a compiled module repeatedly, outside of its program, and records the values that its launches read.

A module may change its inputs in place: a counter, a cache of keys and values, the statistics of a batch norm. If the
next run got these changed inputs, it would compute something else, and might index beyond an end.
"""

from __future__ import annotations

import json
import shutil
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ... import units
from ...errors import InductorBenchError
from ...records.code import Complaint, Launch, Values
from ...source.generated_text import launch_key
from ...store.files import replace_when_written
from ..upstream.inductor import clone_input
from .recorder import LaunchContents, watch_launches

ROTATED_BYTES = 256 * 2**20
"""Maximum bytes of copies that are made before a profile, in which nothing is copied."""

SMALL_BYTES = 2**20
"""The size in bytes of the largest input of which a copy is kept if it is unknown whether the program's call changed
it."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""The integer type with which tensors are compared bit by bit, by the bytes of an element."""


class ModuleRun:
    """A call of a compiled module, each time with the same inputs.

    Args:
        call: calls the module with a list of its inputs, which it may empty.
        inputs: the inputs, which belong to this object.
        changed: the indices of the inputs that the module changes. These inputs are as they were at its first call.
    """

    def __init__(self, call: Callable[[list[Any]], Any], inputs: Sequence[Any], changed: Iterable[int] = ()) -> None:
        self._call = call
        self._inputs = list(inputs)
        self._first = {place: clone_input(self._inputs[place]) for place in changed}
        self._rotated: deque[dict[int, Any]] = deque()

    @property
    def changed(self) -> tuple[int, ...]:
        """The indices of the inputs that are restored."""
        return tuple(self._first)

    @property
    def kept_bytes(self) -> int:
        """Returns the bytes of the copies that restore the inputs."""
        return sum(first.nbytes for first in self._first.values())

    def __call__(self) -> Any:
        """Runs the module once, with inputs that were made for this run, or with those of the run before."""
        if not self._rotated:
            return self._call(list(self._inputs))
        inputs = list(self._inputs)
        for place, value in self._rotated.popleft().items():
            inputs[place] = value
        return self._call(inputs)

    def restore(self) -> None:
        """Makes the inputs of the next run equal to those of the first call."""
        with torch.no_grad():
            for place, first in self._first.items():
                self._inputs[place].copy_(first)

    def rotate(self, runs: int) -> None:
        """Makes inputs for ``runs`` runs in advance, so that nothing is copied between these runs.

        Integers come first, because they may be indices. Large inputs stay as the run before left them.
        """
        self.restore()
        self._rotated = deque({} for _ in range(runs))
        left = ROTATED_BYTES
        for place in sorted(self._first, key=self._urgency):
            first = self._first[place]
            if runs * first.nbytes <= left:
                left -= runs * first.nbytes
                for inputs in self._rotated:
                    inputs[place] = clone_input(first)

    def free_inputs_made_ahead(self) -> None:
        """Frees the inputs that were made in advance."""
        self._rotated.clear()

    def stop_rotating(self) -> None:
        """Frees the inputs that were made in advance, and makes the next inputs equal to those of the first call."""
        self.free_inputs_made_ahead()
        self.restore()

    def _urgency(self, place: int) -> tuple[bool, int]:
        first = self._first[place]
        return first.dtype.is_floating_point or first.dtype.is_complex, first.nbytes


def run_of_harness(call: Callable[[list[Any]], Any], inputs: Sequence[Any]) -> ModuleRun:
    """Returns the run of a module with the inputs of its harness.

    The module runs once, which shows which inputs it changes. If there is no memory for a copy of the inputs, none is
    restored.
    """
    try:
        before = [clone_input(value) for value in inputs]
    except torch.OutOfMemoryError:
        return ModuleRun(call, inputs)
    call(list(inputs))
    changed = [place for place, value in enumerate(inputs) if differs(value, before[place])]
    restored = list(inputs)
    for place in changed:
        restored[place] = before[place]
    return ModuleRun(call, restored, changed)


class FirstCall:
    """The inputs of a program's first call of a module: copies of them, and those that the call changed.

    It holds no input, because a module frees inputs while it runs.
    """

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._copies = [clone_input(value) for value in inputs]
        self._inputs = [weakref.ref(value) if is_tensor(value) else None for value in inputs]

    @property
    def copies(self) -> list[Any]:
        """Returns the inputs as they were before the call."""
        return self._copies

    def changed(self) -> Iterator[int]:
        """After the call: returns the indices of the inputs that it changed, and of small inputs that the program
        freed."""
        for place, (reference, copy) in enumerate(zip(self._inputs, self._copies, strict=True)):
            value = reference() if reference is not None else None
            if differs(value, copy) if value is not None else reference is not None and copy.nbytes <= SMALL_BYTES:
                yield place


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor with strides, of which ``clone_input`` makes a copy."""
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def differs(value: Any, copy: Any) -> bool:
    """Whether a tensor differs from its copy in any bit; ``False`` for any other value."""
    if not is_tensor(value) or not is_tensor(copy) or value.shape != copy.shape:
        return False
    with torch.no_grad():
        return not torch.equal(_view_bits(value), _view_bits(copy))


def _view_bits(value: torch.Tensor) -> torch.Tensor:
    value = torch.view_as_real(value.detach()) if value.dtype.is_complex else value.detach()
    kind = _INTEGERS.get(value.element_size())
    return value if kind is None else value.view(kind)


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
        header[name] = {**_find_comparison_type(tensor), "data_offsets": [start, end]}
        start = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _HEADER_ALIGNMENT)
    with replace_when_written(path) as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            for piece in tensor.pieces:
                stream.write(piece)


def _find_comparison_type(tensor: FlatTensor) -> dict[str, Any]:
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
            tensors[f"storage_{storage}"] = FlatTensor(dtype, itemsize, held.nbytes, _list_pieces(held))
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
                f"{units.size(size)}; the values of {name} and of later kernels are random",
                "free some space, choose fewer kernels, or give a smaller --values-limit",
            )


def _list_pieces(held: torch.Tensor) -> Iterator[memoryview]:
    for piece in held.split(PIECE_BYTES):
        yield memoryview(piece.cpu().numpy())
