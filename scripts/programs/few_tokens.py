"""The model of ``decode.py`` writes 56 tokens, and the program is over."""

from __future__ import annotations

import torch
from decode import DTYPE, Llama
from stopwatch import DEVICE, Laps

TOKENS = 56


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    model = Llama().to(DEVICE, DTYPE)
    decode = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    token = torch.ones(1, 1, dtype=torch.long, device=DEVICE)
    place = torch.zeros(1, dtype=torch.long, device=DEVICE)
    laps = Laps("token", TOKENS)
    text = []
    for number in range(TOKENS):
        place.fill_(number)
        token = decode(token, place).clone()
        text.append(token)
        laps.end()
    print(torch.cat(text).flatten().tolist())
    laps.finish()


if __name__ == "__main__":
    main()
