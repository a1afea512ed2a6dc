"""Training with an evaluation after every 20 steps: another mode of the model, another size of the batch."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps
from torch import nn

SMALL = bool(os.environ.get("SMALL"))
WIDTH, DEPTH, BATCH, STEPS = (32, 2, 16, 80) if SMALL else (2048, 8, 1024, 800)
EVERY, CLASSES = 20, 100


def make_network() -> nn.Module:
    layers: list[nn.Module] = []
    for _ in range(DEPTH):
        layers += [nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(), nn.Dropout(0.1)]
    return nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))


def main() -> None:
    torch.manual_seed(0)
    model = make_network().to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    held_out = torch.randn(4 * BATCH, WIDTH, device=DEVICE)
    answers = torch.randint(CLASSES, (4 * BATCH,), device=DEVICE)
    laps = Laps("training step", STEPS + STEPS // EVERY)
    for number in range(1, STEPS + 1):
        rows = torch.randn(BATCH, WIDTH, device=DEVICE)
        labels = torch.randint(CLASSES, (BATCH,), device=DEVICE)
        loss = F.cross_entropy(compiled(rows), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.end()
        if number % EVERY == 0:
            model.eval()
            with torch.no_grad():
                right = (compiled(held_out).argmax(-1) == answers).float().mean().item()
            model.train()
            print(f"step {number}: loss {loss.item():.3f}, {right:.1%} right")
            laps.end("evaluation")
    laps.finish()


if __name__ == "__main__":
    main()
