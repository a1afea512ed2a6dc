"""A Llama-like model that decodes token by token with mode="reduce-overhead" and a static key-value cache."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, timed
from torch import Tensor, nn

SMALL = bool(os.environ.get("SMALL"))
DEPTH, WIDTH, HIDDEN, HEADS, CACHE, WORDS = (2, 64, 128, 4, 64, 256) if SMALL else (12, 2048, 5632, 16, 1024, 32000)
HEAD = WIDTH // HEADS
DTYPE = torch.float32 if SMALL else torch.bfloat16


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.gate, self.up = nn.Linear(WIDTH, HIDDEN, bias=False), nn.Linear(WIDTH, HIDDEN, bias=False)
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(1, HEADS, CACHE, HEAD))
        self.register_buffer("values", torch.zeros(1, HEADS, CACHE, HEAD))

    def forward(self, x: Tensor, place: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm1(x)).view(1, 1, 3, HEADS, HEAD).permute(2, 0, 3, 1, 4).unbind()
        self.keys.index_copy_(2, place, key)
        self.values.index_copy_(2, place, value)
        mixed = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, 1, WIDTH))
        hidden = self.norm2(x)
        return x + self.down(F.silu(self.gate(hidden)) * self.up(hidden))


class Llama(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, token: Tensor, place: Tensor) -> Tensor:
        mask = (torch.arange(CACHE, device=token.device) <= place).view(1, 1, 1, CACHE)
        x = self.words(token)
        for layer in self.layers:
            x = layer(x, place, mask)
        return self.head(self.norm(x)).argmax(-1)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = Llama().to(DEVICE, DTYPE)
    decode = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    token = torch.ones(1, 1, dtype=torch.long, device=DEVICE)
    place = torch.zeros(1, dtype=torch.long, device=DEVICE)

    def step(number: int) -> None:
        nonlocal token
        place.fill_(number % CACHE)
        token = decode(token, place).clone()

    timed(step, warm_up=50)


if __name__ == "__main__":
    main()
