"""The memory of one call in one allocation: the storages of a launch between guard bands, with values and fills."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ...devices.table import find_device
from ...messages import kernel_requests as cases
from ...source.harness.common import ALIGNMENT, Arguments, allocate, bind_arguments, build_arguments

GUARD_BYTES = 4096
"""The size of the band before and behind each storage."""

FILLS = {cases.FILL_NAN: 0xFF, cases.FILL_PATTERN: 0xA5, cases.FILL_STALE: 0x5A}
"""The byte that guard bands hold, and buffers that are only written. Floats of bytes 0xFF are NaN."""

SCALES = {cases.LARGE: 48.0, cases.SMALL: 1 / 48}
SPECIAL_SHARE, FEWEST_SPECIAL = 997, 8
"""The share and the least number of infinities or NaNs in a case with them: one of this many elements, but at least
this many elements of a buffer that is not small, so that a kernel that reads by indices reads one."""

NUDGED_ELEMENTS = 3


class Arena:
    """Where the storages of a launch lie in one allocation.

    Args:
        launch: an encoded ``Launch``.
    """

    def __init__(self, launch: dict[str, Any]) -> None:
        self.launch = launch
        self.places: list[tuple[int, int]] = []  # the first byte of each storage, and the one behind it
        end = 0
        for storage in launch["storages"]:
            start = end + GUARD_BYTES
            start += (storage["alignment"] - start) % ALIGNMENT
            end = start + storage["size_bytes"]
            self.places.append((start, end))
        self.size = end + GUARD_BYTES

    def allocate(self, device: str) -> torch.Tensor:
        """Returns memory for all storages, as bytes."""
        return allocate(self.size, ALIGNMENT, device)

    def storages(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """The storages as slices of the memory."""
        return [memory[start:end] for start, end in self.places]

    def guards(self, memory: torch.Tensor) -> list[torch.Tensor]:
        """The guard bands as slices of the memory: before the first storage, between each two, behind the last."""
        ends = [0, *(end for _, end in self.places)]
        starts = [*(start for start, _ in self.places), self.size]
        return [memory[end:start] for end, start in zip(ends, starts, strict=True)]

    def arguments(self, memory: torch.Tensor) -> Arguments:
        """The arguments of the launch as views of the memory; storages that lay on the CPU are copied to it."""
        storages = self.storages(memory)
        device = str(memory.device)
        for index, storage in enumerate(self.launch["storages"]):
            if find_device(storage["device"].partition(":")[0]).runs_on_host and not memory.is_cpu:
                on_host = allocate(storage["size_bytes"], storage["alignment"], "cpu")
                storages[index] = on_host.copy_(storages[index])
        return bind_arguments(self.launch, storages, device)

    def copy_back(self, memory: torch.Tensor, arguments: Arguments) -> None:
        """Copies the storages that lay on the CPU from their tensors back into the memory."""
        for target, storage in zip(self.storages(memory), arguments.storages, strict=True):
            if storage.data_ptr() != target.data_ptr():
                target.copy_(storage)


def map_memory_file(path: str | Path, size: int, *, new: bool = False) -> torch.Tensor:
    """Maps a file into memory as bytes; what is written to them is written to the file. ``new`` makes the file.

    Raises:
        RuntimeError, OSError: the file is missing, or has another size.
    """
    if new:
        with open(path, "wb") as file:
            file.truncate(size)
    return torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)


def make_values(launch: dict[str, Any], case: cases.EditCase, folder: str) -> list[torch.Tensor]:
    """The contents of a launch's storages on the CPU, as bytes, with the values of a case.

    Args:
        launch: an encoded ``Launch``.
        case: its values and its seed.
        folder: where files of recorded values lie.

    Raises:
        ValueError: recorded values are missing.
    """
    seed = case.seed if case.values == cases.OTHER else 0
    made = build_arguments({**launch, "arguments": (), "keywords": {}}, "cpu", seed, folder).storages
    for index, (storage, recorded) in enumerate(zip(made, launch["storages"], strict=True)):
        dtype = getattr(torch, recorded["dtype"])
        if storage.numel() < dtype.itemsize or not dtype.is_floating_point or "float4" in recorded["dtype"]:
            continue
        whole = storage[: storage.numel() // dtype.itemsize * dtype.itemsize]
        numbers = _align_data(whole).view(dtype)
        changed = change_values(numbers, case, index, was_recorded=recorded["values"]["kind"] == "recorded")
        whole.copy_(changed.view(torch.uint8))
    return made


def _align_data(data: torch.Tensor) -> torch.Tensor:
    return data if data.storage_offset() % 16 == 0 and data.data_ptr() % 16 == 0 else data.clone()


def change_values(numbers: torch.Tensor, case: cases.EditCase, index: int, *, was_recorded: bool) -> torch.Tensor:
    """Returns the numbers of a storage with the values of a case.

    Args:
        numbers: one dimension of floats, as the standalone file has them.
        case: the values.
        index: the number of the storage; the random numbers depend on it.
        was_recorded: whether these are values of the program; the case ``OTHER`` then only changes their order.
    """
    dtype, generator = numbers.dtype, torch.Generator().manual_seed(case.seed * 1009 + index)
    wide = numbers.to(torch.float32) if dtype.itemsize == 1 else numbers.clone()
    count = wide.numel()
    if case.values == cases.OTHER and was_recorded and count > 1:
        wide = wide[torch.randperm(count, generator=generator)]
    elif case.values == cases.ROUNDED:
        wide = (wide * 8).round() / 8
    elif case.values in SCALES:
        wide = wide * SCALES[case.values]
    elif case.values == cases.ZERO:
        wide.zero_()
    elif case.values == cases.NUDGED:
        places = torch.randint(count, (NUDGED_ELEMENTS,), generator=generator)
        wide[places] = wide[places] * 1.5 + 0.25
    elif case.values in (cases.INFINITE, cases.NAN):
        special = max(math.ceil(count / SPECIAL_SHARE), min(FEWEST_SPECIAL, math.ceil(count / 16)))
        places = torch.randint(count, (special,), generator=generator)
        wide[places] = math.nan if case.values == cases.NAN else math.inf
        if case.values == cases.INFINITE:
            wide[places[::2]] = -math.inf
    return wide.to(dtype)


def nudge_last_bit(storages: Sequence[torch.Tensor], launch: dict[str, Any], seed: int) -> None:
    """Changes each float of at least 32 bits up or down by about one unit in its last place."""
    for index, (storage, recorded) in enumerate(zip(storages, launch["storages"], strict=True)):
        dtype = getattr(torch, recorded["dtype"])
        if dtype not in (torch.float32, torch.float64) or storage.numel() < dtype.itemsize:
            continue
        whole = storage[: storage.numel() // dtype.itemsize * dtype.itemsize]
        numbers = _align_data(whole).view(dtype)
        signs = torch.randint(0, 2, (numbers.numel(),), generator=torch.Generator().manual_seed(seed + index))
        factor = 1 + (2 * signs - 1).to(dtype) * torch.finfo(dtype).eps
        whole.copy_((numbers * factor).view(torch.uint8))


def find_covered_bytes(launch: dict[str, Any], places: Sequence[int]) -> list[torch.Tensor]:
    """Returns for each storage, as bools, which of its bytes belong to the arguments with these indices."""
    masks = [torch.zeros(storage["size_bytes"], dtype=torch.uint8) for storage in launch["storages"]]
    every = [*launch["arguments"], *(launch.get("keywords") or {}).values()]
    for view in (each for place in places for each in list_tensor_views(every[place])):
        mask, itemsize = masks[view["storage"]], view["itemsize"]
        if 0 in view["shape"]:
            continue
        shape = [size if step else 1 for size, step in zip(view["shape"], view["stride"], strict=True)]
        steps = [step * itemsize for step in view["stride"]]
        mask.as_strided((*shape, itemsize), (*steps, 1), view["offset"] * itemsize).fill_(1)
    return [mask.bool() for mask in masks]


def list_tensor_views(item: dict[str, Any]) -> list[dict[str, Any]]:
    """The tensors of an encoded argument."""
    if item["kind"] == "tensor":
        return [item["tensor"]]
    return [view for each in item.get("items") or () for view in list_tensor_views(each)]
