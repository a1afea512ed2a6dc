"""A program that makes Inductor write as many kinds of GPU kernels as one small script can: a training step with
attention, embedding, dropout and a foreach optimizer, user-defined Triton kernels, a sort, a scan over a long row, a
scatter, flex attention, a max-autotuned product, combo kernels, a cooperative reduction, dynamic shapes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import nn
from torch.nn.attention.flex_attention import flex_attention

DEVICE = "cuda"


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.autotune(configs=[triton.Config({"BLOCK": 256}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def multiply_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * tl.load(y_ptr + offsets, mask=mask), mask=mask)


def user_kernels(x, y):
    n = x.numel()
    added, multiplied = torch.empty_like(x), torch.empty_like(x)
    add_kernel[(triton.cdiv(n, 1024),)](x, y, added, n, BLOCK=1024)
    multiply_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](added.sin(), y, multiplied, n)
    return multiplied.cos()


class Block(nn.Module):
    def __init__(self, width=512, heads=8, words=5000):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(words, width)
        self.norm = nn.LayerNorm(width)
        self.projection = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embedding(tokens)
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        query, key, value = self.projection(self.norm(x)).view(shape).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.dropout(self.output(mixed.transpose(1, 2).reshape(batch, length, width)))
        return self.head(x)


def train():
    model = Block().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    compiled = torch.compile(model)
    step = torch.compile(optimizer.step)
    tokens = torch.randint(0, 5000, (8, 256), device=DEVICE)
    for _ in range(3):
        with torch.autocast(DEVICE, dtype=torch.bfloat16):
            loss = F.cross_entropy(compiled(tokens).flatten(0, 1).float(), tokens.flatten())
        loss.backward()
        step()
        optimizer.zero_grad(set_to_none=False)


def scan_sort_gather(x, index, images):
    """And a copy with a transposition, for which Inductor's default config is a poor one."""
    channels_last = images.to(torch.float16, memory_format=torch.channels_last)
    return x.cumsum(-1), torch.sort(x, dim=-1).values, x[index].sum(), channels_last


def scatter(x, index):
    return torch.zeros(100, x.shape[1], device=x.device).index_add(0, index, x).relu()


def separate_rows(a, b, c):
    return a.sin().sum(-1), b.cos() * 2, c.relu() + 1


def long_sum(x):
    return (x * 2).sum(-1)


def causal(score, batch, head, query, key):
    return torch.where(query >= key, score, -float("inf"))


def main():
    torch.manual_seed(0)
    train()
    x, y = torch.randn(2, 1 << 20, device=DEVICE)
    torch.compile(user_kernels)(x, y)
    index = torch.randint(0, 100, (100,), device=DEVICE)
    images = torch.randn(128, 3, 224, 224, device=DEVICE)
    torch.compile(scan_sort_gather)(torch.randn(128, 65536, device=DEVICE), index, images)
    query = torch.randn(2, 8, 1024, 64, device=DEVICE, dtype=torch.bfloat16)
    torch.compile(flex_attention)(query, query, query, score_mod=causal)
    a = torch.randn(2048, 2048, device=DEVICE, dtype=torch.bfloat16)
    torch.compile(lambda a: F.gelu(a @ a + 1), mode="max-autotune-no-cudagraphs")(a)
    torch.compile(lambda v: (v * 2).softmax(-1), dynamic=True)(torch.randn(1000, 777, device=DEVICE))
    torch.compile(scatter)(torch.randn(100_000, 64, device=DEVICE), torch.randint(0, 100, (100_000,), device=DEVICE))
    rows = (
        torch.randn(333, 777, device=DEVICE),
        torch.randn(4096, device=DEVICE),
        torch.randn(512, 512, device=DEVICE),
    )
    torch.compile(separate_rows, options={"combo_kernels": True})(*rows)
    torch.compile(long_sum, options={"triton.cooperative_reductions": True})(torch.randn(8, 1 << 20, device=DEVICE))
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
