"""How many warps of a kernel a multiprocessor can hold, of those that it has room for: NVIDIA's occupancy calculation.

A block stays on one multiprocessor until it ends. How many fit is bounded by the warps and the blocks that there is
room for, by registers and by shared memory; whichever runs out first decides. The rules are those of
``cuda_occupancy.h``.
"""

from __future__ import annotations

from typing import NamedTuple

from .multiprocessor import PARTITIONS, REGISTER_UNIT, REGISTERS, SHARED_UNIT, THREADS_OF_WARP


class Limits(NamedTuple):
    """What a multiprocessor has room for; ``reserved_bytes`` is what the system takes of each block's shared memory."""

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
"""By compute capability, from the table of technical specifications in the CUDA programming guide."""


def theoretical_occupancy(
    capability: str | None, warps: int | None, registers: int | None, shared_memory_bytes: int | None
) -> float | None:
    """The share (0 to 1) of the warps of a multiprocessor that can be resident; ``None`` where that is not known.

    Args:
        capability: the compute capability, such as ``9.0``.
        warps: of one block.
        registers: of one thread.
        shared_memory_bytes: of one block.
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
