"""torchvision's ResNet classifies batches of images; the classes of each batch go to the CPU."""

from __future__ import annotations

import os

import torch
from stopwatch import DEVICE, Laps, counted
from torchvision.models.resnet import Bottleneck, ResNet

SMALL = bool(os.environ.get("SMALL"))
LAYERS, BATCH, SIZE, BATCHES = ([1, 1, 1, 1], 2, 64, 24) if SMALL else ([3, 4, 6, 3], 256, 224, 300)


@torch.inference_mode()
def main() -> None:
    torch.manual_seed(0)
    model = ResNet(Bottleneck, LAYERS).to(DEVICE, memory_format=torch.channels_last).eval()
    compiled = torch.compile(model)
    batches = [torch.randn(BATCH, 3, SIZE, SIZE).to(memory_format=torch.channels_last) for _ in range(4)]
    if DEVICE == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    classes = []
    count = counted(BATCHES)
    laps = Laps("batch", count)
    for number in range(count):
        images = batches[number % len(batches)].to(DEVICE, non_blocking=True)
        with torch.autocast(DEVICE, torch.bfloat16):
            classes.append(compiled(images).argmax(-1).cpu())
        laps.end()
    print(f"{len(torch.cat(classes))} images")
    laps.finish()


if __name__ == "__main__":
    main()
