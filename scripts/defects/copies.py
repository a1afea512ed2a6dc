"""Copies and allocations that a step does not need."""

from __future__ import annotations

import torch
from frame import DEFECT, DEVICE, DTYPE, SMALL, defect, either, loop, start
from models import PICTURES, PIXELS, SPACE, Images, Layer, Regression, on_device, pictures, rows, training
from torch import Tensor, nn


@defect("pageable-copies", "host-copies", share=0.1, also=("cuda-graphs-unused",))
def pageable() -> None:
    """Images come from memory that is not pinned."""
    step = training(Images(depth=2))
    images, labels = pictures()
    batches = [torch.randn(PICTURES, 3, PIXELS, PIXELS) for _ in range(4)]
    if not DEFECT and DEVICE == "cuda":
        batches = [batch.pin_memory() for batch in batches]
    for number in loop():
        loaded = batches[number % 4].to(DEVICE, non_blocking=not DEFECT)  # defect
        images.copy_(loaded)
        step(images, labels)


@defect("copies", "eager-operators", share=0.05, also=("cuda-graphs-unused",))
def contiguous() -> None:
    """Images are laid out anew between the graphs, three times."""
    step = training(Images(either(32, 16), 1))
    images, labels = pictures(either(128, 8))
    for _ in loop():
        if DEFECT:
            rows = images.permute(0, 2, 3, 1).contiguous(memory_format=torch.contiguous_format).clone()  # defect
            turned = rows.permute(0, 3, 2, 1).contiguous()  # defect
            images = turned.transpose(2, 3).contiguous(memory_format=torch.channels_last)  # defect
        step(images, labels)


@defect("copies", "eager-operators", share=0.05, names=("keep",), also=("cuda-graphs-unused",), cpu=True)
def cloned_state() -> None:
    """Each step keeps a copy of all parameters, as of the best one."""
    model = Regression(depth=either(4, 2))
    step, inputs = training(model), rows(either(1024, 64))

    def keep() -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}  # defect

    best: dict[str, Tensor] = {}
    for _ in loop():
        step(inputs, inputs)
        best = keep() if DEFECT else best  # defect
    print(len(best), "tensors")


@defect("layout-copies", names=("features",), share=0.1)
def channels_first() -> None:
    """Convolutions in bfloat16 over images with their channels first."""
    model = Images().to(DEVICE, DTYPE)
    if not DEFECT:
        model.to(memory_format=torch.channels_last)
    compiled = torch.compile(model, options={"layout_optimization": not DEFECT})  # defect
    images, labels = pictures()
    images = images.contiguous() if DEFECT else images
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(images, labels).backward()
        optimizer.step()
        optimizer.zero_grad()


@defect("allocations", share=0.1, also=("cuda-graphs-unused",))
def empty_cache() -> None:
    """The allocator's cache is emptied after each step."""
    step, inputs = training(Regression()), rows()
    for _ in loop():
        step(inputs, inputs)
        if DEFECT and not SMALL:
            torch.cuda.empty_cache()  # defect


@defect("copies", "eager-operators", share=0.05, also=("host-pace", "small-graphs", "cuda-graphs-unused"), cpu=True)
@torch.no_grad()
def growing_cache() -> None:
    """Keys are appended by ``torch.cat``, which copies all of them for each token."""
    layer = torch.compile(on_device(nn.Sequential(*(Layer(SPACE, 4 * SPACE) for _ in range(2)))))
    token = rows(16, SPACE)
    kept = torch.zeros(either(32768, 512), 16, SPACE, device=DEVICE, dtype=DTYPE)
    for number in loop():
        if DEFECT:
            keys = torch.cat([kept[:-1], token[None]])  # defect
        else:
            kept[number % len(kept)] = token
            keys = kept
        token = layer(keys[-16:, 0])


if __name__ == "__main__":
    start()
