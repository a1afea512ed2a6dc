"""The smallest thing to break down: one function, a softmax written out by hand.

inductor-bench breakdown examples/compile_function.py            # this script, as it is
inductor-bench breakdown examples/compile_function.py:softmax_of_rows --inference
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def softmax(x: Tensor) -> Tensor:
    shifted = x - x.amax(dim=-1, keepdim=True)
    weights = shifted.exp()
    return weights / weights.sum(dim=-1, keepdim=True)


def softmax_of_rows() -> tuple[Callable[[Tensor], Tensor], tuple[Tensor]]:
    """The function and one input for it: what ``inductor-bench breakdown FILE:softmax_of_rows`` compiles and runs."""
    return softmax, (torch.randn(4096, 1024, device=DEVICE),)


if __name__ == "__main__":
    function, inputs = softmax_of_rows()
    compiled = torch.compile(function)
    for _ in range(100):
        result = compiled(*inputs)
    print(f"rows add up to one within {(result.sum(dim=-1) - 1).abs().max().item():.1e}")
