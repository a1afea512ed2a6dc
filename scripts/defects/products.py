"""Matrix products of sizes or types that the device is slow at."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from frame import DEFECT, DEVICE, SMALL, defect, either, loop, start
from models import ROWS, WIDTH, Attention, Language, Layer, Regression, on_device, rows, tokens, training
from torch import Tensor, nn


class Gated(nn.Module):
    """Llama's feed-forward layers, of width 8/3."""

    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.gates = nn.ModuleList(nn.Linear(width, hidden, bias=False) for _ in range(depth))
        self.ups = nn.ModuleList(nn.Linear(width, hidden, bias=False) for _ in range(depth))
        self.downs = nn.ModuleList(nn.Linear(hidden, width, bias=False) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        for gate, up, down in zip(self.gates, self.ups, self.downs, strict=True):
            x = x + down(F.silu(gate(x)) * up(x))
        return x.square().mean()


@defect("unaligned-products", "padded-products", names=("2730",), share=0.1)
def width_2730() -> None:
    """The hidden width is 8/3 of 1024, and no multiple of 8."""
    step = training(Gated(1024, 2730 if DEFECT else 2752, 4))
    inputs = rows(either(8192, 64), 1024)
    for _ in loop():
        step(inputs)


@defect("unaligned-products", "padded-products", names=("50257",), share=0.05)
def vocabulary_50257() -> None:
    """GPT-2's vocabulary."""
    words = 50257 if DEFECT else 50304
    step, data = (
        training(Language(1, words, width=either(768, 64), heads=either(12, 2))),
        tokens(words=words),
    )
    for _ in loop():
        step(data)


@defect("unaligned-products", "padded-products", names=("2049",), share=0.05)
def one_more_feature() -> None:
    """The time is one more column of the rows."""

    class WithTime(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            width = 2049 if DEFECT else 2056
            self.time = width - 2048
            self.up, self.down = nn.Linear(width, 8192), nn.Linear(8192, 2048)

        def forward(self, x: Tensor, time: Tensor) -> Tensor:
            for _ in range(2):
                x = self.down(F.gelu(self.up(torch.cat([x, time.expand(-1, self.time)], -1))))
            return x.square().mean()

    step, inputs = training(WithTime()), rows(either(4096, 16), 2048)
    for _ in loop():
        step(inputs, inputs[:, :1])


@defect(
    "small-products",
    share=0.3,
    also=("host-pace", "cuda-graphs-unused", "small-graphs", "eager-optimizer", "library-below-limit"),
    cpu=True,
)
def tiny_batch() -> None:
    """Batches of four rows, sixteen to a step."""
    model = on_device(Regression(depth=2, width=either(4096, 256), hidden=either(16384, 1024)))
    compiled, inputs = torch.compile(model), rows(64, either(4096, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, fused=not SMALL)
    for _ in loop(60):
        for part in inputs.chunk(16 if DEFECT else 1):
            compiled(part, part).backward()
        optimizer.step()
        optimizer.zero_grad()


@defect("small-products", share=0.3, also=("host-pace", "cuda-graphs-unused", "library-below-limit"), cpu=True)
@torch.no_grad()
def one_request_at_a_time() -> None:
    """Requests are answered one at a time."""
    model = on_device(nn.Sequential(*(Layer(either(4096, 256), either(16384, 1024)) for _ in range(4))))
    answer = torch.compile(model, mode="reduce-overhead")
    waiting = rows(32, either(4096, 256))
    for _ in loop():
        for request in waiting.split(1 if DEFECT else 32):
            answer(request)


@defect("full-float32", share=0.3, cpu=True)
def no_tf32() -> None:
    """Products in float32 without TF32; on a CPU, if it multiplies bfloat16 natively, without that."""
    if not DEFECT:
        torch.set_float32_matmul_precision(either("high", "medium"))
    width = either(WIDTH, 512)
    model = Regression(depth=1, width=width, hidden=either(4096, 2048)).to(DEVICE)
    compiled, inputs = torch.compile(model), torch.randn(ROWS, width, device=DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        compiled(inputs, inputs).backward()
        optimizer.step()
        optimizer.zero_grad()


@defect("float32-island", "eager-operators", share=0.1)
def float32_loss() -> None:
    """The loss is outside of the graph, in float32, over 32,768 words."""
    words = either(32768, 8192)
    model = on_device(Language(either(2, 1), words))
    data = tokens(words=words)
    logits_of = torch.compile(model.logits)
    whole = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    for _ in loop():
        if DEFECT:
            logits = logits_of(data[:, :-1]).float()  # defect
            loss = F.cross_entropy(logits.flatten(0, 1), data[:, 1:].flatten())  # defect
        else:
            loss = whole(data)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


class InFloat32(Attention):
    """Attention whose products are in float32, in a model that is not."""

    def mix(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query.float() @ key.float().transpose(-1, -2) / query.shape[-1] ** 0.5  # defect
        causal = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        return (scores.masked_fill(~causal, -1e9).softmax(-1) @ value.float()).to(query.dtype)  # defect


@defect("float32-island", "decomposed-attention", names=("attention",), share=0.1, also=("full-float32",))
def float32_attention() -> None:
    """The attention of a bfloat16 model is in float32, and by hand."""
    step, data = training(Language(attention=InFloat32 if DEFECT else Attention)), tokens()
    for _ in loop():
        step(data)


@defect("float32-island", "full-float32", names=("head",), share=0.1)
def float32_head() -> None:
    """The last layer of a bfloat16 model stayed in float32."""

    class Float32Head(Language):
        def logits(self, tokens: Tensor) -> Tensor:
            return self.head(self.encode(tokens).to(self.head.weight.dtype))  # defect

    model = Float32Head(either(2, 1), either(32768, 8192))
    step, data = training(model), tokens(words=either(32768, 8192))
    if DEFECT:
        model.head.float()
    for _ in loop():
        step(data)


if __name__ == "__main__":
    start()
