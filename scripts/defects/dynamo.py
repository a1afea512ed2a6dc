"""Graph breaks, recompilations, guards, and what was never compiled."""

from __future__ import annotations

import hashlib

import torch
import torch.nn.functional as F
from frame import DEFECT, defect, either, loop, start
from models import Chain, Language, Layer, on_device, rows, tokens, training
from torch import Tensor, nn

ALSO = ("host-pace", "small-graphs", "cuda-graphs-unused", "synchronisations", "eager-operators", "recompiles")
"""What is true of a step in which graphs are broken."""


class Deep(nn.Module):
    """Many small layers, with something between them."""

    def __init__(self, depth: int = either(12, 4)) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(either(1024, 64), either(2048, 128)) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.between(layer(x))
        return x.square().mean()

    def between(self, x: Tensor) -> Tensor:
        return x


def train_deep(model: Deep) -> None:
    step, x = training(model), rows(either(512, 32), either(1024, 64))
    for _ in loop():
        step(x)


@defect("graph-breaks", share=0.1, also=ALSO, cpu=True)
def break_by_print() -> None:
    """Each layer prints what passed it."""

    class Printing(Deep):
        def between(self, x: Tensor) -> Tensor:
            if DEFECT:
                print("passed", tuple(x.shape))  # defect
            return x

    train_deep(Printing())


@defect("graph-breaks", share=0.1, also=ALSO, cpu=True)
def break_by_branch() -> None:
    """Each layer decides in Python on the value of a tensor."""

    class Branching(Deep):
        def between(self, x: Tensor) -> Tensor:
            if DEFECT and x.mean() > 100:  # defect
                x = x / 2
            return x

    train_deep(Branching())


@defect("graph-breaks", share=0.1, also=ALSO, cpu=True)
def break_by_call() -> None:
    """Each layer calls a function that Dynamo cannot follow."""

    class Hashing(Deep):
        def between(self, x: Tensor) -> Tensor:
            return x * (1 + hashlib.md5(b"layer").digest()[0] / 1e6) if DEFECT else x * 1.001  # defect

    train_deep(Hashing())


@defect("graph-breaks", "synchronisations", share=0.1, also=ALSO, cpu=True)
def break_by_item() -> None:
    """Each layer notes its largest value by ``.item()``."""

    class Noting(Deep):
        def between(self, x: Tensor) -> Tensor:
            self.largest = x.max().item() if DEFECT else 0.0  # defect
            return x

    train_deep(Noting())


@defect("recompiles", "recompile-limit", names=("size", "shape", "rows"), share=0.2, also=ALSO, cpu=True)
@torch.no_grad()
def new_sizes() -> None:
    """Each few steps have a size that no step had before, without dynamic shapes."""
    torch._dynamo.config.recompile_limit = 64
    network = on_device(nn.Sequential(*(Layer(either(1024, 64), either(4096, 128)) for _ in range(2))))
    answer = torch.compile(network, dynamic=False)
    for number in loop(60):
        size = 1024 + 8 * (number // 5 % 40) if DEFECT else 1024
        answer(rows(size, either(1024, 64)))  # defect


@defect("recompiles", "recompile-limit", names=("calls",), share=0.1, also=(*ALSO, "not-compiled"), cpu=True)
def changing_int() -> None:
    """The model counts its calls in an attribute, for each value of which it is compiled."""

    class Counting(Deep):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1 if DEFECT else 0  # defect
            return super().forward(x) * (1 + 1e-9 * self.calls)

    train_deep(Counting(2))


@defect("recompile-limit", "recompiles", names=("task",), share=0.1, also=(*ALSO, "not-compiled"), cpu=True)
def changing_task() -> None:
    """Each of 24 tasks has a name that the compiled function takes, three times as many as it is compiled for."""

    model = on_device(Chain())

    def loss_of(task: str) -> Tensor:
        return model(len(task))

    compiled, optimizer = torch.compile(loss_of), torch.optim.SGD(model.parameters(), lr=1e-5)
    for number in loop():
        compiled(f"task {number % 24}" if DEFECT else "task").backward()  # defect
        optimizer.step()
        optimizer.zero_grad()


@defect("slow-guards", "small-graphs", names=("scale", "factors", "guards"), share=0.1, also=ALSO, cpu=True)
@torch.no_grad()
def slow_guards() -> None:
    """A compiled function reads a list of 2,000 numbers, which its guards compare at each of 20 calls."""
    factors = [1.0 + number / 1e9 for number in range(2000 if DEFECT else 1)]

    @torch.compile
    def scale(x: Tensor) -> Tensor:
        return F.gelu(x) * max(factors)  # defect

    network = torch.compile(on_device(Layer()))
    x = rows(either(256, 64))
    for _ in loop():
        y = network(x)
        for _ in range(20):
            y = scale(y)  # defect


@defect("not-compiled", "eager-operators", share=0.1, also=("host-pace",))
def never_compiled() -> None:
    """Nobody compiled the model."""
    model = on_device(Language())
    compiled, data = model if DEFECT else torch.compile(model), tokens()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(data).backward()
        optimizer.step()
        optimizer.zero_grad()


@defect("not-compiled", "eager-operators", names=("eager", "backend"), share=0.1, also=("host-pace",), cpu=True)
def backend_eager() -> None:
    """``backend="eager"`` was left in after a search for an error."""
    step = training(Chain(), backend="eager" if DEFECT else "inductor")  # defect
    for _ in loop():
        step()


if __name__ == "__main__":
    start()
