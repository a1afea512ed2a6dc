"""A training step in float32 with one thing that a variable of the environment changes, for ``benchmark_compare.py``.

``EAGER=1`` adds an operator, ``ITEM=1`` reads the loss, ``SPLIT=1`` breaks the fusions of the backbone by a switch
of Inductor's, ``TF32=0`` takes TF32 from the head's product, ``CONFIGS={KEY: CONFIG}`` is Inductor's table of configs.
``AGAINST=1`` times the changed step (without ``CONFIGS``) and the unchanged one in turn in one process.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, time_in_turn, timed
from torch import Tensor, nn
from torch._inductor import config

SMALL = bool(os.environ.get("SMALL"))
ROWS, WIDTH, CLASSES = (512, 64, 128) if SMALL else (16384, 1024, 4096)


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(2 * WIDTH, WIDTH),
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.wide(self.norm(x)))
        return x + self.narrow(hidden * torch.sigmoid(hidden) + hidden.tanh())


def make_step(changes: Mapping[str, str]) -> Callable[[int], None]:
    """A training step with these changes."""
    backbone, head = Backbone().to(DEVICE), nn.Linear(WIDTH, CLASSES).to(DEVICE)
    options = {"max_fusion_size": 2} if changes.get("SPLIT") else {}
    compiled = torch.compile(backbone, options=options)
    compiled_head = torch.compile(lambda x, labels: F.cross_entropy(head(x), labels))
    optimizer = torch.optim.SGD([*backbone.parameters(), *head.parameters()], lr=1e-3)
    x, labels = torch.rand(ROWS, WIDTH, device=DEVICE), torch.randint(CLASSES, (ROWS,), device=DEVICE)

    def step(_: int) -> None:
        features = compiled(torch.erfinv(x * 0.5) if changes.get("EAGER") else x)
        torch.backends.cuda.matmul.allow_tf32 = changes.get("TF32") != "0"
        loss = compiled_head(features, labels)
        torch.backends.cuda.matmul.allow_tf32 = True
        if changes.get("ITEM"):
            loss.item()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def main() -> None:
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    if "CONFIGS" in os.environ:
        vars(config)["autotune_lookup_table"] = json.loads(os.environ["CONFIGS"])
    changed = make_step(os.environ)
    if os.environ.get("AGAINST"):
        time_in_turn(make_step({}), changed)
    else:
        timed(changed)


if __name__ == "__main__":
    main()
