"""Puts configurations into Inductor's kernels, and lists and takes its choices for library calls, by private names."""

from __future__ import annotations

import ast
import contextlib
import copy
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...records.retune import Config, InputLayout
from ...source.calls import format_types, lookup_key

COMPILE_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
Adjust = Callable[[Any], None]
Precompile = Callable[[Any, Callable[[], None]], None]
CppCompile = Callable[[Any, list[str], str], Any]
CompileSource = Callable[[str], Any]
"""Compiles a source in the place of another; returns a result of ``AsyncCompile``."""


def adjust_autotuners(made: Adjust, precompile: Precompile) -> None:
    """Calls ``made`` with each new ``CachingAutotuner``, and ``precompile`` instead of its compilation.

    (torch 2.11, 2.13)

    ``precompile`` gets the autotuner and the original function. It is not called in a compile worker, whose results
    have no launchers. If the adjusted configurations fail there, those that ``made`` left in ``fallback_configs`` are
    compiled.
    """
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    create: Callable[..., None] = CachingAutotuner.__init__
    compile_here: Callable[..., None] = CachingAutotuner.precompile
    compile_all: Callable[..., None] = CachingAutotuner._precompile_worker

    @functools.wraps(create)
    def initialise(self: Any, *arguments: Any, **keywords: Any) -> None:
        create(self, *arguments, **keywords)
        made(self)

    @functools.wraps(compile_here)
    def compile_and_launch(self: Any, warm_cache_only: bool = False, *arguments: Any, **keywords: Any) -> None:
        def original() -> None:
            compile_here(self, warm_cache_only, *arguments, **keywords)

        if warm_cache_only:
            original()
        else:
            precompile(self, original)

    @functools.wraps(compile_all)
    def compile_results(self: Any) -> None:
        spare = vars(self).pop(FALLBACK, None)
        if spare is None or self.compile_results:
            compile_all(self)
            return
        try:
            compile_all(self)
        except RuntimeError:
            self.configs = spare
            compile_all(self)

    setattr(CachingAutotuner, "__init__", initialise)  # noqa: B010
    setattr(CachingAutotuner, "precompile", compile_and_launch)  # noqa: B010
    setattr(CachingAutotuner, "_precompile_worker", compile_results)  # noqa: B010


FALLBACK = "inductor_bench_fallback_configs"
"""Attribute of an autotuner: the configurations that are compiled if those of ``configs`` do not compile."""


def make_kernel_key(autotuner: Any) -> tuple[str, str]:
    """The key and the types of a kernel; see ``source.calls``. (torch 2.11, 2.13)"""
    key = lookup_key(str(autotuner.size_hints), autotuner.fn.src)
    return key, format_types({str(name): str(kind) for name, kind in autotuner.triton_meta["signature"].items()})


def read_config_values(config: Any) -> Config:
    """The constants of a Triton configuration that are numbers or flags, and its numbers of warps and stages."""
    numbers = {name: int(value) for name, value in config.kwargs.items() if isinstance(value, int)}
    return {**numbers, "num_warps": config.num_warps, "num_stages": config.num_stages}


def set_config_values(config: Any, values: Config) -> Any:
    """A copy of a Triton configuration with other values, from which Inductor searches no further."""
    changed = copy.deepcopy(config)
    launch = {name: values[name] for name in ("num_warps", "num_stages") if name in values}
    changed.kwargs.update({name: value for name, value in values.items() if name not in launch})
    for name, value in launch.items():
        setattr(changed, name, value)
    mark_as_settled(changed)
    return changed


def mark_as_settled(config: Any) -> None:
    """Marks a configuration, so that neither coordinate descent nor another search begins from it. (torch 2.11, 2.13)

    A configuration from a compile worker has no marks, because its pickled form lacks them. (Triton 3.6)
    """
    config.found_by_coordesc = config.found_by_combo_autotune = True


def _searches(autotuner: Any) -> bool:
    """Whether Inductor goes on searching from the kernel's best configuration. (torch 2.11, 2.13)"""
    return any(autotuner.inductor_meta.get(name) for name in ("coordinate_descent_tuning", "combo_tuning_groups"))


def compile_launcher(autotuner: Any, config: Any) -> Any:
    """Compiles a configuration in this process; returns its launcher. (torch 2.11, 2.13)"""
    if autotuner.fn.fn is None:  # it was compiled in another process
        autotuner.fn = autotuner._reload_kernel().fn
    return make_launcher(autotuner, autotuner._precompile_config(config))


