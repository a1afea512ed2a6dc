"""One block of a small GPT, with its embedding and its next-token loss, on random tokens.

Where does its time go, with and without gradients?

    inductor-bench breakdown examples/transformer_block.py                            # this script, as it is
    inductor-bench breakdown examples/transformer_block.py:language_model --training
    inductor-bench breakdown examples/transformer_block.py:language_model --inference --amp bfloat16
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
VOCABULARY = 4096
LENGTH = 128


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project_in = nn.Linear(width, 3 * width)
        self.project_out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.project_in(x).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.project_out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention and a feed-forward network, each behind a layer norm and around a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, 4 * width)
        self.shrink = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.shrink(F.gelu(self.expand(self.norm2(x))))


class LanguageModel(nn.Module):
    """Token and position embeddings, one block, and the loss of predicting every next token."""

    def __init__(self, width: int = 256, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, width)
        self.positions = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.block = Block(width, heads)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions
        logits = self.head(self.norm(self.block(x)))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def language_model() -> tuple[nn.Module, tuple[Tensor]]:
    """The model and a batch of tokens: what ``inductor-bench breakdown FILE:language_model`` compiles and runs."""
    batch = 64 if DEVICE == "cuda" else 4
    tokens = torch.randint(0, VOCABULARY, (batch, LENGTH), device=DEVICE)
    return LanguageModel().to(DEVICE), (tokens,)


def main() -> None:
    torch.manual_seed(0)
    model, inputs = language_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compiled = torch.compile(model)
    for step in range(40):
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(*inputs)
        loss.backward()
        optimizer.step()
        print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
