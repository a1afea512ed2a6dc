"""The one file that touches private names of torch to tell when it compiles and when it uses the GPU meanwhile.

Each function says which versions it was checked with. Nothing here imports torch before it is called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def on_compiling(begins: Callable[[], None], ends: Callable[[], None]) -> None:
    """Calls ``begins`` and ``ends`` around everything that is compiled in this process: graphs that Dynamo finds, and
    backward graphs, which are compiled when they are first needed. (2.11, 2.13)

    The recording of CUDA graphs, which torch counts as compilation too, is none: it runs the graph.
    """
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    compiled = (CallbackTrigger.DYNAMO, CallbackTrigger.LAZY_BACKWARD)
    callback_handler.register_start_callback(lambda now: begins() if now.callback_trigger in compiled else None)
    callback_handler.register_end_callback(lambda now: ends() if now.callback_trigger in compiled else None)


def around_use_while_compiling(using: Callable[[], AbstractContextManager[None]]) -> None:
    """Enters ``using()`` around what the compiler does on the GPU: benchmarks of kernels and their configs, and the
    loading of Triton kernels. (2.11, 2.13)"""
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
    """Whether the compiler looks for the best kernel in every mode, as an environment variable may say. (2.11, 2.13)"""
    from torch._inductor import config

    return bool(config.max_autotune or config.max_autotune_gemm)


def benchmarks_elsewhere() -> bool:
    """Whether the compiler measures on the GPU in other processes, where nobody can see when. (2.11, 2.13)"""
    from torch._inductor import config

    return bool(config.autotune_in_subproc)
