"""The work of the programs of ``benchmark_simulation.py``: small launches, products, training, replays and copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"


def chain(count: int, size: int) -> Callable[[], Any]:
    """Many small launches."""
    x = torch.randn(size, size, device=DEVICE)
    y = torch.empty_like(x)

    def run() -> Any:
        for _ in range(count):
            torch.add(x, 1.0, out=y)
        return y

    return run


def products(count: int, size: int) -> Callable[[], Any]:
    """Matrix products."""
    a = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    b = torch.randn(size, size, device=DEVICE, dtype=torch.bfloat16)
    out = torch.empty_like(a)

    def run() -> Any:
        for _ in range(count):
            torch.mm(a, b, out=out)
        return out[0, 0]

    return run


def training(model: nn.Module, x: torch.Tensor, *, micro: int = 1, fused: bool | None = None) -> Callable[[], Any]:
    """A training step of a compiled model."""
    model = model.to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=fused)
    inputs = x.to(DEVICE)

    def run() -> Any:
        optimizer.zero_grad()
        loss = torch.zeros((), device=DEVICE)
        for _ in range(micro):
            loss = compiled(inputs).float().square().mean()
            loss.backward()
        optimizer.step()
        return loss.detach()

    return run


def network(width: int, layers: int) -> nn.Module:
    blocks = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))]
    return nn.Sequential(*blocks)


def replayed(run: Callable[[], Any]) -> Callable[[], Any]:
    """The same, replayed as a CUDA graph of the program's own. What the graph reads lives as long as ``run`` does."""
    if not GPU:
        return run
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value = run()

    def replay(tensors: Any = (run, value)) -> Any:
        graph.replay()
        return tensors[1]

    return replay


def copies(megabytes: int, *, pinned: bool) -> Callable[[], Any]:
    """A batch that is copied to the device."""
    batch = torch.randn(megabytes * 262_144, pin_memory=pinned and GPU)
    target = torch.empty_like(batch, device=DEVICE)

    def run() -> Any:
        target.copy_(batch, non_blocking=pinned)
        return target[0]

    return run


def attention(layers: int) -> Callable[[], Any]:
    """Attention and products without compilation: many operators of a few launches."""
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 512, batch_first=True), layers).to(DEVICE).eval()
    x = torch.randn(8, 64, 256, device=DEVICE)

    def run() -> Any:
        with torch.no_grad():
            return model(x)[0, 0, 0]

    return run


def convolutions() -> Callable[[], Any]:
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU()]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))
    return training(model, torch.randn(32 if GPU else 1, 3, 64, 64))


def nothing() -> Any:
    return torch.zeros((), device=DEVICE)
