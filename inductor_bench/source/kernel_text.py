"""Reads the text of generated kernels: threads and vector widths of C++, and the buffers that a kernel writes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..errors import InductorBenchError
from .syntax import parse

# Reads the text of C++ kernels: fixed numbers of threads, vector widths, profiler marks and functions.


_THREADS = (
    re.compile(r"\bnum_threads\((\d+)\)"),
    re.compile(r"\bnum_threads?\s*=\s*(\d+)\s*;"),
    re.compile(r"\btid\s*<\s*(\d+)\b"),
)
_ARRAY = re.compile(r"\b(\w+_arr)\[(\d+)\]")
_BY_THREAD = re.compile(r"\b(\w+_arr)\[tid\]")
_MARK = re.compile(r"RAIIAtenRecordFunctionHandle\s+record_|\bRECORD_FUNCTION\(")
# The load of a whole vector has a plain literal; the load at the end of a row has an index expression (``8L``).
_LOAD = re.compile(
    r"Vectorized<(?:at::|c10::)?(float|BFloat16|bfloat16|Half|half)>::loadu\([^;]*?"
    r",\s*(?:static_cast<int64_t>\()?(\d+)\)?(?:,[^;]*?)?\);"
)
_STEP = re.compile(r"\+=\s*(?:static_cast<int64_t>\()?\(?(\d+)L?\)")
_ROOT = re.compile(r"\b(?:r?sqrt(?:_rn)?|log(?:2|10|1p)?|pow)f?\(")
_ROOT_OPERATOR = re.compile(r"batch_norm|\.(?:r?sqrt|log(?:2|10|1p)?|pow)_?\.")
_EXTERN_C = re.compile(r'extern "C"\s+[\w\s]*?\bvoid\s+(\w+)\(')


def read_threads(sources: Iterable[str]) -> int | None:
    """The fixed number of OpenMP threads of the kernels; ``None`` if any number works.

    It is also the size of arrays with an element per thread. Arrays with an element per vector lane have similar names.
    """
    found = []
    for text in sources:
        found += [int(number) for pattern in _THREADS for number in pattern.findall(text)]
        by_thread = set(_BY_THREAD.findall(text))
        found += [int(number) for name, number in _ARRAY.findall(text) if name in by_thread]
    return max(found, default=None)


def read_vector_lanes(sources: Iterable[str]) -> int | None:
    """The number of float32 values in one vector step; ``None`` if no kernel is vectorised."""
    vectorised = [text for text in sources if "at::vec::Vectorized<" in text]
    wide = {"full": set[int](), "half": set[int]()}
    for text in vectorised:
        # A vector of 16-bit values becomes one vector of float32, or two if the loop steps by 16-bit lanes.
        halves = 1 if "convert<float>(" in text and "convert<float,2," not in text else 2
        for kind, number in _LOAD.findall(text):
            wide["full" if kind == "float" else "half"].add(int(number) // (1 if kind == "float" else halves))
    steps = {int(number) for text in vectorised for number in _STEP.findall(text)} - {1}
    if wide["full"]:
        return max(wide["full"])
    if wide["half"]:
        return max(wide["half"])
    return max(steps, default=None)


def has_profile_mark(text: str) -> bool:
    """Whether the text of a C++ kernel holds a mark by which the profiler records its calls."""
    return _MARK.search(text) is not None


def wants_positive(operator: str, source: str) -> bool:
    """Whether a call takes roots, logarithms or powers, which are NaN for negative numbers.

    Args:
        operator: the overload of a library call, such as ``aten.pow.Tensor_Scalar``; empty for a generated kernel.
        source: the text of a generated kernel.
    """
    return _ROOT_OPERATOR.search(operator) is not None or _ROOT.search(source) is not None


def find_cpp_functions(text: str) -> Iterator[tuple[str, str, int]]:
    """Name, source and offset of each function with C linkage that ``text`` defines, without prototypes."""
    for match in _EXTERN_C.finditer(text):
        brace, semicolon = text.find("{", match.end()), text.find(";", match.end())
        if brace < 0 or 0 <= semicolon < brace:
            continue
        end = _closing_brace(text, brace)
        yield match.group(1), text[match.start() : end], match.start()


def _closing_brace(text: str, start: int) -> int:
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(text)


# Finds the buffers that a generated kernel writes, from its signature and its text.


CPP_SIGNATURE = re.compile(r'extern\s+"C"[^(;"]*\bkernel\s*\(([^)"]*)\)')
_GENERATED = re.compile(r"(?:(?:in|out|in_out)_ptr\d+|(?:ws|sem)_ptr\d*)")
_LIBRARIES = {"tl", "triton_helpers", "libdevice", "tl_math", "math", "triton", "range", "min", "max", "print"}


@dataclass(frozen=True)
class Buffer:
    """A pointer in a kernel's signature."""

    name: str  # the parameter
    written: bool  # whether the kernel may write the buffer
    output_only: bool = False  # whether the kernel never reads what the buffer held before
    cleared: bool = False  # whether the buffer (a workspace or semaphores) holds zeros before each launch


