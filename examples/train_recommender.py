"""Train a small recommender on random numbers: a table of vectors for each feature, and a network above them.

inductor-bench breakdown --stop -- python examples/train_recommender.py
inductor-bench optimize -- python examples/train_recommender.py
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

FEATURES, VALUES, SIZE, ROWS = 12, 10_000, 16, 512
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class Recommender(nn.Module):
    """Predicts a click from one value of each feature; each value has a vector in the feature's table."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(VALUES, SIZE) for _ in range(FEATURES))
        self.network = nn.Sequential(nn.Linear(FEATURES * SIZE, 256), nn.ReLU(), nn.Linear(256, 1))

    def forward(self, features: Tensor) -> Tensor:
        vectors = [table(values) for table, values in zip(self.tables, features.unbind(1), strict=True)]
        return self.network(torch.cat(vectors, dim=1)).squeeze(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1000)
    options = parser.parse_args()

    torch.manual_seed(0)
    model = Recommender().to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(options.steps):
        features = torch.randint(VALUES, (ROWS, FEATURES), device=DEVICE)
        clicks = torch.randint(2, (ROWS,), device=DEVICE).float()
        loss = F.binary_cross_entropy_with_logits(compiled(features), clicks)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.4f} after {options.steps} steps")


if __name__ == "__main__":
    main()
