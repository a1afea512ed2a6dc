"""Lines at which the host waits for the device, so that the device then waits for the host."""

from __future__ import annotations

import torch
from frame import DEFECT, DEVICE, DTYPE, SMALL, defect, either, loop, start
from models import BATCH, LENGTH, SPACE, WORDS, Block, Language, Regression, on_device, rows, tokens
from torch import Tensor, nn

EAGER = ("eager-operators", "eager-optimizer", "host-pace", "cuda-graphs-unused")
"""What is true of a step of which a part is eager."""


@defect("synchronisations", share=0.1, also=EAGER)
def item_in_loop() -> None:
    """The norm of each gradient is read by ``.item()``."""
    model = on_device(Language(depth=either(8, 2)))
    compiled, data = torch.compile(model), tokens(either(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    norms: dict[str, object] = {}
    for _ in loop():
        compiled(data).backward()
        for name, parameter in model.named_parameters():
            norm = parameter.grad.norm()
            norms[name] = norm.item() if DEFECT else norm  # defect
        optimizer.step()
        optimizer.zero_grad()


@defect("synchronisations", share=0.05, also=EAGER)
def printed_loss() -> None:
    """Each micro-batch prints its loss."""
    model = on_device(Language())
    compiled, data = torch.compile(model), tokens().chunk(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        for part in data:
            loss = compiled(part)
            loss.backward()
            if DEFECT:
                print(loss)  # defect
        optimizer.step()
        optimizer.zero_grad()


@defect("synchronisations", "cpu-operators", share=0.05, also=("copies", *EAGER))
def metrics_on_the_cpu() -> None:
    """The prediction of each position goes to the CPU, where it is compared."""

    class WithLogits(Language):
        def forward(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.logits(tokens[:, :-1])
            return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()), logits.argmax(-1)

    model = on_device(WithLogits())
    compiled, data = torch.compile(model), tokens()
    optimizer, right = torch.optim.AdamW(model.parameters(), lr=1e-5), []
    for _ in loop():
        loss, predicted = compiled(data)
        if DEFECT:
            right.append((predicted.cpu() == data[:, 1:].cpu()).float().mean().item())  # defect
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@defect("synchronisations", share=0.1, also=EAGER)
def boolean_masks() -> None:
    """Each task takes its rows by a boolean mask, whose size the host has to know."""
    model, tasks = on_device(Regression(depth=2)), either(12, 4)
    compiled = torch.compile(lambda x: model.layers[1](model.layers[0](x)))
    inputs, task = rows(either(1024, 64)), torch.arange(either(1024, 64), device=DEVICE) % tasks
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        outputs, losses = compiled(inputs), []
        for number in range(tasks):
            if DEFECT:
                losses.append(outputs[task == number].square().mean())  # defect
            else:
                losses.append((outputs.square().mean(-1) * (task == number)).mean())
        sum(losses).backward()
        optimizer.step()
        optimizer.zero_grad()


@defect("synchronisations", share=0.05, also=("small-graphs", *EAGER))
def synchronize() -> None:
    """``torch.cuda.synchronize`` around each block, from a search for time that was left in."""
    blocks = nn.ModuleList(Block() for _ in range(either(12, 2)))
    on_device(blocks)
    compiled = [torch.compile(block) for block in blocks]
    optimizer = torch.optim.AdamW(blocks.parameters(), lr=1e-5, fused=True)
    inputs = torch.randn(BATCH, LENGTH, SPACE, device=DEVICE, dtype=DTYPE)
    for _ in loop():
        x = inputs
        for block in compiled:
            x = block(x)
            if DEFECT and not SMALL:
                torch.cuda.synchronize()  # defect
        x.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


@defect("synchronisations", share=0.05, also=EAGER)
def nonfinite_check() -> None:
    """The gradients' norm decides in Python whether a step is made, after each micro-batch."""
    model = on_device(Language())
    compiled, data = torch.compile(model), tokens(either(16, 4)).chunk(2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        for part in data:
            compiled(part).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=DEFECT)  # defect
        optimizer.step()
        optimizer.zero_grad()


@defect("synchronisations", share=0.05, also=("host-pace", "small-products", "replay-inputs", "eager-operators"))
@torch.no_grad()
def item_in_decode() -> None:
    """A decode loop asks after each token whether it is the last one."""
    model = on_device(Language(depth=either(4, 2)))
    decode = torch.compile(lambda tokens: model.logits(tokens)[:, -1:].argmax(-1), mode="reduce-overhead")
    token = torch.ones(8, 1, dtype=torch.long, device=DEVICE)
    for _ in loop(either(240, 60)):
        token = decode(token).clone()
        if DEFECT and bool((token == WORDS).all()):  # defect
            break


@defect(
    "cpu-operators",
    "synchronisations",
    share=0.1,
    also=("host-pace", "host-python", "copies", "small-products"),
    cpu=True,
)
@torch.no_grad()
def sampling_on_the_cpu() -> None:
    """The next token is drawn on the CPU."""
    model = on_device(Language(depth=either(4, 2), words=either(32768, 8192)))
    decode = torch.compile(lambda tokens: model.logits(tokens)[:, -1].float(), mode="reduce-overhead")
    token = torch.ones(8, 1, dtype=torch.long, device=DEVICE)
    for _ in loop():
        logits = decode(token)
        if DEFECT:
            chances = logits.cpu().sort(-1, descending=True).values.softmax(-1)  # defect
            token = torch.multinomial(chances, 1).to(DEVICE)  # defect
        else:
            token = logits.argmax(-1, keepdim=True)


if __name__ == "__main__":
    start()
