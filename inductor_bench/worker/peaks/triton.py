"""The Triton kernels that roofs are measured with. Importing it needs Triton; nothing else in the package does."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_COPY_BLOCK = 4096
_SWEEP_BLOCK = 4096
_SWEEP_PROGRAMS = 4  # per multiprocessor, of eight warps each: enough loads in flight, and all resident at once


@triton.jit
def _copy(source, target, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(target + offsets, tl.load(source + offsets, mask=mask), mask=mask)


@triton.jit
def _sweep(source, sink, blocks, passes, step, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    program = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for index in range(passes):
        block = (program + index * step) % blocks
        # ".cg" keeps the data out of the L1, so that each pass comes from the L2.
        total += tl.load(source + block * BLOCK + offsets, cache_modifier=".cg")
    tl.store(sink + program * BLOCK + offsets, total)


def launch_copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copies a contiguous float32 tensor to another of the same size."""
    count = source.numel()
    block = min(_COPY_BLOCK, triton.next_power_of_2(count))
    _copy[(triton.cdiv(count, block),)](source, target, count, BLOCK=block)


class Sweep:
    """Reads blocks of ``data`` over and over, every program another block in every pass.

    ``bytes`` is what one pass reads: as many blocks as there are programs, the next pass the next blocks.
    """

    def __init__(self, data: torch.Tensor, multiprocessors: int) -> None:
        self._data = data
        self._blocks = data.numel() // _SWEEP_BLOCK
        self._programs = _SWEEP_PROGRAMS * multiprocessors
        self._sink = torch.empty(self._programs * _SWEEP_BLOCK, device=data.device)
        self.bytes = 4 * _SWEEP_BLOCK * self._programs

    def launch(self, passes: int) -> None:
        """Makes ``passes`` passes in one kernel. At least one block of data is needed."""
        arguments = (self._data, self._sink, self._blocks, passes, self._programs)
        _sweep[(self._programs,)](*arguments, BLOCK=_SWEEP_BLOCK, num_warps=8)
