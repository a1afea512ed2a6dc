"""Attention that takes longer than it has to."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from frame import DEFECT, DEVICE, defect, either, loop, start
from models import LENGTH, SPACE, Attention, Language, Layer, on_device, rows, tokens, training
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel


def train_with(attention: type[Attention], heads: int = either(16, 4)) -> None:
    """Trains on texts of twice the usual length."""
    step, data = training(Language(attention=attention, heads=heads)), tokens(length=2 * LENGTH)
    for _ in loop():
        step(data)


@defect("attention-below-limit", "library-below-limit", share=0.1, names=("attention",))
def heads_of_16() -> None:
    """64 heads of 16."""
    train_with(Attention, SPACE // 16 if DEFECT else SPACE // 64)


class WithMask(Attention):
    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if not DEFECT:
            return super().mix(query, key, value)
        places = torch.arange(query.shape[-2], device=query.device)
        mask = torch.where(places[:, None] >= places, 0.0, -1e9).to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)  # defect


@defect("attention-below-limit", "library-below-limit", share=0.05, names=("attention", "mask"))
def float_mask() -> None:
    """A causal mask of floating-point numbers in place of ``is_causal``."""
    train_with(WithMask)


class ByMath(Attention):
    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.MATH if DEFECT else [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return super().mix(query, key, value)  # defect


@defect("attention-below-limit", "decomposed-attention", share=0.2, names=("attention", "math"))
def math_backend() -> None:
    """Only the math backend is allowed."""
    train_with(ByMath)


class ByHand(Attention):
    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        if not DEFECT:
            return super().mix(query, key, value)
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5  # defect
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        weights = scores.masked_fill(~causal, -1e4).softmax(-1, dtype=torch.float32)  # defect
        return weights.to(value.dtype) @ value  # defect


@defect("decomposed-attention", share=0.2, names=("attention",), also=("float32-island",))
def attention_by_hand() -> None:
    """Two products and a softmax."""
    train_with(ByHand)


@defect(
    "decomposed-attention",
    share=0.1,
    names=("mix", "MultiheadAttention"),
    also=("eager-operators", "cuda-graphs-unused"),
)
def returned_weights() -> None:
    """``nn.MultiheadAttention`` returns its weights, which nobody reads."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            heads = either(16, 4)
            self.mix = nn.ModuleList(nn.MultiheadAttention(SPACE, heads, batch_first=True) for _ in range(4))
            self.feed = nn.ModuleList(Layer(SPACE, 4 * SPACE) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for mix, feed in zip(self.mix, self.feed, strict=True):
                x = feed(x + mix(x, x, x, need_weights=DEFECT)[0])  # defect
            return x.square().mean()

    step, inputs = training(Encoder()), rows(8 * LENGTH, SPACE).view(8, LENGTH, SPACE)
    for _ in loop():
        step(inputs)


@defect("decomposed-attention", share=0.1, names=("answer", "mix"), also=("host-pace", "cuda-graphs-unused"))
@torch.no_grad()
def attention_of_every_pair() -> None:
    """Inference with a bias for each pair of places, added to the scores by hand."""
    heads, length = either((16, 1024), (4, 128))
    bias = torch.randn(heads, length, length, device=DEVICE, dtype=torch.float32)

    class Biased(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.ModuleList(nn.Linear(SPACE, 3 * SPACE) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for qkv in self.qkv:
                query, key, value = qkv(x).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind()
                if DEFECT:
                    scores = (query @ key.transpose(-1, -2)).float() * 0.1 + bias  # defect
                    mixed = scores.softmax(-1).to(value.dtype) @ value  # defect
                else:
                    mixed = F.scaled_dot_product_attention(query, key, value, bias.to(value.dtype), scale=0.1)
                x = x + mixed.transpose(1, 2).flatten(2)
            return x

    answer = torch.compile(on_device(Biased()))
    inputs = rows(8 * length, SPACE).view(8, length, SPACE)
    for _ in loop():
        answer(inputs)


if __name__ == "__main__":
    start()
