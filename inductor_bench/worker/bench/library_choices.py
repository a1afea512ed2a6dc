"""Inductor's choices for a library call under max-autotune: found, compiled and run."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as LateError
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch._inductor.async_compile import AsyncCompile, get_compile_threads
from torch._inductor.autotune_process import CUTLASSBenchmarkRequest, TritonBenchmarkRequest
from torch._inductor.codecache import PyCodeCache
from torch._inductor.codegen.subgraph import SubgraphChoiceCaller
from torch._inductor.debug import DebugContext
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime.triton_compat import OutOfResources, PTXASError
from torch._inductor.select_algorithm import ExternKernelCaller, TritonTemplateCaller
from torch._inductor.virtualized import V
from torch._subclasses import FakeTensorMode

from ...devices.table import find_device
from ...errors import InductorBenchError
from ...records.retune import Config
from ...source.harness.common import Arguments, tensors_in
from ...source.harness.operator_main import UNSUPPORTED
from ..upstream.pinning import lowering_with_max_autotune, name_choices

# One of Inductor's choices for a library call: a template with its tile, another call, or several kernels.
#
# It uses private names of Inductor's autotuning. (torch 2.11, 2.13)


class ArgumentView(NamedTuple):
    """A view of the tensor at index ``place`` of a sequence; the tensor itself if ``shape`` is ``None``."""

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
    """One of Inductor's choices for a call."""

    config: Config  # the configuration, which is unique among the choices
    caller: Any  # Inductor's object of the choice
    inputs: tuple[ArgumentView, ...]  # the inputs in order, as views of the call's tensors
    output: ArgumentView  # the output, as a view of the call's result
    module: Any = None  # the compiled module of a choice with several kernels; otherwise ``None``

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
        except _list_refusals() as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip(" ^")]
            raise InductorBenchError(f"does not compile: {(lines or [type(error).__name__])[-1]}") from error

    def bind(self, tensors: Sequence[torch.Tensor], result: torch.Tensor) -> Callable[[], torch.Tensor]:
        """Returns a function that only makes the call on the current stream and returns the result.

        Args:
            tensors: the tensors among the arguments, in order.
            result: the tensor for the result; a choice that allocates its own result ignores its contents.
        """
        inputs, output = [view.of(tensors) for view in self.inputs], self.output.of([result])
        if self.module is not None:
            return lambda: _restore_layout(result, self.module.call([*self.caller.sym_input_values, *inputs])[0])
        if isinstance(self.caller, ExternKernelCaller) and not self.caller.has_out_variant:
            function = self.caller.to_callable()
            return lambda: _restore_layout(result, function(*inputs))
        launch = _on_current_stream(self.caller.bmreq, self.caller.bmreq.make_run_fn(*inputs, out=output))

        def run() -> torch.Tensor:
            launch()
            return result

        return run


def _restore_layout(result: torch.Tensor, made: torch.Tensor) -> torch.Tensor:
    """Returns a view of the tensor that a choice allocated, with the layout of the call's result."""
    return made.as_strided(result.shape, result.stride())


def _list_refusals() -> tuple[type[Exception], ...]:
    triton = sys.modules.get("triton.compiler.errors")
    return (RuntimeError, OutOfResources, PTXASError, *([triton.CompilationError] if triton else []))