def make_launcher(autotuner: Any, result: Any) -> Any:
    """The launcher of a compiled configuration, on the kernel's device. (torch 2.11, 2.13)"""
    from torch._dynamo.device_interface import DeviceGuard

    with DeviceGuard(autotuner.get_device_interface(), autotuner.triton_meta["device"]):
        return result.make_launcher()


def find_launchers(autotuner: Any, values: Config) -> list[Any]:
    """The launchers of a kernel with these values; several differ in other constants. (torch 2.11, 2.13)"""
    return [launcher for launcher in autotuner.launchers if read_config_values(launcher.config) == values]


def find_launcher(autotuner: Any, values: Config, *, keep: bool) -> Any:
    """Returns the launcher of a configuration, which is compiled if the kernel has none. (torch 2.11, 2.13)

    With ``keep``, Inductor keeps the kernel's own launchers. It may search from one of them, or unload those that it
    does not choose (torch 2.13), so another launcher is compiled.
    """
    found = find_launchers(autotuner, values)
    if not found or (keep and (_searches(autotuner) or len(autotuner.launchers) > 1)):
        base = (found or autotuner.launchers)[0].config
        return compile_launcher(autotuner, set_config_values(base, values))
    return found[0]


def take_config(autotuner: Any, other: Any) -> None:
    """Makes a kernel launch the configuration that another kernel has chosen. (torch 2.11, 2.13)

    If the other kernel has not chosen yet, or its configuration does not compile for this kernel, the kernel chooses
    itself.
    """
    if autotuner is other or len(other.launchers) != 1 or not autotuner.launchers:
        return
    with contextlib.suppress(*list_launcher_errors()):
        launcher = find_launcher(autotuner, read_config_values(other.launchers[0].config), keep=False)
        mark_as_settled(launcher.config)
        set_launchers(autotuner, [launcher])


def use_configs(namespace: Mapping[str, Any], wanted: Mapping[str, Config]) -> None:
    """Makes the Triton kernels of a loaded module run in these configurations, whatever Inductor would choose.

    (torch 2.11, 2.13)

    If a kernel does not compile in its wanted configuration, it keeps its own. If several launchers of a kernel have
    these values, they differ in other constants, and Inductor chooses among them.

    Args:
        namespace: the variables of the module.
        wanted: configurations by the variables of the kernels.
    """
    for name, values in wanted.items():
        autotuner = namespace.get(name)
        launchers = getattr(autotuner, "launchers", None)
        if not launchers:
            continue
        found = find_launchers(autotuner, values)
        if not found and all(isinstance(one, int) for each in launchers for one in each.config.kwargs.values()):
            with contextlib.suppress(*list_launcher_errors()):
                found = [compile_launcher(autotuner, set_config_values(launchers[0].config, values))]
        if len(found) == 1:
            mark_as_settled(found[0].config)
        if found:
            set_launchers(autotuner, found)


def set_launchers(autotuner: Any, launchers: list[Any]) -> None:
    """Makes a kernel use these launchers from now on. (torch 2.11, 2.13)"""
    autotuner.launchers = launchers
    if hasattr(autotuner, "_cached_launcher"):
        autotuner._cached_launcher = None


def add_to_cache_keys(codecache: Any, name: str, read: Callable[[], object]) -> None:
    """Adds a value to the keys of Inductor's and AOTAutograd's caches; ``codecache`` is torch's module.

    The keys are hashes of all attributes of these details. ``read`` is called for each graph; if it returns ``None``,
    the keys are torch's own. (torch 2.9 to 2.15)
    """
    details = codecache.FxGraphHashDetails
    original = details.__init__

    @functools.wraps(original)
    def init(self: Any, *arguments: Any, **keywords: Any) -> None:
        original(self, *arguments, **keywords)
        value = read()
        if value is not None:
            setattr(self, name, value)

    details.__init__ = init


def distinguish_caches(codecache: Any, digest: str) -> None:
    """Gives code that is compiled with other pins an entry of its own in Inductor's caches; ``codecache`` is torch's
    module.

    (torch 2.11, 2.13, 2.15)
    """
    add_to_cache_keys(codecache, "inductor_bench", lambda: digest)


def adjust_cpp_kernels(compile_with: Callable[[CppCompile, Any, list[str], str], Any]) -> None:
    """Calls ``compile_with(original, compiler, types, source)`` instead of each C++ kernel's compilation.

    (torch 2.11, 2.13)
    """
    from torch._inductor.async_compile import AsyncCompile

    original: CppCompile = AsyncCompile.cpp_pybinding

    @functools.wraps(original)
    def cpp_pybinding(self: Any, argtypes: list[str], source_code: str) -> Any:
        return compile_with(original, self, argtypes, source_code)

    setattr(AsyncCompile, "cpp_pybinding", cpp_pybinding)  # noqa: B010


