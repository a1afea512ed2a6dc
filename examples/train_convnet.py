"""Train a small residual convolutional network, compiled, on random images.

Where does the time of its training step go?

    inductor-bench breakdown -- python examples/train_convnet.py --steps 100       # the command, as it is
    inductor-bench breakdown examples/train_convnet.py -- --steps 100 --batch-size 64
    inductor-bench breakdown examples/train_convnet.py:training_step --training    # the loss and its gradients alone
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CLASSES = 10


class ResidualBlock(nn.Module):
    """Two convolutions with batch norm around a shortcut; the first one may halve the image."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.silu(y + self.shortcut(x))


class ConvNet(nn.Module):
    """A stem, two residual stages and a linear head."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.stages = nn.Sequential(
            ResidualBlock(width, width, stride=1),
            ResidualBlock(width, 2 * width, stride=2),
        )
        self.head = nn.Linear(2 * width, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stages(self.stem(images))
        return self.head(x.mean(dim=(2, 3)))


class TrainingLoss(nn.Module):
    """A network together with its loss, so that both are compiled as one graph."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.model(images), labels)


def random_batch(batch_size: int) -> tuple[Tensor, Tensor]:
    """Images of 64 by 64 pixels and their labels."""
    images = torch.randn(batch_size, 3, 64, 64, device=DEVICE)
    labels = torch.randint(0, CLASSES, (batch_size,), device=DEVICE)
    return images, labels


def training_step() -> tuple[nn.Module, tuple[Tensor, Tensor]]:
    """The loss and one batch for it: what ``inductor-bench breakdown FILE:training_step`` compiles and runs."""
    return TrainingLoss(ConvNet()).to(DEVICE), random_batch(256 if DEVICE == "cuda" else 16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=256 if DEVICE == "cuda" else 16)
    options = parser.parse_args()

    torch.manual_seed(0)
    loss_of = TrainingLoss(ConvNet()).to(DEVICE)
    optimizer = torch.optim.SGD(loss_of.parameters(), lr=0.05, momentum=0.9)
    compiled = torch.compile(loss_of)
    images, labels = random_batch(options.batch_size)
    for step in range(options.steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = compiled(images, labels)
        loss.backward()
        optimizer.step()
        print(f"step {step}  loss {loss.item():.4f}  {(time.perf_counter() - begin) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
