"""Observes, through private names of torch, when it compiles and when the compiler uses the GPU.

The versions with which a function was checked stand in parentheses. No function imports torch before it is called.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def compile_nothing() -> None:
    """Leaves every function of this process uncompiled. (2.11, 2.13, 2.15)

    ``TORCH_COMPILE_DISABLE`` alone makes functions with ``fullgraph=True`` fail since torch 2.13.
    """
    from torch import compiler

    compiler.set_stance("force_eager")


def on_compiling(begins: Callable[[], None], ends: Callable[[], None]) -> None:
    """Calls ``begins`` and ``ends`` around each compilation in this process. (2.11, 2.13)

    Compilations are Dynamo's graphs, and backward graphs, which are compiled on first use. The recording of a CUDA
    graph, which torch counts as a compilation, is left out, because it runs the graph.
    """
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    compiled = (CallbackTrigger.DYNAMO, CallbackTrigger.LAZY_BACKWARD)
    callback_handler.register_start_callback(lambda now: begins() if now.callback_trigger in compiled else None)
    callback_handler.register_end_callback(lambda now: ends() if now.callback_trigger in compiled else None)


def around_use_while_compiling(using: Callable[[], AbstractContextManager[None]]) -> None:
    """Enters ``using()`` around the compiler's use of the GPU. (2.11, 2.13)

    The compiler benchmarks kernels and their configurations on it, and loads Triton kernels.
    """
    from torch._inductor.runtime import benchmarking

    for kind in vars(benchmarking).values():
        if isinstance(kind, type) and "benchmark_gpu" in vars(kind):
            _surround(kind, "benchmark_gpu", using)
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    except ImportError:
        return
    _surround(CachingAutotuner, "_make_launchers", using)


def _surround(owner: Any, name: str, using: Callable[[], AbstractContextManager[None]]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def surrounded(*arguments: Any, **keywords: Any) -> Any:
        with using():
            return original(*arguments, **keywords)

    setattr(owner, name, surrounded)


def searches() -> bool:
    """Whether the compiler benchmarks candidates in every mode, which an environment variable may set. (2.11, 2.13)"""
    from torch._inductor import config

    return bool(config.max_autotune or config.max_autotune_gemm)


def benchmarks_elsewhere() -> bool:
    """Whether the compiler benchmarks in other processes, where its use of the GPU is not observable. (2.11, 2.13)"""
    from torch._inductor import config

    return bool(config.autotune_in_subproc)


def options_of_mode(mode: str, dynamic: bool | None) -> dict[str, Any]:
    """The options of Inductor that a mode of ``torch.compile`` stands for. (2.9, 2.11, 2.13, 2.15)"""
    from torch._inductor import list_mode_options

    return dict(list_mode_options(mode, dynamic))


def compiled_graphs() -> int:
    """The number of graphs that this process compiled, those left out that came from a cache. (2.13)"""
    utils = sys.modules.get("torch._dynamo.utils")
    times = getattr(utils, "compilation_time_metrics", {})
    return len(times.get("fx_codegen_and_compile", ()))


def graph_breaks() -> tuple[str, ...]:
    """Dynamo's reason of each graph break of this process; none before the compiler is imported. (2.9, 2.13, 2.15)"""
    utils = sys.modules.get("torch._dynamo.utils")
    counted = utils.counters["graph_break"] if utils is not None else {}
    return tuple(reason for reason, count in counted.items() for _ in range(count))
