"""One of Inductor's ways to make a library call: a template with its tile, another call, several kernels.

Beside ``library_lowering``, which finds them, the one file that touches private names of Inductor's autotuning.
(2.11, 2.13)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from torch._inductor.autotune_process import CUTLASSBenchmarkRequest, TritonBenchmarkRequest
from torch._inductor.codecache import PyCodeCache
from torch._inductor.runtime.triton_compat import OutOfResources, PTXASError
from torch._inductor.select_algorithm import ExternKernelCaller

from inductor_bench.devices.table import device_of
from inductor_bench.errors import InductorBenchError
from inductor_bench.records.tuning import Config


class View(NamedTuple):
    """A view of one of several tensors, ``place`` in their order; that tensor as it is where ``shape`` is ``None``."""

    place: int
    shape: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    offset: int = 0

    def of(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        tensor = tensors[self.place]
        if self.shape is None:
            return tensor
        return tensor.as_strided(self.shape, self.stride, tensor.storage_offset() + self.offset)


@dataclass(frozen=True)
class Choice:
    """One way to make the call.

    Attributes:
        config: what tells it from the others.
        caller: Inductor's own object.
        inputs: what it reads, in the order in which it takes them.
        output: what it writes, as a view of the call's result.
        module: the compiled module of a choice that is several kernels.
    """

    config: Config
    caller: Any
    inputs: tuple[View, ...]
    output: View
    module: Any = None

    def compile(self) -> None:
        """Compiles it, if that is still to be done.

        Raises:
            InductorBenchError: it is refused, or has no room on this GPU.
        """
        request = getattr(self.caller, "bmreq", None) if self.module is None else None
        try:
            if isinstance(request, TritonBenchmarkRequest):
                # Its own ``precompile`` would unload what others of the same text are bound to.
                template = PyCodeCache.load_by_key_path(request.module_cache_key, request.module_path)
                getattr(template, request.kernel_name).precompile()
            elif request is not None:
                request.precompile()
        except _refusals() as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
            raise InductorBenchError(f"does not compile: {(lines or [type(error).__name__])[-1]}") from error

    def bind(self, tensors: Sequence[torch.Tensor], result: torch.Tensor) -> Callable[[], torch.Tensor]:
        """The call and nothing else, on the stream that is current when it is called; it returns the result.

        Args:
            tensors: those of the arguments, in order.
            result: what it writes and returns, unless it allocates a result of its own.
        """
        inputs, output = [view.of(tensors) for view in self.inputs], self.output.of([result])
        if self.module is not None:
            return lambda: _as(result, self.module.call([*self.caller.sym_input_values, *inputs])[0])
        if isinstance(self.caller, ExternKernelCaller) and not self.caller.has_out_variant:
            function = self.caller.to_callable()
            return lambda: _as(result, function(*inputs))
        launch = _on_current_stream(self.caller.bmreq, self.caller.bmreq.make_run_fn(*inputs, out=output))

        def run() -> torch.Tensor:
            launch()
            return result

        return run


def _as(result: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """What a choice allocated, seen as the call's result is."""
    return made.as_strided(result.shape, result.stride())


def _refusals() -> tuple[type[Exception], ...]:
    triton = sys.modules.get("triton.compiler.errors")
    return (RuntimeError, OutOfResources, PTXASError, *([triton.CompilationError] if triton else []))


def _on_current_stream(request: Any, run: Any) -> Callable[[], Any]:
    """What launches where ``run`` does, but on the stream of the time: ``run`` is bound to one, and a capture has its
    own."""
    if (
        isinstance(request, TritonBenchmarkRequest)
        and not device_of(request.output_tensor_meta.device.type).runs_on_host
    ):
        return lambda: run(stream=torch.cuda.current_stream().cuda_stream)
    if isinstance(request, CUTLASSBenchmarkRequest) and isinstance(run, partial):
        pointer, workspace = type(run.args[-1]), request.workspace  # a later one takes the place of this workspace

        def launch() -> Any:
            return workspace, run.func(*run.args[:-1], pointer(torch.cuda.current_stream().cuda_stream))

        return launch
    bound: Callable[[], Any] = run
    return bound
