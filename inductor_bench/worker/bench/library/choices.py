"""One of Inductor's choices for a library call: a template with its tile, another call, or several kernels.

It uses private names of Inductor's autotuning. (2.11, 2.13)
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
    """A view of the tensor at index ``place`` of a sequence; the tensor itself where ``shape`` is ``None``."""

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
    """One of Inductor's choices for a call.

    Attributes:
        config: the configuration, which is unique among the choices.
        caller: Inductor's object of the choice.
        inputs: the inputs in order, as views of the call's tensors.
        output: the output, as a view of the call's result.
        module: the compiled module of a choice with several kernels; otherwise ``None``.
    """

    config: Config
    caller: Any
    inputs: tuple[View, ...]
    output: View
    module: Any = None

    def compile(self) -> None:
        """Compiles the choice unless it is compiled.

        Raises:
            InductorBenchError: the compiler refuses the choice, or it exceeds this GPU's resources.
        """
        request = getattr(self.caller, "bmreq", None) if self.module is None else None
        try:
            if isinstance(request, TritonBenchmarkRequest):
                # ``request.precompile`` would unload the module that other choices with the same text are bound to.
                template = PyCodeCache.load_by_key_path(request.module_cache_key, request.module_path)
                getattr(template, request.kernel_name).precompile()
            elif request is not None:
                request.precompile()
        except _refusals() as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
            raise InductorBenchError(f"does not compile: {(lines or [type(error).__name__])[-1]}") from error

    def bind(self, tensors: Sequence[torch.Tensor], result: torch.Tensor) -> Callable[[], torch.Tensor]:
        """A function that makes the call on the current stream, does nothing else, and returns the result.

        Args:
            tensors: the tensors among the arguments, in order.
            result: the tensor for the result; a choice that allocates its own result ignores its contents.
        """
        inputs, output = [view.of(tensors) for view in self.inputs], self.output.of([result])
        if self.module is not None:
            return lambda: _with_layout_of(result, self.module.call([*self.caller.sym_input_values, *inputs])[0])
        if isinstance(self.caller, ExternKernelCaller) and not self.caller.has_out_variant:
            function = self.caller.to_callable()
            return lambda: _with_layout_of(result, function(*inputs))
        launch = _on_current_stream(self.caller.bmreq, self.caller.bmreq.make_run_fn(*inputs, out=output))

        def run() -> torch.Tensor:
            launch()
            return result

        return run


def _with_layout_of(result: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """A view of the tensor that a choice allocated, with the layout of the call's result."""
    return made.as_strided(result.shape, result.stride())


def _refusals() -> tuple[type[Exception], ...]:
    triton = sys.modules.get("triton.compiler.errors")
    return (RuntimeError, OutOfResources, PTXASError, *([triton.CompilationError] if triton else []))


def _on_current_stream(request: Any, run: Any) -> Callable[[], Any]:
    """A function like ``run`` that launches on the current stream.

    ``run`` is bound to the stream that was current when it was made, but a graph capture has a stream of its own.
    """
    if (
        isinstance(request, TritonBenchmarkRequest)
        and not device_of(request.output_tensor_meta.device.type).runs_on_host
    ):
        return lambda: run(stream=torch.cuda.current_stream().cuda_stream)
    if isinstance(request, CUTLASSBenchmarkRequest) and isinstance(run, partial):
        pointer, workspace = (
            type(run.args[-1]),
            request.workspace,
        )  # ``launch`` keeps this workspace alive after the request has made another

        def launch() -> Any:
            return workspace, run.func(*run.args[:-1], pointer(torch.cuda.current_stream().cuda_stream))

        return launch
    bound: Callable[[], Any] = run
    return bound
