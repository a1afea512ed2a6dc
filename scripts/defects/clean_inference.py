"""Inference without a defect: no advice of over 3% of the step is right, beside what each program declares."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from frame import DEVICE, DTYPE, clean, either, loop, start
from models import LENGTH, SPACE, Images, Language, Layer, Regression, on_device, pictures, rows, tokens
from torch import Tensor, nn


@clean()
@torch.no_grad()
def layers() -> None:
    """Large layers."""
    model = torch.compile(on_device(nn.Sequential(*(Layer() for _ in range(4)))))
    x = rows()
    for _ in loop():
        model(x)


@clean()
@torch.no_grad()
def reading() -> None:
    """A transformer reads texts."""
    model = on_device(Language())
    encode, data = torch.compile(model.encode), tokens(either(16, 4), LENGTH - 1)
    for _ in loop():
        encode(data)


@clean(may=("layout-copies", "replay-inputs"))
@torch.no_grad()
def classifying() -> None:
    """Convolutions under CUDA graphs."""
    model = on_device(Images()).eval()
    classify = torch.compile(model.features, mode="reduce-overhead")
    images, _ = pictures()
    for _ in loop():
        classify(images)


@clean(may=("small-products", "replay-inputs", "kernel-gaps"))
@torch.no_grad()
def decoding() -> None:
    """A decode loop under CUDA graphs, whose tokens stay on the device."""
    model = on_device(Language(depth=either(8, 2)))
    decode = torch.compile(lambda tokens: model.logits(tokens)[:, -1:].argmax(-1), mode="reduce-overhead")
    token = torch.ones(64, 64, dtype=torch.long, device=DEVICE)
    for _ in loop():
        token[:, -1:] = decode(token)


@clean(may=("replay-inputs",))
@torch.no_grad()
def denoising() -> None:
    """A diffusion loop with its times on the device, under CUDA graphs."""
    network = on_device(nn.ModuleList(Layer(SPACE, 4 * SPACE) for _ in range(8)))

    def denoise(x: Tensor, time: Tensor) -> Tensor:
        for layer in network:
            x = layer(x) * (1 - 0.01 * time)
        return x

    compiled = torch.compile(denoise, mode="reduce-overhead")
    x, times = rows(either(4096, 64), SPACE), torch.linspace(1, 0, 1000, device=DEVICE, dtype=DTYPE)
    for number in loop():
        x = compiled(x, times[number % len(times)]).clone()


@clean(may=("recompiles", "other-steps"))
@torch.no_grad()
def several_sizes() -> None:
    """Four sizes in turn, with dynamic shapes."""
    model = torch.compile(on_device(nn.Sequential(*(Layer() for _ in range(2)))), dynamic=True)
    batches = [rows(either(3072, 64) + 64 * number) for number in range(4)]
    for number in loop():
        model(batches[number % 4])


@clean()
@torch.no_grad()
def searching() -> None:
    """The nearest of many vectors."""
    stored, wanted = rows(either(65536, 2048), SPACE), rows(either(1024, 64), SPACE)
    search = torch.compile(lambda wanted: (wanted @ stored.T).max(-1))
    for _ in loop():
        search(wanted)


@clean()
@torch.no_grad()
def signals() -> None:
    """Only elementwise work, on large tensors."""
    waves = rows(either(32768, 512), 2048)
    change = torch.compile(lambda x: (F.silu(x) * torch.tanh(0.1 * x)).cumsum(0).softmax(-1))
    for _ in loop():
        change(waves)


@clean()
@torch.no_grad()
def judging() -> None:
    """A model and its loss, without gradients."""
    model = torch.compile(on_device(Regression(depth=4)))
    x = rows()
    for _ in loop():
        model(x, x)


if __name__ == "__main__":
    start()