def _on_current_stream(request: Any, run: Any) -> Callable[[], Any]:
    """A function like ``run`` that launches on the current stream."""
    if (
        isinstance(request, TritonBenchmarkRequest)
        and not find_device(request.output_tensor_meta.device.type).runs_on_host
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


# Finds and compiles the choices that Inductor has for a library call under max-autotune.
#
# Inductor lowers a graph of only the call, and is stopped before it times its choices. This uses private names of
# Inductor's autotuning. (torch 2.11, 2.13)


CORES_KEPT = 2
"""Cores that are left to the timing process, which runs at the same time."""

PARSES_IN_THREADS = not (3, 11) <= sys.version_info < (3, 11, 9)
"""Whether this version of Python can parse in several threads. If not, a choice is compiled when it is first used."""


def find_choices(
    overload: Any, arguments: Arguments, result: Any, exhaustive: bool = False
) -> tuple[list[Choice], str]:
    """Finds the choices of a call, without compiling them.

    Args:
        overload: the overload of the operator.
        arguments: the arguments of the call.
        result: the result of the call, whose layout the result of each choice must have.
        exhaustive: whether the choices of Inductor's exhaustive search are included.

    Returns:
        The choices, and the reason if there are none.
    """
    name = f"{overload.namespace}.{overload._overloadpacket.__name__}"
    if not isinstance(result, torch.Tensor):
        return [], f"Inductor has no template for {name}"
    keywords = {key: value for key, value in arguments.keywords.items() if key not in _list_output_names(overload)}
    inputs = tensors_in([arguments.args, keywords])
    graph, fakes = _make_graph(_find_functional_overload(overload), arguments.args, keywords)
    callers: list[Any] = []
    try:
        with _lower_operator(graph, fakes, callers, exhaustive) as lowering:
            lowering.run(*fakes)
            choices, why = _keep_usable_choices(lowering, callers, inputs, result, name)
            choices = list(_compile_modules(choices))
    except torch.OutOfMemoryError:
        raise
    except UNSUPPORTED as error:
        return [], f"Inductor does not lower {name}: {str(error).splitlines()[0][:200]}"
    return choices, why or ("" if choices else f"Inductor has no template for {name} with these arguments")


def _list_output_names(overload: Any) -> list[str]:
    return [item.name for item in overload._schema.arguments if item.is_out]


def _find_functional_overload(overload: Any) -> Any:
    """Returns the overload that returns its result. This is ``overload`` itself if it has no ``out`` argument."""
    if not _list_output_names(overload):
        return overload
    name = overload._overloadname
    return getattr(overload._overloadpacket, "default" if name == "out" else name.removesuffix("_out"))


def _make_graph(overload: Any, args: list[Any], keywords: dict[str, Any]) -> tuple[Any, list[Any]]:
    """Returns a graph of only the call, and its inputs: fake tensors with the layouts of the call's tensors."""
    graph, fakes = torch.fx.Graph(), []

    def convert(value: Any) -> Any:
        if isinstance(value, list):
            return [convert(each) for each in value]
        if not isinstance(value, torch.Tensor):
            return value
        start = value.storage_offset()  # this decides the alignment
        last = sum((size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True))
        storage = torch.empty(start + max(last, 0) + 1, dtype=value.dtype, device=value.device)
        fakes.append(storage.as_strided(value.shape, value.stride(), start))
        node = graph.placeholder(f"arg{len(fakes) - 1}")
        node.meta["val"] = fakes[-1]
        return node

    with FakeTensorMode():
        inputs = convert(args), {name: convert(value) for name, value in keywords.items()}
        call = graph.call_function(overload, tuple(inputs[0]), inputs[1])
        values = torch.fx.map_arg((call.args, call.kwargs), lambda node: node.meta["val"])
        call.meta["val"] = overload(*values[0], **values[1])
    graph.output((call,))
    return torch.fx.GraphModule(torch.nn.Module(), graph), fakes


@contextlib.contextmanager
def _lower_operator(graph: Any, fakes: list[Any], callers: list[Any], exhaustive: bool) -> Iterator[Any]:
    """Returns a graph to lower.

    Its choices are collected in ``callers``, and Inductor continues with the first of them.
    """
    mode = fakes[0].fake_mode if fakes else FakeTensorMode()

    def take(choices: list[Any]) -> list[Any]:
        callers.extend(choices)
        return choices[:1]

    with (
        lowering_with_max_autotune(take, exhaustive=exhaustive, cutlass=exhaustive),
        DebugContext(),
        V.set_fake_mode(mode),
        torch.no_grad(),
    ):
        lowering = GraphLowering(graph, example_inputs=fakes, layout_opt=False)
        with V.set_graph_handler(lowering):
            yield lowering


def _keep_usable_choices(
    lowering: Any, callers: list[Any], inputs: list[Any], result: torch.Tensor, name: str
) -> tuple[list[Choice], str]:
    """Returns the choices that can replace the call, or the reason why there are none."""
    if not callers:
        return [], f"Inductor has no template for {name}"
    (final,) = lowering.graph_outputs
    made = {buffer.get_name() for buffer in lowering.operations[0].get_outputs()} if lowering.operations else set()
    if len(lowering.operations) != 1 or final.get_name() not in made:
        return [], f"Inductor computes {name} with several kernels here: no single template does the same"
    shape, stride = _make_integers(final.get_size()), _make_integers(final.get_stride())
    if shape != tuple(result.shape) or not _have_same_strides(shape, stride, result.stride()):
        return [], f"Inductor's choices for {name} would write a result with another memory layout"
    places = {f"arg{index}": index for index in range(len(inputs))}
    configs = name_choices([caller for caller in callers if not _is_original_call(caller, name, inputs)])
    choices = []
    for config, caller in configs:
        nodes = caller.input_nodes
        if isinstance(caller, ExternKernelCaller | SubgraphChoiceCaller):
            views = [_view(places[node.get_name()], node) for node in nodes]
        else:
            views = [ArgumentView(places[node]) for node in dict.fromkeys(node.get_name() for node in nodes)]
        layout = caller.layout
        output = ArgumentView(0, _make_integers(layout.size), _make_integers(layout.stride), int(layout.offset))
        choices.append(Choice(config, caller, tuple(views), output))
    return choices, ""


def _compile_modules(choices: list[Choice]) -> Iterator[Choice]:
    """Returns the choices. A choice with several kernels gets a compiled module."""
    for choice in choices:
        if not isinstance(choice.caller, SubgraphChoiceCaller):
            yield choice
            continue
        with contextlib.suppress(*UNSUPPORTED):
            yield replace(choice, module=choice.caller._compile_for_benchmarking())


def _make_integers(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(value) for value in values)


def _have_same_strides(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    return all(size < 2 or first == second for size, first, second in zip(shape, one, other, strict=True))


def _view(place: int, node: Any) -> ArgumentView:
    return ArgumentView(
        place, _make_integers(node.get_size()), _make_integers(node.get_stride()), int(node.get_layout().offset)
    )


def _is_original_call(caller: Any, name: str, inputs: list[Any]) -> bool:
    """Whether a choice is the call itself, with the same inputs."""
    if not isinstance(caller, ExternKernelCaller) or caller.choice.name != name.partition(".")[2]:
        return False
    return [_make_integers(node.get_size()) for node in caller.input_nodes] == [tuple(each.shape) for each in inputs]


def compile_in_background(choice: Choice, limit_s: float) -> Future[None]:
    """Begins to compile a choice as soon as a core is free.

    The future fails if the compilation fails or takes too long.

    Templates of Triton are compiled in Inductor's processes, into Triton's cache; other choices are compiled in
    threads.
    """
    if not PARSES_IN_THREADS:
        done: Future[None] = Future()
        done.set_result(None)
        return done
    return _count_threads().submit(_compile, choice, limit_s)


@functools.cache
def _count_threads() -> ThreadPoolExecutor:
    """Returns the number of threads that wait for compilations.

    The process pool cannot cancel jobs, so each thread gives the pool one job at a time.
    """
    AsyncCompile.use_process_pool()  # makes the one pool; threads would make one each
    count = min(get_compile_threads(), len(os.sched_getaffinity(0)) - CORES_KEPT)
    return ThreadPoolExecutor(max(1, count), "choice")


def _compile(choice: Choice, limit_s: float) -> None:
    """Compiles a choice.

    Without a process pool a template is compiled at its first use, because now it would disturb the timing.
    """
    if not isinstance(choice.caller, TritonTemplateCaller):
        choice.compile()
        return
    with contextlib.suppress(RuntimeError, TimeoutError, LateError):
        AsyncCompile.wait_pool_ready()
    if AsyncCompile.use_process_pool():
        _compile_in_process(choice, limit_s)


def _compile_in_process(choice: Choice, limit_s: float) -> None:
    request = choice.caller.bmreq
    source = Path(request.module_path).read_text(encoding="utf-8")
    AsyncCompile().triton(kernel_name=request.kernel_name, source_code=source).future.result(timeout=limit_s)
