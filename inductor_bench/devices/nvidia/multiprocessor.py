"""Properties of the multiprocessors of all NVIDIA GPUs since Volta."""

from __future__ import annotations

THREADS_OF_WARP = 32
"""Number of threads per warp."""

THREADS_OF_BLOCK = 1024
"""Largest number of threads per block."""

REGISTERS = 65536
"""Number of registers per multiprocessor."""

PARTITIONS = 4
"""Number of partitions per multiprocessor. Each has a quarter of the registers and holds whole warps."""

REGISTER_UNIT = 256
"""A warp gets its registers in multiples of this number."""

SHARED_UNIT = 128
"""A block gets its shared memory in multiples of this number of bytes."""

ELEMENTS_OF_THREAD = 64
"""Largest number of elements of a block per thread; with more elements, registers spill."""
