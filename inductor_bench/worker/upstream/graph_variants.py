"""Compiles one graph of Dynamo in several ways, and changes settings of torch, through private names of both.

The versions with which a function was checked stand in parentheses. No function imports torch before it is called.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from .pinning import add_to_cache_keys

Compile = Callable[..., Any]
"""Compiles a graph; see :func:`compile_as`."""

Surround = Callable[[], AbstractContextManager[None]]

PLACEBO_OPTIONS = {"triton.unique_kernel_names": False}
"""Options by which Inductor writes other text for the same Triton kernels, so that they are compiled once more."""

WITHOUT_CUDA_GRAPHS = {"triton.cudagraphs": False}
"""Options of an optimizer's step: it changes its inputs, and as a CUDA graph it ended a process by SIGSEGV
(torch 2.11)."""


def around_backend(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replaces the call of ``torch.compile``'s Inductor backend by ``make(call)``. (torch 2.13; 2.9, 2.15 read only)

    Dynamo calls the backend with the object that holds the options, the graph's module and its inputs. Ahead-of-time
    compilation, whose class is derived from that of the object, is not changed.
    """
    import torch

    kind = torch._TorchCompileInductorWrapper
    original = kind.__call__
    replaced = make(original)

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return (replaced if type(self) is kind else original)(self, *arguments, **keywords)

    kind.__call__ = call  # type: ignore[method-assign]


def find_options(backend: Any) -> dict[str, Any]:
    """Returns Inductor's options in an object of the backend's class."""
    return dict(backend.config)


def set_options(backend: Any, options: Mapping[str, Any]) -> Any:
    """Returns an object of the backend's class with further options."""
    made = copy.copy(backend)
    made.config = {**backend.config, **options}
    return made


def has_option(name: str) -> bool:
    """Whether this torch has an option of Inductor."""
    from torch._inductor import config

    return name.replace("-", "_") in config.get_config_copy()


def option(name: str) -> Any:
    """The value of an option of Inductor."""
    from torch._inductor import config

    return config.get_config_copy()[name]


def asks_for_restart(error: BaseException) -> bool:
    """Whether an exception is no failure, but asks Dynamo to compile its frame again (a float became a constant)."""
    exceptions = sys.modules.get("torch._dynamo.exc")
    return isinstance(error, getattr(exceptions, "RestartAnalysis", ()))


def copy_graph(module: Any) -> Any:
    """Returns a copy of a graph's module with its own graphs and the same parameters. (torch 2.13)

    The copy is needed because compilation changes the graph, and reads what Dynamo notes of its inputs in addition to
    their ``meta``.
    """
    from torch.fx import GraphModule

    graph = copy.deepcopy(module.graph)
    made = GraphModule(module, graph, class_name=type(module).__name__)
    for name, child in list(module.named_children()):
        if isinstance(child, GraphModule) and name in dict(made.named_children()):
            setattr(made, name, copy_graph(child))
    made.meta = copy.copy(getattr(module, "meta", {}))
    for name, value in vars(module).items():
        if name not in vars(made):
            vars(made)[name] = value
    for one, other in zip(module.graph.nodes, graph.nodes, strict=True):
        source = getattr(one, "_dynamo_source", None)
        if source is not None:
            other._dynamo_source = source
    return made


def compile_as(
    backend: Any, module: Any, inputs: Sequence[Any], options: Mapping[str, Any], surround: Surround
) -> Callable[..., Any]:
    """Compiles a graph beside its first compilation.

    Args:
        backend: the object of :func:`around_backend`; its name of the region is used.
        module: a copy of the graph's module, which is changed.
        inputs: the graph's inputs, as Dynamo gives them.
        options: all of Inductor's options.
        surround: a context that is entered for the compilation, and for that of the backward graph, which may come much
            later.
    """
    from torch._inductor import compile_fx

    more: Any = {}
    if "compile_region_name" in inspect.signature(compile_fx.compile_fx).parameters:
        more["compile_region_name"] = getattr(backend, "name", None)
    with _own_context(), surround():
        compiled: Any = compile_fx.compile_fx(
            module, inputs, inner_compile=_inner_compile(surround), config_patches=dict(options), **more
        )
    made: Callable[..., Any] = compiled
    return made


