"""A training program on a CPU with everything that makes captures hard and little that makes them slow: a graph
break, a recompilation for another size that ends in a dynamic graph, integer inputs, a forward and a backward."""

from __future__ import annotations

import json
import os
import sys

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16).requires_grad_(False)
        self.project = nn.Linear(16, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(tokens).sum(1)
        torch._dynamo.graph_break()
        return torch.relu(self.project(hidden))


def main() -> None:
    torch.manual_seed(0)
    print("seen:", json.dumps({"argv": sys.argv, "folder": os.getcwd(), "main": __name__}), flush=True)
    model = Model()
    compiled = torch.compile(model)
    for batch in (4, 4, 6, 8):
        loss = compiled(torch.randint(0, 50, (batch, 5))).square().mean()
        loss.backward()
    print("loss is finite:", bool(torch.isfinite(loss)))


if __name__ == "__main__":
    main()
