"""CUDA graphs that are refused or unused, and graphs with little work."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from frame import DEFECT, DEVICE, DTYPE, defect, either, loop, start
from models import SPACE, Block, Layer, Regression, on_device, rows
from torch import Tensor, nn

SHORT = either(128, 16)
"""Rows of a step whose pace the host sets."""


class Denoiser(nn.Module):
    """A small network that knows the time."""

    def __init__(self, depth: int = either(12, 4)) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(SPACE, 2 * SPACE) for _ in range(depth))

    def forward(self, x: Tensor, timestep: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) * (1 + 0.001 * timestep)
        return x


@defect("cuda-graphs-refused", "cuda-graphs-unused", names=("cache", "keys"), share=0.1, also=("host-pace",))
@torch.no_grad()
def cache_as_argument() -> None:
    """The caller owns the cache that a decoder writes into, so that no CUDA graph is captured."""
    layers = on_device(nn.Sequential(*(Layer(SPACE, 2 * SPACE) for _ in range(either(12, 4)))))

    def decode(x: Tensor, keys: Tensor, place: Tensor) -> Tensor:
        if DEFECT:
            keys.index_copy_(0, place, x[None])  # defect
        return layers(x) + keys[:4].mean(0)

    compiled, x = torch.compile(decode, mode="reduce-overhead"), rows(SHORT, SPACE)
    for number in loop():
        keys = torch.zeros(64, SHORT, SPACE, device=DEVICE, dtype=DTYPE)
        compiled(x, keys, torch.tensor([number % 64], device=DEVICE))  # defect


@defect("cuda-graphs-refused", "cuda-graphs-unused", names=("count", "counts"), share=0.1, also=("host-pace",))
@torch.no_grad()
def mutated_input() -> None:
    """The function changes one of its inputs in place, so that no CUDA graph is captured."""
    model = on_device(Denoiser())

    def answer(x: Tensor, counts: Tensor) -> Tensor:
        if DEFECT:
            counts.add_(1)  # defect
        return model(x, counts)

    compiled = torch.compile(answer, mode="reduce-overhead")
    x = rows(SHORT, SPACE)
    for number in loop():
        counts = torch.full((), number, device=DEVICE, dtype=DTYPE)
        compiled(x, counts)  # defect


@defect("cuda-graphs-unused", names=("model", "Denoiser", "forward", "inference"), share=0.2, also=("host-pace",))
@torch.no_grad()
def small_inference() -> None:
    """A small network, which the host launches kernel by kernel."""
    model = torch.compile(on_device(Denoiser(either(24, 4))), mode="reduce-overhead" if not DEFECT else None)
    x, timestep = rows(SHORT, SPACE), torch.ones((), device=DEVICE, dtype=DTYPE)
    for _ in loop():
        model(x, timestep)


@defect("cuda-graphs-unused", names=("model", "Regression", "forward", "backward"), share=0.2, also=("host-pace",))
def small_training() -> None:
    """The training of a small network, which the host launches kernel by kernel."""
    network = on_device(Regression(either(16, 4), SPACE // 2, SPACE))
    model = torch.compile(network, mode="reduce-overhead" if not DEFECT else None)
    optimizer, x = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=True), rows(SHORT, SPACE // 2)
    for _ in loop():
        model(x, x).backward()
        optimizer.step()
        optimizer.zero_grad()


@defect(
    "small-graphs",
    "cuda-graphs-unused",
    names=("block", "Block", "blocks"),
    share=0.1,
    also=("host-pace",),
)
@torch.no_grad()
def blocks_one_by_one() -> None:
    """24 small blocks are compiled one by one."""
    blocks = on_device(nn.Sequential(*(Block() for _ in range(either(24, 8)))))
    if DEFECT:
        for block in blocks:
            block.compile()  # defect
    else:
        blocks.compile(mode="reduce-overhead" if DEVICE == "cuda" else None)
    x = rows(SHORT, SPACE).view(2, SHORT // 2, SPACE)
    for _ in loop():
        for _ in range(2):
            blocks(x)  # defect


@defect(
    "small-graphs",
    names=("mix", "smooth"),
    share=0.1,
    also=("host-pace", "eager-operators", "cuda-graphs-unused"),
    cpu=True,
)
@torch.no_grad()
def small_function() -> None:
    """A compiled function of a few operators is called 200 times a step."""
    network = torch.compile(on_device(nn.Sequential(*(Layer(SPACE, 4 * SPACE) for _ in range(2)))))

    def mix(x: Tensor, y: Tensor) -> Tensor:
        return F.silu(x) * y + 0.1 * x

    smooth = torch.compile(mix)
    states = rows(200, SPACE)
    for _ in loop():
        out = network(rows(either(1024, 16), SPACE))[0]
        states = torch.stack([smooth(state, out) for state in states]) if DEFECT else smooth(states, out)  # defect


if __name__ == "__main__":
    start()