def adjust_triton_sources(compile_with: Callable[[CompileSource, str, str], Any]) -> None:
    """Calls ``compile_with(compile_source, name, source)`` instead of each Triton kernel's compilation.

    (torch 2.11, 2.13)

    The kernels of a module from Inductor's caches are compiled in this way, too.
    """
    from torch._inductor.async_compile import AsyncCompile

    original: Callable[..., Any] = AsyncCompile.triton

    @functools.wraps(original)
    def triton(self: Any, kernel_name: str, source_code: str, *arguments: Any, **keywords: Any) -> Any:
        def compile_source(source: str) -> Any:
            return original(self, kernel_name, source, *arguments, **keywords)

        return compile_with(compile_source, kernel_name, source_code)

    setattr(AsyncCompile, "triton", triton)  # noqa: B010


def compile_cpp_call(types: Sequence[str], source: str) -> Callable[..., Any]:
    """Compiles C++ text to a function that takes tensors. (torch 2.11, 2.13)"""
    from torch._inductor.async_compile import AsyncCompile

    compiled: Callable[..., Any] = find_result(AsyncCompile().cpp_pybinding([*types], source))
    return compiled


def compile_triton_call(source: str, name: str, module: str) -> Callable[..., Any]:
    """Compiles a Triton kernel under a decorator of Inductor's to a function that launches it.

    Args:
        source: its text, in which ``torch.cuda.current_device()`` stands for the GPU.
        name: the function.
        module: the text of the compiled module that will call it, which says on which GPU. (torch 2.11, 2.13 read only)
    """
    import torch
    from torch._inductor.codecache import PyCodeCache

    found = _GPU.search(module)
    device = int(found[1]) if found else torch.cuda.current_device()
    text = source.replace("torch.cuda.current_device()", str(device))
    kernel = getattr(PyCodeCache.load(text), name)
    kernel.precompile()

    def launch(*arguments: Any) -> None:
        kernel.run(*arguments, stream=torch._C._cuda_getCurrentRawStream(device))

    return launch


_GPU = re.compile(r"\b_DeviceGuard\((\d+)\)")


def make_later_result(result: Callable[[], Any], future: Any = None) -> Any:
    """Returns a result of ``AsyncCompile`` that is made when the module is complete, or now if there is nothing to wait
    for.

    Args:
        result: makes it.
        future: the work in another process that it needs, if any.
    """
    from torch._inductor.async_compile import get_compile_threads  # (torch 2.11, 2.13)
    from torch._inductor.codecache import LambdaFuture

    class Later(LambdaFuture):
        def result(self, timeout: float | None = None) -> Any:
            return self.result_fn()  # that of the work may raise what ``result`` is made to catch

    return Later(result, future) if get_compile_threads() > 1 else result()


def find_result(compiled: Any) -> Any:
    """Returns the kernel of a result of ``AsyncCompile``, which may be a future."""
    return compiled.result() if hasattr(compiled, "result") else compiled


@contextlib.contextmanager
def compiled_with(options: Config) -> Iterator[None]:
    """In the block, compiles with other settings of Inductor. (torch 2.11, 2.13)"""
    from torch._inductor import config

    with config.patch(options):
        yield


def list_launcher_errors() -> tuple[type[Exception], ...]:
    """Exceptions of a configuration that cannot be compiled or launched. (Triton 3.6)"""
    try:
        from triton.errors import TritonError
    except ImportError:
        return COMPILE_ERRORS
    return (*COMPILE_ERRORS, TritonError)


def read_versions() -> tuple[str, str | None]:
    """The versions of torch and Triton in this process."""
    import torch

    try:
        import triton
    except ImportError:
        return torch.__version__, None
    return torch.__version__, triton.__version__


Choose = Callable[[list[Any]], list[Any]]
Lower = Callable[[Callable[[], "LoweredCall"], Callable[[], Any]], Any]

MARK = "inductor-bench:"
"""First word of the comments that :func:`mark_code` adds to generated code."""

_FIELD = re.compile(r"(\w+)=('[^']*'|[^,]+)")
_COUNTER = re.compile(r"_\d+$")
_TILE = re.compile(r"BLOCK_\w+|GROUP_M|SPLIT_K|num_warps|num_stages")
_MARKED = re.compile(rf"^# {MARK} (.+)$", re.MULTILINE)
_BACKENDS = "ATEN,TRITON,CPP"


