"""A diffusion loop as diffusers has it: a compiled UNet, eager guidance and scheduler, the timestep on the CPU."""

from __future__ import annotations

import math
import os
from itertools import pairwise

import torch
import torch.nn.functional as F
from stopwatch import DEVICE, Laps, counted
from torch import Tensor, nn

SMALL = bool(os.environ.get("SMALL"))
IMAGES, STEPS, WIDTH, LEVELS, SIZE, BATCH = (4, 8, 32, 1, 8, 1) if SMALL else (8, 30, 320, 2, 64, 4)
DTYPE = torch.float32 if SMALL else torch.float16
HEADS = 4


class Block(nn.Module):
    """A convolution with the time, then attention, which is written by hand."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.norm, self.convolution = nn.GroupNorm(4, before), nn.Conv2d(before, width, 3, padding=1)
        self.time, self.mix = nn.Linear(WIDTH, width), nn.LayerNorm(width)
        self.to_qkv, self.to_out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.skip = nn.Conv2d(before, width, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.convolution(F.silu(self.norm(x))) + self.time(F.silu(time))[:, :, None, None]
        x = hidden + self.skip(x)
        batch, _, rows, columns = x.shape
        tokens = x.flatten(2).transpose(1, 2)
        parts = self.to_qkv(self.mix(tokens)).view(batch, rows * columns, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind()
        scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
        mixed = torch.matmul(scores.softmax(dim=-1), value).transpose(1, 2).reshape(tokens.shape)
        return (tokens + self.to_out(mixed)).transpose(1, 2).reshape(x.shape)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(4, WIDTH, 3, padding=1), nn.Conv2d(WIDTH, 4, 3, padding=1)
        widths = list(pairwise([WIDTH, *(WIDTH * 2**level for level in range(LEVELS))]))
        self.down = nn.ModuleList(Block(before, width) for before, width in widths)
        self.middle = Block(widths[-1][1], widths[-1][1])
        self.up = nn.ModuleList(Block(2 * width, before) for before, width in reversed(widths))

    def forward(self, x: Tensor, timestep: Tensor) -> Tensor:
        rates = torch.exp(torch.arange(WIDTH // 2, device=x.device) * (-math.log(10000) / (WIDTH // 2)))
        angles = timestep.to(x.device) * rates
        time = torch.cat([angles.sin(), angles.cos()]).to(x.dtype).expand(len(x), WIDTH)
        x, kept = self.first(x), []
        for block in self.down:
            x = F.avg_pool2d(block(x, time), 2)
            kept.append(x)
        x = self.middle(x, time)
        for block in self.up:
            x = F.interpolate(block(torch.cat([x, kept.pop()], dim=1), time), scale_factor=2.0)
        return self.last(x)


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    unet = torch.compile(UNet().to(DEVICE, DTYPE).eval())
    timesteps, noise_left = torch.linspace(999, 0, STEPS), torch.linspace(0.01, 1, STEPS + 1)
    images = counted(IMAGES)
    laps = Laps("image", images)
    for _ in range(images):
        latents = torch.randn(BATCH, 4, SIZE, SIZE, device=DEVICE, dtype=DTYPE)
        for number, timestep in enumerate(timesteps):
            without, guided = unet(torch.cat([latents, latents]), timestep).chunk(2)
            noise = without + 7.5 * (guided - without)
            before, after = noise_left[number], noise_left[number + 1]
            clean = (latents - (1 - before).sqrt() * noise) / before.sqrt()
            latents = after.sqrt() * clean.clamp(-4, 4) + (1 - after).sqrt() * noise
            laps.part("denoising step")
        latents.float().cpu()
        laps.end()
    laps.finish()


if __name__ == "__main__":
    main()
