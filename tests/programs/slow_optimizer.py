"""A training loop whose optimizer takes most of the step: it updates one small parameter after the other."""

import torch


class Many(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shifts = torch.nn.ParameterList(torch.zeros(4) for _ in range(60))
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.linear(values).relu().sum(0)


torch.set_num_threads(1)
torch.manual_seed(0)
model = Many()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
values = torch.randn(8, 4)
for _ in range(100_000):
    optimizer.zero_grad(set_to_none=False)
    loss = compiled(values).square().mean()
    loss.backward()
    for shift in model.shifts:
        shift.grad = torch.ones(4)
    optimizer.step()
