"""Parts of a step that stayed eager: the optimizer, clipping, the loss, augmentation, a layer."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from frame import DEFECT, defect, either, loop, start
from models import Images, Regression, on_device, pictures, rows, training
from torch import Tensor, nn

ALSO = ("host-pace", "cuda-graphs-unused")


def many() -> nn.Module:
    """A model of many small layers."""
    return on_device(Regression(either(32, 16), either(512, 64), either(512, 64)))


def train_many(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    compiled, inputs = torch.compile(model), rows(either(512, 32), either(512, 64))
    for _ in loop():
        compiled(inputs, inputs).backward()
        optimizer.step()  # defect
        optimizer.zero_grad()


@defect("eager-optimizer", names=("AdamW",), share=0.1, also=ALSO)
def optimizer_not_fused() -> None:
    """AdamW without ``fused=True``, for many parameters and a short step."""
    model = on_device(Regression(either(8, 2)))
    compiled, inputs = torch.compile(model), rows(either(512, 32))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=not DEFECT)
    for _ in loop():
        compiled(inputs, inputs).backward()
        optimizer.step()  # defect
        optimizer.zero_grad()


@defect("eager-optimizer", names=("Adam",), share=0.2, also=ALSO, cpu=True)
def foreach_off() -> None:
    """Adam with ``foreach=False`` over many small parameters."""
    model = many()
    how = {"foreach": False} if DEFECT else {"fused": True}
    train_many(model, torch.optim.Adam(model.parameters(), lr=1e-5, **how))


@defect("eager-optimizer", "eager-operators", names=("Momentum",), share=0.1, also=ALSO, cpu=True)
def own_optimizer() -> None:
    """An optimizer of one's own, parameter by parameter."""

    class Momentum(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure: object = None) -> None:
            for parameter in self.param_groups[0]["params"]:
                average = self.state[parameter].setdefault("average", torch.zeros_like(parameter))
                average.mul_(0.9).add_(parameter.grad, alpha=0.1)  # defect
                parameter.mul_(0.9999).sub_(average / (average.abs().mean() + 1e-6), alpha=1e-6)  # defect

    model = many()
    parameters = list(model.parameters())
    train_many(model, Momentum(parameters, {}) if DEFECT else torch.optim.Adam(parameters, lr=1e-5, fused=True))


@defect("eager-operators", names=("clip_grad_norm_",), share=0.1, also=("eager-optimizer", *ALSO))
def clip_one_by_one() -> None:
    """Gradients are clipped one by one."""
    model = many()
    compiled, inputs = torch.compile(model), rows(either(512, 32), either(512, 64))
    parameters, optimizer = list(model.parameters()), torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(inputs, inputs).backward()
        nn.utils.clip_grad_norm_(parameters, 1.0, foreach=not DEFECT and None)  # defect
        optimizer.step()
        optimizer.zero_grad()


@defect("eager-operators", names=("focal_loss",), share=0.1, also=ALSO)
def loss_not_compiled() -> None:
    """A loss of many operators is outside of the graph."""

    def focal_loss(outputs: Tensor, targets: Tensor) -> Tensor:
        chance = outputs.sigmoid()  # defect
        error = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")  # defect
        right = chance * targets + (1 - chance) * (1 - targets)  # defect
        return (0.25 * (1 - right).square() * error).mean() + 0.01 * F.smooth_l1_loss(chance, targets)  # defect

    model = on_device(nn.Sequential(nn.Linear(1024, 8192)))
    compiled = torch.compile(model if DEFECT else lambda inputs, targets: focal_loss(model(inputs), targets))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    inputs, targets = rows(either(8192, 64), 1024), rows(either(8192, 64), 8192).sigmoid()
    for _ in loop():
        loss = focal_loss(compiled(inputs), targets) if DEFECT else compiled(inputs, targets)  # defect
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@defect("eager-operators", names=("augment",), share=0.1, also=("copies", *ALSO), cpu=True)
def augmentation_not_compiled() -> None:
    """Images are changed on the device, operator by operator."""
    step = training(Images(depth=1))
    images, labels = pictures(either(128, 16))
    noise = torch.randn_like(images)

    def augment(images: Tensor) -> Tensor:
        bright = (images * 1.1 + 0.05).clamp(-3, 3)  # defect
        grey = bright.mean(1, keepdim=True)  # defect
        mixed = bright * 0.9 + grey * 0.1 + noise * 0.01  # defect
        return torch.where(mixed > 0, mixed.pow(0.9), mixed).flip(-1)  # defect

    prepare = augment if DEFECT else torch.compile(augment)
    for _ in loop():
        step(prepare(images.abs()), labels)  # defect


@defect(
    "eager-operators",
    names=("norm", "forward"),
    share=0.1,
    also=("graph-breaks", "float32-island", *ALSO),
)
def layer_not_compiled() -> None:
    """``torch.compiler.disable`` keeps a norm out of the graphs."""

    def norm(x: Tensor) -> Tensor:
        scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)  # defect
        return F.silu(scaled) * 0.5 + torch.tanh(scaled) * 0.5  # defect

    between = torch.compiler.disable(norm) if DEFECT else norm
    network = on_device(nn.Sequential(nn.Linear(1024, 4096), nn.Linear(4096, 1024)))

    def loss_of(x: Tensor) -> Tensor:
        return network[1](between(network[0](x))).square().mean()  # defect

    compiled, x = torch.compile(loss_of), rows(either(8192, 64), 1024)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(x).backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    start()
