"""40 requests, each a prefill and 24 decodes under CUDA graphs; prefill and decode are compiled apart."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps
from torch import Tensor, nn

SMALL = bool(os.environ.get("SMALL"))
REQUESTS, DECODES = 40, 24
DEPTH, WIDTH, HEADS, PROMPT, CACHE, WORDS = (2, 64, 4, 16, 64, 256) if SMALL else (8, 1024, 16, 512, 1024, 32000)
DTYPE = torch.float32 if SMALL else torch.bfloat16


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)
        self.register_buffer("keys", torch.zeros(1, HEADS, CACHE, WIDTH // HEADS))
        self.register_buffer("values", torch.zeros(1, HEADS, CACHE, WIDTH // HEADS))

    def forward(self, x: Tensor, places: Tensor, mask: Tensor) -> Tensor:
        length = x.shape[1]
        query, key, value = self.qkv(self.norm1(x)).view(1, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4).unbind()
        self.keys.index_copy_(2, places, key)
        self.values.index_copy_(2, places, value)
        mixed = F.scaled_dot_product_attention(query, self.keys, self.values, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(1, length, WIDTH))
        return x + self.narrow(F.silu(self.wide(self.norm2(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(DEPTH))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens: Tensor, places: Tensor) -> Tensor:
        mask = torch.arange(CACHE, device=tokens.device) <= places[:, None]
        x = self.words(tokens)
        for layer in self.layers:
            x = layer(x, places, mask)
        return self.head(self.norm(x[:, -1:])).argmax(-1)


def write_prompt(model: Model, tokens: Tensor, places: Tensor) -> Tensor:
    return model(tokens, places)


def write_token(model: Model, token: Tensor, place: Tensor) -> Tensor:
    return model(token, place)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = Model().to(DEVICE, DTYPE)
    prefill = torch.compile(write_prompt, fullgraph=True)
    decode = torch.compile(write_token, mode="reduce-overhead", fullgraph=True)
    laps = Laps("request", REQUESTS)
    for prompt in torch.randint(WORDS, (REQUESTS, 1, PROMPT)):
        token = prefill(model, prompt.to(DEVICE), torch.arange(PROMPT, device=DEVICE))
        laps.part("prefill")
        answer = [token]
        for number in range(DECODES):
            token = decode(model, token.clone(), torch.tensor([PROMPT + number], device=DEVICE)).clone()
            answer.append(token)
            laps.part("decode")
        torch.cat(answer, dim=1).tolist()
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