@contextlib.contextmanager
def around_compilations(surround: Surround) -> Iterator[None]:
    """In the block, a context is entered for the compilation of each graph. (torch 2.13; 2.9, 2.11 read only)

    This also holds for their backward graphs, which are compiled later.
    """
    from torch._inductor import compile_fx

    original = compile_fx.compile_fx

    @functools.wraps(original)
    def compile(*arguments: Any, **keywords: Any) -> Any:
        return original(*arguments, **{"inner_compile": _inner_compile(surround), **keywords})

    compile_fx.compile_fx = compile
    try:
        yield
    finally:
        compile_fx.compile_fx = original


def compile_own_graph(module: Any, inputs: Sequence[Any], options: Mapping[str, Any], surround: Surround) -> Any:
    """Compiles a graph that is compiled only once; see :func:`compile_as`."""
    from torch._inductor import compile_fx

    with surround():
        return compile_fx.compile_fx(
            module, list(inputs), inner_compile=_inner_compile(surround), config_patches=dict(options)
        )


def _inner_compile(surround: Surround) -> Compile:
    """Returns Inductor's compilation of one graph, forward or backward, within a context."""
    from torch._inductor import compile_fx

    inner: Compile = compile_fx.compile_fx_inner

    @functools.wraps(inner)
    def surrounded(*arguments: Any, **keywords: Any) -> Any:
        with surround(), _options_of_cpp_wrapper():
            return inner(*arguments, **keywords)

    return surrounded


def _options_of_cpp_wrapper() -> AbstractContextManager[Any]:
    """Returns options for launches from C++: without them Inductor compiles no such launches for a GPU.

    (torch 2.9 to 2.13)

    torch sets them for a forward graph, but not for a backward graph if ``cpp_wrapper`` is an option of
    ``torch.compile`` and no global option: the compilation then fails with "CudaKernelParamCache not populated".
    """
    from torch._inductor import compile_fx, config

    if not config.cpp_wrapper or not hasattr(compile_fx, "get_cpp_wrapper_config"):
        return contextlib.nullcontext()
    made: AbstractContextManager[Any] = config.patch(compile_fx.get_cpp_wrapper_config())
    return made


class ReplaySwitch:
    """Lets compiled graphs that are replayed as CUDA graphs launch their kernels one by one for a while.

    It must be made before the graphs are compiled. (torch 2.11; 2.13, 2.15 read only)
    """

    def __init__(self) -> None:
        from torch._inductor import compile_fx

        self._is_off = False
        original = compile_fx.cudagraphify

        @functools.wraps(original)
        def cudagraphify(model: Callable[..., Any], *positional: Any, **keywords: Any) -> Callable[..., Any]:
            replayed = original(model, *positional, **keywords)

            def run(inputs: Any) -> Any:
                return model(inputs) if self._is_off else replayed(inputs)

            return run

        compile_fx.cudagraphify = cudagraphify

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """In the block, no graph is replayed in any thread: autograd runs backward graphs in a thread of its own."""
        self._is_off = True
        try:
            yield
        finally:
            self._is_off = False


def compile_function(function: Callable[..., Any], compile_graph: Compile) -> Callable[..., Any]:
    """Compiles a function as ``torch.compile`` does, but ``compile_graph`` compiles its graphs."""
    import torch

    made: Callable[..., Any] = torch.compile(function, backend=compile_graph)
    return made


def inner_step(optimizer: Any) -> Callable[..., Any]:
    """The ``step`` method of the optimizer's class, without its hooks. (torch 2.13)"""
    step = type(optimizer).step
    inner: Callable[..., Any] = getattr(step, "__wrapped__", step) if getattr(step, "hooked", False) else step
    return inner


