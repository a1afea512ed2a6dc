"""A training step of transformers' GPT-2 under mode="max-autotune": CUDA graphs in forward and backward.

``BACKENDS=ATEN`` keeps Inductor's search for each product to the library's own: with all of its templates the program
compiles for more than three minutes.
"""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, timed
from torch._inductor import config as inductor
from transformers import GPT2Config, GPT2LMHeadModel

SMALL = bool(os.environ.get("SMALL"))


def main() -> None:
    torch.manual_seed(0)
    inductor.max_autotune_gemm_backends = os.environ.get("BACKENDS", inductor.max_autotune_gemm_backends)
    sizes = {"n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 512} if SMALL else {"n_layer": 2}
    config = GPT2Config(**sizes, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, use_cache=False)
    model = GPT2LMHeadModel(config).to(DEVICE).train()

    @torch.compile(mode="max-autotune", fullgraph=True)
    def loss_of(tokens: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=tokens[:, :-1]).logits
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    batch, length = (2, 32) if SMALL else (4, 512)
    tokens = torch.randint(config.vocab_size, (batch, length + 1), device=DEVICE)

    def step(_: int) -> None:
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = loss_of(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    timed(step)


if __name__ == "__main__":
    main()
