"""Observes graphs, optimizers, launches, profilers and compilations through private names of torch and Inductor."""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import CodeType, FrameType, ModuleType
from typing import Any

from ...devices.table import DEVICES, find_device
from ...records.evidence import ObservedOptimizer

_CONVERTER = os.path.join("torch", "_dynamo", "convert_frame.py")
_WRAPPERS = os.path.join("torch", "_dynamo", "external_utils.py")


@dataclass(frozen=True)
class CompilingFrame:
    """A frame whose code Dynamo compiles. ``owner`` is the ``nn.Module`` whose method it is; ``None`` for another."""

    code: CodeType
    owner: Any


OnFrame = Callable[[str, CompilingFrame, "FrameType | None"], None]
Undo = Callable[[], None]


def call_on_frame(note: OnFrame) -> Undo:
    """Calls ``note`` at each compilation of a frame, with its id, the frame, and the frame's caller. (torch 2.13)

    The id is Dynamo's: the frame's number and that of the compilation, ``0/1``.
    """
    from torch._dynamo.callback import CallbackTrigger, callback_handler

    def begins(now: Any) -> None:
        if now.callback_trigger is not CallbackTrigger.DYNAMO:
            return
        stack: FrameType | None = sys._getframe(1)
        found = None
        while stack is not None:
            frame: Any = stack.f_locals.get("frame") if stack.f_code.co_filename.endswith(_CONVERTER) else None
            if isinstance(getattr(frame, "f_code", None), CodeType):
                found = CompilingFrame(frame.f_code, _find_owner(frame))
            elif found is not None:
                break
            stack = stack.f_back
        if found is not None:
            note(str(now.compile_id), found, stack)

    callback_handler.register_start_callback(begins)

    def undo() -> None:
        with contextlib.suppress(ValueError):  # ``torch._dynamo.reset`` removes all of them
            callback_handler.remove_start_callback(begins)

    return undo


def _find_owner(frame: Any) -> Any:
    code, variables = frame.f_code, frame.f_locals
    if code.co_filename.endswith(_WRAPPERS):
        found = variables.get("fn")
    else:
        found = _find_first_argument(code, variables)
        if is_forward_of(code, found):
            return found
        if code.co_name in ("forward", "__call__", "_call_impl") or code.co_varnames[:1] == ("self",):
            found = unwrap(found)
        else:
            found = None  # a function's first argument may be a module, and is not its owner
    found = unwrap(getattr(found, "__self__", found))
    return found if is_module(found) else None


def _find_first_argument(code: CodeType, variables: Any) -> Any:
    """The first argument of a frame, also if it is one of ``*args``."""
    if code.co_argcount:
        return variables.get(code.co_varnames[0])
    if not code.co_flags & inspect.CO_VARARGS:
        return None
    rest = variables.get(code.co_varnames[code.co_kwonlyargcount])
    return rest[0] if isinstance(rest, tuple) and rest else None


def is_forward_of(code: CodeType, module: Any) -> bool:
    """Whether this code runs as a module's ``forward``, even if a decorator has given it another name."""
    return is_module(module) and getattr(getattr(type(module), "forward", None), "__code__", None) is code


def unwrap(value: Any) -> Any:
    """Removes the wrappers of ``torch.compile``, DDP and FSDP, and returns the module inside.

    Returns any other value unchanged.
    """
    for name in ("_orig_mod", "module"):
        if is_module(value) and type(value).__name__ in ("OptimizedModule", "DistributedDataParallel", "DataParallel"):
            value = value._modules.get(name, value)
    return value


def is_module(value: Any) -> bool:
    """Whether a value is an ``nn.Module``. Attributes of other values are not read."""
    return issubclass(type(value), sys.modules["torch.nn"].Module)


def is_of_torch(file: str) -> bool:
    """Whether a file belongs to torch, or is Python's own file for context managers."""
    folder = os.path.dirname(sys.modules["torch"].__file__ or "")
    return file.startswith(folder) or os.path.basename(file) == "contextlib.py"


# Observes the calls of compiled graphs, CUDA graphs, optimizers and profilers through private names of torch.
#
# The versions with which a function was checked stand in parentheses. No function imports torch before it is called.


Call = Callable[[Any, Any], Any]


@dataclass(frozen=True)
class GraphFacts:
    """What torch knows of a compiled graph; see ``records.evidence.ObservedGraph``."""

    path: str
    parameter: int | None  # the index of the first input that is a parameter or another tensor with a fixed address
    is_backward: bool
    device: str  # the type of the device on which it runs; empty for the CPU
    cuda_graph_refusal: str
    writes_inputs: bool


