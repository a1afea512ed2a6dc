"""Finds the regions of memory that the tensors of a call occupy and share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from inductor_bench.devices.table import device_of

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
        most = device_of(self.device.type).alignment_bytes
        address = self.storage.data_ptr() + self.start
        return min(most, address & -address) if address else most

    def flat(self, dtype: torch.dtype) -> torch.Tensor:
        """The region as a tensor of one dimension, without a remainder that is smaller than an element."""
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
    that a pool or a flat buffer of parameters is split. A region is the whole storage where the storage is at most
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
    for start, end, index in sorted((*_extent(tensors[index]), index) for index in indices):
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


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """The range of bytes of its storage that a tensor covers: the first byte, and the byte after the last."""
    start = int(tensor.storage_offset()) * tensor.element_size()
    if tensor.numel() == 0:
        return start, start
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return start, start + (int(reach) + 1) * tensor.element_size()
