"""A Triton kernel that takes as long as it is told to. Importing it needs Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["rounds"])
def _spin(target, rounds):  # type: ignore[no-untyped-def]
    value = tl.load(target)
    for _ in range(rounds):
        value = value * 0.999 + 0.5  # each has to wait for the one before
    tl.store(target, value)


def launch_spin(target: torch.Tensor, rounds: int) -> None:
    """Spins one warp for so many rounds, on a float32 tensor."""
    _spin[(1,)](target, rounds, num_warps=1)
