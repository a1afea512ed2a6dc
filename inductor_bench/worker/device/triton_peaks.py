"""The Triton kernels with which roofs are measured. Importing this file needs Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_COPY_BLOCK = 4096
_SWEEP_BLOCK = 4096
_SWEEP_PROGRAMS = 4  # per multiprocessor, with eight warps each: enough loads in flight, and all programs are resident


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
        # ".cg" bypasses the L1, so that each pass reads from the L2.
        total += tl.load(source + block * BLOCK + offsets, cache_modifier=".cg")
    tl.store(sink + program * BLOCK + offsets, total)


def launch_copy(source: torch.Tensor, target: torch.Tensor) -> None:
    """Copies a contiguous float32 tensor to another tensor of the same size."""
    count = source.numel()
    block = min(_COPY_BLOCK, triton.next_power_of_2(count))
    _copy[(triton.cdiv(count, block),)](source, target, count, BLOCK=block)


class Sweep:
    """Reads blocks of ``data`` repeatedly.

    In each pass every program reads one block, and in the next pass another one.

    ``bytes`` is the number of bytes that one pass reads.
    """

    def __init__(self, data: torch.Tensor, multiprocessors: int) -> None:
        self._data = data
        self._blocks = data.numel() // _SWEEP_BLOCK
        self._programs = _SWEEP_PROGRAMS * multiprocessors
        self._sink = torch.empty(self._programs * _SWEEP_BLOCK, device=data.device)
        self.bytes = 4 * _SWEEP_BLOCK * self._programs

    def launch(self, passes: int) -> None:
        """Makes ``passes`` passes in one kernel. ``data`` must hold at least one block."""
        arguments = (self._data, self._sink, self._blocks, passes, self._programs)
        _sweep[(self._programs,)](*arguments, BLOCK=_SWEEP_BLOCK, num_warps=8)
