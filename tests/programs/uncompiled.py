"""A small model that torch.compile does not compile, for the reason that the first argument names."""

import sys

import torch

import inductor_bench

KIND, STEPS = sys.argv[1], int(sys.argv[2])


class Layers(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(64, 64) for _ in range(4)])

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            values = torch.relu(layer(values))
            if KIND == "loop":
                torch._dynamo.graph_break()
        return values.sum()


torch.set_num_threads(1)
torch.manual_seed(0)
model = Layers()
called = model
if KIND == "config":
    torch._dynamo.config.disable = True
if KIND == "stance":
    torch.compiler.set_stance("force_eager")
if KIND not in ("never", "late", "marks", "stepless"):
    backend = "aot_eager" if KIND == "backend" else "inductor"
    called = torch.compile(model, backend=backend, disable=KIND == "disable")
if KIND == "uncalled":
    called = model

optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
values = torch.rand(32, 64)
for number in range(STEPS):
    if KIND in ("marks", "stepless"):
        with torch.no_grad():
            called(values)
    else:
        called(values).backward()
        optimizer.step()
        optimizer.zero_grad()
    if KIND == "marks":
        inductor_bench.step()
    if KIND == "late" and number == STEPS // 2:
        called = torch.compile(model)
with torch.no_grad():
    print("result:", float(model(values)), flush=True)
