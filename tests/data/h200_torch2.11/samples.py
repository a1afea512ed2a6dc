"""The programs behind ``samples/``: one kind of generated code each. ``python samples.py NAME`` on a CUDA machine."""

from __future__ import annotations

import sys

import torch
import torch._inductor.config as config
import triton
import triton.language as tl

DEV = "cuda"


def foreach() -> None:
    params = [torch.nn.Parameter(torch.randn(64, i + 3, device=DEV)) for i in range(5)]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.Adam(params, capturable=True)
    torch.compile(lambda: optimizer.step(), fullgraph=False)()


def _many(a, b, c, d):
    return a.sin() + 1, b.cos() * 2, c.sum(1), d.softmax(-1)


def combo() -> None:
    config.combo_kernels = True
    torch.compile(_many)(*(torch.randn(512 + 64 * i, 256, device=DEV) for i in range(4)))


def combo_fixed() -> None:
    config.combo_kernels = True
    config.combo_kernels_autotune = 0
    torch.compile(_many)(*(torch.randn(512 + 64 * i, 256, device=DEV) for i in range(4)))


@triton.jit
def _twice(x):
    return x * 2


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, _twice(tl.load(x_ptr + offsets, mask)) + tl.load(y_ptr + offsets, mask), mask)


def _user(x, y):
    x = x.relu()
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), BLOCK=256)
    out2 = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 512),)](out, y, out2, x.numel(), BLOCK=512)
    return out2.sigmoid()


def user() -> None:
    torch.compile(_user, fullgraph=True)(torch.randn(4096, device=DEV), torch.randn(4096, device=DEV))


def partition() -> None:
    config.graph_partition = True

    def f(x, y):
        z = (x.cos() @ y).relu()
        c = z.cpu().sin()
        return (c.to(DEV) + z).exp().sum(), c

    g = torch.compile(f, mode="reduce-overhead")
    for _ in range(3):
        g(torch.randn(256, 256, device=DEV), torch.randn(256, 256, device=DEV))


def multi() -> None:
    config.triton.multi_kernel = 1
    torch.compile(lambda x: x.softmax(-1) * 2)(torch.randn(1024, 2000, device=DEV))


def cooperative() -> None:
    config.triton.force_cooperative_reductions = True
    torch.compile(lambda x: x.sum())(torch.randn(1 << 22, device=DEV))


def scan() -> None:
    torch.compile(lambda x: torch.cumsum(x, 0) * 2)(torch.randn(1 << 22, device=DEV))


def attention() -> None:
    def f(q, k, v, i, e):
        drop = torch.nn.functional.dropout(q, 0.1)
        return torch.nn.functional.scaled_dot_product_attention(drop, k, v), e[i].sum(0), torch.sort(e, 0)[0]

    q = torch.randn(2, 4, 128, 64, device=DEV, dtype=torch.float16, requires_grad=True)
    e = torch.randn(5000, 8, device=DEV, requires_grad=True)
    out = torch.compile(f)(q, q * 1, q * 2, torch.randint(0, 5000, (300,), device=DEV), e)
    (out[0].sum() + out[1].sum()).backward()


def dynamic() -> None:
    f = torch.compile(lambda x, w: (x @ w).softmax(-1), dynamic=True)
    f(torch.randn(100, 64, device=DEV), torch.randn(64, 128, device=DEV))


def wrapper() -> None:
    config.cpp_wrapper = True
    torch.compile(lambda x, w: (x @ w).softmax(-1))(torch.randn(100, 64, device=DEV), torch.randn(64, 128, device=DEV))


def collective() -> None:
    import torch.distributed as dist
    import torch.distributed._functional_collectives as funcol

    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29511", rank=0, world_size=1)
    group = dist.group.WORLD

    def f(x):
        y = funcol.all_reduce(x.cos(), "sum", group)
        return funcol.all_gather_tensor(y.sin(), 0, group) + 1

    torch.compile(f, fullgraph=True)(torch.randn(1024, device=DEV))
    dist.destroy_process_group()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    torch.cuda.synchronize()
    print("done", sys.argv[1])
