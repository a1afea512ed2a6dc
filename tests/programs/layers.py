"""Trains a model of two equal layers, of which the second computes its activations again in the backward."""

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class Feed(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.down(functional.gelu(self.up(values)))


class Layer(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.feed = Feed(width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.feed(self.norm(values))


class Net(torch.nn.Module):
    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer(width) for _ in range(2))
        self.head = torch.nn.Linear(width, 8)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        first, second = self.layers
        values = checkpoint(second, first(values), use_reentrant=False)
        return self.head(values).square()


torch.set_num_threads(1)
torch.manual_seed(0)
net = Net()
compiled = torch.compile(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
values = torch.rand(256, 128)
for _ in range(60):
    compiled(values).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
