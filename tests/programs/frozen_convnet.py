"""Inference with frozen weights on a CPU: its module's own harness makes up packed weights and measures nonsense.
The program profiles its first call itself."""

from __future__ import annotations

import torch
import torch._inductor.config
from torch import nn

torch._inductor.config.freezing = True


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10)
    )
    model = model.eval().to(torch.bfloat16)
    compiled = torch.compile(model)
    images = torch.randn(8, 3, 64, 64, dtype=torch.bfloat16)
    with torch.no_grad():
        with torch.profiler.profile() as own:
            compiled(images)
        assert any("conv" in event.key for event in own.key_averages()), "its own profile was taken from it"
        compiled(images)
        expected, found = model(images), compiled(images)
    torch.testing.assert_close(found, expected, rtol=0.1, atol=0.1)
    print("the result is right")


if __name__ == "__main__":
    main()
