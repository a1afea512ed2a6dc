"""A cache of 16 rows that a compiled module fills, one row a call, at the place that its counter says.

With the argument ``mirror`` it reads the row as far from the end, which a harness that counts from 0 has none of.
"""

import sys

import torch

import inductor_bench


class Cache(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)
        self.register_buffer("rows", torch.zeros(16, 64))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.rows.index_copy_(0, self.place, self.linear(values))
        if sys.argv[1:] == ["mirror"]:
            values = values + self.rows.index_select(0, 16 - self.place)
        self.place.add_(1)
        return (self.rows @ values.t()).relu().sum()


torch.set_num_threads(1)
torch.manual_seed(0)
cache = Cache()
called = torch.compile(cache)
with torch.no_grad():
    for _ in range(12):
        cache.place.fill_(1)
        for _ in range(10):
            total = called(torch.rand(1, 64))
            inductor_bench.step()
print("result:", float(total), int(cache.place))