def surround_graph_calls(make: Callable[[Call], Call]) -> Undo:
    """Replaces the call of compiled graphs by ``make(call)``; returns a function that undoes this.

    (torch 2.9, 2.11, 2.13, 2.15)

    Every call passes through the class, even the replay of a CUDA graph.
    """
    from torch._inductor.output_code import CompiledFxGraph

    return _replace(CompiledFxGraph, "__call__", make)


def describe_graph(compiled: Any) -> GraphFacts:
    """The facts of a ``CompiledFxGraph``. (torch 2.9, 2.11, 2.13, 2.15)"""
    from torch._inductor.codecache import get_path

    options = getattr(compiled, "fx_kwargs", None) or {}
    fixed = options.get("static_input_idxs") or ()
    key = getattr(compiled, "cache_key", "")
    others = [kind for kind in getattr(compiled, "device_types", ()) if not find_device(kind).runs_on_host]
    return GraphFacts(
        path=os.path.realpath(get_path(key, "py")[2]) if key else "",
        parameter=min(fixed, default=None),
        is_backward=bool(options.get("is_backward")),
        device=others[0] if others else "",
        cuda_graph_refusal=_find_refusal(compiled),
        writes_inputs=_writes_inputs(compiled, fixed),
    )


def _writes_inputs(compiled: Any, fixed: Iterable[int]) -> bool:
    """Whether a graph writes inputs other than parameters, buffers and those with a fixed address.

    This is unknown for a backward graph, because a replay of the forward graph makes its other inputs.
    """
    written = set(getattr(compiled, "mutated_input_idxs", None) or ())
    return not (getattr(compiled, "fx_kwargs", None) or {}).get("is_backward") and not written.issubset(fixed)


def _find_refusal(compiled: Any) -> str:
    """Returns why Inductor did not wrap a graph in CUDA graphs. Inductor gives reasons only if they were asked for."""
    reason = getattr(compiled, "disabled_cudagraphs_reason", None)
    information = getattr(compiled, "cudagraph_info", None)
    return reason or ", ".join(getattr(information, "cudagraph_fail_reasons", None) or ())


def call_on_cuda_graphs(
    recorded: Callable[[], None], warmed: Callable[[], None], refused: Callable[[str], None]
) -> Undo:
    """Calls ``recorded`` and ``warmed`` around CUDA graphs that torch records, and ``refused`` with each reason against
    one.

    (torch 2.9, 2.11, 2.13, 2.15; read only: they need a GPU)
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


def call_on_optimizer_steps(stepped: Callable[[Any], None]) -> Undo:
    """Calls ``stepped`` with the optimizer after each of its steps. (torch 2.9, 2.13)

    Dynamo compiles the code around the hook of a compiled optimizer, but not the hook itself. The first step imports
    Dynamo, if making the optimizer has not done so.
    """
    return _hook_optimizers("register_optimizer_step_post_hook", stepped)


def call_before_optimizer_steps(steps: Callable[[Any], None]) -> Undo:
    """Calls ``steps`` with the optimizer before each of its steps; see :func:`call_on_optimizer_steps`. (torch 2.13)"""
    return _hook_optimizers("register_optimizer_step_pre_hook", steps)


def _hook_optimizers(register: str, called: Callable[[Any], None]) -> Undo:
    from torch._compile import _disable_dynamo
    from torch.optim import optimizer as optimizers

    @_disable_dynamo
    def hook(optimizer: Any, arguments: Any, keywords: Any) -> None:
        called(optimizer)

    undo: Undo = getattr(optimizers, register)(hook).remove
    return undo


def describe_optimizer(optimizer: Any) -> ObservedOptimizer:
    """The class of an optimizer, its module, and whether each of its groups has ``fused=True``. (torch 2.13)"""
    kind = type(optimizer)
    groups = getattr(optimizer, "param_groups", None) or ()
    fused = [isinstance(group, dict) and group.get("fused") is True for group in groups]
    return ObservedOptimizer(kind.__name__, str(kind.__module__), bool(fused) and all(fused))


def call_on_profiler_steps(stepped: Callable[[Any], None]) -> Undo:
    """Calls ``stepped`` with the profiler before each of its steps. (torch 2.9, 2.13, 2.15)"""
    from torch.profiler import profile

    def make(original: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(original)
        def step(profiler: Any) -> None:
            stepped(profiler)
            original(profiler)

        return step

    return _replace(profile, "step", make)


def surround_profilers(begins: Callable[[Any], None], ends: Callable[[Any], None]) -> Undo:
    """Calls ``begins`` before each profiler of this process prepares, and ``ends`` after its end.

    (torch 2.9, 2.13, 2.15)

    All interfaces of torch's profiler use the class that is changed here. The argument of both functions is an instance
    of it.
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


