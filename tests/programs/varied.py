"""A small compiled program, of which variants are tried: ``varied.py KIND STEPS [DEVICE]``."""

import os
import signal
import sys

import torch

torch.manual_seed(0)
torch.set_num_threads(1)
kind, steps = sys.argv[1], int(sys.argv[2])
device = sys.argv[3] if len(sys.argv) > 3 else "cpu"
width = 16 if device == "cpu" else 512
blocks = 1 if device == "cpu" else 6


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, width), torch.nn.Linear(width, width)
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.norm(values + self.down(torch.relu(self.up(values))))


@torch.compile
def loss_of(values: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return ((values - wanted) ** 2).mean()


def eager_loss(values: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return ((values - wanted) ** 2).mean() + 0.1 * (values - wanted).abs().mean()


class Remembering(torch.nn.Module):
    """Writes into a buffer, as a model with a cache does."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("seen", torch.zeros(2, 64, width, device=device))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.seen.mul_(0.5).add_(values)
        return self.model(values + self.seen)


model = torch.nn.Sequential(*(Block() for _ in range(blocks))).to(device)
values, wanted = torch.randn(2, 64, width, device=device)
mode = "reduce-overhead" if kind.startswith("replay") else None
if kind in ("serve", "replay"):
    served = torch.compile(Remembering(model.eval()) if mode else model.eval(), mode=mode)
    with torch.no_grad():
        for _ in range(steps):
            served(values)
else:
    model.compile(mode=mode)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    parts = 3 if kind == "accumulate" else 1
    for _ in range(steps):
        for _ in range(parts):
            loss = (eager_loss if kind == "eager" else loss_of)(model(values), wanted) / parts
            loss.backward()  # type: ignore[no-untyped-call]
        if optimizer.param_groups[0]["foreach"]:
            if kind == "crash":
                raise ValueError("foreach is on")
            if kind == "die":
                os.kill(os.getpid(), signal.SIGKILL)
        optimizer.step()
        optimizer.zero_grad()
    print(f"loss {loss.item():.6f}")
counters = sys.modules["torch._dynamo.utils"].counters
print("dynamo", counters["frames"]["ok"], counters["stats"]["unique_graphs"], sum(counters["graph_break"].values()))
