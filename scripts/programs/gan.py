"""A DCGAN: generator and discriminator are compiled apart and have an optimizer each."""

from __future__ import annotations

import os

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps
from torch import Tensor, nn

SMALL = bool(os.environ.get("SMALL"))
WIDTH, NOISE, BATCH, STEPS = (8, 16, 4, 24) if SMALL else (128, 128, 128, 250)


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.ConvTranspose2d(NOISE, 4 * WIDTH, 4), nn.BatchNorm2d(4 * WIDTH), nn.ReLU()]
        for width in (4 * WIDTH, 2 * WIDTH):
            layers += [nn.ConvTranspose2d(width, width // 2, 4, 2, 1), nn.BatchNorm2d(width // 2), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.ConvTranspose2d(WIDTH, 3, 4, 2, 1))

    def forward(self, noise: Tensor) -> Tensor:
        return self.layers(noise).tanh()


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, WIDTH, 4, 2, 1), nn.LeakyReLU(0.2)]
        for width in (WIDTH, 2 * WIDTH):
            layers += [nn.Conv2d(width, 2 * width, 4, 2, 1), nn.BatchNorm2d(2 * width), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(4 * WIDTH, 1, 4))

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).flatten()


def loss_of(scores: Tensor, real: bool) -> Tensor:
    return F.binary_cross_entropy_with_logits(scores, torch.full_like(scores, float(real)))


def main() -> None:
    torch.manual_seed(0)
    generator, discriminator = Generator().to(DEVICE), Discriminator().to(DEVICE)
    generate, judge = torch.compile(generator), torch.compile(discriminator)
    make = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    tell = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
    laps = Laps("step", STEPS)
    for number in range(STEPS):
        images = torch.randn(BATCH, 3, 32, 32, device=DEVICE)
        fakes = generate(torch.randn(BATCH, NOISE, 1, 1, device=DEVICE))
        discriminator.zero_grad()
        tell_loss = loss_of(judge(images), True) + loss_of(judge(fakes.detach()), False)
        tell_loss.backward()
        tell.step()
        laps.part("discriminator")
        generator.zero_grad()
        make_loss = loss_of(judge(fakes), True)
        make_loss.backward()
        make.step()
        laps.part("generator")
        if number % 50 == 0:
            print(f"step {number}: {tell_loss.item():.3f} {make_loss.item():.3f}")
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
