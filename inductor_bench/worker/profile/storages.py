"""The regions of memory that the tensors of a call occupy and share, and the values that they hold."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch

from ...devices.table import find_device
from ...records.code import Launch, Storage, Values

# Finds the regions of memory that the tensors of a call occupy and share.


_SLACK_BYTES = 1 << 20
_BLOCK_BYTES = 256


@dataclass
class Region:
    """A part of one storage. ``start`` and ``size`` are bytes; ``views`` are indices of the call's tensors."""

    storage: torch.UntypedStorage
    device: torch.device
    dtype: torch.dtype
    start: int
    size: int
    views: list[int] = field(default_factory=list)

    @property
    def key(self) -> tuple[str, int]:
        """A key that all regions of one storage share."""
        return str(self.device), self.storage.data_ptr()

    @property
    def alignment(self) -> int:
        """The largest power of two that divides the address, up to the allocator's alignment."""
        most = find_device(self.device.type).alignment_bytes
        address = self.storage.data_ptr() + self.start
        return min(most, address & -address) if address else most

    def flat(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns the region as a tensor of one dimension, without a rest that is smaller than an element."""
        empty = torch.empty(0, dtype=dtype, device=self.device)
        return empty.set_(self.storage, self.start // dtype.itemsize, (self.size // dtype.itemsize,), (1,))


def is_plain(value: torch.Tensor) -> bool:
    """Whether a tensor is an ordinary strided view of memory."""
    return (
        type(value) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        and value.layout == torch.strided
        and value.device.type != "meta"
        and not value.is_quantized
        and not value.is_conj()
        and not value.is_neg()
    )


def find_regions(tensors: Sequence[torch.Tensor]) -> list[Region]:
    """The regions of plain tensors, in the order of their first view.

    Tensors whose extents overlap share a region. Views of disjoint parts of one storage have regions of their own, so
    that a pool or a flat buffer of parameters is split. A region is the whole storage if the storage is at most
    1 MiB larger than its single region.
    """
    by_storage: dict[tuple[str, int], list[int]] = {}
    for index, tensor in enumerate(tensors):
        address = tensor.untyped_storage().data_ptr()
        key = (str(tensor.device), address) if address else ("", -1 - index)
        by_storage.setdefault(key, []).append(index)
    regions = [region for indices in by_storage.values() for region in _split(tensors, indices)]
    return sorted(regions, key=lambda region: region.views[0])


def _split(tensors: Sequence[torch.Tensor], indices: Sequence[int]) -> list[Region]:
    storage = tensors[indices[0]].untyped_storage()
    parts: list[tuple[int, int, list[int]]] = []
    for start, end, index in sorted((*_compute_extent(tensors[index]), index) for index in indices):
        if parts and start < parts[-1][1]:
            first, last, views = parts[-1]
            parts[-1] = (first, max(last, end), [*views, index])
        else:
            parts.append((start, end, [index]))
    whole = len(parts) == 1 and storage.nbytes() - (parts[0][1] - parts[0][0]) <= _SLACK_BYTES
    regions = []
    for start, end, views in parts:
        start = 0 if whole else start - start % _BLOCK_BYTES
        size = storage.nbytes() if whole else end - start
        first_view = tensors[min(views)]
        regions.append(Region(storage, first_view.device, first_view.dtype, start, size, sorted(views)))
    return regions


def _compute_extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The range of bytes of its storage that a tensor covers: the first byte, and the byte after the last."""
    start = int(tensor.storage_offset()) * tensor.element_size()
    if tensor.numel() == 0:
        return start, start
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (int(reach) + 1) * tensor.element_size()


# Reads the values of storages before a launch, without waiting for the device.
#
# Values are copied, or reduced to their bounds, on the device. :meth:`ValueReader.fetch` brings all of them to the
# host.


NORMAL = Values("normal")
POSITIVE = Values("positive")
ZEROS = Values("zeros")
_EXACT_FLOAT_BYTES = 64
"""Maximum size in bytes of float storages that are read exactly: steps, learning rates and scales, which decide what a
kernel computes."""


@dataclass(frozen=True)
class Pending:
    """Values that are still on the device. ``resolve`` makes the values from the fetched bytes of each of ``parts``."""

    parts: tuple[int, ...]
    resolve: Callable[[Sequence[bytes]], Values]


class ValueReader:
    """Reads values of regions: integers and bools exactly up to ``limit_bytes``, and as bounds above."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._parts: list[torch.Tensor] = []

    def read(self, region: Region, views: Sequence[torch.Tensor]) -> Values | Pending:
        """The values of a region that a launch reads through ``views``."""
        if region.size == 0:
            return ZEROS
        if self.is_exact(region):
            return Pending((self._keep(region.flat(torch.uint8).clone()),), _describe_recorded)
        if _draws(region.dtype):
            return NORMAL
        views = [view for view in views if view.numel() and not _draws(view.dtype)]
        if not views:
            return ZEROS
        if region.dtype == torch.bool:
            return self._read_share(views)
        return Pending(tuple(self._keep(_compute_bounds(view)) for view in views), _describe_all_integers)

    def is_exact(self, region: Region) -> bool:
        """Whether the values of a region are read exactly."""
        return region.size <= (_EXACT_FLOAT_BYTES if _draws(region.dtype) else self._limit_bytes)

    def fetch(self) -> list[bytes]:
        """The bytes of all parts, with one synchronisation per device. The reader is empty afterwards."""
        found: list[bytes] = [b""] * len(self._parts)
        for device in {part.device for part in self._parts}:
            indices = [index for index, part in enumerate(self._parts) if part.device == device]
            whole = torch.cat([self._parts[index] for index in indices]).cpu().numpy().tobytes()
            start = 0
            for index in indices:
                end = start + self._parts[index].numel()
                found[index], start = whole[start:end], end
        self._parts = []
        return found

    def _read_share(self, views: Sequence[torch.Tensor]) -> Pending:
        total = sum(view.numel() for view in views)

        def share(parts: Sequence[bytes]) -> Values:
            return Values("integers", 0, 1, sum(map(_describe_integers, parts)) / total)

        return Pending(tuple(self._keep(torch.count_nonzero(view).view(1).view(torch.uint8)) for view in views), share)

    def _keep(self, part: torch.Tensor) -> int:
        self._parts.append(part)
        return len(self._parts) - 1


def make_values_positive(launch: Launch, *, with_recorded: bool) -> Launch:
    """Returns the launch with the absolute values of its drawn floats.

    Args:
        launch: a launch.
        with_recorded: whether floats that are stored in the launch are replaced, too. A module's own inputs are random,
            so that a short vector of variances may hold negative numbers.
    """
    storages = (_make_storage_positive(one, with_recorded=with_recorded) for one in launch.storages)
    return replace(launch, storages=tuple(storages))


def _make_storage_positive(storage: Storage, *, with_recorded: bool) -> Storage:
    if storage.values == NORMAL:
        return replace(storage, values=POSITIVE)
    dtype = getattr(torch, storage.dtype)
    if not with_recorded or storage.values.data is None or not dtype.is_floating_point or "float4" in storage.dtype:
        return storage
    data = bytearray(zlib.decompress(base64.b64decode(storage.values.data)))
    if len(data) % dtype.itemsize:
        return storage
    positive = torch.frombuffer(data, dtype=dtype).double().abs().to(dtype)
    return replace(storage, values=_describe_recorded([positive.view(torch.uint8).numpy().tobytes()]))


def _draws(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _compute_bounds(view: torch.Tensor) -> torch.Tensor:
    if view.dtype in (torch.uint16, torch.uint32, torch.uint64):
        view = view.to(torch.int64)  # torch has no aminmax for these types
    low, high = torch.aminmax(view)
    return torch.stack([low, high]).to(torch.int64).view(torch.uint8)


def _describe_integers(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _describe_all_integers(parts: Sequence[bytes]) -> Values:
    return Values(
        "integers",
        min(_describe_integers(part[:8]) for part in parts),
        max(_describe_integers(part[8:]) for part in parts),
    )


def _describe_recorded(parts: Sequence[bytes]) -> Values:
    if not any(parts[0]):
        return ZEROS
    return Values("recorded", data=base64.b64encode(zlib.compress(parts[0])).decode())