def cpp_buffers(source: str) -> tuple[Buffer, ...] | None:
    """The pointers of a C++ kernel in order; ``None`` if its entry function is not found."""
    match = CPP_SIGNATURE.search(source)
    if match is None:
        return None
    adds = "atomic_add" in source
    buffers = []
    for parameter in match.group(1).split(","):
        if "*" in parameter:
            name = re.split(r"[\s*&]+", parameter.strip())[-1]
            written = "const" not in parameter.split("*")[0].split()
            buffers.append(Buffer(name, written, written and name.startswith("out_ptr") and not adds))
    return tuple(buffers)


def triton_buffers(signature: Mapping[str, str], mutated: frozenset[str], source: str | None) -> tuple[Buffer, ...]:
    """The pointers of a Triton kernel in order.

    Args:
        signature: Triton's type by parameter, for example ``*fp32``.
        mutated: the parameters that Inductor marks as updated in place.
        source: the text of the kernel and its helper functions. It is needed only for templates and user-defined
            kernels, whose parameters may have any name; without it all of their buffers count as written.
    """
    names = [name for name, kind in signature.items() if kind.startswith("*")]
    generated = {name for name in names if _GENERATED.fullmatch(name)}
    stored: frozenset[str] = frozenset()
    if len(generated) < len(names):
        found = stored_parameters(source, frozenset(signature)) if source else None
        stored = frozenset(names) if found is None else found
    return tuple(
        Buffer(
            name,
            written=not name.startswith("in_ptr") if name in generated else name in mutated or name in stored,
            output_only=name in generated and name.startswith("out_ptr") and name not in mutated,
            cleared=name in generated and name.startswith(("ws_ptr", "sem_ptr")),
        )
        for name in names
    )


def stored_parameters(source: str, parameters: frozenset[str]) -> frozenset[str] | None:
    """The pointer parameters through which the kernel in a Triton source may store.

    The kernel is the function with all of ``parameters``. A pointer argument of a function outside the text counts as
    stored through. ``None`` if the source cannot be read or holds no such function.
    """
    try:
        tree = parse(source)
    except InductorBenchError:
        return None
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for function in functions.values():
        if parameters <= set(_parameters(function)):
            return _Stores(functions).of(function)
    return None


def _parameters(function: ast.FunctionDef) -> list[str]:
    return [argument.arg for argument in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


class _Stores:
    """Follows pointers through assignments and helper functions to stores."""

    def __init__(self, functions: Mapping[str, ast.FunctionDef]) -> None:
        self._functions = functions
        self._known: dict[str, frozenset[str]] = {}

    def of(self, function: ast.FunctionDef) -> frozenset[str]:
        if function.name in self._known:
            return self._known[function.name]
        self._known[function.name] = frozenset()  # ends the recursion of a function that calls itself
        origins: dict[str, frozenset[str]] = {name: frozenset({name}) for name in _parameters(function)}
        assignments = [
            node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)
        ]
        size = -1
        while size != sum(map(len, origins.values())):  # repeated, because a loop may carry a pointer to earlier lines
            size = sum(map(len, origins.values()))
            for node in assignments:
                found = _origins(node.value, origins) if node.value is not None else frozenset()
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    for name in (part.id for part in ast.walk(target) if isinstance(part, ast.Name)):
                        origins[name] = origins.get(name, frozenset()) | found
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        stored = frozenset().union(*(self._stored_by(call, origins) for call in calls))
        self._known[function.name] = frozenset(stored & set(_parameters(function)))
        return self._known[function.name]

    def _stored_by(self, call: ast.Call, origins: Mapping[str, frozenset[str]]) -> frozenset[str]:
        function = call.func
        arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
        if isinstance(function, ast.Attribute):
            owner = _root(function)
            is_method = owner is None or owner in origins
            if "store" in function.attr or function.attr.startswith("atomic_"):
                return _origins(function.value if is_method else arguments[0], origins) if arguments else frozenset()
            return frozenset() if is_method or owner in _LIBRARIES else _all(arguments, origins)
        if not isinstance(function, ast.Name) or function.id in _LIBRARIES:
            return frozenset()
        helper = self._functions.get(function.id)
        if helper is None:
            return _all(arguments, origins)
        names = _parameters(helper)
        given = {**dict(zip(names, call.args, strict=False)), **{k.arg: k.value for k in call.keywords if k.arg}}
        return _all([given[name] for name in self.of(helper) if name in given], origins)


def _root(node: ast.expr) -> str | None:
    """The first name of a dotted expression."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _all(nodes: list[ast.expr], origins: Mapping[str, frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*(_origins(node, origins) for node in nodes))


def _origins(node: ast.AST, origins: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """The parameters from which an expression is computed, without those behind a load from memory."""
    if isinstance(node, ast.Name):
        return origins.get(node.id, frozenset())
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and "load" in node.func.attr:
        return frozenset()
    return frozenset().union(*(_origins(child, origins) for child in ast.iter_child_nodes(node)))