def call_before_captures(begins: Callable[[], None]) -> Undo:
    """Calls ``begins`` before the program begins to record a CUDA graph. (torch 2.9, 2.13; read only: it needs a GPU)

    Inductor and ``torch.cuda.graph`` record through this class.
    """
    import torch

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def noted(*arguments: Any, **keywords: Any) -> Any:
            begins()
            return original(*arguments, **keywords)

        return noted

    return _replace(torch.cuda.CUDAGraph, "capture_begin", make)


def is_any_profiler_running() -> bool:
    """Whether a profiler of any thread records.

    This check is cheaper than a question to torch's core. (torch 2.9, 2.13, 2.15)
    """
    running: bool = sys.modules["torch.autograd.profiler"]._is_profiler_enabled
    return running


def has_optimizer() -> bool:
    """Whether the process holds an optimizer. It looks through all objects, which takes about 0.1 s."""
    import gc

    from torch.optim import Optimizer

    return any(issubclass(type(value), Optimizer) for value in gc.get_objects())


def find_device_in_use() -> str:
    """The type of the accelerator that this process uses; empty if it uses only the CPU. (torch 2.13)"""
    import torch

    for kind, device in DEVICES.items():
        used = getattr(getattr(torch, kind, None), "is_initialized", None)
        if not device.runs_on_host and used is not None and used():
            return kind
    return ""


def find_dynamo_switch() -> str:
    """Returns the variable or the setting that disables Dynamo now; empty if Dynamo is enabled or not imported.

    (torch 2.13)
    """
    config = sys.modules.get("torch._dynamo.config")
    if config is None or not config.disable:
        return ""
    name = "TORCH_COMPILE_DISABLE"
    return f"{name}=1" if os.environ.get(name) == "1" else "torch._dynamo.config.disable"


def find_dynamo_stance() -> str:
    """The stance of ``torch.compiler.set_stance``; empty if Dynamo is not imported. (torch 2.13)"""
    stance = getattr(sys.modules.get("torch._dynamo.eval_frame"), "_stance", None)
    return str(getattr(stance, "stance", ""))


def count_frames_of_dynamo() -> int | None:
    """Returns the number of functions that reached Dynamo, with those that it skipped; ``None`` if it is unknown.

    (torch 2.13)
    """
    if "torch._dynamo.convert_frame" not in sys.modules:
        return 0
    seen = getattr(getattr(sys.modules["torch._dynamo.convert_frame"], "input_codes", None), "seen", None)
    return None if seen is None else len(seen)


# Sets up a process that has already imported torch, as the variables of a capture set up a new process.


def set_options(values: Mapping[str, object]) -> Undo:
    """Sets options of Inductor by their names, such as ``cpp.enable_kernel_profile``.

    Unknown ones are left out. (torch 2.13)
    """
    from torch._inductor import config

    known = {name: value for name, value in values.items() if name in config.get_config_copy()}
    before = {name: getattr(config, name) for name in known}

    def set_all(options: Mapping[str, object]) -> None:
        for name, value in options.items():
            setattr(config, name, value)

    set_all(known)
    return lambda: set_all(before)


def trace_compilations(folder: str) -> Undo:
    """Writes the structured trace of this process into a folder, as ``TORCH_TRACE`` does. (torch 2.13)

    torch writes each numbered text once. Texts that it numbered earlier are therefore written first.
    """
    from torch._logging import _internal as logs
    from torch._logging.structured import INTERN_TABLE

    handler = logs.LazyTraceHandler(folder)
    handler.setFormatter(logs.TorchLogsFormatter(trace=True))
    level = logs.trace_log.level
    logs.trace_log.setLevel(logging.DEBUG)
    logs.trace_log.addHandler(handler)
    for numbered in list(INTERN_TABLE.items()):
        logs.trace_structured("str", functools.partial(_same, numbered), suppress_context=True)

    def undo() -> None:
        logs.trace_log.removeHandler(handler)
        logs.trace_log.setLevel(level)
        handler.close()

    return undo