def override_step(optimizer: Any, inner: Callable[..., Any]) -> None:
    """Replaces an optimizer's step; the optimizer's hooks still run around it. (torch 2.13)"""
    import torch

    def step(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return inner(self, *arguments, **keywords)

    optimizer.step = types.MethodType(torch.optim.Optimizer.profile_hook_step(step), optimizer)


@contextlib.contextmanager
def _own_context() -> Iterator[None]:
    """Returns a copy of torch's notes during tracing, so that this compilation does not change those of the
    original."""
    from torch._guards import TracingContext, tracing

    current = TracingContext.try_get()
    if current is None:
        yield
        return
    own = copy.copy(current)
    own.guards_context = copy.copy(current.guards_context)
    own.guards_context.aotautograd_guards = list(current.guards_context.aotautograd_guards)
    own.fw_metadata, own.output_strides = None, None
    with tracing(own):
        yield


def list_changed_inputs(inputs: int) -> tuple[int, ...] | None:
    """Returns the indices of the inputs that the last compiled graph changes; ``None`` if torch does not say.

    (torch 2.13)
    """
    from torch._guards import TracingContext

    context = TracingContext.try_get()
    facts = getattr(getattr(context, "fw_metadata", None), "input_info", None)
    if facts is None or len(facts) != inputs:
        return None
    return tuple(place for place, fact in enumerate(facts) if fact.mutates_data or fact.mutates_metadata)


def name_compilation(inputs: Sequence[Any]) -> tuple[str, str]:
    """Returns Dynamo's number of the current compilation, and what it compiles: the frame, and its inputs' shapes.

    (torch 2.13)
    """
    from torch._guards import CompileContext

    number = CompileContext.current_compile_id()
    shapes = [(str(getattr(one, "dtype", "")), str(tuple(getattr(one, "shape", ())))) for one in inputs]
    return str(number), f"{getattr(number, 'frame_id', number)} {shapes}"


def calls_collectives(module: Any) -> bool:
    """Whether a graph, or one within it, exchanges data with other processes."""
    return any("c10d" in str(node.target) for graph in _list_graphs(module) for node in graph.nodes)


def _list_graphs(module: Any) -> list[Any]:
    """A graph, and those within it."""
    from torch.fx import GraphModule

    return [one.graph for one in module.modules() if isinstance(one, GraphModule)]


def list_values_within(module: Any) -> list[Any]:
    """Returns examples of the tensors within a graph, which Dynamo made without memory. (torch 2.13)

    Autocast may convert values within a graph although its inputs and outputs are of a more precise type.
    """
    import torch

    found = [node.meta.get("example_value") for graph in _list_graphs(module) for node in graph.nodes]
    return [value for value in found if isinstance(value, torch.Tensor)]


def count_collectives() -> int | None:
    """Returns how many collectives this process has begun in its default group; ``None`` if it has no group."""
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    try:
        return int(distributed.distributed_c10d._get_default_group()._get_sequence_number_for_group())
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return None


def tag_cache(tag: str) -> AbstractContextManager[None]:
    """In the block, adds a part to the keys of torch's caches, so that all is compiled again. (torch 2.9 to 2.13)"""
    config: Any = importlib.import_module("torch.compiler.config")
    made: AbstractContextManager[None] = config.patch(cache_key_tag=config.cache_key_tag + tag)
    return made


def is_guarded(change: Callable[[], Callable[[], None]]) -> bool:
    """Whether Dynamo compiles again after a change of a global setting. (torch 2.9 to 2.13)

    Args:
        change: makes the change, and returns what undoes it.
    """
    convert_frame: Any = importlib.import_module("torch._dynamo.convert_frame")
    guard = convert_frame.GlobalStateGuard()
    undo = change()
    try:
        return not guard.check()
    finally:
        undo()


def allow_recompilations(factor: int) -> None:
    """Multiplies Dynamo's limits for compilations of one function by a factor. (torch 2.9 to 2.13)"""
    from torch._dynamo import config

    for name in ("recompile_limit", "accumulated_recompile_limit"):
        if hasattr(config, name):
            setattr(config, name, getattr(config, name) * factor)


def without_compiled_autograd() -> AbstractContextManager[None]:
    """In the block, torch's engine runs the backward passes, without compiled autograd. (torch 2.13)"""
    from torch._dynamo import compiled_autograd

    made: AbstractContextManager[None] = compiled_autograd._disable()
    return made


# Settings of torch that may change between two steps.


def read_setting(path: str) -> Any:
    """The value of an attribute's path below ``torch``, or what ``get_…`` returns for the path of a ``set_…``.

    Raises:
        AttributeError: this torch has no such setting.
    """
    owner, name = _owner(path)
    if name.startswith("set_"):
        return getattr(owner, name.replace("set_", "get_", 1))()
    return getattr(owner, name)


def write_setting(path: str, value: Any) -> None:
    """Sets an attribute of torch, or calls the function ``set_…`` of a path."""
    owner, name = _owner(path)
    if name.startswith("set_"):
        getattr(owner, name)(value)
    else:
        setattr(owner, name, value)


def _owner(path: str) -> tuple[Any, str]:
    import torch

    found: Any = torch
    *places, name = path.removeprefix("torch.").split(".")
    for place in places:
        if not hasattr(found, place) and isinstance(found, types.ModuleType):
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{found.__name__}.{place}")
        found = getattr(found, place)
    return found, name


Attention = tuple[tuple[bool, ...], tuple[int, ...]]
"""Which of the backends of scaled_dot_product_attention are enabled, and their order."""

DEFAULT_ORDERS = (1, 2, 0, 3), (3, 1, 2, 0)
"""The order of the backends at torch's start, and the order that torch sets itself at the first call of attention on a
GPU for which cuDNN's is faster (sm90, sm100). (torch 2.13, sdp_utils.cpp)"""

_BACKENDS = ("flash", "mem_efficient", "math", "cudnn")
_NAMES = {
    "flash": "FLASH_ATTENTION",
    "mem_efficient": "EFFICIENT_ATTENTION",
    "math": "MATH",
    "cudnn": "CUDNN_ATTENTION",
}


def read_attention() -> Attention:
    """Returns which backends scaled_dot_product_attention may choose. (torch 2.9 to 2.13)"""
    import torch

    enabled = tuple(bool(getattr(torch.backends.cuda, f"{name}_sdp_enabled")()) for name in _BACKENDS)
    return enabled, tuple(map(int, torch._C._get_sdp_priority_order()))


def key_by_attention(codecache: Any) -> None:
    """Adds the backends of attention to the keys of torch's caches, which lack them (pytorch #185449).

    Otherwise a process may get a graph that another process compiled with other backends. With a default of torch the
    keys are torch's own, so that a process finds the graphs of the program without this tool. ``codecache`` is torch's
    module. (torch 2.9 to 2.15)

    Raises:
        AttributeError: this torch has other names for them.
    """
    read_attention()  # a torch that cannot tell them raises an error here, and not while the program compiles

    def read() -> Attention | None:
        enabled, order = read_attention()
        return None if all(enabled) and order[:4] in DEFAULT_ORDERS else (enabled, order)

    add_to_cache_keys(codecache, "inductor_bench_attention", read)


def write_attention(choice: Attention) -> None:
    """Sets which backends scaled_dot_product_attention may choose."""
    import torch

    for name, enabled in zip(_BACKENDS, choice[0], strict=True):
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(enabled)
    torch._C._set_sdp_priority_order(list(choice[1]))


def make_attention_context(names: Sequence[str]) -> Attention:
    """Returns the choice of these backends, by their names in ``SDPBackend``, in the given order.

    Raises:
        AttributeError: this torch has no such backend.
    """
    import torch
    from torch.nn.attention import SDPBackend

    wanted = [int(getattr(SDPBackend, name)) for name in names]
    others = [int(one) for one in torch._C._get_sdp_priority_order() if int(one) not in wanted]
    return tuple(_NAMES[name] in names for name in _BACKENDS), (*wanted, *others)
