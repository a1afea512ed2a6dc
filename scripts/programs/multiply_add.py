"""A * B + C of large matrices: two kernels without compilation, one with it, and CUDA graphs copy the inputs.

``MODES`` are modes of ``torch.compile`` and ``eager``, with commas between them; the stopwatch prints a line for each.
The factory for the tool is ``multiply_add.py:matrices``.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
from stopwatch import DEVICE, timed
from torch import Tensor

SIZE = 512 if os.environ.get("SMALL") else 16000


def multiply_add(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return a * b + c


def matrices() -> tuple[object, tuple[Tensor, ...]]:
    return multiply_add, tuple(torch.rand(SIZE, SIZE, device=DEVICE) for _ in range(3))


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    _, inputs = matrices()
    for mode in os.environ.get("MODES", "default").split(","):
        torch.compiler.reset()
        print(mode, end=" ")
        time_steps(multiply_add if mode == "eager" else torch.compile(multiply_add, mode=mode), inputs)


def time_steps(run: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
    timed(lambda _: run(*inputs))


if __name__ == "__main__":
    main()
