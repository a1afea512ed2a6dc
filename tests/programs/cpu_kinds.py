"""A program that makes Inductor write as many kinds of CPU kernels as a few graphs can: training steps of a convnet and
of a transformer block that learn which picture belongs to which words, an optimizer, and a dynamic graph that sorts,
scans and scatters, and writes into views of its input."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, WIDTH, HEADS = 50, 32, 4
PICTURES, LENGTH = 8, 24


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        self.depthwise = nn.Conv2d(16, 16, 3, groups=16)
        self.head = nn.Linear(16, WIDTH)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.convolution(images))), 2)
        x = F.avg_pool2d(F.silu(self.depthwise(x)), 2)
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.project_in, self.project_out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.expand, self.shrink = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        query, key, value = (
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.project_in(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + F.dropout(self.project_out(mixed.transpose(1, 2).flatten(2)), 0.1, self.training)
        x = x + self.shrink(F.gelu(self.expand(self.norm2(x))))
        return x.mean(1)


class Matcher(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.pictures, self.texts = ConvNet(), Transformer()

    def forward(self, images: Tensor, words: Tensor) -> Tensor:
        likeness = self.pictures(images) @ self.texts(words).t()
        return F.cross_entropy(likeness, torch.arange(len(images)))


def train() -> None:
    model = Matcher()
    optimizer = torch.optim.AdamW(model.pictures.parameters(), foreach=True)
    compiled, step = torch.compile(model), torch.compile(optimizer.step)
    images, words = torch.randn(PICTURES, 3, 32, 32), torch.randint(0, WORDS, (PICTURES, LENGTH))
    for _ in range(2):
        compiled(images, words).backward()
        step()
        optimizer.zero_grad()


def rank(state: Tensor, groups: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
    state[:, ::2].mul_(2)
    state[1:].add_(state[:-1].exp())
    ordered, places = torch.sort(state.sin(), stable=True)
    totals = torch.zeros(8, state.shape[1]).index_add(0, groups, state)
    chosen = torch.where(mask, state, state.t().contiguous().t() - 1)
    return ordered.cumsum(1), places.argmax(1), totals.relu(), state.topk(3).values * 2, chosen.amax(1)


def main() -> None:
    torch.manual_seed(0)
    train()
    groups = torch.randint(0, 8, (61,))
    torch.compile(rank, dynamic=True)(torch.randn(61, 47), groups, torch.rand(61, 47) < 0.3)


if __name__ == "__main__":
    main()
