"""A training loop that compiles one kernel forward and one backward, and goes on until it is ended."""

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
weights = torch.nn.Parameter(torch.randn(8, 64))
optimizer = torch.optim.SGD([weights], lr=1e-4)
compute = torch.compile(lambda values: (values * weights).sin().sum())
values = torch.randn(8, 64)
for _ in range(1_000_000):
    optimizer.zero_grad()
    compute(values).backward()
    optimizer.step()
