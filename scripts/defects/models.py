"""The models of the programs in this folder, and how most of them are trained."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from frame import DEVICE, DTYPE, either
from torch import Tensor, nn

WIDTH, HIDDEN, ROWS = either((2048, 8192, 4096), (128, 512, 256))
WORDS, LENGTH, BATCH = either((8192, 512, 8), (512, 64, 4))
SPACE = either(1024, 128)
"""The width of a language model; its heads have 64, or 32 if it is small."""


class Layer(nn.Module):
    def __init__(self, width: int = WIDTH, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Regression(nn.Module):
    """Layers, and the mean square of their error."""

    def __init__(self, depth: int = 2, width: int = WIDTH, hidden: int = HIDDEN) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(width, hidden) for _ in range(depth))

    def forward(self, rows: Tensor, targets: Tensor) -> Tensor:
        for layer in self.layers:
            rows = layer(rows)
        return F.mse_loss(rows, targets)


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind()
        return self.out(self.mix(query, key, value).transpose(1, 2).flatten(2))

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Block(nn.Module):
    def __init__(self, width: int = SPACE, heads: int = either(16, 4), attention: type[Attention] = Attention) -> None:
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(width), attention(width, heads)
        self.feed = Layer(width, 4 * width)

    def forward(self, x: Tensor) -> Tensor:
        return self.feed(x + self.attention(self.norm(x)))


class Language(nn.Module):
    """A transformer over tokens, and its loss."""

    def __init__(self, depth: int = either(4, 2), words: int = WORDS, width: int = SPACE, **block: Any) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(4 * LENGTH, width)
        self.blocks = nn.ModuleList(Block(width, **block) for _ in range(depth))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)

    def encode(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def logits(self, tokens: Tensor) -> Tensor:
        return self.head(self.encode(tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.logits(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


class Images(nn.Module):
    """Convolutions over images, and their loss."""

    def __init__(self, width: int = either(128, 16), depth: int = either(4, 2)) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, stride=4, padding=1)]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(self.features(images).mean((2, 3))).float(), labels)


class Chain(nn.Module):
    """Elementwise operators one after the other, on a parameter, and their mean square."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(*either((4096, 2048), (256, 256))))

    def forward(self, shift: int = 6) -> Tensor:
        x = self.weight
        for _ in range(either(24, 8)):
            x = F.gelu(x + shift).sin() * 0.5
        return x.square().mean()


PIXELS, PICTURES = either((224, 64), (32, 8))


def on_device(model: nn.Module) -> nn.Module:
    return model.to(DEVICE, DTYPE, memory_format=torch.channels_last)


def training(model: nn.Module, **how: Any) -> Callable[..., Tensor]:
    """A training step of a compiled model with a fused AdamW; it returns the loss, which nothing waits for."""
    compiled = torch.compile(on_device(model), **how)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step(*inputs: Tensor) -> Tensor:
        loss = compiled(*inputs)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def rows(count: int = ROWS, width: int = WIDTH) -> Tensor:
    """Rows of random numbers on the device."""
    return torch.randn(count, width, device=DEVICE, dtype=DTYPE)


def tokens(batch: int = BATCH, length: int = LENGTH, words: int = WORDS) -> Tensor:
    """Random tokens on the device, one more than the model sees."""
    return torch.randint(words, (batch, length + 1), device=DEVICE)


def pictures(count: int = PICTURES) -> tuple[Tensor, Tensor]:
    """Random images on the device and their labels."""
    images = torch.randn(count, 3, PIXELS, PIXELS, device=DEVICE, dtype=DTYPE)
    return images.to(memory_format=torch.channels_last), torch.randint(10, (count,), device=DEVICE)
