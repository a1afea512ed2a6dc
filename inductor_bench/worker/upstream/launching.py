"""Observes the launches of Triton kernels through private names of Inductor and torch.

The versions with which a function was checked stand in parentheses. No function imports torch before it is called.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Run = Callable[[], Any]
OnTritonLaunch = Callable[[str, Any, tuple[Any, ...], dict[str, Any], Run], Any]
Quietly = Callable[[Run], Any]


@contextlib.contextmanager
def watched_triton_kernels(namespace: Mapping[str, Any], on_launch: OnTritonLaunch, quietly: Quietly) -> Iterator[None]:
    """Replaces each launch of a module's Triton kernels in the block by a call of ``on_launch``. (2.11; 2.13 read only)

    Every launch goes through ``CachingAutotuner.run``, also that of a multi-kernel's choice.

    Args:
        namespace: the module's variables.
        on_launch: called with the kernel's variable, the kernel, the positional and keyword arguments, and a function
            that makes the launch.
        quietly: called with a function that runs a multi-kernel's benchmarks, whose launches do not count.
    """
    try:
        from torch._inductor.codegen.multi_kernel import MultiKernelCall
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    except ImportError:
        yield
        return
    names = {id(value): name for name, value in namespace.items() if isinstance(value, CachingAutotuner)}
    original: Callable[..., Any] = CachingAutotuner.run
    benchmark: Callable[..., Any] = MultiKernelCall.benchmark_sub_kernels

    def run(self: Any, *arguments: Any, stream: Any, **more: Any) -> Any:
        def launch() -> Any:
            return original(self, *arguments, stream=stream, **more)

        return on_launch(names[id(self)], self, arguments, more, launch) if id(self) in names else launch()

    def benchmark_sub_kernels(self: Any, *arguments: Any, **more: Any) -> Any:
        return quietly(lambda: benchmark(self, *arguments, **more))

    setattr(CachingAutotuner, "run", run)  # noqa: B010
    setattr(MultiKernelCall, "benchmark_sub_kernels", benchmark_sub_kernels)  # noqa: B010
    try:
        yield
    finally:
        setattr(CachingAutotuner, "run", original)  # noqa: B010
        setattr(MultiKernelCall, "benchmark_sub_kernels", benchmark)  # noqa: B010


def no_dispatch() -> contextlib.AbstractContextManager[Any]:
    """Bypasses all dispatch modes for this thread's operators, which is cheaper than a pass through a mode. (2.13)"""
    import torch

    guard: contextlib.AbstractContextManager[Any] = torch._C._DisableTorchDispatch()
    return guard


def triton_signature(kernel: Any) -> tuple[dict[str, str], frozenset[str]]:
    """The types of a Triton kernel's parameters, and the parameters updated in place. (2.11; 2.13 read only)"""
    signature = {str(name): str(kind) for name, kind in kernel.triton_meta["signature"].items()}
    return signature, frozenset(kernel.mutated_arg_names)
