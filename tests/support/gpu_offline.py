"""Compiles for an H200 without a GPU, observed as a program of a breakdown: ``python gpu_offline.py``.

Torch traces on the CPU; the graphs then say that they are on a GPU, and Inductor writes its modules for one, without
loading them. The variables of a capture and ``TORCH_TRACE`` say where they go.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from inductor_bench.worker.capture import startup

GPU = torch.device("cuda", 0)
H200 = SimpleNamespace(
    type="cuda",
    name="NVIDIA H200",
    major=9,
    minor=0,
    multi_processor_count=132,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    warp_size=32,
    regs_per_multiprocessor=65536,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=60 << 20,
    total_memory=141 << 30,
    gcnArchName="",
)


def pretend_gpu() -> None:
    """Fakes what Inductor asks of a GPU and of Triton while it writes a module."""
    from torch._dynamo.device_interface import CudaInterface
    from torch._inductor import scheduler
    from torch._inductor.codecache import PyCodeCache
    from torch.utils import _triton

    def load(key: str, path: str, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(__file__=path, call=lambda inputs: (), recursively_apply_fns=lambda functions: None)

    answers = {
        "get_device_properties": H200,
        "get_compute_capability": 90,
        "is_available": True,
        "is_bf16_supported": True,
        "current_device": 0,
        "is_triton_capable": True,
        "raise_if_triton_unavailable": None,
    }
    for name, answer in answers.items():
        setattr(CudaInterface, name, staticmethod(lambda *_, answer=answer, **__: answer))
    interface: Any = CudaInterface
    interface.Worker.get_device_properties = staticmethod(lambda *_: H200)
    interface.Worker.current_device = staticmethod(lambda: 0)
    vars(torch.cuda).update(get_device_properties=lambda *_: H200, get_device_capability=lambda *_: (9, 0))
    vars(scheduler)["has_triton"] = lambda: True
    vars(_triton)["triton_hash_with_backend"] = lambda: "0" * 64
    cache: Any = PyCodeCache
    cache.load_by_key_path = staticmethod(load)


def on_gpu(graph: torch.fx.GraphModule, inputs: list[Any], **options: Any) -> Any:
    """Compiles a graph that was traced on the CPU as one of the GPU."""
    from torch._guards import detect_fake_mode
    from torch._inductor.compile_fx import compile_fx_inner

    mode: Any = detect_fake_mode([*inputs, *(node.meta.get("val") for node in graph.graph.nodes)])

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return GPU
        if not isinstance(value, torch.Tensor):
            return value
        with mode:
            return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=GPU)

    for node in graph.graph.nodes:
        node.kwargs = {name: GPU if isinstance(one, torch.device) else one for name, one in node.kwargs.items()}
        if "val" in node.meta:
            node.meta["val"] = pytree.tree_map(moved, node.meta["val"])
    return compile_fx_inner(graph, pytree.tree_map(moved, inputs), **options)


def compile_on_gpu(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """The backend of ``torch.compile``."""
    from torch._inductor.compile_fx import compile_fx

    return compile_fx(graph, inputs, inner_compile=on_gpu)


class Net(torch.nn.Module):
    """Its backward has reductions over rows and over columns of the same tensors, in one kernel by default."""

    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, width)
        self.out = torch.nn.LayerNorm(width)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.out(torch.nn.functional.gelu(self.up(self.norm(values))))


class Optimizer:
    """Its operations on lists are one kernel, each of whose parts is fused from three."""

    def __init__(self) -> None:
        self.values, self.means, self.steps = ([torch.rand(64, 64) for _ in range(6)] for _ in range(3))

    def step(self) -> None:
        torch._foreach_mul_(self.means, 0.9)
        torch._foreach_add_(self.means, self.steps, alpha=0.1)
        torch._foreach_add_(self.values, self.means, alpha=-0.01)


def main() -> None:
    startup.install()
    pretend_gpu()
    torch._functorch.config.force_non_lazy_backward_lowering = True  # type: ignore[attr-defined]
    calls = [(Net(), (torch.rand(8192, 1024, requires_grad=True),)), (Optimizer().step, ())]
    for called, arguments in calls:
        try:
            torch.compile(called, backend=compile_on_gpu)(*arguments)
        except (AssertionError, IndexError) as error:  # the results of a module that computes nothing
            print(repr(error))


if __name__ == "__main__":
    main()
