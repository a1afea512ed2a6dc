"""Data-parallel training of a small model, for torchrun, or with ``STORE`` for ranks that are started one by one. Each
rank compiles into a separate folder."""

import os
import sys

import torch
import torch.distributed as dist

caches = os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")
if caches:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(caches, f"rank-{os.environ['RANK']}")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
rank, ranks = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
dist.init_process_group("gloo", init_method=os.environ.get("STORE"), rank=rank, world_size=ranks)
torch.set_num_threads(1)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.linear(values))


model = torch.nn.parallel.DistributedDataParallel(Model())
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(int(sys.argv[1])):
    compiled(torch.rand(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
# The barrier's work is kept until the interpreter clears the module. Without a name for it, Gloo's thread frees it, and
# if that thread then waits for the interpreter's lock while the interpreter ends, the process aborts.
barrier = dist.barrier(async_op=True)
barrier.wait()
dist.destroy_process_group()
