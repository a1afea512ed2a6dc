"""What the multiprocessors of all NVIDIA GPUs since Volta have in common."""

from __future__ import annotations

THREADS_OF_WARP = 32
THREADS_OF_BLOCK = 1024
"""The most that a block may have."""

REGISTERS = 65536
"""Of a multiprocessor."""

PARTITIONS = 4
"""Of a multiprocessor: each has a quarter of the registers, and holds whole warps."""

REGISTER_UNIT = 256
"""Registers are given to warps in multiples of this number."""

SHARED_UNIT = 128
"""Shared memory is given to blocks in multiples of this number of bytes."""

ELEMENTS_OF_THREAD = 64
"""The most elements of a block that one thread has registers for; beyond it, registers spill."""
