"""Reads a compiled module as text and syntax tree, without importing or running it."""

from __future__ import annotations

import ast
import functools
import re

from ...errors import InductorBenchError
from ...records.code.source import CallSite, KernelDefinition, ModuleSource
from .calls import find_entry, read_calls
from .cpp_text import read_threads, read_vector_lanes
from .cpp_wrapper import read_wrapped_calls, read_wrapped_definitions
from .damage import find_undefined, is_cut_short
from .definitions import Definition, describe_kernel, is_kernel_file, read_definitions, read_multi_kernels
from .header import read_header
from .inputs import read_inputs
from .syntax import parse

_CAPTURE_HINT = "a compiled module is what a 'Compiled module path:' line names"
_INDUCTOR = re.compile(r"\bAsyncCompile\(\)|\bCppWrapperCodeCache\b|^ +args\.clear\(\)", re.MULTILINE)


@functools.lru_cache(maxsize=4)  # reading a module of hundreds of kernels takes a second
def read_module(text: str) -> ModuleSource:
    """The facts that the text of a compiled module holds. The last four results are cached.

    Raises:
        InductorBenchError: the text is not a compiled module; the message says what it is, where that is known.
    """
    tree = parse_module(text)
    lines = text.splitlines()
    header = read_header(text)
    if header.cpp_wrapper:
        definitions = read_wrapped_definitions(tree)
        calls = read_wrapped_calls(tree, [kernel.name for kernel in definitions])
    else:
        definitions = read_definitions(tree, lines)
        calls = read_calls(tree, lines, [kernel.name for kernel in definitions], read_multi_kernels(tree))
    kernels = _describe(definitions, calls)
    cpp = [kernel.source for kernel in kernels if kernel.language == "cpp"]
    return ModuleSource(
        role=header.role,
        graph_number=header.graph_number,
        device=header.device,
        dynamic=header.dynamic,
        unbacked=header.unbacked,
        frozen=header.frozen,
        cpp_wrapper=header.cpp_wrapper,
        has_harness=header.has_harness,
        threads=read_threads(cpp),
        vector_lanes=read_vector_lanes(cpp),
        kernels=kernels,
        calls=calls,
        inputs=read_inputs(tree),
        undefined=find_undefined(tree),
        cut_short=is_cut_short(tree),
    )


@functools.lru_cache(maxsize=1)  # a module is read several times in succession: its kernels, then its launches
def parse_module(text: str) -> ast.Module:
    """The syntax tree of a compiled module. Callers must not change it, because it is cached.

    Raises:
        InductorBenchError: the text is not a compiled module.
    """
    try:
        tree = parse(text)
    except InductorBenchError as error:
        raise InductorBenchError(
            f"not a compiled module: {error.message}", f"it may be cut short or edited; {_CAPTURE_HINT}"
        ) from None
    if is_kernel_file(tree):
        raise InductorBenchError(
            "this is the file of a single Triton kernel, not a compiled module",
            f"give the module that calls it; {_CAPTURE_HINT}",
        )
    if not _INDUCTOR.search(text):
        raise InductorBenchError("not a compiled module: nothing in it was written by Inductor", _CAPTURE_HINT)
    if find_entry(tree) is None and "CppWrapperCodeCache" not in text:
        raise InductorBenchError(
            "not a whole compiled module: it has no function `call`", f"it may be cut short or edited; {_CAPTURE_HINT}"
        )
    return tree


def _describe(definitions: tuple[Definition, ...], calls: tuple[CallSite, ...]) -> tuple[KernelDefinition, ...]:
    ops: dict[str, set[str]] = {}
    for call in calls:
        for name in (call.kernel, *call.alternatives):
            if name is not None:
                ops.setdefault(name, set()).update(call.aten_ops)
    return tuple(describe_kernel(definition, ops.get(definition.name, ())) for definition in definitions)
