"""Inductor's choices for a product or a convolution under max-autotune: listed, named, and taken. (2.11, 2.13, 2.15)"""

from __future__ import annotations

import ast
import contextlib
import functools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...records.retune import Config, InputLayout

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
def autotuned(choose: Choose, *, exhaustive: bool, cutlass: bool = False) -> Iterator[None]:
    """Lowers calls in the block as max-autotune does; ``choose`` is given the choices of each before they are timed.

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
    """The first choice with these fields, which :func:`name_choices` gave it; ``None`` if there is none.

    Another list of choices may name it by fewer fields, or by more.
    """
    return next((one for one in callers if config.items() <= _fields(one).items()), None)


def name_choices(callers: Sequence[Any]) -> list[tuple[Config, Any]]:
    """Unique configurations of the distinct choices: their tile if that is unique, otherwise all their fields."""
    named: list[tuple[Config, Any]] = []
    for caller in callers:
        config = _fields(caller)
        if all(config != other for other, _ in named):
            named.append((config, caller))
    short = [_describe_kind(caller) | _tile(config) for config, caller in named]
    counts = Counter(map(repr, short))
    return [
        (brief if counts[repr(brief)] == 1 else config, caller)
        for brief, (config, caller) in zip(short, named, strict=True)
    ]


def _fields(caller: Any) -> Config:
    return _describe_kind(caller) | _parse_fields(caller)


def _tile(config: Config) -> Config:
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


def original_call(callers: Sequence[Any], operator: str) -> Any:
    """The choice that is the library call itself; the first one if there is none."""
    name = operator.partition(".")[2]
    same = [one for one in callers if _describe_kind(one) == {"backend": "aten", "call": name}]
    return (same or list(callers))[0]


@dataclass(frozen=True)
class LoweredCall:
    """A call of an operator that Inductor is about to lower."""

    operator: str  # its name, for example ``aten.mm``
    tensors: Sequence[Any]  # the tensors among its arguments
    settings: Config  # its other arguments, by their position or their name


def sizes_of(tensors: Sequence[Any]) -> list[tuple[str, tuple[int, ...]]] | None:
    """The element types and sizes of tensors that are being lowered; ``None`` if sizes are symbols."""
    try:
        return [(str(one.get_dtype()).removeprefix("torch."), tuple(map(int, one.get_size()))) for one in tensors]
    except TypeError:
        return None


def layouts_of(caller: Any) -> list[InputLayout] | None:
    """The layouts of a choice's inputs; ``None`` if sizes are symbols."""
    sizes = sizes_of(caller.input_nodes)
    try:
        strides = [tuple(map(int, one.get_stride())) for one in caller.input_nodes]
    except TypeError:
        return None
    if sizes is None:
        return None
    return [InputLayout.of(*size, stride) for size, stride in zip(sizes, strides, strict=True)]


def settings_of(operator: str, settings: Config) -> Config:
    """Settings by the names of the operator's arguments, defaults included, as JSON has them.

    Args:
        operator: the name of the operator.
        settings: by the position or the name of an argument; those of overloads with more arguments keep theirs.
    """
    import torch

    arguments: Any = getattr(torch.ops.aten, operator.partition(".")[2]).default._schema.arguments
    names = {str(place): one.name for place, one in enumerate(arguments)}
    found = {one.name: one.default_value for one in arguments if "Tensor" not in str(one.type)}
    found |= {names.get(place, place): value for place, value in settings.items()}
    plain = {name: _plain(value) for name, value in found.items()}
    return {name: value for name, value in plain.items() if value is not None}


def _plain(value: Any) -> Any:
    """A setting as ``Argument.plain`` has it; one that has no such form is described."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
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
            lowerings[overload] = _adjusted(operator, original, lower)


def _adjusted(operator: str, original: Callable[..., Any], lower: Lower) -> Callable[..., Any]:
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

    ``compile_fx`` is torch's module. Compilation changes the graph of the module. (2.11, 2.13, 2.15)
    """
    original = compile_fx.fx_codegen_and_compile

    @functools.wraps(original)
    def adjusted(graph_module: Any, *arguments: Any, **keywords: Any) -> Any:
        return compile_with(graph_module, functools.partial(original, graph_module, *arguments, **keywords))

    compile_fx.fx_codegen_and_compile = adjusted


def mark_code(text: str) -> None:
    """Adds a comment to the code of the graph that is being lowered, which goes with it into Inductor's caches."""
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
