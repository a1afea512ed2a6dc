"""Reads the values of storages before a launch, without waiting for the device.

Values are copied, or reduced to their bounds, on the device. :meth:`ValueReader.fetch` brings all of them to the host.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from ...records.code.launch import Launch, Storage, Values
from .regions import Region

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
        """The values of a region, of which a launch reads ``views``."""
        if region.size == 0:
            return ZEROS
        if self.is_exact(region):
            return Pending((self._keep(region.flat(torch.uint8).clone()),), _recorded)
        if _draws(region.dtype):
            return NORMAL
        views = [view for view in views if view.numel() and not _draws(view.dtype)]
        if not views:
            return ZEROS
        if region.dtype == torch.bool:
            return self._read_share(views)
        return Pending(tuple(self._keep(_bounds(view)) for view in views), _integers)

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
            return Values("integers", 0, 1, sum(map(_integer, parts)) / total)

        return Pending(tuple(self._keep(torch.count_nonzero(view).view(1).view(torch.uint8)) for view in views), share)

    def _keep(self, part: torch.Tensor) -> int:
        self._parts.append(part)
        return len(self._parts) - 1


def with_positive_values(launch: Launch, *, with_recorded: bool) -> Launch:
    """The launch with the absolute values of its drawn floats.

    Args:
        launch: a launch.
        with_recorded: whether floats that the launch holds itself are replaced, too. A module's own inputs are random,
            so that a short vector of variances may hold negative numbers.
    """
    storages = (_with_positive_values(one, with_recorded=with_recorded) for one in launch.storages)
    return replace(launch, storages=tuple(storages))


def _with_positive_values(storage: Storage, *, with_recorded: bool) -> Storage:
    if storage.values == NORMAL:
        return replace(storage, values=POSITIVE)
    dtype = getattr(torch, storage.dtype)
    if not with_recorded or storage.values.data is None or not dtype.is_floating_point or "float4" in storage.dtype:
        return storage
    data = bytearray(zlib.decompress(base64.b64decode(storage.values.data)))
    if len(data) % dtype.itemsize:
        return storage
    positive = torch.frombuffer(data, dtype=dtype).double().abs().to(dtype)
    return replace(storage, values=_recorded([positive.view(torch.uint8).numpy().tobytes()]))


def _draws(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _bounds(view: torch.Tensor) -> torch.Tensor:
    if view.dtype in (torch.uint16, torch.uint32, torch.uint64):
        view = view.to(torch.int64)  # torch has no aminmax for these types
    low, high = torch.aminmax(view)
    return torch.stack([low, high]).to(torch.int64).view(torch.uint8)


def _integer(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _integers(parts: Sequence[bytes]) -> Values:
    return Values("integers", min(_integer(part[:8]) for part in parts), max(_integer(part[8:]) for part in parts))


def _recorded(parts: Sequence[bytes]) -> Values:
    if not any(parts[0]):
        return ZEROS
    return Values("recorded", data=base64.b64encode(zlib.compress(parts[0])).decode())
