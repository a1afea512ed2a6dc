"""Training without a defect: no advice of over 3% of the step is right, beside what each program declares."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from frame import DEVICE, SMALL, clean, either, loop, start
from models import BATCH, LENGTH, Images, Language, Regression, on_device, pictures, rows, tokens, training
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


@clean()
def rows_of_numbers() -> None:
    """A perceptron."""
    step, inputs = training(Regression()), rows()
    for _ in loop():
        step(inputs, inputs)


@clean(may=("cuda-graphs-unused",))
def language() -> None:
    """A transformer. On an H100 CUDA graphs make its step a third shorter: by its own stopwatch 5.9 → 3.9 ms."""
    step, data = training(Language()), tokens()
    for _ in loop():
        step(data)


@clean(may=("layout-copies", "cuda-graphs-unused"))
def images() -> None:
    """Convolutions, channels last."""
    step, (inputs, labels) = training(Images()), pictures()
    for _ in loop():
        step(inputs, labels)


@clean(may=("cuda-graphs-unused",))
def loss_now_and_then() -> None:
    """The loss is read every 20 steps."""
    step, data, losses = training(Language()), tokens(), []
    for number in loop():
        loss = step(data)
        if number % 20 == 19:
            losses.append(loss.item())


@clean(may=("cuda-graphs-unused",))
def fast_loader() -> None:
    """A loader that is ahead of the step, from pinned memory."""
    step = training(Language())
    texts = TensorDataset(tokens(BATCH * 200).cpu())
    loader = DataLoader(texts, BATCH, num_workers=1, pin_memory=DEVICE == "cuda", prefetch_factor=8)
    for (batch,), _ in zip(loader, loop(), strict=False):
        step(batch.to(DEVICE, non_blocking=True))


@clean(may=("full-float32", "copies", "cuda-graphs-unused"))
def autocast() -> None:
    """Parameters in float32, under autocast to bfloat16."""
    model = Language().to(DEVICE)
    compiled, data = torch.compile(model), tokens()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        with torch.autocast(DEVICE, torch.bfloat16, enabled=not SMALL):
            loss = compiled(data)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@clean()
def accumulation() -> None:
    """Two micro-batches to a step of the optimizer."""
    model = on_device(Language())
    compiled, parts = torch.compile(model), tokens(2 * BATCH).chunk(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        for part in parts:
            compiled(part).backward()
        optimizer.step()
        optimizer.zero_grad()


@clean()
def compiled_optimizer() -> None:
    """The optimizer's step is compiled, too."""
    model = on_device(Regression())
    compiled, inputs = torch.compile(model), rows()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-5, device=DEVICE), capturable=not SMALL)
    update = torch.compile(optimizer.step)
    for _ in loop():
        compiled(inputs, inputs).backward()
        update()
        optimizer.zero_grad()


@clean(may=("replay-inputs",))
def graphed_training() -> None:
    """A small model under CUDA graphs."""
    model = on_device(Language(depth=2))
    compiled, data = torch.compile(model, mode="reduce-overhead"), tokens()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(data).backward()
        optimizer.step()
        optimizer.zero_grad()


@clean(may=("eager-operators",))
def two_networks() -> None:
    """Two networks with an optimizer each, as in a GAN."""
    makes, judges = on_device(Regression()), on_device(Regression())
    steps = [(torch.compile(one), torch.optim.AdamW(one.parameters(), lr=1e-5, fused=True)) for one in (makes, judges)]
    inputs = rows()
    for _ in loop():
        for model, optimizer in steps:
            model(inputs, inputs).backward()
            optimizer.step()
            optimizer.zero_grad()


@clean(may=("gradient-copies", "collectives", "graph-breaks", "threads"))
def two_ranks() -> None:
    """DDP on two ranks, whose gradients are reduced beside the backward pass."""
    local = int(os.environ["LOCAL_RANK"])
    if DEVICE == "cuda":
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if DEVICE == "cuda" else "gloo")
    model = on_device(Language())
    parallel = DistributedDataParallel(
        model, device_ids=[local] if DEVICE == "cuda" else None, gradient_as_bucket_view=True
    )
    compiled, data = torch.compile(parallel), tokens(either(2 * BATCH, BATCH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(data).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


@clean()
def distillation() -> None:
    """A teacher and a student in one graph."""
    teacher, student = on_device(Regression(depth=1)).requires_grad_(False), on_device(Regression(depth=1))

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.teacher, self.student = teacher.layers, student.layers

        def forward(self, x: Tensor) -> Tensor:
            wanted = x
            for taught, learnt in zip(self.teacher, self.student, strict=True):
                wanted, x = taught(wanted), learnt(x)
            return F.mse_loss(x, wanted)

    model = Both()
    compiled, inputs = torch.compile(model), rows(either(8192, 256))
    optimizer = torch.optim.SGD(student.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(inputs).backward()
        optimizer.step()
        optimizer.zero_grad()


@clean(may=("cuda-graphs-unused",))
def long_texts() -> None:
    """Texts of four times the length, in fewer of them."""
    step, data = training(Language()), tokens(max(1, BATCH // 4), 4 * LENGTH)
    for _ in loop():
        step(data)


if __name__ == "__main__":
    start()
