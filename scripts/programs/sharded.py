"""FSDP2 with checkpointing: the blocks of ``blocks.py`` are computed again in backward. Two ranks, by torchrun."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from blocks import BATCH, LENGTH, SMALL, WORDS, Model
from stopwatch import DEVICE, Laps
from torch import Tensor
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

STEPS = 16 if SMALL else 150


class Checkpointed(Model):
    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def main() -> None:
    if DEVICE == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    torch.manual_seed(0)
    model = Checkpointed().to(DEVICE)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        block.compile()
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    laps = Laps("step", STEPS)
    for _ in range(STEPS):
        tokens = torch.randint(WORDS, (BATCH, LENGTH + 1), device=DEVICE)
        loss = F.cross_entropy(model(tokens[:, :-1]).view(-1, WORDS).float(), tokens[:, 1:].reshape(-1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.end()
    laps.finish()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
