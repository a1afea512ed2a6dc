"""A loader that is too slow: two workers cut, turn and scale images on the CPU, and the network waits for them."""

from __future__ import annotations

import os
from itertools import pairwise

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps, counted
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SMALL = bool(os.environ.get("SMALL"))
STORED, SIZE, BATCH, WIDTH = (1024, 32, 4, 16) if SMALL else (448, 224, 64, 64)
STEPS = counted(24 if SMALL else 60)


class Images(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return BATCH * STEPS

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = torch.rand(1, 3, STORED, STORED)
        image = F.interpolate(image, size=(SIZE, SIZE), mode="bicubic", antialias=True)[0]
        if index % 2:
            image = image.flip(-1)
        return (image - image.mean((1, 2), keepdim=True)) / image.std((1, 2), keepdim=True), index % 10


def make_network() -> nn.Module:
    layers: list[nn.Module] = []
    for before, after in pairwise((3, WIDTH, 2 * WIDTH, 4 * WIDTH)):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.SiLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * WIDTH, 10))


def main() -> None:
    torch.manual_seed(0)
    model = make_network().to(DEVICE)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loader = DataLoader(Images(), batch_size=BATCH, num_workers=2, pin_memory=DEVICE == "cuda")
    laps = Laps("step", STEPS)
    for images, labels in loader:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.cross_entropy(compiled(images.to(DEVICE, non_blocking=True)), labels.to(DEVICE))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