@contextlib.contextmanager
def lowering_with_max_autotune(choose: Choose, *, exhaustive: bool, cutlass: bool = False) -> Iterator[None]:
    """In the block, lowers calls as max-autotune does; ``choose`` gets the choices of each call before they are timed.

    If it returns one of them, Inductor takes it and times nothing, except a kernel of CUTLASS.
    """
    from torch._inductor import config, select_algorithm

    backends = f"{_BACKENDS},CUTLASS" if cutlass else _BACKENDS
    patches = {
        "max_autotune": True,
        "max_autotune_gemm_backends": backends,
        "max_autotune_conv_backends": backends,
        "max_autotune_gemm_search_space": "EXHAUSTIVE" if exhaustive else "DEFAULT",
        "triton.enable_persistent_tma_matmul": exhaustive,
    }
    cache = select_algorithm.get_algorithm_selector_cache()
    cache.add_preprocessing_fn(choose)
    try:
        with config.patch(patches):
            yield
    finally:
        with contextlib.suppress(ValueError):  # others may clear the list
            cache.preprocessing_fns.remove(choose)


def find_choice(callers: Sequence[Any], config: Config) -> Any:
    """Returns the first choice with these fields, which :func:`name_choices` gave it; ``None`` if there is none.

    In another list of choices the same choice may have fewer fields, or more.
    """
    return next((one for one in callers if config.items() <= _list_fields(one).items()), None)


def name_choices(callers: Sequence[Any]) -> list[tuple[Config, Any]]:
    """Returns unique configurations of the distinct choices: their tile if it is unique, otherwise all their fields."""
    named: list[tuple[Config, Any]] = []
    for caller in callers:
        config = _list_fields(caller)
        if all(config != other for other, _ in named):
            named.append((config, caller))
    short = [_describe_kind(caller) | _find_tile(config) for config, caller in named]
    counts = Counter(map(repr, short))
    return [
        (brief if counts[repr(brief)] == 1 else config, caller)
        for brief, (config, caller) in zip(short, named, strict=True)
    ]


def _list_fields(caller: Any) -> Config:
    return _describe_kind(caller) | _parse_fields(caller)


def _find_tile(config: Config) -> Config:
    return {key: value for key, value in config.items() if _TILE.fullmatch(key)}


def _describe_kind(caller: Any) -> Config:
    from torch._inductor.autotune_process import CUTLASSBenchmarkRequest
    from torch._inductor.codegen.subgraph import SubgraphChoiceCaller
    from torch._inductor.select_algorithm import ExternKernelCaller, TritonTemplateCaller

    if isinstance(caller, ExternKernelCaller):
        return {"backend": "aten", "call": caller.choice.name}
    name = _COUNTER.sub("", caller.name)
    if isinstance(caller, TritonTemplateCaller):
        return {"backend": "triton", "template": name.removeprefix("triton_")}
    if isinstance(caller, SubgraphChoiceCaller):
        return {"backend": "inductor", "call": name}
    if isinstance(getattr(caller, "bmreq", None), CUTLASSBenchmarkRequest):
        return {"backend": "cutlass", "kernel": caller.description or name}
    return {"backend": "cpp", "template": name.removeprefix("cpp_")}


