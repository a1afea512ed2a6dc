"""Observes the calls of compiled graphs, CUDA graphs, optimizers and profilers through private names of torch.

The versions with which a function was checked stand in parentheses. No function imports torch before it is called.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from inductor_bench.devices.table import device_of

Undo = Callable[[], None]
Call = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class GraphFacts:
    """What torch knows of a compiled graph; see ``messages.steps.ObservedGraph``.

    Attributes:
        parameter: the index of the first input that is a parameter or another tensor with a fixed address.
        device: the type of the device on which it runs; empty for the CPU.
    """

    path: str
    parameter: int | None
    is_backward: bool
    device: str
    cuda_graph_refusal: str


def around_graph_calls(make: Callable[[Call], Call]) -> Undo:
    """Replaces the call of compiled graphs by ``make(call)``; returns the undoing. (2.9, 2.11, 2.13, 2.15)

    Every call passes through the class, also the replay of a CUDA graph.
    """
    from torch._inductor.output_code import CompiledFxGraph

    return _replace(CompiledFxGraph, "__call__", make)


def describe_graph(compiled: Any) -> GraphFacts:
    """The facts of a ``CompiledFxGraph``. (2.9, 2.11, 2.13, 2.15)"""
    from torch._inductor.codecache import get_path

    options = getattr(compiled, "fx_kwargs", None) or {}
    fixed = options.get("static_input_idxs") or ()
    key = getattr(compiled, "cache_key", "")
    others = [kind for kind in getattr(compiled, "device_types", ()) if not device_of(kind).runs_on_host]
    return GraphFacts(
        path=os.path.realpath(get_path(key, "py")[2]) if key else "",
        parameter=min(fixed, default=None),
        is_backward=bool(options.get("is_backward")),
        device=others[0] if others else "",
        cuda_graph_refusal=_refusal(compiled),
    )


def _refusal(compiled: Any) -> str:
    """Inductor's reason for not wrapping a graph in CUDA graphs; it gives reasons only where they were asked for."""
    reason = getattr(compiled, "disabled_cudagraphs_reason", None)
    information = getattr(compiled, "cudagraph_info", None)
    return reason or ", ".join(getattr(information, "cudagraph_fail_reasons", None) or ())


def on_cuda_graphs(recorded: Callable[[], None], warmed: Callable[[], None], refused: Callable[[str], None]) -> Undo:
    """Calls ``recorded`` and ``warmed`` around CUDA graphs that torch records, and ``refused`` with each reason not to.

    (2.9, 2.11, 2.13, 2.15; read only: they need a GPU)
    """
    from torch._inductor import cudagraph_trees

    def before(note: Callable[[], None]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def make(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def noted(*arguments: Any, **keywords: Any) -> Any:
                note()
                return original(*arguments, **keywords)

            return noted

        return make

    def telling(original: Callable[[str], None]) -> Callable[[str], None]:
        def tell(message: str) -> None:
            refused(message)
            original(message)

        return tell

    manager = cudagraph_trees.CUDAGraphTreeManager
    undoings = [
        _replace(manager, "record_function", before(recorded)),
        _replace(manager, "run_eager", before(warmed)),
        _replace(cudagraph_trees, "log_cudagraph_skip_and_bump_counter", telling),
    ]
    return _undo_all(undoings)


def on_optimizer_steps(stepped: Callable[[Any], None]) -> Undo:
    """Calls ``stepped`` with the optimizer after each of its steps. (2.9, 2.13)

    Dynamo compiles the code around the hook of a compiled optimizer, and does not look into it.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def hook(optimizer: Any, arguments: Any, keywords: Any) -> None:
        stepped(optimizer)

    undo: Undo = register_optimizer_step_post_hook(hook).remove
    return undo


def on_profiler_steps(stepped: Callable[[Any], None]) -> Undo:
    """Calls ``stepped`` with the profiler before each of its steps. (2.9, 2.13, 2.15)"""
    from torch.profiler import profile

    def make(original: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(original)
        def step(profiler: Any) -> None:
            stepped(profiler)
            original(profiler)

        return step

    return _replace(profile, "step", make)


def around_profilers(begins: Callable[[Any], None], ends: Callable[[Any], None]) -> Undo:
    """Calls ``begins`` before each profiler of this process prepares, and ``ends`` after its end. (2.9, 2.13, 2.15)

    All interfaces of torch's profiler go through this class. The argument is the class's instance.
    """
    from torch.autograd.profiler import profile

    def preparing(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def prepare(self: Any) -> Any:
            begins(self)
            return original(self)

        return prepare

    def ending(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def leave(self: Any, *arguments: Any) -> Any:
            try:
                return original(self, *arguments)
            finally:
                ends(self)

        return leave

    undoings = [_replace(profile, "_prepare_trace", preparing), _replace(profile, "__exit__", ending)]
    return _undo_all(undoings)


def is_any_profiler_running() -> bool:
    """Whether a profiler of any thread records. It is cheaper than asking torch's core. (2.9, 2.13, 2.15)"""
    running: bool = sys.modules["torch.autograd.profiler"]._is_profiler_enabled
    return running


def has_optimizer() -> bool:
    """Whether the process holds an optimizer. It looks through all objects, which takes about 0.1 s."""
    import gc

    from torch.optim import Optimizer

    return any(issubclass(type(value), Optimizer) for value in gc.get_objects())


def _undo_all(undoings: list[Undo]) -> Undo:
    def undo() -> None:
        for one in undoings:
            one()

    return undo


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> Undo:
    original = vars(owner)[name]
    replacement = make(original)
    setattr(owner, name, replacement)

    def undo() -> None:
        if vars(owner)[name] is replacement:
            setattr(owner, name, original)

    return undo
