"""Computes the theoretical occupancy of a kernel: the share of a multiprocessor's warps that can be resident.

A block stays on one multiprocessor until it ends. The number of resident blocks is the smallest of four limits: warps,
blocks, registers and shared memory per multiprocessor. The rules are the same as in NVIDIA's ``cuda_occupancy.h``.
"""

from __future__ import annotations

from typing import NamedTuple

from .multiprocessor import PARTITIONS, REGISTER_UNIT, REGISTERS, SHARED_UNIT, THREADS_OF_WARP


class Limits(NamedTuple):
    """The limits of a multiprocessor.

    Attributes:
        warps: largest number of resident warps.
        blocks: largest number of resident blocks.
        shared_bytes: bytes of shared memory.
        reserved_bytes: bytes of shared memory that the system uses per block.
    """

    warps: int
    blocks: int
    shared_bytes: int
    reserved_bytes: int = 1024


LIMITS = {
    "7.0": Limits(64, 32, 96 << 10, 0),
    "7.5": Limits(32, 16, 64 << 10, 0),
    "8.0": Limits(64, 32, 164 << 10),
    "8.6": Limits(48, 16, 100 << 10),
    "8.7": Limits(48, 16, 164 << 10),
    "8.9": Limits(48, 24, 100 << 10),
    "9.0": Limits(64, 32, 228 << 10),
    "10.0": Limits(64, 32, 228 << 10),
    "10.3": Limits(64, 32, 228 << 10),
    "12.0": Limits(48, 24, 100 << 10),
}
"""Limits by compute capability, from the table of technical specifications in the CUDA programming guide."""


def theoretical_occupancy(
    capability: str | None, warps: int | None, registers: int | None, shared_memory_bytes: int | None
) -> float | None:
    """Returns the share (0 to 1) of the warps of a multiprocessor that can be resident.

    Args:
        capability: the compute capability, such as ``9.0``.
        warps: number of warps per block.
        registers: number of registers per thread.
        shared_memory_bytes: bytes of shared memory per block.

    Returns:
        The share, or ``None`` where an argument or the limits of the device are unknown.
    """
    limits = LIMITS.get(capability or "")
    if limits is None or not warps or registers is None or shared_memory_bytes is None:
        return None
    fitting = [limits.blocks, limits.warps // warps]
    if registers:
        registers_of_warp = _round_up(registers * THREADS_OF_WARP, REGISTER_UNIT)
        fitting.append(REGISTERS // PARTITIONS // registers_of_warp * PARTITIONS // warps)
    shared = _round_up(shared_memory_bytes + limits.reserved_bytes, SHARED_UNIT)
    if shared:
        fitting.append(limits.shared_bytes // shared)
    return min(fitting) * warps / limits.warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