def _parse_fields(caller: Any) -> Config:
    """The fields with which a template was instantiated."""
    from torch._inductor.select_algorithm import TritonTemplateCaller

    found: Config = {}
    if not isinstance(caller, TritonTemplateCaller):
        return found
    for key, text in _FIELD.findall(caller.description):
        try:
            found[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[key] = text
    return found


def find_original_call(callers: Sequence[Any], operator: str) -> Any:
    """Returns the choice that is the library call itself; if there is none, the first choice."""
    name = operator.partition(".")[2]
    same = [one for one in callers if _describe_kind(one) == {"backend": "aten", "call": name}]
    return (same or list(callers))[0]


@dataclass(frozen=True)
class LoweredCall:
    """A call of an operator that Inductor is about to lower."""

    operator: str  # its name, for example ``aten.mm``
    tensors: Sequence[Any]  # the tensors among its arguments
    settings: Config  # its other arguments, by their position or their name


def list_sizes(tensors: Sequence[Any]) -> list[tuple[str, tuple[int, ...]]] | None:
    """The element types and sizes of tensors that are being lowered; ``None`` if sizes are symbols."""
    try:
        return [(str(one.get_dtype()).removeprefix("torch."), tuple(map(int, one.get_size()))) for one in tensors]
    except TypeError:
        return None


def list_layouts(caller: Any) -> list[InputLayout] | None:
    """The layouts of a choice's inputs; ``None`` if sizes are symbols."""
    sizes = list_sizes(caller.input_nodes)
    try:
        strides = [tuple(map(int, one.get_stride())) for one in caller.input_nodes]
    except TypeError:
        return None
    if sizes is None:
        return None
    return [InputLayout.of(*size, stride) for size, stride in zip(sizes, strides, strict=True)]


def list_settings(operator: str, settings: Config) -> Config:
    """Settings by the names of the operator's arguments, defaults included, as JSON has them.

    Args:
        operator: the name of the operator.
        settings: the settings by the position or the name of an argument; those of overloads with more arguments keep
            theirs.
    """
    import torch

    arguments: Any = getattr(torch.ops.aten, operator.partition(".")[2]).default._schema.arguments
    names = {str(place): one.name for place, one in enumerate(arguments)}
    found = {one.name: one.default_value for one in arguments if "Tensor" not in str(one.type)}
    found |= {names.get(place, place): value for place, value in settings.items()}
    plain = {name: _make_plain_value(value) for name, value in found.items()}
    return {name: value for name, value in plain.items() if value is not None}


def _make_plain_value(value: Any) -> Any:
    """Returns a setting in the form of ``Argument.plain``. A setting without such a form is described in words."""
    if isinstance(value, list | tuple):
        return [_make_plain_value(one) for one in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return int(value)  # one of SymPy's
    except (TypeError, ValueError):
        return str(value).removeprefix("torch.")


def adjust_lowerings(operators: Collection[str], lower: Lower) -> None:
    """Calls ``lower(find_call, original)`` instead of each lowering of these operators.

    ``find_call()`` describes the call, and ``original()`` does what Inductor would have done.
    """
    from torch._inductor.lowering import lowerings

    for overload, original in list(lowerings.items()):
        operator = ".".join(str(overload).split(".")[:2])
        if operator in operators:
            lowerings[overload] = _adjust_lowering(operator, original, lower)


def _adjust_lowering(operator: str, original: Callable[..., Any], lower: Lower) -> Callable[..., Any]:
    @functools.wraps(original)
    def adjusted(*arguments: Any, **keywords: Any) -> Any:
        def find_call() -> LoweredCall:
            named = {**{str(place): value for place, value in enumerate(arguments)}, **keywords}
            tensors = [value for value in named.values() if hasattr(value, "get_size")]
            others = {name: value for name, value in named.items() if not hasattr(value, "get_size")}
            return LoweredCall(operator, tensors, others)

        return lower(find_call, functools.partial(original, *arguments, **keywords))

    return adjusted


def adjust_compilation(compile_fx: Any, compile_with: Callable[[Any, Callable[[], Any]], Any]) -> None:
    """Calls ``compile_with(graph_module, compile_graph)`` instead of each graph's compilation.

    ``compile_fx`` is torch's module. Compilation changes the graph of the module. (torch 2.11, 2.13, 2.15)
    """
    original = compile_fx.fx_codegen_and_compile

    @functools.wraps(original)
    def adjusted(graph_module: Any, *arguments: Any, **keywords: Any) -> Any:
        return compile_with(graph_module, functools.partial(original, graph_module, *arguments, **keywords))

    compile_fx.fx_codegen_and_compile = adjusted


def mark_code(text: str) -> None:
    """Adds a comment to the code of the graph that is being lowered.

    Inductor's caches keep the comment with the code.
    """
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    while hasattr(graph, "parent"):
        graph = graph.parent
    texts: list[str] | None = vars(graph).get(_TEXTS)
    if texts is None:
        texts = vars(graph)[_TEXTS] = []
        graph.codegen = functools.partial(_generate, graph.codegen, texts, aot=bool(graph.aot_mode))
    if text not in texts:
        texts.append(text)


_TEXTS = "inductor_bench_texts"


def _generate(original: Callable[[], Any], texts: Sequence[str], *, aot: bool) -> Any:
    generated = original()
    with contextlib.suppress(AttributeError, IndexError, TypeError):  # code of another kind
        code = generated[0].value
        if isinstance(code, str) and not aot:  # ahead of time it is C++, and no process of Python loads it
            generated[0].value = "\n".join([code, *(f"# {MARK} {text}" for text in texts), ""])
    return generated


def read_marks(code: str) -> list[str]:
    """The texts of :func:`mark_code` in generated code."""
    return _MARKED.findall(code)
