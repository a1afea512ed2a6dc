"""A small model whose blocks are compiled one by one, run in the loop that the first argument names."""

import contextlib
import os
import random
import sys
import time

import torch

import inductor_bench

KIND, STEPS = sys.argv[1], int(sys.argv[2])


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(64))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.sin(values * self.weight) + values


torch.set_num_threads(1)
torch.manual_seed(0)
blocks = torch.nn.Sequential(*[Block() for _ in range(4)])
for block in blocks:
    block.compile(fullgraph=True)
optimizer = torch.optim.SGD(blocks.parameters(), lr=0.01)
values = torch.rand(32, 64)
many = values.repeat(256, 1)
sizes = random.Random(0)


def train(batches: int = 1) -> None:
    for _ in range(batches):
        blocks(values).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def infer() -> None:
    with torch.no_grad():
        blocks(values)


def request() -> None:
    with torch.no_grad():
        blocks(values[:1])
        for _ in range(12):
            blocks(values)


def answer() -> None:
    """A request of one row or of several, in any order. A graph for any size answers those of several rows."""
    with torch.no_grad():
        blocks[0](many[: sizes.choice((1, 1, 16, 8192, 8192))])


def evaluate() -> None:
    with torch.no_grad():
        for _ in range(3):
            blocks(values)


def loop() -> None:
    for number in range(STEPS):
        if KIND == "evaluate" and number % 20 == 19:
            evaluate()
        if KIND == "accumulate":
            train(batches=3)
        elif KIND == "pattern":
            infer()
        elif KIND == "requests":
            request()
        elif KIND == "answers":
            answer()
        else:
            train()
        if KIND == "marks" and number % 2:
            inductor_bench.step()
        if KIND == "late-marks":
            time.sleep(0.02)
            if number >= 15:
                inductor_bench.step()
        if KIND == "recompile":
            torch._dynamo.reset()
        if KIND == "exit" and number == STEPS // 2 and os.fork() == 0:
            optimizer.step()
            os._exit(0)  # torch's exit handlers wait for threads that a forked child lacks


with torch.profiler.profile() if KIND == "profiler" else contextlib.nullcontext() as own:
    loop()
if KIND == "profiler":
    print("own events:", len(own.events()) > 0)
with torch.no_grad():
    print("result:", float(blocks(values).sum()), torch.rand(1).item(), torch.is_grad_enabled(), flush=True)
if KIND == "exit":
    os._exit(0)
