"""Flex attention on packed sequences: the mask follows where each document of a row ends, anew for each batch.

It trains on a GPU. On a CPU torch compiles flex attention for inference only, so there it scores the rows.
"""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

SMALL = bool(os.environ.get("SMALL"))
DEPTH, WIDTH, HEADS, LENGTH, WORDS, STEPS = (2, 64, 4, 256, 512, 16) if SMALL else (8, 1024, 16, 8192, 32000, 150)
DOCUMENTS = 12


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, mask: BlockMask) -> Tensor:
        parts = self.qkv(self.norm1(x)).view(1, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = flex_attention(*parts.unbind(), block_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, LENGTH, WIDTH))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor, mask: BlockMask) -> Tensor:
        x = self.words(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(x)


def mask_of(documents: Tensor) -> BlockMask:
    def same_document(_: Tensor, __: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (documents[query] == documents[key]) & (query >= key)

    return create_block_mask(same_document, None, None, LENGTH, LENGTH, device=DEVICE)


def main() -> None:
    torch.manual_seed(0)
    model = Model().to(DEVICE, torch.bfloat16 if DEVICE == "cuda" else torch.float32)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    laps = Laps("step", STEPS)
    for _ in range(STEPS):
        tokens = torch.randint(WORDS, (1, LENGTH + 1), device=DEVICE)
        ends = torch.randint(LENGTH, (DOCUMENTS,), device=DEVICE)
        documents = torch.zeros(LENGTH, dtype=torch.long, device=DEVICE).index_fill_(0, ends, 1).cumsum(0)
        with torch.set_grad_enabled(DEVICE == "cuda"):
            logits = compiled(tokens[:, :-1], mask_of(documents))
            loss = F.cross_entropy(logits.view(-1, WORDS).float(), tokens[0, 1:])
        if loss.requires_grad:
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
