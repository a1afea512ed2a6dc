"""A mixture of experts: each token goes to two of eight, as far as these have room for it."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps
from torch import Tensor, nn

SMALL = bool(os.environ.get("SMALL"))
DEPTH, WIDTH, TOKENS, WORDS, STEPS = (2, 32, 64, 256, 24) if SMALL else (6, 1024, 8192, 32000, 150)
EXPERTS, CHOSEN = 8, 2
ROOM = TOKENS * CHOSEN * 5 // (4 * EXPERTS)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.router = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, EXPERTS, bias=False)
        self.wide = nn.Parameter(torch.randn(EXPERTS, WIDTH, 2 * WIDTH) * 0.02)
        self.narrow = nn.Parameter(torch.randn(EXPERTS, 2 * WIDTH, WIDTH) * 0.02)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.norm(x)
        chances = self.router(hidden).float().softmax(dim=-1)
        weights, choices = chances.topk(CHOSEN, dim=-1)
        chosen = F.one_hot(choices.flatten(), EXPERTS)
        place = ((chosen.cumsum(0) - 1) * chosen).sum(-1)
        fits = place < ROOM
        seat = choices.flatten() * ROOM + place.clamp(max=ROOM - 1)
        sent = hidden.repeat_interleave(CHOSEN, dim=0) * fits[:, None]
        rows = sent.new_zeros(EXPERTS * ROOM, WIDTH).index_add(0, seat, sent)
        done = torch.bmm(F.gelu(torch.bmm(rows.view(EXPERTS, ROOM, WIDTH), self.wide.to(rows.dtype))), self.narrow)
        back = done.view(-1, WIDTH)[seat] * (weights.flatten() * fits)[:, None].to(done.dtype)
        balance = EXPERTS * (chances.mean(0) * chosen.float().mean(0)).sum()
        return x + back.view(-1, CHOSEN, WIDTH).sum(1), balance


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.layers = nn.ModuleList(Experts() for _ in range(DEPTH))

    def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        x, balance = self.words(tokens), torch.zeros((), device=tokens.device)
        for layer in self.layers:
            x, more = layer(x)
            balance = balance + more
        return self.head(x), balance


def main() -> None:
    torch.manual_seed(0)
    model = Model().to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    laps = Laps("step", STEPS)
    for _ in range(STEPS):
        tokens = torch.randint(WORDS, (TOKENS + 1,), device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            logits, balance = compiled(tokens[:-1])
            loss = F.cross_entropy(logits.float(), tokens[1:]) + 0.01 * balance
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
