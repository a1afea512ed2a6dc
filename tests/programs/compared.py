"""A small compiled training loop; ADD_EAGER adds an eager operator and ``.item()``, NO_TANH changes the code."""

import os

import torch

torch.set_num_threads(1)
torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = bool(os.environ.get("NO_TANH"))  # it means nothing on a CPU
model = torch.nn.Linear(64, 64)


@torch.compile
def loss_of(values: torch.Tensor) -> torch.Tensor:
    hidden = torch.sin(model(values)) * torch.exp(-values * values)
    return (hidden if os.environ.get("NO_TANH") else torch.tanh(hidden)).pow(2).mean()


optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.rand(2048, 64)
for _ in range(200):
    values = data
    if os.environ.get("ADD_EAGER"):
        values = torch.erfinv(values * 0.5)
    loss = loss_of(values)
    if os.environ.get("ADD_EAGER"):
        loss.item()
    loss.backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