def _same(numbered: tuple[str, int]) -> tuple[str, int]:
    return numbered


def print_no_paths() -> Undo:
    """Keeps Inductor from printing the path of each module, as it does with ``benchmark_kernel``. (torch 2.13)"""
    from torch._inductor import graph

    before = vars(graph).get("print")
    setattr(graph, "print", lambda *_, **__: None)  # noqa: B010

    def undo() -> None:
        if before is None:
            vars(graph).pop("print", None)
        else:
            setattr(graph, "print", before)  # noqa: B010

    return undo


def list_loaded_modules() -> dict[str, ModuleType]:
    """The modules that Inductor has loaded in this process, by their real paths. (torch 2.13)"""
    codecache = sys.modules.get("torch._inductor.codecache")
    modules = list(getattr(getattr(codecache, "PyCodeCache", None), "modules", ()))
    return {os.path.realpath(one.__file__): one for one in modules if getattr(one, "__file__", None)}


def cache_folder() -> str:
    """The folder in which Inductor keeps what this process compiles. (torch 2.13)"""
    from torch._inductor.runtime.cache_dir_utils import cache_dir

    return str(cache_dir())


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


# Observes the launches of Triton kernels through private names of Inductor and torch.
#
# The versions with which a function was checked stand in parentheses. No function imports torch before it is called.


Run = Callable[[], Any]
OnTritonLaunch = Callable[[str, Any, tuple[Any, ...], dict[str, Any], Run], Any]
Quietly = Callable[[Run], Any]


@contextlib.contextmanager
def watched_triton_kernels(namespace: Mapping[str, Any], on_launch: OnTritonLaunch, quietly: Quietly) -> Iterator[None]:
    """In the block, ``on_launch`` replaces each launch of a module's Triton kernels. (torch 2.11; 2.13 read only)

    Every launch goes through ``CachingAutotuner.run``, even that of a multi-kernel's choice.

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
    """In the block, this thread's operators bypass all dispatch modes, which is cheaper than passing through one.

    (torch 2.13)
    """
    import torch

    guard: contextlib.AbstractContextManager[Any] = torch._C._DisableTorchDispatch()
    return guard


def read_triton_signature(kernel: Any) -> tuple[dict[str, str], frozenset[str]]:
    """The types of a Triton kernel's parameters, and the parameters updated in place. (torch 2.11; 2.13 read only)"""
    signature = {str(name): str(kind) for name, kind in kernel.triton_meta["signature"].items()}
    return signature, frozenset(kernel.mutated_arg_names)


# Detaches CUPTI, through which torch's profiler observes CUDA, from a process that goes on without a profiler.


VARIABLE = "TEARDOWN_CUPTI"
"""The variable that Kineto reads at the end of a profile: it detaches CUPTI if the value is 1."""

WAITS, WAIT_S = 5, 0.01


@contextlib.contextmanager
def detaching_cupti() -> Iterator[None]:
    """Detaches CUPTI after the profile that ends inside; attached, it slows each launch. (torch 2.9 to 2.15; read only)

    Kineto detaches it in a separate thread, when a call of CUDA's runtime returns; the synchronisations here are such
    calls. They come before the variable is removed, because profiles in quick succession crash with it (kineto issue
    1169). The variable is not set if the program or torch has set it, or if the process does not use CUDA: on a machine
    without a GPU each call of a torch that was built with CUDA fails. CUDA before 12.6 crashes at a profile after it.
    """
    import torch

    if VARIABLE in os.environ or not torch.cuda.is_initialized() or not _can_attach_again(torch.version.cuda):
        yield
        return
    os.environ[VARIABLE] = "1"
    try:
        yield
        for _ in range(WAITS):
            time.sleep(WAIT_S)
            torch.cuda.synchronize()
    finally:
        os.environ.pop(VARIABLE, None)


def detach_profiler() -> None:
    """Detaches CUPTI after profiles that did not detach it, by means of an empty profile."""
    from torch import profiler

    with detaching_cupti(), profiler.profile(activities=profiler.supported_activities()):
        pass


def stays_attached(device: str) -> bool:
    """Whether the profiler stays attached to a device after a profile, and slows later work."""
    import torch

    if find_device(device).runs_on_host:
        return False
    return VARIABLE in os.environ or not _can_attach_again(torch.version.cuda)


def _can_attach_again(version: str | None) -> bool:
    return bool(version) and tuple(map(int, str(version).split(".")[:2])) >= (12, 6)
